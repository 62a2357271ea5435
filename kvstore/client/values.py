"""Arguments and results of a Store: plain named tuples.

    store.txn([Compare.mod_revision(b"k", 7)], [Put(b"k", b"new")], [Range(b"k")])
    ──► TxnResult(revision=9, succeeded=True, results=[PutResult(9, None)])

Every answer carries the revision of the store when it was given. Keys and values are bytes; a range
is from key to end, without the end: b"" is the one key, b"\\0" everything from key on. Revisions,
versions and leases are whole numbers, 0 where there is none.

The values of a watch are here as well; `kvstore.client.watch` explains them.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

FROM_KEY: Final = b"\0"  # as the end of a range: every key from the first on


def prefix_end(prefix: bytes) -> bytes:
    """Return the end of the range of all keys with a prefix."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else FROM_KEY


class KeyValue(NamedTuple):
    """One key as it was stored."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int  # 1 for a key that was made, counted up by each change
    lease: int


class EventKind(IntEnum):
    """What happened to a key."""

    PUT = 0
    DELETE = 1


class Event(NamedTuple):
    """One change. Of a deletion kv has only the key and, as mod_revision, when it was."""

    kind: int  # an EventKind
    kv: KeyValue
    prev_kv: KeyValue | None  # before it, if that was asked for


# Questions and changes, as they also stand in a transaction.


class SortOrder(IntEnum):
    """How the keys of a range are sorted."""

    NONE = 0
    ASCENDING = 1
    DESCENDING = 2


class SortTarget(IntEnum):
    """By what the keys of a range are sorted."""

    KEY = 0
    VERSION = 1
    CREATE_REVISION = 2
    MOD_REVISION = 3
    VALUE = 4


class Range(NamedTuple):
    """Read a key, or those from key to end."""

    key: bytes
    end: bytes = b""
    limit: int = 0  # keys; 0: all
    revision: int = 0  # 0: now
    keys_only: bool = False
    count_only: bool = False
    serializable: bool = False  # what the member asked has, which may be behind the others
    sort_order: SortOrder = SortOrder.NONE
    sort_target: SortTarget = SortTarget.KEY


class Put(NamedTuple):
    """Set a key."""

    key: bytes
    value: bytes
    lease: int = 0
    prev_kv: bool = False  # answer with the key as it was
    ignore_value: bool = False  # keep the value; the key must be there
    ignore_lease: bool = False  # keep the lease; the key must be there


class Delete(NamedTuple):
    """Delete a key, or those from key to end."""

    key: bytes
    end: bytes = b""
    prev_kv: bool = False  # answer with the keys as they were


class Relation(IntEnum):
    """How what is stored must compare with what is given."""

    EQUAL = 0
    GREATER = 1
    LESS = 2
    NOT_EQUAL = 3


class Target(IntEnum):
    """What of a key is compared."""

    VERSION = 0
    CREATE_REVISION = 1
    MOD_REVISION = 2
    VALUE = 3
    LEASE = 4


class Compare(NamedTuple):
    """A condition on a key, or on all from key to end. A key that is not there has zeros."""

    key: bytes
    target: Target
    operand: int | bytes  # bytes for VALUE
    relation: Relation = Relation.EQUAL
    end: bytes = b""

    @classmethod
    def mod_revision(cls, key: bytes, revision: int) -> "Compare":
        """Return the condition that a key was changed last at a revision; 0: it is not there."""
        return cls(key, Target.MOD_REVISION, revision)

    @classmethod
    def absent(cls, key: bytes) -> "Compare":
        """Return the condition that a key is not there."""
        return cls(key, Target.MOD_REVISION, 0)


class Txn(NamedTuple):
    """If all compares hold success, else failure: atomically, at one revision."""

    compares: Sequence[Compare]
    success: Sequence["Op"]
    failure: Sequence["Op"]


Op: TypeAlias = Range | Put | Delete | Txn


# Answers.


class GetResult(NamedTuple):
    """One key, or None if it is not there."""

    revision: int
    kv: KeyValue | None


class RangeResult(NamedTuple):
    """Keys of a range, in order."""

    revision: int  # of the store now, also when an older one was asked for
    kvs: list[KeyValue]
    more: bool  # the limit left some out
    total: int  # keys in the range, whatever the limit


class PutResult(NamedTuple):
    """A key was set, at this revision."""

    revision: int
    prev_kv: KeyValue | None


class DeleteResult(NamedTuple):
    """Keys were deleted; with none the revision is that of the store."""

    revision: int
    deleted: int
    prev_kvs: list[KeyValue]


class TxnResult(NamedTuple):
    """What a transaction did: an answer for each operation of the branch that was taken."""

    revision: int
    succeeded: bool
    results: list["OpResult"]


OpResult: TypeAlias = RangeResult | PutResult | DeleteResult | TxnResult


class LeaseResult(NamedTuple):
    """A lease and the seconds it lives from now on."""

    revision: int
    lease: int
    ttl_s: int


class StatusResult(NamedTuple):
    """How the member that answered stands."""

    revision: int
    version: str  # of the server, as it says
    cluster_id: int
    member_id: int
    leader: int  # the leader's member id; 0: there is none
    raft_term: int
    raft_index: int
    raft_applied_index: int
    db_size: int  # bytes of the database file
    db_size_in_use: int
    is_learner: bool
    errors: list[str]  # alarms among them


# Values of a watch.


class Started(NamedTuple):
    """The server has created the watch: changes after this revision follow."""

    revision: int


class Events(NamedTuple):
    """Changes in order, those of one revision never divided; up to a revision that is complete."""

    revision: int  # of the store when it sent them: at least the last event's
    events: list[Event]


class Progress(NamedTuple):
    """All changes up to this revision were delivered."""

    revision: int


class Interrupted(NamedTuple):
    """The watch has stopped for a while; it goes on by itself, without a gap."""

    reason: str


class Resumed(NamedTuple):
    """The watch goes on after an interruption: nothing is lost or delivered twice."""

    revision: int


class Compacted(NamedTuple):
    """The end: the next changes are compacted. Begin again from this revision on."""

    oldest: int  # that can still be read


class Restored(NamedTuple):
    """The end: the store is older than the changes delivered; it was restored from a backup."""

    revision: int  # of the store now


WatchValue: TypeAlias = Started | Events | Progress | Interrupted | Resumed | Compacted | Restored
