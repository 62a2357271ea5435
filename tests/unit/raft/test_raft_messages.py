"""What a peer may send at worst: no message takes a member down or breaks what it has promised."""

import random

import pytest

from kvstore.raft.config import Config
from kvstore.raft.model import (
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    Role,
    Snapshot,
    SnapshotMetadata,
)
from kvstore.raft.rawnode import RawNode
from kvstore.raft.ready import InitialState
from tests.support.raft.node import Driven, Group

M = MessageType
X = Entry(EntryType.NORMAL, 5, 5, b"x")


def follower() -> Driven:
    """Member 1 of three in term 5, with four entries of term 3, two of them committed."""
    entries = [Entry(EntryType.NORMAL, 3, index, b"") for index in range(1, 5)]
    state = InitialState(HardState(5, 2, 2), ConfState((1, 2, 3)), entries=entries)
    driven = Driven(RawNode(Config(1), state, random.Random(1)))
    driven.settle()
    return driven


@pytest.mark.parametrize(
    ("message", "warning"),
    [
        (Message(M.HUP, 1, 2, 5), "type 0, which is local only"),
        (Message(M.STORAGE_APPEND_RESP, 1, 2, 5), "type 20, which is local only"),
        (Message(M.FORGET_LEADER, 1, 2, 5), "type 23, which is local only"),
        (Message(99, 1, 2, 5), "type 99, which is local only"),
        (Message(M.APP, 3, 2, 5), "a message for 3"),
        (Message(M.APP, 1, 0, 5), "type 3 came from 0"),
        (Message(M.HEARTBEAT, 1, 1, 5), "type 8 came from 1"),
        (Message(M.APP, 1, 2, 0), "type 3 without a term"),
        (
            Message(M.HEARTBEAT, 1, 2, 5, commit=9),
            "2 sent commit 9, which this member acknowledged",
        ),
        (
            Message(M.APP, 1, 2, 5, log_term=3, index=4, entries=[X._replace(index=6)]),
            "do not follow one another",
        ),
        (
            Message(M.APP, 1, 2, 5, log_term=3, index=4, entries=[X._replace(term=2)]),
            "do not follow one another",
        ),
        (
            Message(M.APP, 1, 2, 5, log_term=3, index=4, entries=[X._replace(term=6)]),
            "do not follow one another",
        ),
        (Message(M.READ_INDEX_RESP, 1, 2, 5, index=3), "answered 0 reads"),
        (
            Message(M.SNAP, 1, 2, 5, snapshot=Snapshot(SnapshotMetadata(ConfState((2,)), 9, 5))),
            "without this member",
        ),
        (
            Message(
                M.SNAP,
                1,
                2,
                5,
                snapshot=Snapshot(SnapshotMetadata(ConfState((1,), (1,)), 9, 5)),
            ),
            "voters and learners at once",
        ),
    ],
)
def test_invalid_messages_are_reported(message: Message, warning: str) -> None:
    """An invalid message changes neither log nor state, and causes a warning."""
    driven = follower()
    before = driven.raft.status()
    driven.raft.step(message)
    driven.settle()
    after = driven.raft.status()
    assert len(driven.warnings) == 1
    assert warning in driven.warnings[0]
    after.lead = before.lead
    assert after == before


def test_committed_entries_are_never_replaced_by_an_append() -> None:
    """Even the leader's word does not replace what is committed."""
    entries = [Entry(EntryType.NORMAL, 1, 1, b""), Entry(EntryType.NORMAL, 3, 2, b"")]
    state = InitialState(HardState(5, 2, 2), ConfState((1, 2, 3)), entries=entries)
    driven = Driven(RawNode(Config(1), state, random.Random(1)))
    driven.settle()
    driven.raft.step(
        Message(M.APP, 1, 2, 5, log_term=3, index=2, entries=[Entry(0, 5, 3, b"")], commit=3)
    )
    driven.settle()
    assert driven.raft.committed == 3
    driven.raft.step(Message(M.APP, 1, 2, 5, index=0, entries=[Entry(0, 4, 1, b"")]))
    driven.settle()
    assert driven.raft.term_at(1) == 1
    assert driven.sent[-1].index == 3


@pytest.mark.parametrize(
    ("message", "warning"),
    [
        (Message(M.APP_RESP, 1, 2, index=99), "acknowledged entry 99, which was never sent"),
        (Message(M.HEARTBEAT_RESP, 1, 2, context=b"short"), "echoed a heartbeat"),
        (Message(M.HEARTBEAT_RESP, 1, 2, context=b"\xff" * 8), "echoed a heartbeat"),
        (Message(M.READ_INDEX, 1, 2), "asked for 0 reads"),
        (
            Message(M.PROP, 1, 2, entries=[Entry(EntryType.CONF_CHANGE, 0, 0, b"\x08")]),
            "refused: the number at byte 1 does not end",
        ),
        (
            Message(M.PROP, 1, 2, entries=[Entry(7, 0, 0, b"")]),
            "refused: entry type 7 carries no configuration change",
        ),
    ],
)
def test_invalid_responses_do_not_change_a_leader(message: Message, warning: str) -> None:
    """A bad answer or proposal does not move a leader's commit index or take it down."""
    group = Group(1, 2, 3)
    leader = group.elect(1)
    committed = leader.raft.committed
    if message.type not in (M.PROP, M.READ_INDEX):
        message.term = leader.raft.term
    leader.raft.step(message)
    leader.settle()
    assert leader.raft.is_leader
    assert leader.raft.committed == committed
    assert len(leader.warnings) == 1
    assert warning in leader.warnings[0]


def test_rejections_are_bounded_by_what_is_known() -> None:
    """Whatever hint a refusal gives, the leader tries between match and what it sent."""
    group = Group(1, 2, 3)
    leader = group.elect(1).raft
    for index, hint, log_term in ((99, 99, 1), (99, 2**64 - 1, 99), (4, 0, 0), (0, 5, 5)):
        leader.step(
            Message(
                M.APP_RESP,
                1,
                2,
                leader.term,
                index=index,
                reject=True,
                reject_hint=hint,
                log_term=log_term,
            )
        )
        progress = leader.status().progress[2]
        assert progress.match < progress.next <= leader.last_index + 1


def test_warnings_are_bounded() -> None:
    """A peer that talks nonsense all the time fills no memory."""
    driven = follower()
    for _ in range(1000):
        driven.raft.step(Message(M.HUP, 1, 2, 5))
    ready = driven.raft.ready()
    assert ready is not None
    assert len(ready.warnings) == 64


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("seed", range(30))
def test_no_message_stops_a_member(role: Role, seed: int) -> None:
    """Random messages, within and beyond all bounds, leave a member of any role working."""
    rng = random.Random(seed)
    driven = _in_role(role)
    raft = driven.raft
    for _ in range(200):
        committed, applied = raft.committed, list(driven.applied)
        raft.step(_random_message(rng, raft))
        if rng.randrange(3):
            ready = raft.ready()
            if ready is not None:
                driven.sent += ready.messages_early + ready.messages_late
                driven.applied += ready.committed
                raft.advance(ready)
        assert raft.committed >= committed
        assert driven.applied[: len(applied)] == applied


def _in_role(role: Role) -> Driven:
    group = Group(1, 2, 3)
    if role is Role.FOLLOWER:
        group.elect(2)
    elif role is Role.LEADER:
        group.elect(1)
    else:
        group.cut = {1}
        group[1].raft.campaign()
        group.settle()
        if role is Role.CANDIDATE:
            group[1].raft.step(Message(M.PRE_VOTE_RESP, 1, 2, group[1].raft.term + 1))
            group.settle()
    assert group[1].raft.role is role
    return group[1]


def _random_message(rng: random.Random, raft: RawNode) -> Message:
    def number(near: int) -> int:
        return rng.choice((0, 1, near - 1, near, near, near, near + 1, near + 5, 2**64 - 1)) % 2**64

    def entry(index: int) -> Entry:
        return Entry(rng.choice((0, 0, 0, 1, 2, 9)), number(raft.term), index, rng.randbytes(3))

    index = number(raft.last_index)
    first = rng.choice((index + 1, index + 1, index + 1, number(raft.last_index)))
    conf_state = ConfState(
        tuple(rng.sample(range(5), rng.randrange(4))), tuple(rng.sample(range(5), rng.randrange(2)))
    )
    metadata = SnapshotMetadata(conf_state, number(raft.last_index), number(raft.term))
    return Message(
        rng.randrange(26),
        rng.choice((0, 1, 1, 1, 2)),
        rng.choice((0, 1, 2, 2, 3, 3, 9)),
        rng.choice((0, raft.term, raft.term, raft.term, raft.term + 1, raft.term - 1)),
        number(raft.term),
        index,
        [entry(first + each) for each in range(rng.randrange(3))],
        number(raft.committed),
        Snapshot(metadata) if rng.randrange(2) else None,
        bool(rng.randrange(2)),
        number(raft.last_index),
        rng.choice((b"", b"CampaignTransfer", b"x", bytes(8), rng.randbytes(8))),
    )
