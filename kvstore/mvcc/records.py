"""The records: one row of the key table per change, new ones buffered until the batch is done.

    write ──► fresh (revision key → KeyValue) ──flush──► backend, appended at once

A lookup by revision key reads the fresh ones first, so it needs no flush; reading rows in order
flushes first. Flushing moves rows into the open transaction and makes nothing durable. Revision
keys always ascend, so they can be appended.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from kvstore.backend import Backend, Row, Table
from kvstore.errors import CorruptionError

PAGE_ROWS_MAX: Final = 1000
PAGE_BYTES: Final = 4 << 20  # the target size of a page with large values

_value_of_row = itemgetter(1)


class RecordPager:
    """Reads rows with start <= key < end (None: no bound) in pages of bounded size, ascending."""

    __slots__ = ("_backend", "_end", "_rows_fit", "_start", "_table", "done")

    def __init__(
        self, backend: Backend, start: bytes, end: bytes | None, table: Table = Table.KEY
    ) -> None:
        self._table = table
        self._backend = backend
        self._start = start
        self._end = end
        self._rows_fit = PAGE_ROWS_MAX // 8
        self.done = end is not None and start >= end

    def page(self, rows_max: int) -> list[Row]:
        """Return the next rows, at most rows_max, at least one unless done; [] once done."""
        if self.done:
            return []
        limit = max(1, min(rows_max, self._rows_fit))
        rows = self._backend.scan(self._table, self._start, self._end, limit)
        self.done = len(rows) < limit
        if rows:
            self._start = rows[-1][0] + b"\0"
            page_bytes = sum(map(len, map(_value_of_row, rows)))
            fit = PAGE_BYTES * len(rows) // (page_bytes + 1)
            self._rows_fit = min(PAGE_ROWS_MAX, fit, self._rows_fit * 2)
        return rows


class Records:
    """The key table and the fresh records."""

    __slots__ = ("_backend", "fresh", "written_bytes")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.fresh: dict[bytes, bytes] = {}  # ascending; written by the store
        self.written_bytes = 0  # KeyValues, since the start

    def get(self, revkey: bytes) -> bytes | None:
        """Return the KeyValue of a record; None if there is no such record."""
        kv = self.fresh.get(revkey)
        return self._backend.get(Table.KEY, revkey) if kv is None else kv

    def get_indexed(self, revkey: bytes) -> bytes:
        """Return the KeyValue of a record that is in the index: it must exist."""
        kv = self.get(revkey)
        if kv is None:
            raise CorruptionError(f"record {revkey.hex()} is in the index but not in table key")
        return kv

    def get_many_indexed(self, revkeys: Sequence[bytes]) -> list[bytes]:
        """Return the KeyValues of records that are in the index, in the order of revkeys."""
        self.flush()
        return self._backend.get_many(Table.KEY, revkeys)

    def get_fields_indexed(self, revkeys: Sequence[bytes], head: bytes, tail: bytes) -> bytes:
        """Return head, KeyValues of records in the index as fields 2 of a message, and tail."""
        self.flush()
        return self._backend.get_fields(Table.KEY, revkeys, head, tail)

    def pager(self, start: bytes, end: bytes | None) -> RecordPager:
        """Return a reader of the records with start <= revision key < end (None: no bound)."""
        self.flush()
        return RecordPager(self._backend, start, end)

    def delete_many(self, revkeys: Sequence[bytes]) -> None:
        """Remove flushed records."""
        self._backend.delete_many(Table.KEY, revkeys)

    def flush(self) -> None:
        """Move the fresh records into the backend."""
        if self.fresh:
            self.written_bytes += sum(map(len, self.fresh.values()))
            self._backend.append(Table.KEY, self.fresh.items())
            self.fresh.clear()
