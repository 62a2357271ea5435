"""A cluster of one voter: the whole life of the interface without a peer."""

import random
from typing import Any

import pytest

from kvstore.raft.config import Config
from kvstore.raft.model import (
    ConfChange,
    ConfChangeType,
    ConfState,
    Entry,
    EntryType,
    HardState,
    RaftError,
    Role,
)
from kvstore.raft.rawnode import RawNode
from kvstore.raft.ready import InitialState, ProposeOutcome
from tests.support.raft.node import Driven, lone_leader, new_cluster


def test_log_of_a_fresh_cluster() -> None:
    """A new log begins with its members' entries in term 1, committed; then the term's empty entry.

    The entries, terms and hard states are those of a fresh etcd.
    """
    raft = RawNode(Config(7), InitialState(), random.Random(0))
    driven = Driven(raft)
    raft.bootstrap([ConfChange(0, ConfChangeType.ADD_NODE, 7, b"{}")])
    first = driven.round()
    assert first is not None
    assert first.hard_state == HardState(1, 0, 1)
    assert first.entries == [Entry(EntryType.CONF_CHANGE, 1, 1, b"\x10\x00\x18\x07\x22\x02{}")]
    assert first.must_sync
    assert first.committed == []
    driven.settle()
    assert raft.conf_state == ConfState(voters=(7,))
    assert raft.is_only_voter

    raft.campaign()
    vote = driven.round()
    assert vote is not None
    assert vote.hard_state == HardState(2, 7, 1)
    assert vote.must_sync
    driven.settle()
    assert raft.is_leader
    assert driven.saved[1:] == [Entry(EntryType.NORMAL, 2, 2, b"")]
    assert driven.hard_state == HardState(2, 7, 2)


def test_commit_with_the_save() -> None:
    """Alone, saving is committing: one round brings both, to be done in this order (Raft 5.3)."""
    driven = lone_leader()
    raft = driven.raft
    result = raft.propose([b"a", b"b"])
    assert result == (ProposeOutcome.ACCEPTED, 3, 2, "")
    assert raft.committed == 2  # not before there is a round that saves
    ready = raft.ready()
    assert ready is not None
    assert [entry.data for entry in ready.entries] == [b"a", b"b"]
    assert ready.committed == ready.entries
    assert ready.hard_state == HardState(2, 1, 4)
    assert ready.must_sync
    assert raft.applied == 2
    raft.advance(ready)
    assert raft.applied == 4
    assert raft.ready() is None


def test_commit_after_save_beside_a_learner() -> None:
    """A leader counts its own copy of an entry only once it is saved (Raft thesis 10.2.1)."""
    driven = lone_leader()
    raft = driven.raft
    raft.propose_conf_change(ConfChange(1, ConfChangeType.ADD_LEARNER_NODE, 2))
    driven.settle()
    index = raft.propose([b"a"]).first_index
    save = raft.ready()
    assert save is not None
    assert [entry.data for entry in save.entries] == [b"a"]
    assert save.committed == []
    assert raft.committed == index - 1
    raft.advance(save)
    assert raft.committed == index
    apply = raft.ready()
    assert apply is not None
    assert apply.committed == save.entries
    assert not apply.must_sync
    raft.advance(apply)


def test_committed_are_bounded() -> None:
    """A round brings no more to apply than its limit, but at least one entry."""
    driven = lone_leader(max_committed_size_per_ready=400)
    driven.raft.propose([bytes(100)] * 5 + [bytes(1000)])
    counts = [len(ready.committed) for ready in driven.settle() if ready.committed]
    assert counts == [3, 2, 1]
    assert len(driven.data()) == 6


def test_proposals_without_a_leader_are_refused() -> None:
    """A member that knows no leader refuses at once; nothing is appended."""
    driven = new_cluster(1, own_id=1)
    result = driven.raft.propose([b"a"])
    assert result.outcome is ProposeOutcome.NO_LEADER
    assert result.first_index == 0
    assert driven.raft.propose([]).outcome is ProposeOutcome.EMPTY
    assert driven.raft.last_index == 1


def test_uncommitted_tail_is_bounded() -> None:
    """A leader takes no more than its limit of uncommitted data, then takes it again."""
    driven = lone_leader(max_uncommitted_size=100)
    raft = driven.raft
    assert raft.propose([bytes(500)]).outcome is ProposeOutcome.ACCEPTED  # the tail was empty
    assert raft.propose([b"a"]).outcome is ProposeOutcome.UNCOMMITTED_FULL
    assert raft.propose([b""]).outcome is ProposeOutcome.ACCEPTED
    driven.settle()
    assert raft.propose([bytes(60), bytes(40)]).outcome is ProposeOutcome.ACCEPTED
    assert raft.propose([b"a"]).outcome is ProposeOutcome.UNCOMMITTED_FULL


def test_restart_continues_the_log() -> None:
    """A member continues from what was saved; a lost commit index loses nothing (Raft 5.1)."""
    before = lone_leader()
    before.raft.propose([b"a", b"b"])
    before.settle()
    state = InitialState(
        hard_state=HardState(2, 1, 2),  # the commit of a and b was not synced
        conf_state=ConfState(voters=(1,)),
        entries=before.saved,
        applied=3,  # but a was applied, and so is committed
    )
    after = Driven(RawNode(Config(1), state, random.Random(5)))
    assert after.raft.committed == 3
    after.settle()
    assert after.applied == []
    after.raft.campaign()
    after.settle()
    assert after.raft.term == 3
    assert after.data() == [b"b"]
    assert after.raft.last_index == 5


def test_read_index_waits_for_the_first_commit_of_the_term() -> None:
    """A new leader does not know what its predecessor committed until it has committed in its own
    term, and answers no read before (Raft thesis 6.4); a single voter after a restart likewise.
    """
    driven = new_cluster(1, own_id=1)
    raft = driven.raft
    assert not raft.read_index(b"early")
    assert raft.read_index_if_alone() is None
    raft.campaign()
    driven.round()
    assert raft.is_leader
    assert raft.read_index(b"r")
    assert raft.read_index_if_alone() is None
    assert driven.reads == []
    driven.settle()
    assert driven.reads == [(2, b"r")]
    assert raft.read_index_if_alone() == 2
    raft.read_index(b"s")
    driven.settle()
    assert driven.reads == [(2, b"r"), (2, b"s")]


def test_a_leader_with_another_voter_answers_no_read_at_once() -> None:
    driven = lone_leader()
    raft = driven.raft
    raft.propose_conf_change(ConfChange(1, ConfChangeType.ADD_NODE, 2))
    driven.settle()
    assert raft.is_leader
    assert not raft.is_only_voter
    assert raft.read_index_if_alone() is None


def test_compaction_keeps_the_boundary_term() -> None:
    """A compacted log still knows the term before its first entry (Raft 7)."""
    driven = lone_leader()
    raft = driven.raft
    raft.propose([b"a", b"b", b"c"])
    driven.settle()
    raft.compact(4)
    assert (raft.first_index, raft.last_index) == (5, 5)
    assert raft.term_at(4) == 2
    assert raft.term_at(3) is None
    assert raft.create_snapshot_metadata(5) == (ConfState(voters=(1,)), 5, 2)
    raft.compact(2)
    assert raft.first_index == 5
    raft.propose([b"d"])
    with pytest.raises(RaftError, match="cannot compact to 6: only 5"):
        raft.compact(6)


def test_rounds_are_strict() -> None:
    """A round is closed before the next is opened, and with its own Ready."""
    driven = lone_leader()
    driven.raft.propose([b"a"])
    ready = driven.raft.ready()
    assert ready is not None
    with pytest.raises(RaftError, match="has not been advanced"):
        driven.raft.ready()
    driven.raft.advance(ready)
    with pytest.raises(RaftError, match="not the Ready that is open"):
        driven.raft.advance(ready)


def test_conf_changes_one_at_a_time() -> None:
    """A second change waits until the first is applied (Raft thesis 4.1); a refused one is void."""
    driven = lone_leader()
    raft = driven.raft
    learner = ConfChange(1, ConfChangeType.ADD_LEARNER_NODE, 2)
    assert raft.propose_conf_change(learner).first_index == 3
    second = raft.propose_conf_change(ConfChange(2, ConfChangeType.ADD_NODE, 3))
    assert second.outcome is ProposeOutcome.CHANGE_UNDER_WAY
    assert "entry 3, applied 2" in second.reason
    driven.settle()
    assert raft.conf_state == ConfState(voters=(1,), learners=(2,))
    last = raft.propose_conf_change(ConfChange(3, ConfChangeType.REMOVE_NODE, 1))
    assert last.reason == "the change removes all voters"
    assert raft.apply_conf_change(ConfChange(4, 0, 0)) == raft.conf_state


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": 0}, "id 0 "),
        ({"id": 2**64}, "id 18446744073709551616 "),
        ({"heartbeat_tick": 0}, "heartbeat_tick 0 "),
        ({"election_tick": 1}, "election_tick 1 .* heartbeat_tick 1"),
        ({"max_inflight_messages": 0}, "max_inflight_messages 0 "),
        ({"max_uncommitted_size": -1}, "max_uncommitted_size -1 "),
    ],
)
def test_config_names_what_is_wrong(settings: dict[str, Any], message: str) -> None:
    """A setting that cannot be meant is refused with its name, value and limit."""
    with pytest.raises(RaftError, match=message):
        Config(**{"id": 1, **settings})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (InitialState(hard_state=HardState(1, 0, 1)), "commit 1 lies after"),
        (InitialState(entries=[Entry(0, 1, 2, b"")]), "entry 2 of term 1 cannot follow"),
        (
            InitialState(entries=[Entry(0, 2, 1, b""), Entry(0, 1, 2, b"")]),
            "entry 2 of term 1 cannot follow entry 1 of term 2",
        ),
        (InitialState(snapshot_index=5, snapshot_term=1, applied=4), "applied 4 lies before"),
        (InitialState(conf_state=ConfState((1,), (1,))), "voters and learners at once"),
    ],
)
def test_inconsistent_saved_state(state: InitialState, message: str) -> None:
    """A member does not start on a log with gaps."""
    with pytest.raises(RaftError, match=message):
        RawNode(Config(1), state, random.Random(0))


def test_terms_of_a_torn_tail_are_not_reused() -> None:
    """Entries saved without their term's hard state raise the term: terms never fall (Raft 5.1)."""
    state = InitialState(
        hard_state=HardState(1, 1, 1),
        conf_state=ConfState(voters=(1,)),
        entries=[Entry(0, 1, 1, b""), Entry(0, 4, 2, b"")],
    )
    raft = RawNode(Config(1), state, random.Random(0))
    assert raft.term == 4
    assert raft.status().vote == 0


def test_a_single_leader_does_not_step_down_over_time() -> None:
    """A single voter is a quorum by itself, however much time passes at once."""
    driven = lone_leader()
    driven.raft.tick_many(1000)
    driven.raft.tick()
    assert driven.raft.role is Role.LEADER
    with pytest.raises(RaftError):
        driven.raft.tick_many(-1)
