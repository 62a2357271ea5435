"""The rows mvcc, lease and apply live on: ordered tables under one open write transaction.

The tables are etcd's buckets, row for row (formats: 17/18-byte revision keys → KeyValue bytes, and
so on), which is what makes taking over and writing out an etcd database file a plain copy.

All calls come from the one thread that runs the turn. Reads see the writes made since the last
commit. Nothing is durable before `commit()`, and a commit takes all tables together or none: the
applied index therefore moves with the data it belongs to. What does not get committed is replayed
from the log.

Keys are 1 to 511 bytes; writing a longer or an empty one raises DataDirError, reading one finds
nothing. After a failed write or commit every call raises StorageFatalError: the process must end.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, Protocol


class Table(IntEnum):
    """The tables, named as etcd's buckets (see BUCKETS)."""

    ALARM = 0
    AUTH = 1
    AUTH_ROLES = 2
    AUTH_USERS = 3
    CLUSTER = 4
    KEY = 5
    LEASE = 6
    MEMBERS = 7
    MEMBERS_REMOVED = 8
    META = 9


BUCKETS: Final[tuple[bytes, ...]] = (
    b"alarm",
    b"auth",
    b"authRoles",
    b"authUsers",
    b"cluster",
    b"key",
    b"lease",
    b"members",
    b"members_removed",
    b"meta",
)  # indexed by Table; bytewise ascending, the order etcd hashes them in

Row = tuple[bytes, bytes]


class Backend(Protocol):
    """Ordered tables of byte rows; shared by the turn thread only."""

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of key, or None."""
        ...

    def get_many(self, table: Table, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys, in their order; a missing key raises CorruptionError."""
        ...

    def scan(self, table: Table, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        """Return up to limit rows with start <= key < end (end None: no bound), ascending."""
        ...

    def last(self, table: Table) -> Row | None:
        """Return the row with the greatest key, or None for an empty table."""
        ...

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Set the value of key."""
        ...

    def append(self, table: Table, rows: Iterable[Row]) -> None:
        """Set rows whose keys ascend and are greater than every key of the table (fast path).

        Rows out of order raise ValueError; those before them are in the table then.
        """
        ...

    def delete(self, table: Table, key: bytes) -> bool:
        """Remove key; tell whether it was there."""
        ...

    def delete_many(self, table: Table, keys: Iterable[bytes]) -> None:
        """Remove keys; those that are not there are passed over."""
        ...

    def clear(self, table: Table) -> None:
        """Remove every row of table."""
        ...

    def pending_ops(self) -> int:
        """Return how many rows were written or removed since the last commit."""
        ...

    def commit(self) -> None:
        """Make everything written so far durable (synced); raise StorageFatalError if it fails."""
        ...

    def size_bytes(self) -> int:
        """Return the size at the last commit: pages ever used times page size; costs nothing."""
        ...

    def size_in_use_bytes(self) -> int:
        """Return size_bytes less the pages that are free for reuse."""
        ...

    def defragmenting(self) -> bool:
        """Tell whether a defragmentation is under way, for step_defragment to go on with."""
        ...

    def start_defragment(self) -> None:
        """Commit and begin to copy the live rows into a fresh file; requests go on meanwhile.

        It and every step may commit: what must be in one commit with the rows is to be put before.
        Raises DefragmentError if one is under way already or there is no room for the copy.
        """
        ...

    def step_defragment(self) -> bool:
        """Do a bounded slice of the copy; return True once the fresh file has taken over.

        Call it once a turn until it returns True or raises. Taking over commits.

        Raises StorageFatalError only if the old file is hurt too; a copy that fails for want of
        space is given up, the old file stays in use, and DefragmentError tells why.
        """
        ...

    def take_received(self, index: int) -> bool:
        """Put the state received with the snapshot at index in this one's place; False: none.

        Everything is replaced at once, durable on return; rows written since the last commit are
        gone, and so is a defragmentation under way. Raises StorageFatalError.
        """
        ...

    def drop_received(self, up_to_index: int) -> None:
        """Delete the states received with snapshots up to this index that were not taken."""
        ...

    def close(self) -> None:
        """Commit and release the files."""
        ...

    def abandon(self) -> None:
        """Release the files without a commit: the log replays what came after the last one."""
        ...
