"""The database interface of mvcc, lease, auth and apply: ordered tables of byte rows.

The tables are etcd's buckets, row for row (formats: 17/18-byte revision keys → KeyValue bytes, and
so on), so taking over and writing an etcd database file is a plain copy.

There is one open write transaction. All calls come from the one thread that runs the turn. Reads
see the writes made since the last commit. Nothing is durable before `commit()`, and a commit
contains all tables: the applied index is committed with the data it belongs to. What was not
committed is replayed from the log.

What a row holds is what was written, or reading it raises CorruptionError.

Keys are 1 to 511 bytes; writing a longer or an empty one raises DataDirError, reading one finds
nothing. After a failed write or commit every call raises StorageFatalError: the process must end.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, Protocol


class Table(IntEnum):
    """The tables, named like etcd's buckets (see BUCKETS)."""

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
    """Ordered tables of byte rows; used by the turn's thread only."""

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of key, or None."""
        ...

    def get_many(self, table: Table, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys, in their order; a missing key raises CorruptionError."""
        ...

    def get_fields(self, table: Table, keys: Sequence[bytes], head: bytes, tail: bytes) -> bytes:
        """Return head, the values of keys, each as field 2 of a protobuf message, and tail.

        It is get_many for a response that needs no single value, and costs less.
        """
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

        A row out of order raises ValueError; the rows before it are in the table then.
        """
        ...

    def delete(self, table: Table, key: bytes) -> bool:
        """Remove key; return whether it existed."""
        ...

    def delete_many(self, table: Table, keys: Iterable[bytes]) -> None:
        """Remove keys; those that do not exist are ignored."""
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
        """Return the size at the last commit, pages ever used times page size; O(1)."""
        ...

    def size_in_use_bytes(self) -> int:
        """Return size_bytes without the pages that are free for reuse."""
        ...

    def defragmenting(self) -> bool:
        """Return whether a defragmentation is under way, which step_defragment continues."""
        ...

    def start_defragment(self) -> None:
        """Commit and begin to copy the live rows into a new file; requests go on meanwhile.

        It and every step may commit: put what must be committed with the rows before.
        Raises DefragmentError if one is under way already or there is no space for the copy.
        """
        ...

    def step_defragment(self) -> bool:
        """Do a bounded slice of the copy; return True once the new file is in use.

        Call it once a turn until it returns True or raises. The switch to the new file commits.

        Raises StorageFatalError only if the old file is damaged too; a copy that fails for lack of
        space is abandoned, the old file stays in use, and DefragmentError has the reason.
        """
        ...

    def take_received(self, index: int) -> bool:
        """Replace this state by the one received with the snapshot at index; False: there is none.

        Everything is replaced at once, durable on return; rows written since the last commit are
        lost, and a defragmentation under way is aborted. Raises StorageFatalError.
        """
        ...

    def drop_received(self, up_to_index: int) -> None:
        """Delete the states received with snapshots up to this index that were not used."""
        ...

    def close(self) -> None:
        """Commit and release the files."""
        ...

    def abandon(self) -> None:
        """Release the files without a commit: what came after the last one is replayed."""
        ...


_ROWS_PER_SCAN: Final = 10_000


def scan_all(backend: Backend, table: Table) -> Iterator[Row]:
    """Yield all rows of a table, ascending; the table must not change meanwhile."""
    start = b""
    while rows := backend.scan(table, start, None, _ROWS_PER_SCAN):
        yield from rows
        start = rows[-1][0] + b"\0"
