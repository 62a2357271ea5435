"""The nouns of raft as plain data: entries, states, snapshots, configuration changes, messages.

Numbers match etcd's raftpb (entry, message and change types), so that a codec is a table. None
means "field not set" where the encoded form can tell the difference.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

NO_NODE: Final = 0


class RaftError(Exception):
    """Raft was used against its rules, or what it holds contradicts itself; it cannot go on.

    Never raised for what another member sent: a message that cannot be right is passed over and
    told in Ready.warnings.
    """


class Role(IntEnum):
    """What a member is in its term; the numbers are etcd's."""

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
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    data: bytes


class HardState(NamedTuple):
    """What must survive a crash before a message that depends on it may leave."""

    term: int = 0
    vote: int = 0
    commit: int = 0


EMPTY_HARD_STATE: Final = HardState()


class ConfState(NamedTuple):
    """Who takes part: voters (and the outgoing half of a joint configuration) and learners."""

    voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    voters_outgoing: tuple[int, ...] = ()
    learners_next: tuple[int, ...] = ()
    auto_leave: bool = False


EMPTY_CONF_STATE: Final = ConfState()


class SnapshotMetadata(NamedTuple):
    """The position a snapshot stands for, and the configuration there."""

    conf_state: ConfState = EMPTY_CONF_STATE
    index: int = 0  # type: ignore[assignment]
    term: int = 0


class Snapshot(NamedTuple):
    """A state that replaces a prefix of the log."""

    metadata: SnapshotMetadata = SnapshotMetadata()
    data: bytes = b""


EMPTY_SNAPSHOT: Final = Snapshot()


class ConfChangeType(IntEnum):
    """What happens to one node."""

    ADD_NODE = 0
    REMOVE_NODE = 1
    UPDATE_NODE = 2
    ADD_LEARNER_NODE = 3


class ConfChange(NamedTuple):
    """A change of one node, as proposed; node_id 0 stands for a refused change."""

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
    """What a message says; the numbers are raftpb's."""

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
    """One message between members; unused fields stay at their zero."""

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
