"""The data types of raft: entries, states, snapshots, configuration changes, messages.

The numbers of entry, message and change types are those of etcd's raftpb, so a codec needs only a
table. None means "field not set" where the encoded form distinguishes that from zero.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

NO_NODE: Final = 0
UINT64_MAX: Final = 2**64 - 1


class RaftError(Exception):
    """Raft was used against its rules, or its state is inconsistent; it cannot continue.

    Never raised for a message of another member: an invalid message is ignored and reported in
    Ready.warnings.
    """


class Role(IntEnum):
    """The role of a member in its term; the numbers are etcd's."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2
    PRE_CANDIDATE = 3


class EntryType(IntEnum):
    """What an entry carries."""

    NORMAL = 0
    CONF_CHANGE = 1
    CONF_CHANGE_V2 = 2


class Entry(NamedTuple):
    """One position of the replicated log; a leader's first entry of a term has no data."""

    type: int
    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    data: bytes


class HardState(NamedTuple):
    """Term, vote and commit index, saved before a message that depends on them may be sent."""

    term: int = 0
    vote: int = 0
    commit: int = 0


EMPTY_HARD_STATE: Final = HardState()


class ConfState(NamedTuple):
    """The configuration: voters, the outgoing half of a joint one, and learners."""

    voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    voters_outgoing: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()
    auto_leave: bool = False


EMPTY_CONF_STATE: Final = ConfState()


class SnapshotMetadata(NamedTuple):
    """The log position of a snapshot, and the configuration there."""

    conf_state: ConfState = EMPTY_CONF_STATE
    index: int = 0  # type: ignore[assignment]
    term: int = 0


class Snapshot(NamedTuple):
    """A state that replaces a prefix of the log."""

    metadata: SnapshotMetadata = SnapshotMetadata()
    data: bytes = b""


EMPTY_SNAPSHOT: Final = Snapshot()


class ConfChangeType(IntEnum):
    """The kind of change of one node."""

    ADD_NODE = 0
    REMOVE_NODE = 1
    UPDATE_NODE = 2
    ADD_LEARNER_NODE = 3


class ConfChange(NamedTuple):
    """A change of one node, as proposed; node_id 0 marks a refused change."""

    id: int
    type: int
    node_id: int
    context: bytes = b""


class ConfChangeSingle(NamedTuple):
    """One step of a joint change."""

    type: int
    node_id: int


class ConfChangeV2(NamedTuple):
    """Several changes at once, through a joint configuration (transition as in raftpb)."""

    transition: int = 0
    changes: tuple[ConfChangeSingle, ...] = ()
    context: bytes = b""


class MessageType(IntEnum):
    """The type of a message; the numbers are raftpb's."""

    HUP = 0
    BEAT = 1
    PROP = 2
    APP = 3
    APP_RESP = 4
    VOTE = 5
    VOTE_RESP = 6
    SNAP = 7
    HEARTBEAT = 8
    HEARTBEAT_RESP = 9
    UNREACHABLE = 10
    SNAP_STATUS = 11
    CHECK_QUORUM = 12
    TRANSFER_LEADER = 13
    TIMEOUT_NOW = 14
    READ_INDEX = 15
    READ_INDEX_RESP = 16
    PRE_VOTE = 17
    PRE_VOTE_RESP = 18
    STORAGE_APPEND = 19
    STORAGE_APPEND_RESP = 20
    STORAGE_APPLY = 21
    STORAGE_APPLY_RESP = 22
    FORGET_LEADER = 23


@dataclass(slots=True)
class Message:
    """One message between members; unused fields are zero."""

    type: int
    to: int = 0
    from_: int = 0
    term: int = 0
    log_term: int = 0
    index: int = 0
    entries: list[Entry] = field(default_factory=list)
    commit: int = 0
    snapshot: Snapshot | None = None
    reject: bool = False
    reject_hint: int = 0
    context: bytes = b""
