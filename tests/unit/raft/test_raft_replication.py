"""Replication: what is committed when, what a follower takes, and how it catches up."""

import random

import pytest

from kvstore.raft.config import Config
from kvstore.raft.model import (
    ConfChange,
    ConfChangeType,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    RaftError,
    Role,
    Snapshot,
    SnapshotMetadata,
)
from kvstore.raft.rawnode import RawNode
from kvstore.raft.ready import InitialState, ProposeOutcome
from tests.support.raft.node import Driven, Group, lone_leader, new_cluster


def entries(first: int, *terms: int) -> list[Entry]:
    return [Entry(EntryType.NORMAL, term, index, b"x") for index, term in enumerate(terms, first)]


def follower(*terms: int, commit: int = 0, term: int = 5) -> Driven:
    """Member 1 of three, following 2, with a log of these terms."""
    state = InitialState(
        HardState(term, 0, commit), ConfState((1, 2, 3)), entries=entries(1, *terms)
    )
    return Driven(RawNode(Config(1), state, random.Random(1)))


def append(
    driven: Driven, previous: tuple[int, int], *terms: int, commit: int = 0, term: int = 5
) -> Message:
    """Send an append of entries after previous (term, index), and return the answer."""
    sent = Message(
        MessageType.APP,
        1,
        2,
        term,
        log_term=previous[0],
        index=previous[1],
        entries=entries(previous[1] + 1, *terms),
        commit=commit,
    )
    driven.raft.step(sent)
    driven.settle()
    (answer,) = driven.take_sent()
    assert answer.type == MessageType.APP_RESP
    return answer


def terms_of(driven: Driven) -> list[int | None]:
    raft = driven.raft
    return [raft.term_at(index) for index in range(raft.first_index, raft.last_index + 1)]


def test_all_members_apply_the_same() -> None:
    """What a leader commits is applied by all, in its order (Raft 5.3)."""
    group = Group(1, 2, 3)
    group.elect(1)
    group.propose(1, b"a", b"b")
    group.propose(2, b"c")
    group.propose(1, b"d")
    assert [node.data() for node in group.nodes.values()] == [[b"a", b"b", b"c", b"d"]] * 3
    assert {node.hard_state.commit for node in group.nodes.values()} == {group[1].raft.committed}


def test_nothing_commits_without_a_majority() -> None:
    """An entry on a minority is not committed, and is replaced if its leader is (Raft 5.3)."""
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {1}
    group.propose(1, b"lost")
    assert group[1].data() == []
    group.elect(2)
    group.propose(2, b"kept")
    group.cut = set()
    group[2].raft.tick()
    group.settle()
    assert [node.data() for node in group.nodes.values()] == [[b"kept"]] * 3
    assert group[1].raft.role is Role.FOLLOWER


def test_entries_of_older_terms_commit_with_one_of_the_current_term() -> None:
    """A leader does not commit an older term's entry by counting: it might still be replaced; its
    own empty entry takes it along (Raft 5.4.2, figure 8).
    """
    state = InitialState(HardState(2, 0, 0), ConfState((1, 2, 3)), entries=entries(1, 2))
    driven = Driven(RawNode(Config(1), state, random.Random(1)))
    raft = driven.raft
    raft.campaign()
    driven.settle()
    raft.step(Message(MessageType.PRE_VOTE_RESP, 1, 2, 3))
    driven.settle()
    raft.step(Message(MessageType.VOTE_RESP, 1, 2, 3))
    driven.settle()
    assert raft.is_leader
    raft.step(Message(MessageType.APP_RESP, 1, 2, 3, index=1))
    assert raft.committed == 0
    raft.step(Message(MessageType.APP_RESP, 1, 2, 3, index=2))
    assert raft.committed == 2


def test_append_needs_the_entry_before() -> None:
    """A follower takes an append only where its log agrees just before it (Raft 5.3)."""
    driven = follower(1, 1, 2)
    missing = append(driven, (3, 5), 3)
    assert (missing.reject, missing.index, missing.reject_hint, missing.log_term) == (True, 5, 3, 2)
    differs = append(driven, (3, 3), 3)
    assert (differs.reject, differs.index, differs.reject_hint) == (True, 3, 3)
    assert terms_of(driven) == [1, 1, 2]
    assert append(driven, (1, 2), 3, 3).index == 4
    assert terms_of(driven) == [1, 1, 3, 3]


def test_an_append_of_known_entries_truncates_nothing() -> None:
    """An old append may come after newer ones: what follows it stays (Raft 5.3, the note on
    reordered calls).
    """
    driven = follower(1, 1, 2, 2)
    assert append(driven, (1, 1), 1).index == 2
    assert terms_of(driven) == [1, 1, 2, 2]
    assert append(driven, (0, 0), 1, 1, 3).index == 3
    assert terms_of(driven) == [1, 1, 3]


def test_commit_is_not_beyond_what_was_checked() -> None:
    """A follower commits no further than the last entry it knows it shares (Raft figure 2)."""
    driven = follower(1, 1, 2, 2)
    append(driven, (1, 2), commit=4)
    assert driven.raft.committed == 2
    append(driven, (1, 2), 3, commit=9)
    assert driven.raft.committed == 3
    answer = append(driven, (1, 1), 1)
    assert answer.index == 3  # before the commit index all is shared


def test_an_acknowledgement_follows_the_save() -> None:
    """An acknowledgement leaves only after what it acknowledges is saved (Raft figure 2)."""
    driven = follower(1)
    driven.raft.step(Message(MessageType.APP, 1, 2, 5, log_term=1, index=1, entries=entries(2, 5)))
    ready = driven.raft.ready()
    assert ready is not None
    assert ready.must_sync
    assert ready.messages_early == []
    assert [message.index for message in ready.messages_late] == [2]
    assert ready.entries == entries(2, 5)


def test_one_acknowledgement_for_many_appends() -> None:
    """A turn's appends are acknowledged once, by the last index."""
    driven = follower(1)
    for index in range(1, 4):
        message = Message(
            MessageType.APP, 1, 2, 5, log_term=1, index=index, entries=entries(index + 1, 1)
        )
        driven.raft.step(message)
    driven.settle()
    assert [message.index for message in driven.take_sent()] == [4]


def test_a_turn_sends_each_entry_once() -> None:
    """Several proposals and acknowledgements of one turn make one append to each follower."""
    group = Group(1, 2, 3)
    leader = group.elect(1)
    for data in (b"a", b"b", b"c"):
        leader.raft.propose([data])
    leader.round()
    sent = leader.take_sent()
    assert [(message.to, len(message.entries)) for message in sent] == [(2, 3), (3, 3)]


def test_leader_sends_before_its_own_disk() -> None:
    """A leader may send entries to others while it writes them itself (Raft thesis 10.2.1); not
    before its term is saved.
    """
    group = Group(1, 2, 3)
    leader = group.elect(1)
    leader.raft.propose([b"a"])
    ready = leader.raft.ready()
    assert ready is not None
    assert len(ready.messages_early) == 2
    assert ready.messages_late == []
    leader.work(ready)
    leader.raft.advance(ready)
    assert leader.raft.committed == leader.raft.last_index - 1  # its own copy is no majority


def test_two_followers_commit_before_the_leaders_disk() -> None:
    """A majority without the leader commits too; the leader applies only what it has saved."""
    group = Group(1, 2, 3)
    leader = group.elect(1)
    term, index = leader.raft.term, leader.raft.propose([b"a"]).first_index
    for member in (2, 3):
        leader.raft.step(Message(MessageType.APP_RESP, 1, member, term, index=index))
    assert leader.raft.committed == index
    ready = leader.raft.ready()
    assert ready is not None
    assert [entry.index for entry in ready.entries] == [index]
    assert ready.committed == []


def test_a_snapshot_catches_up_a_follower_that_is_too_far_behind() -> None:
    """Who needs what is compacted gets a snapshot, then the log from there (Raft 7)."""
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {3}
    group.propose(1, b"a", b"b", b"c")
    leader = group[1].raft
    leader.compact(leader.applied)
    group.propose(1, b"d")
    group.cut = set()
    leader.tick()
    group.settle()
    assert group[3].snapshot == SnapshotMetadata(ConfState((1, 2, 3)), 8, 2)
    group.propose(1, b"e")
    assert group[3].data() == [b"e"]
    assert group[3].raft.committed == leader.committed
    assert leader.status().progress[3].match == leader.last_index


def test_snapshot_of_the_past_or_within_the_log() -> None:
    """A snapshot behind the commit index is ignored; one the log has as entries only commits."""
    driven = follower(1, 1, 2, 2, commit=2)
    for index, term, committed in ((1, 1, 2), (3, 2, 3)):
        metadata = SnapshotMetadata(ConfState((1, 2, 3)), index, term)
        driven.raft.step(Message(MessageType.SNAP, 1, 2, 5, snapshot=Snapshot(metadata)))
        driven.settle()
        (answer,) = driven.take_sent()
        assert answer.index == committed
    assert terms_of(driven) == [1, 1, 2, 2]
    assert driven.snapshot.index == 0


def test_snapshot_brings_the_configuration() -> None:
    """A snapshot replaces log and configuration; until it is applied the member does not vote for
    itself, and its entries wait.
    """
    driven = follower(1, 1, 2, 2, commit=2)
    raft = driven.raft
    metadata = SnapshotMetadata(ConfState((1, 2), (4,)), 9, 4)
    raft.step(Message(MessageType.SNAP, 1, 2, 5, snapshot=Snapshot(metadata, b"state")))
    raft.step(Message(MessageType.APP, 1, 2, 5, log_term=4, index=9, entries=entries(10, 5)))
    raft.campaign()
    assert raft.role is Role.FOLLOWER
    ready = raft.ready()
    assert ready is not None
    assert ready.snapshot == Snapshot(metadata, b"state")
    assert ready.must_sync
    assert ready.entries == entries(10, 5)
    assert ready.committed == []
    assert [message.index for message in ready.messages_late] == [10]
    assert raft.applied == 0
    raft.advance(ready)
    assert (raft.applied, raft.applied_term, raft.conf_state) == (9, 4, metadata.conf_state)
    assert raft.create_snapshot_metadata(9) == metadata


def test_metadata_is_only_given_where_the_configuration_is_known() -> None:
    """A snapshot must have the configuration at its index."""
    driven = new_cluster(1, 2, own_id=1)
    with pytest.raises(RaftError, match="no snapshot at 1: the configuration is known from 2 on"):
        driven.raft.create_snapshot_metadata(1)
    assert driven.raft.create_snapshot_metadata(2).conf_state == ConfState((1, 2))
    with pytest.raises(RaftError):
        driven.raft.create_snapshot_metadata(3)


def test_forwarded_proposals_travel_in_bounded_messages() -> None:
    """A follower passes a batch on in messages of limited size, and nothing is lost or swapped."""
    group = Group(1, 2, max_size_per_message=100)
    group.elect(1)
    datas = [b"%03d" % number + bytes(30) for number in range(10)]
    assert group[2].raft.propose(datas).outcome is ProposeOutcome.FORWARDED
    ready = group[2].raft.ready()
    assert ready is not None
    assert [len(message.entries) for message in ready.messages_late] == [1] * 10
    group[2].work(ready)
    group[2].raft.advance(ready)
    for message in group[2].take_sent():
        group[1].raft.step(message)
    group.settle()
    assert group[1].data() == group[2].data() == datas


def test_reads_are_bounded() -> None:
    """The number of waiting reads is limited; more are dropped with a warning."""
    group = Group(1, 2, 3, max_pending_reads=2)
    leader = group.elect(1)
    group.cut = {1}
    for number in range(3):
        leader.raft.read_index(b"%d" % number)
    group.settle()
    assert leader.reads == []
    assert leader.warnings == ["read-index request dropped: 2 are waiting already"]
    group.cut = set()
    leader.raft.tick()
    group.settle()
    assert leader.reads == [(4, b"0"), (4, b"1")]


def test_a_deposed_leader_answers_no_read() -> None:
    """A read is answered only after a quorum has confirmed the leader (Raft 8)."""
    group = Group(1, 2, 3)
    group.elect(1)
    group.cut = {1}
    group.elect(2)
    group[1].raft.read_index(b"stale")
    group.settle()
    group.cut = set()
    group[1].raft.tick()
    group[2].raft.tick()
    group.settle()
    assert group[1].reads == []
    assert group[1].raft.lead == 2


def test_an_added_member_is_not_counted_before_it_is_applied() -> None:
    """A change is in force when its entry is applied; the new member is then sent the log."""
    group = Group(1, 2)
    group.elect(1)
    newcomer = Driven(RawNode(Config(3), InitialState(), random.Random(3)))
    group.nodes[3] = newcomer
    group[1].raft.propose_conf_change(ConfChange(1, 0, 3))
    group.settle()
    assert newcomer.raft.conf_state == ConfState((1, 2, 3))
    assert newcomer.raft.lead == 1
    group.cut = {2}
    group.propose(1, b"a")
    assert newcomer.data() == [b"a"]


# A leader's own disk, and commit notifications.


def test_committed_entries_do_not_wait_for_a_leaders_deferred_save() -> None:
    """A leader may write to its own disk in parallel with its followers (Raft thesis, 10.2.1)."""
    group = Group(1, 2, 3)
    group[1].raft.campaign()
    group.settle()
    leader = group[1].raft
    leader.propose([b"a"])
    group[1].round()
    for message in group[1].take_sent():
        group[message.to].raft.step(message)
        group[message.to].settle()
        for answer in group[message.to].take_sent():
            leader.step(answer)
    leader.propose([b"b"])
    assert leader.can_defer_save
    ready = leader.ready(may_save=False)
    assert ready is not None
    assert [entry.data for entry in ready.committed] == [b"a"]
    assert (ready.entries, ready.hard_state, ready.must_sync) == ([], None, False)
    sent = [entry.data for message in ready.messages_early for entry in message.entries]
    assert sent == [b"b", b"b"]
    group[1].work(ready)
    leader.advance(ready)
    assert leader.ready(may_save=False) is None  # nothing but the save is left
    rest = group[1].round()
    assert rest is not None
    assert [entry.data for entry in rest.entries] == [b"b"]
    assert rest.hard_state is not None
    assert rest.hard_state.commit == leader.applied
    assert not leader.can_defer_save


def test_only_a_leader_of_others_defers_its_save() -> None:
    group = Group(1, 2, 3)
    group[1].raft.campaign()
    group.settle()
    group[1].raft.propose([b"a"])
    group[1].round()
    (append,) = [each for each in group[1].take_sent() if each.to == 2]
    follower = group[2].raft
    follower.step(append)
    assert not follower.can_defer_save
    taken = follower.ready(may_save=False)
    assert taken is not None
    assert [entry.data for entry in taken.entries] == [b"a"]
    alone = lone_leader().raft
    alone.propose([b"a"])
    assert not alone.can_defer_save
    ready = alone.ready(may_save=False)
    assert ready is not None
    assert ready.entries == ready.committed != []


def test_commit_notifications_are_made_by_the_caller() -> None:
    group = Group(1, 2, 3, notifies_commits=False)
    group[1].raft.campaign()
    group.settle()
    leader = group[1].raft
    leader.commit_notifications()
    assert not leader.owes_commit_notification
    leader.propose([b"a"])
    group.settle()
    assert leader.applied == leader.last_index
    assert group[2].raft.committed < leader.committed
    assert leader.owes_commit_notification
    word = leader.commit_notifications()
    assert [(each.to, each.entries, each.commit) for each in word] == [
        (2, [], leader.committed),
        (3, [], leader.committed),
    ]
    assert not leader.owes_commit_notification
    assert leader.commit_notifications() == []


def test_the_commit_of_a_change_of_members_is_sent_at_once() -> None:
    """A removed member would not be sent the commit index later."""
    group = Group(1, 2, 3, notifies_commits=False)
    group[1].raft.campaign()
    group.settle()
    group[1].raft.commit_notifications()
    change = ConfChange(0, ConfChangeType.REMOVE_NODE, 3, b"")
    assert group[1].raft.propose_conf_change(change).outcome is ProposeOutcome.ACCEPTED
    group.settle()
    assert group[3].raft.applied == group[1].raft.applied == group[1].raft.last_index


def test_late_acknowledgements_change_nothing() -> None:
    group = Group(1, 2, 3)
    group[1].raft.campaign()
    group.settle()
    leader = group[1].raft
    assert not leader.awaits_late_acknowledgements
    group.cut = {3}
    leader.propose([b"a"])
    group[1].round()
    assert not leader.awaits_late_acknowledgements  # the next acknowledgement commits
    for message in group[1].take_sent():
        if message.to == 2:
            group[2].raft.step(message)
    group.settle()
    assert leader.awaits_late_acknowledgements
    leader.transfer_leader(2)
    assert not leader.awaits_late_acknowledgements
