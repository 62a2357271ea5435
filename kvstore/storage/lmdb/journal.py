"""The rows of a state that changed since a copy of it was begun, and how the copy catches up.

    touch · append · clear  ──►  journal  ──►  catch_up(original, copy), a bounded part at a time

Invariant: an entry of the journal has only the *key* of a change. Catching up makes the copy equal
to the original at that key, as the original is now. Entries may therefore be repeated,
merged and applied in any order, and it does not matter at which commit after the journal's start
the copy was made. When the journal is empty both hold the same rows.

Most rows are appended at the end of a table. For those the journal keeps one key for each table,
the tail: everything from there on is still to be copied. Other keys are kept one by one, up to a
limit; over it the journal is void and the copy must be made anew.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from kvstore.backend import Row, Table

SLICE_ROWS: Final = 32
STEP_ROWS: Final = 1000
STEP_BYTES: Final = 1 << 20
KEY_COST_ROWS: Final = 8  # a single key dirties a page of its own; rows of a tail share theirs


class Rows(Protocol):
    """The methods of a backend that catching up calls."""

    def get(self, table: Table, key: bytes) -> bytes | None: ...
    def scan(self, table: Table, start: bytes, end: bytes | None, limit: int) -> list[Row]: ...
    def last(self, table: Table) -> Row | None: ...
    def put(self, table: Table, key: bytes, value: bytes) -> None: ...
    def append(self, table: Table, rows: Iterable[Row]) -> None: ...
    def delete(self, table: Table, key: bytes) -> bool: ...
    def clear(self, table: Table) -> None: ...


class Journal:
    """The rows of the original that changed since the copy was started."""

    def __init__(self, keys_max: int) -> None:
        self._keys: list[dict[bytes, None]] = [{} for _ in Table]
        self._tails: list[bytes | None] = [None for _ in Table]
        self._cleared: set[Table] = set()
        self._keys_max = keys_max
        self._keys_count = 0
        self._draining: Iterator[tuple[Table, bytes]] = iter(())
        self._draining_count = 0
        self._noted_rows = 0  # since the last step

    def touch(self, table: Table, key: bytes) -> None:
        """Record that the row of key was set or removed."""
        keys = self._keys[table]
        before = len(keys)
        keys[key] = None
        self._keys_count += len(keys) - before
        self._noted_rows += KEY_COST_ROWS

    def append(self, table: Table, rows: Sequence[Row]) -> None:
        """Record rows that were added after all others."""
        if not rows:
            return
        first = rows[0][0]
        tail = self._tails[table]
        if tail is None or first < tail:
            self._tails[table] = first
        self._noted_rows += len(rows)

    def clear(self, table: Table) -> None:
        """Record that every row of table was removed."""
        self._keys_count -= len(self._keys[table])
        self._keys[table] = {}
        self._tails[table] = b""
        self._cleared.add(table)

    def overflowed(self) -> bool:
        """Return whether more single keys changed than the journal may hold."""
        return self._keys_count + self._draining_count > self._keys_max

    def skip_step(self) -> None:
        """Count a step that did not catch up."""
        self._noted_rows = 0

    def catch_up(self, original: Rows, copy: Rows) -> bool:
        """Make a bounded part of the copy equal to the original; True once nothing is left.

        The bound is STEP_ROWS rows (and STEP_BYTES bytes) more than twice what was recorded since
        the last step, so that the journal empties under any load.
        """
        budget = _Budget(STEP_ROWS + 2 * self._noted_rows)
        self._noted_rows = 0
        for table in sorted(self._cleared):
            copy.clear(table)
        self._cleared.clear()
        return self._copy_tails(original, copy, budget) and self._copy_keys(original, copy, budget)

    def _copy_tails(self, original: Rows, copy: Rows, budget: "_Budget") -> bool:
        for table in Table:
            tail = self._tails[table]
            limit = 1  # how large the rows are is seen from the first
            while tail is not None:
                rows = original.scan(table, tail, None, limit)
                if not rows:
                    break
                _set_rows(copy, table, rows)
                self._tails[table] = tail = rows[-1][0] + b"\0"
                size_bytes = sum(len(value) for _, value in rows)
                if budget.spend(len(rows), size_bytes):
                    return False
                limit = SLICE_ROWS if size_bytes < STEP_BYTES * len(rows) // SLICE_ROWS else 1
        return True

    def _copy_keys(self, original: Rows, copy: Rows, budget: "_Budget") -> bool:
        while self._draining_count or self._keys_count:
            for table, key in self._draining:
                self._draining_count -= 1
                value = original.get(table, key)
                if value is None:
                    copy.delete(table, key)
                else:
                    copy.put(table, key, value)
                if budget.spend(KEY_COST_ROWS, len(value or b"")):
                    return not (self._draining_count or self._keys_count)
            self._drain_next()
        return True

    def _drain_next(self) -> None:
        """Take the recorded keys out to be copied; keys recorded from now on are copied again."""
        batch, self._keys = self._keys, [{} for _ in Table]
        self._draining = ((table, key) for table in Table for key in batch[table])
        self._draining_count, self._keys_count = self._keys_count, 0


class _Budget:
    """How many rows and bytes one step may still copy."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._bytes = STEP_BYTES * max(1, rows // STEP_ROWS)

    def spend(self, rows: int, size_bytes: int) -> bool:
        """Subtract what was copied; return whether the budget is used up."""
        self._rows -= rows
        self._bytes -= size_bytes
        return self._rows <= 0 or self._bytes <= 0


def _set_rows(copy: Rows, table: Table, rows: list[Row]) -> None:
    """Set ascending rows; where they come after all others, append them, which fills pages."""
    last = copy.last(table)
    if last is None or last[0] < rows[0][0]:
        copy.append(table, rows)
        return
    for key, value in rows:
        copy.put(table, key, value)
