"""Hashes over the whole store, in slices: HashKV at a revision, and the whole database.

A job reads one unchanging state while the store continues:

- later writes are above the revision the job reads up to;
- compactions that were due when it began finish first (its steps drive them), so the result does
  not depend on their progress;
- compactions scheduled later wait until it ends.

So a job that is abandoned must be closed, or it would block compaction forever. The tables other
than key are read as they are when the hash of the whole database reaches them.
"""

from collections.abc import Iterator
from typing import Final

from google_crc32c import extend

from kvstore.backend import BUCKETS, Backend, Row, Table
from kvstore.meta_rows import CONSISTENT_INDEX_KEY, STORAGE_VERSION_KEY, TERM_KEY
from kvstore.mvcc.compaction import Compactor
from kvstore.mvcc.key_index import KeyIndex
from kvstore.mvcc.record_hash import HashResult as HashResult
from kvstore.mvcc.record_hash import RecordHash
from kvstore.mvcc.records import RecordPager, Records
from kvstore.mvcc.revision import revision_key
from kvstore.wire.splice import kv_key

# Rows of the meta table that differ between members with the same data.
_LOCAL_META: Final = frozenset((CONSISTENT_INDEX_KEY, TERM_KEY, STORAGE_VERSION_KEY))


class _Job:
    """The common part of both jobs: their order with compactions."""

    __slots__ = ("_compact_revision", "_compactor", "_open")

    def __init__(self, compactor: Compactor, compact_revision: int) -> None:
        self._compactor = compactor
        self._compact_revision = compact_revision
        self._open = True
        compactor.pin(compact_revision)

    def close(self) -> None:
        """End the job, finished or not; closing twice is allowed."""
        if self._open:
            self._open = False
            self._compactor.unpin(self._compact_revision)

    def _compacting(self, rows_max: int) -> bool:
        """Do a step of a compaction that was due before this job; return whether there was one."""
        if not self._open:
            raise RuntimeError("step() of a hash job that has ended")
        due = self._compactor.due_before(self._compact_revision)
        if due:
            self._compactor.step(rows_max)
        return due


class HashJob(_Job):
    """HashKV at one revision; made by Store.start_hash."""

    __slots__ = ("_hasher", "_index", "_pager", "_records", "_revision", "_store_revision")

    def __init__(
        self,
        compactor: Compactor,
        records: Records,
        index: KeyIndex,
        *,
        hash_revision: int,
        compact_revision: int,
        store_revision: int,
    ) -> None:
        super().__init__(compactor, compact_revision)
        self._records = records
        self._index = index
        self._revision = hash_revision
        self._store_revision = store_revision
        self._hasher = RecordHash(compact_revision, hash_revision)
        self._pager: RecordPager | None = None

    def step(self, rows_max: int) -> HashResult | None:
        """Read up to rows_max records; return the result when done, which closes the job."""
        if self._compacting(rows_max):
            return None
        pager = self._pager
        if pager is None:
            end = revision_key(max(self._revision + 1, 0))
            self._pager = pager = self._records.pager(b"", end)
        self._feed(pager.page(rows_max))
        if not pager.done:
            return None
        self.close()
        return HashResult(
            self._hasher.value(),
            self._compact_revision,
            self._revision,
            self._store_revision,
            self._hasher.alternative(),
        )

    def _feed(self, rows: list[Row]) -> None:
        hasher, revision, revkey_at = self._hasher, self._revision, self._index.revkey_at
        for revkey, kv in rows:
            matters = hasher.keep_is_empty or revkey < hasher.floor
            hasher.add(revkey, kv, matters and revkey_at(kv_key(kv), revision) == revkey)
        hasher.flush()


class HashAllJob(_Job):
    """The hash of all tables; made by Store.hash_all."""

    __slots__ = ("_backend", "_crc", "_pages", "_records", "_revision", "_rows_max")

    def __init__(
        self,
        compactor: Compactor,
        backend: Backend,
        records: Records,
        *,
        compact_revision: int,
        revision: int,
    ) -> None:
        super().__init__(compactor, compact_revision)
        self._backend = backend
        self._records = records
        self._revision = revision
        self._rows_max = 1
        self._crc = 0
        self._pages: Iterator[list[bytes]] | None = None

    def step(self, rows_max: int) -> int | None:
        """Read up to rows_max rows; return the hash when done, which closes the job."""
        if self._compacting(rows_max):
            return None
        self._rows_max = rows_max
        if self._pages is None:
            self._pages = self._read()
        parts = next(self._pages, None)
        if parts is not None:
            self._crc = extend(self._crc, b"".join(parts))
            return None
        self.close()
        return self._crc

    def _read(self) -> Iterator[list[bytes]]:
        for table in Table:
            yield [BUCKETS[table]]
            pager = self._pager(table)
            while not pager.done:
                rows = pager.page(self._rows_max)
                if table == Table.META:
                    rows = [row for row in rows if row[0] not in _LOCAL_META]
                yield [part for row in rows for part in row]

    def _pager(self, table: Table) -> RecordPager:
        if table == Table.KEY:
            return self._records.pager(b"", revision_key(self._revision + 1))
        return RecordPager(self._backend, b"", None, table)
