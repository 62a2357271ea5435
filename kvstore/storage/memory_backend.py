"""The state in memory: the same tables as dicts and sorted keys.

It serves members in memory, simulation and tests, and keeps every promise of `kvstore.backend`
except durability. `crash()` returns the last commit, which a process would find on disk after this
one was killed.

    dict      key → value
    order     the keys, ascending (bisect)
    undo      (table, key) → value at the last commit, for what has changed since

Sizes are modelled on LMDB's: whole pages, and never less than was once used until a
defragmentation. It does no IO. The only limit is the one on keys.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Final

from kvstore.backend import BUCKETS, Row, Table
from kvstore.errors import CorruptionError, DefragmentError, StorageFatalError
from kvstore.storage.row_limits import key_fits, key_refused
from kvstore.wire.fields import fields_of

PAGE_BYTES: Final = 4096
EMPTY_PAGES: Final = 5
ROW_OVERHEAD_BYTES: Final = 16


class MemoryBackend:
    """`kvstore.backend.Backend` without a disk."""

    def __init__(self) -> None:
        self._values: list[dict[bytes, bytes]] = [{} for _ in Table]
        self._order: list[list[bytes]] = [[] for _ in Table]
        self._undo: list[dict[bytes, bytes | None]] = [{} for _ in Table]
        self._pending = 0
        self._bytes = 0
        self._defragmenting = False
        self._closed = False
        self._received: dict[int, MemoryBackend] = {}  # by the snapshot's index
        self._size_bytes = self._size_in_use_bytes = EMPTY_PAGES * PAGE_BYTES

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of key, or None."""
        self._check_open()
        return self._values[table].get(key)

    def get_many(self, table: Table, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys, in their order; a missing key raises CorruptionError."""
        self._check_open()
        values = self._values[table]
        try:
            return [values[key] for key in keys]
        except KeyError as error:
            raise CorruptionError(
                f"memory: {BUCKETS[table].decode()} has no row {error.args[0]!r}"
            ) from error

    def get_fields(self, table: Table, keys: Sequence[bytes], head: bytes, tail: bytes) -> bytes:
        """Return head, the values of keys, each as field 2 of a message, and tail."""
        return fields_of(self.get_many(table, keys), head, tail)

    def scan(self, table: Table, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        """Return up to limit rows with start <= key < end (end None: no bound), ascending."""
        self._check_open()
        values, order = self._values[table], self._order[table]
        first = bisect_left(order, start)
        beyond = len(order) if end is None else bisect_left(order, end)
        keys = order[first : min(beyond, first + max(0, limit))]
        return [(key, values[key]) for key in keys]

    def last(self, table: Table) -> Row | None:
        """Return the row with the greatest key, or None for an empty table."""
        self._check_open()
        order = self._order[table]
        return (order[-1], self._values[table][order[-1]]) if order else None

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Set the value of key; DataDirError for a key of a length no row can have."""
        self._check_open()
        if not key_fits(key):
            raise key_refused(table, key)
        before = self._remember(table, key)
        if before is None:
            insort(self._order[table], key)
        self._values[table][key] = bytes(value)
        self._bytes += len(key) + len(value) + ROW_OVERHEAD_BYTES
        self._pending += 1

    def append(self, table: Table, rows: Iterable[Row]) -> None:
        """Set rows whose keys ascend and are greater than every key of the table (fast path).

        Rows out of order raise ValueError, a key of a length no row can have DataDirError; the
        rows before it are in the table then.
        """
        order = self._order[table]
        for key, value in rows:
            if order and key_fits(key) and key <= order[-1]:
                raise ValueError(f"row {key!r} is not after all rows of {table.name}")
            self.put(table, key, value)

    def delete(self, table: Table, key: bytes) -> bool:
        """Remove key; return whether it was there."""
        self._check_open()
        if key not in self._values[table]:
            return False
        self._remember(table, key)
        del self._values[table][key]
        order = self._order[table]
        del order[bisect_left(order, key)]
        self._pending += 1
        return True

    def delete_many(self, table: Table, keys: Iterable[bytes]) -> None:
        """Remove keys; missing ones are ignored."""
        for key in keys:
            self.delete(table, key)

    def clear(self, table: Table) -> None:
        """Remove every row of table."""
        self._check_open()
        for key in self._order[table]:
            self._remember(table, key)
        self._pending += len(self._order[table])
        self._values[table] = {}
        self._order[table] = []

    def pending_ops(self) -> int:
        """Return how many rows were written or removed since the last commit."""
        return self._pending

    def commit(self) -> None:
        """Make everything written so far survive `crash`."""
        self._check_open()
        if not self._pending:
            return
        self._undo = [{} for _ in Table]
        self._pending = 0
        self._size_in_use_bytes = PAGE_BYTES * (EMPTY_PAGES + -(-self._bytes // PAGE_BYTES))
        self._size_bytes = max(self._size_bytes, self._size_in_use_bytes)

    def size_bytes(self) -> int:
        """Return the largest size at a commit since the last defragmentation."""
        return self._size_bytes

    def size_in_use_bytes(self) -> int:
        """Return the size of the rows at the last commit."""
        return self._size_in_use_bytes

    def defragmenting(self) -> bool:
        """Return whether step_defragment has something to do."""
        return self._defragmenting

    def start_defragment(self) -> None:
        """Begin a defragmentation; it takes one step."""
        self._check_open()
        if self._defragmenting:
            raise DefragmentError("a defragmentation is under way already")
        self.commit()
        self._defragmenting = True

    def step_defragment(self) -> bool:
        """End the defragmentation: the size is what is in use from now on."""
        self._check_open()
        if not self._defragmenting:
            raise DefragmentError("no defragmentation is under way")
        self.commit()
        self._defragmenting = False
        self._size_bytes = self._size_in_use_bytes
        return True

    def receive(self, index: int, state: "MemoryBackend") -> None:
        """Keep a committed state that came with the snapshot at index, for take_received."""
        self._received[index] = state

    def take_received(self, index: int) -> bool:
        """Replace this state by the one received with the snapshot at index; False: none."""
        self._check_open()
        state = self._received.pop(index, None)
        if state is None:
            return False
        for name in ("_values", "_order", "_bytes", "_size_bytes", "_size_in_use_bytes"):
            setattr(self, name, getattr(state, name))
        self._undo = [{} for _ in Table]
        self._pending = 0
        self._defragmenting = False
        return True

    def drop_received(self, up_to_index: int) -> None:
        """Forget the states received with snapshots up to this index."""
        self._received = {
            index: state for index, state in self._received.items() if index > up_to_index
        }

    def copy_committed(self) -> "MemoryBackend":
        """Return a new backend with the rows of the last commit; this one stays usable."""
        copy = MemoryBackend()
        for table in Table:
            values = dict(self._values[table])
            for key, value in self._undo[table].items():
                values.pop(key, None)
                if value is not None:
                    values[key] = value
            copy._values[table] = values
            copy._order[table] = sorted(values)
            copy._bytes += sum(
                len(key) + len(value) + ROW_OVERHEAD_BYTES for key, value in values.items()
            )
        copy._size_bytes = self._size_bytes
        copy._size_in_use_bytes = self._size_in_use_bytes
        return copy

    def close(self) -> None:
        """Commit and refuse everything from now on."""
        if not self._closed:
            self.commit()
            self._closed = True

    def abandon(self) -> None:
        """Refuse everything from now on; `crash` returns what was committed."""
        self._closed = True

    def crash(self) -> "MemoryBackend":
        """Return a new backend with the rows of the last commit; close this one."""
        survivor = self.copy_committed()
        for index, state in self._received.items():
            survivor.receive(index, state)
        self._closed = True
        return survivor

    def _remember(self, table: Table, key: bytes) -> bytes | None:
        """Record the row's value before it changes; return it."""
        before = self._values[table].get(key)
        self._undo[table].setdefault(key, before)
        if before is not None:
            self._bytes -= len(key) + len(before) + ROW_OVERHEAD_BYTES
        return before

    def _check_open(self) -> None:
        if self._closed:
            raise StorageFatalError("the memory backend is closed")
