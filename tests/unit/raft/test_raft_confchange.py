"""Changes of members: which are allowed, and their encoding."""

import pytest

from kvstore.raft import confchange_codec
from kvstore.raft.confchange import (
    Change,
    ConfChangeError,
    Configuration,
    next_configuration,
    restore,
    to_conf_state,
    wants_leave,
)
from kvstore.raft.confchange_codec import ConfChangeDecodeError
from kvstore.raft.model import (
    ConfChange,
    ConfChangeSingle,
    ConfChangeType,
    ConfChangeV2,
    ConfState,
    EntryType,
)
from kvstore.wire.gen import raft_pb2

ADD, REMOVE, UPDATE, LEARNER = ConfChangeType
LEAVE = ConfChangeV2()


def members(*voters: int, learners: tuple[int, ...] = ()) -> Configuration:
    return restore(ConfState(voters, learners))


def v2(*steps: tuple[int, int], transition: int = 0) -> ConfChangeV2:
    return ConfChangeV2(transition, tuple(ConfChangeSingle(*step) for step in steps))


@pytest.mark.parametrize(
    ("change", "voters", "learners"),
    [
        (ConfChange(1, ADD, 4), {1, 2, 3, 4}, {9}),
        (ConfChange(1, ADD, 2), {1, 2, 3}, {9}),
        (ConfChange(1, ADD, 9), {1, 2, 3, 9}, set()),
        (ConfChange(1, REMOVE, 2), {1, 3}, {9}),
        (ConfChange(1, REMOVE, 9), {1, 2, 3}, set()),
        (ConfChange(1, REMOVE, 7), {1, 2, 3}, {9}),
        (ConfChange(1, LEARNER, 4), {1, 2, 3}, {4, 9}),
        (ConfChange(1, LEARNER, 3), {1, 2}, {3, 9}),
        (ConfChange(1, UPDATE, 2), {1, 2, 3}, {9}),
        (ConfChange(1, REMOVE, 0), {1, 2, 3}, {9}),
        (v2((ADD, 4)), {1, 2, 3, 4}, {9}),
    ],
)
def test_simple_changes(change: Change, voters: set[int], learners: set[int]) -> None:
    """One voter more or less: any two majorities overlap (Raft thesis 4.1); 0 is a refused one."""
    after = next_configuration(members(1, 2, 3, learners=(9,)), change)
    assert (after.voters, after.learners) == (voters, learners)
    assert not after.is_joint


def test_entering_and_leaving_a_joint_configuration() -> None:
    """Several changes go through a configuration that needs both majorities (Raft 6)."""
    joint = next_configuration(
        members(1, 2, 3), v2((ADD, 4), (REMOVE, 1), (LEARNER, 3), (LEARNER, 5))
    )
    assert joint == Configuration(
        voters=frozenset((2, 4)),
        outgoing=frozenset((1, 2, 3)),
        learners=frozenset((5,)),
        learners_next=frozenset((3,)),
        auto_leave=True,
    )
    assert joint.members == {1, 2, 3, 4, 5}
    assert restore(to_conf_state(joint)) == joint
    assert next_configuration(joint, LEAVE) == Configuration(
        voters=frozenset((2, 4)), learners=frozenset((3, 5))
    )


@pytest.mark.parametrize(("transition", "auto_leave"), [(1, True), (2, False)])
def test_joint_on_request(transition: int, auto_leave: bool) -> None:  # noqa: FBT001
    """A single change can ask for a joint configuration, left by itself or on request."""
    joint = next_configuration(members(1), v2((ADD, 2), transition=transition))
    assert joint.is_joint
    assert joint.auto_leave is auto_leave


@pytest.mark.parametrize(
    ("before", "change", "message"),
    [
        (members(1), ConfChange(1, REMOVE, 1), "removes all voters"),
        (members(1), ConfChange(1, LEARNER, 1), "removes all voters"),
        (members(1), LEAVE, "not joint"),
        (members(1), ConfChange(1, 9, 2), "change type 9 is not known"),
        (members(1), v2((ADD, 2), transition=3), "transition 3 is not known"),
        (Configuration(), v2((ADD, 1), (ADD, 2)), "without voters cannot become joint"),
        (
            next_configuration(members(1, 2, 3), v2((REMOVE, 1), (ADD, 4))),
            ConfChange(1, ADD, 5),
            "cannot be made in a joint configuration",
        ),
        (
            next_configuration(members(1, 2, 3), v2((REMOVE, 1), (ADD, 4))),
            v2((ADD, 5), (ADD, 6)),
            "joint already",
        ),
    ],
)
def test_impossible_changes(before: Configuration, change: Change, message: str) -> None:
    """A change that is not allowed names the reason."""
    with pytest.raises(ConfChangeError, match=message):
        next_configuration(before, change)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (ConfState((1,), (1,)), r"voters and learners at once: \[1\]"),
        (ConfState((1,), (), (), (2,)), r"learners-next that do not vote: \[2\]"),
        (ConfState((), (2,)), "no voters"),
        (ConfState((1,), auto_leave=True), "not joint"),
        (ConfState((0, 1)), "0 is not a member's id"),
    ],
)
def test_inconsistent_conf_states(state: ConfState, message: str) -> None:
    """The configuration in a snapshot is checked before it is used."""
    with pytest.raises(ConfChangeError, match=message):
        restore(state)


@pytest.mark.parametrize(
    "change",
    [
        ConfChange(2**63, ADD, 2**64 - 1, b'{"id":1}'),
        ConfChange(0, ADD, 3, b""),
        ConfChange(300, REMOVE, 128, b""),
        v2((ADD, 1), (LEARNER, 2**40), transition=2),
        ConfChangeV2(1, (), b"why"),
        LEAVE,
    ],
)
def test_bytes_are_read_back_and_by_protobuf(change: Change) -> None:
    """What is written is what protobuf reads, and the other way round."""
    data = confchange_codec.encode(change)
    kind = confchange_codec.entry_type(change)
    assert confchange_codec.decode(kind, data) == change
    if isinstance(change, ConfChange):
        message = raft_pb2.ConfChange.FromString(data)
        assert (message.id, message.type, message.node_id, message.context) == tuple(change)
        assert confchange_codec.decode(kind, message.SerializeToString()) == change
        return
    message_v2 = raft_pb2.ConfChangeV2.FromString(data)
    assert message_v2.transition == change.transition
    assert [(each.type, each.node_id) for each in message_v2.changes] == list(change.changes)
    assert confchange_codec.decode(kind, message_v2.SerializeToString()) == change


def test_bytes_of_a_fresh_cluster() -> None:
    """type and node_id are always written, an id of 0 never: as etcd's first entries."""
    assert confchange_codec.encode(ConfChange(0, ADD, 5, b"x")) == bytes.fromhex("10001805220178")
    assert confchange_codec.encode(LEAVE) == b""
    assert wants_leave(confchange_codec.decode(EntryType.CONF_CHANGE_V2, b""))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x08", "does not end"),
        (b"\x08" + b"\xff" * 11, "does not end"),
        (b"\x22\x05abc", "field 4 ends at byte 7 of 5"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_malformed_bytes(data: bytes, message: str) -> None:
    """Bytes that are no change are refused, with the place."""
    with pytest.raises(ConfChangeDecodeError, match=message):
        confchange_codec.decode(EntryType.CONF_CHANGE, data)


def test_other_entries_and_fields() -> None:
    """A normal entry is no change; a step must be whole; unknown fields are skipped."""
    with pytest.raises(ConfChangeDecodeError, match="entry type 0"):
        confchange_codec.decode(EntryType.NORMAL, b"")
    with pytest.raises(ConfChangeDecodeError, match="a step of the change"):
        confchange_codec.decode(EntryType.CONF_CHANGE_V2, b"\x12\x02\x0a\x00")
    unknown = b"\x38\x01\x3d1234\x4112345678\x4a\x01x"
    assert confchange_codec.decode(EntryType.CONF_CHANGE, unknown) == ConfChange(0, 0, 0, b"")
