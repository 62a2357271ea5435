"""Elections: which candidates win, what a vote excludes, which leaders are not disturbed."""

import random

from kvstore.raft.config import Config
from kvstore.raft.model import (
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    Role,
)
from kvstore.raft.rawnode import RawNode
from kvstore.raft.ready import InitialState
from tests.support.raft.node import Driven, Group


def voter(term: int = 5, vote: int = 0, last_term: int = 3, last_index: int = 4) -> Driven:
    """Member 1 of three, with a log that ends at (last_term, last_index)."""
    entries = [Entry(EntryType.NORMAL, last_term, i, b"") for i in range(1, last_index + 1)]
    state = InitialState(HardState(term, vote, 0), ConfState((1, 2, 3)), entries=entries)
    return Driven(RawNode(Config(1), state, random.Random(1)))


def ask(driven: Driven, from_: int, term: int, last: tuple[int, int], **more: object) -> Message:
    """Ask for a vote and return the answer."""
    kind = MessageType.PRE_VOTE if more.pop("pre", False) else MessageType.VOTE
    driven.raft.step(Message(kind, 1, from_, term, log_term=last[0], index=last[1]))
    driven.settle()
    (answer,) = driven.take_sent()
    return answer


def test_one_vote_a_term() -> None:
    """A member votes for at most one candidate a term, first come first served (Raft 5.2)."""
    driven = voter()
    assert not ask(driven, 2, 6, (3, 4)).reject
    assert driven.hard_state == HardState(6, 2, 0)
    assert ask(driven, 3, 6, (3, 4)).reject
    assert not ask(driven, 2, 6, (3, 4)).reject  # asked again, answered again
    assert not ask(driven, 3, 7, (3, 4)).reject


def test_a_vote_survives_a_restart() -> None:
    """Term and vote are saved before the answer leaves (Raft 5.1, figure 2)."""
    driven = voter()
    driven.raft.step(Message(MessageType.VOTE, 1, 2, 6, log_term=3, index=4))
    ready = driven.raft.ready()
    assert ready is not None
    assert ready.must_sync
    assert ready.hard_state == HardState(6, 2, 0)
    assert ready.messages_early == []
    assert [message.type for message in ready.messages_late] == [MessageType.VOTE_RESP]
    assert ask(voter(term=6, vote=2), 3, 6, (3, 4)).reject


def test_votes_go_to_logs_that_are_up_to_date() -> None:
    """A candidate whose log is behind the voter's is refused (Raft 5.4.1)."""
    assert ask(voter(), 2, 6, (2, 9)).reject
    assert ask(voter(), 2, 6, (3, 3)).reject
    assert not ask(voter(), 2, 6, (3, 4)).reject
    assert not ask(voter(), 2, 6, (4, 1)).reject


def test_a_pre_vote_changes_no_state() -> None:
    """A pre-vote changes neither term nor vote, and is given to several (Raft thesis 9.6)."""
    driven = voter()
    first = ask(driven, 2, 6, (3, 4), pre=True)
    second = ask(driven, 3, 6, (3, 4), pre=True)
    assert (first.type, first.term, first.reject) == (MessageType.PRE_VOTE_RESP, 6, False)
    assert not second.reject
    assert driven.raft.term == 5
    assert driven.hard_state == HardState()  # nothing was saved
    behind = ask(driven, 2, 4, (3, 4), pre=True)
    assert (behind.term, behind.reject) == (5, True)


def test_messages_of_lower_terms_are_ignored() -> None:
    """A request of an older term is not answered; its sender gets the term otherwise."""
    driven = voter()
    driven.raft.step(Message(MessageType.VOTE, 1, 2, 4, log_term=9, index=9))
    assert driven.settle() == []


def test_grants_of_another_campaign_do_not_count() -> None:
    """Only answers to the term asked for count: late ones of an earlier campaign are void."""
    driven = voter()
    driven.raft.campaign()
    driven.settle()
    assert driven.raft.role is Role.PRE_CANDIDATE
    driven.raft.step(Message(MessageType.PRE_VOTE_RESP, 1, 2, 5))
    driven.raft.step(Message(MessageType.PRE_VOTE_RESP, 1, 3, 9))
    assert driven.raft.role is Role.PRE_CANDIDATE
    driven.raft.step(Message(MessageType.PRE_VOTE_RESP, 1, 3, 6))
    assert driven.raft.role is Role.CANDIDATE
    assert driven.raft.term == 6


def test_two_refusals_end_a_campaign() -> None:
    """A majority of refusals makes a candidate follow again, and wait for its next timeout."""
    driven = voter()
    driven.raft.campaign()
    driven.settle()
    for member in (2, 3):
        driven.raft.step(Message(MessageType.PRE_VOTE_RESP, 1, member, 5, reject=True))
    assert driven.raft.role is Role.FOLLOWER


def test_own_vote_counts_once_it_is_saved() -> None:
    """A candidate's vote for itself is saved like any other before it counts."""
    driven = voter()
    driven.raft.campaign()
    driven.settle()
    driven.raft.step(Message(MessageType.PRE_VOTE_RESP, 1, 2, 6))
    save = driven.raft.ready()
    assert save is not None
    assert save.hard_state == HardState(6, 1, 0)
    driven.raft.advance(save)
    assert driven.raft.role is Role.CANDIDATE
    driven.raft.step(Message(MessageType.VOTE_RESP, 1, 2, 6))
    assert driven.raft.is_leader


def test_votes_of_non_members_do_not_count() -> None:
    """Answers of those who are not members do not count."""
    driven = voter()
    driven.raft.campaign()
    driven.raft.step(Message(MessageType.PRE_VOTE_RESP, 1, 9, 6))
    assert driven.raft.role is Role.PRE_CANDIDATE


def test_a_leader_with_a_lease_is_not_disturbed() -> None:
    """A member whose leader was active recently ignores candidates (Raft 6)."""
    group = Group(1, 2, 3, pre_vote=0)
    group.elect(1)
    group.cut = {3}
    group[3].raft.tick_many(9)
    for _ in range(11):
        group[3].raft.tick()
    group.settle()
    term = group[3].raft.term
    assert term > group[1].raft.term
    group.cut = set()
    group[2].raft.tick()
    group[3].raft.campaign()
    group.settle()
    assert group[2].raft.term == group[1].raft.term == 2


def test_a_stuck_member_of_a_higher_term_frees_itself() -> None:
    """Without pre-vote a cut-off member comes back with a higher term; the leader's next word is
    answered with it, the leader steps down, and a new election takes everyone along.
    """
    group = Group(1, 2, 3, pre_vote=0)
    group.elect(1)
    group.cut = {3}
    for _ in range(20):
        group[3].raft.tick()
    group.settle()
    group.cut = set()
    group[1].raft.tick()
    group.settle()
    assert group[1].raft.role is Role.FOLLOWER
    assert group[1].raft.term == group[3].raft.term
    group.elect(2)
    assert {node.raft.lead for node in group.nodes.values()} == {2}


def test_election_timeouts_are_random() -> None:
    """Timeouts differ, from one to just under two election timeouts (Raft 5.2)."""
    waits = set()
    for seed in range(100):
        state = InitialState(conf_state=ConfState((1, 2, 3)))
        raft = RawNode(Config(1), state, random.Random(seed))
        ticks = 0
        while raft.role is Role.FOLLOWER:
            raft.tick()
            ticks += 1
        waits.add(ticks)
    assert waits == set(range(10, 20))


def test_learners_and_non_members_do_not_campaign() -> None:
    """Only a voter may campaign."""
    for conf_state in (ConfState((2,), (1,)), ConfState((2, 3)), ConfState()):
        raft = RawNode(Config(1), InitialState(conf_state=conf_state), random.Random(0))
        raft.campaign()
        for _ in range(50):
            raft.tick()
        assert raft.role is Role.FOLLOWER


def test_no_campaign_before_a_change_is_applied() -> None:
    """A member with a committed change of members ahead might ask the wrong ones: it waits."""
    entry = Entry(EntryType.CONF_CHANGE, 1, 1, b"\x10\x00\x18\x04")
    state = InitialState(HardState(1, 0, 1), ConfState((1, 2, 3)), entries=[entry])
    driven = Driven(RawNode(Config(1), state, random.Random(0)))
    driven.raft.campaign()
    assert driven.raft.role is Role.FOLLOWER
    driven.settle()
    driven.raft.campaign()
    assert driven.raft.role is Role.PRE_CANDIDATE
