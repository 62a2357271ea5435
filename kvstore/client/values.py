"""Arguments and results of a Store: plain named tuples.

    store.txn([Compare.mod_revision(b"k", 7)], [Put(b"k", b"new")], [Range(b"k")])
    ──► TxnResult(revision=9, succeeded=True, results=[PutResult(9, None)])

Every answer carries the revision of the store at that time. Keys and values are bytes; a range
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
    """One key with its value, as stored."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int  # 1 for a key that was created, raised by each change
    lease: int


class EventKind(IntEnum):
    """The kind of a change to a key."""

    PUT = 0
    DELETE = 1


class Event(NamedTuple):
    """One change. For a deletion, kv has only the key and the revision of the deletion."""

    kind: int  # an EventKind
    kv: KeyValue
    prev_kv: KeyValue | None  # before the change, if prev_kv was requested


# Reads and changes, which are also the operations of a transaction.


class SortOrder(IntEnum):
    """The sort order of a range."""

    NONE = 0
    ASCENDING = 1
    DESCENDING = 2


class SortTarget(IntEnum):
    """The field that a range is sorted by."""

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
    serializable: bool = False  # read from this member alone, which may be behind the others
    sort_order: SortOrder = SortOrder.NONE
    sort_target: SortTarget = SortTarget.KEY


class Put(NamedTuple):
    """Set a key."""

    key: bytes
    value: bytes
    lease: int = 0
    prev_kv: bool = False  # answer with the previous key
    ignore_value: bool = False  # keep the value; the key must exist
    ignore_lease: bool = False  # keep the lease; the key must exist


class Delete(NamedTuple):
    """Delete a key, or those from key to end."""

    key: bytes
    end: bytes = b""
    prev_kv: bool = False  # answer with the previous keys


class Relation(IntEnum):
    """The relation that must hold between the stored value and the operand."""

    EQUAL = 0
    GREATER = 1
    LESS = 2
    NOT_EQUAL = 3


class Target(IntEnum):
    """The field of a key that is compared."""

    VERSION = 0
    CREATE_REVISION = 1
    MOD_REVISION = 2
    VALUE = 3
    LEASE = 4


class Compare(NamedTuple):
    """A condition on a key, or on all from key to end. A missing key has zeros."""

    key: bytes
    target: Target
    operand: int | bytes  # bytes for VALUE
    relation: Relation = Relation.EQUAL
    end: bytes = b""

    @classmethod
    def mod_revision(cls, key: bytes, revision: int) -> "Compare":
        """Return the condition that a key was last changed at a revision; 0: it does not exist."""
        return cls(key, Target.MOD_REVISION, revision)

    @classmethod
    def absent(cls, key: bytes) -> "Compare":
        """Return the condition that a key does not exist."""
        return cls(key, Target.MOD_REVISION, 0)


class Txn(NamedTuple):
    """success if all compares hold, else failure: atomically, at one revision."""

    compares: Sequence[Compare]
    success: Sequence["Op"]
    failure: Sequence["Op"]


Op: TypeAlias = Range | Put | Delete | Txn


# Answers.


class GetResult(NamedTuple):
    """One key, or None if it does not exist."""

    revision: int
    kv: KeyValue | None


class RangeResult(NamedTuple):
    """Keys of a range, in order."""

    revision: int  # the store's current one, also for a read of an older one
    kvs: list[KeyValue]
    more: bool  # the limit cut the range
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
    """A lease and its remaining TTL in seconds."""

    revision: int
    lease: int
    ttl_s: int


class StatusResult(NamedTuple):
    """The status of the member that answered."""

    revision: int
    version: str  # of the server
    cluster_id: int
    member_id: int
    leader: int  # the leader's member id; 0: there is none
    raft_term: int
    raft_index: int
    raft_applied_index: int
    db_size: int  # bytes of the database file
    db_size_in_use: int
    is_learner: bool
    errors: list[str]  # including alarms


# Values of a watch.


class Started(NamedTuple):
    """The server has created the watch: changes after this revision follow."""

    revision: int


class Events(NamedTuple):
    """Changes in order, ending with a complete revision; a revision is never divided."""

    revision: int  # of the store when they were sent: at least the last event's
    events: list[Event]


class Progress(NamedTuple):
    """All changes up to this revision were delivered."""

    revision: int


class Interrupted(NamedTuple):
    """The watch is interrupted; it resumes automatically, without a gap."""

    reason: str


class Resumed(NamedTuple):
    """The watch goes on after an interruption: nothing is lost or delivered twice."""

    revision: int


class Compacted(NamedTuple):
    """The end: the next changes are compacted. Start a new watch from this revision."""

    oldest: int  # the oldest readable revision


class Restored(NamedTuple):
    """The end: the store is older than the changes delivered; it was restored from a backup."""

    revision: int  # the store's current one


WatchValue: TypeAlias = Started | Events | Progress | Interrupted | Resumed | Compacted | Restored
