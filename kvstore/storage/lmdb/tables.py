"""The rows of one open LMDB environment: etcd's buckets as tables, under one write transaction.

    get, scan, put, append, delete …  ──►  the open write transaction  ── commit: sync ──►  data.mdb

One write transaction is open all the time. The turn's thread reads and writes through it, so it
sees its own uncommitted rows; `commit` ends it with a sync and begins the next. LMDB never
overwrites a page of the last commit, so a crash anywhere leaves exactly that commit.

- **Thread**: a write transaction belongs to the thread that began it.
- **Failure**: after a failed write or commit every call raises StorageFatalError (or
  CorruptionError) with the first reason. What was not committed is replayed from the log by the
  next process.
- **Map**: it is sparse address space. It is doubled between transactions when half of it is used;
  one transaction that needs more than the rest of it fails and names the limit.
- **Sizes** are those of the last commit. A free page counts as size and not as in use. LMDB copies
  pages on write and cannot reuse those freed by the last two commits, so a few pages are always
  free: CHURN_PAGES of them are not counted.
- **Checksums**: every row is stored with one and checked whenever it is read (`storage.row_sums`),
  except in an environment of the older format. A damaged row is fatal; the error names it.
- **Readers**: slots of dead processes are cleared every READER_CHECK_COMMITS commits.

Replacing the whole state (defragmentation, a received snapshot) is in `backend`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lmdb

from kvstack.component.metrics.histograms import DISK_BOUNDS, NANOSECOND_S, Histogram
from kvstore.backend import BUCKETS, Row, Table
from kvstore.errors import CorruptionError, KvstoreError, StorageFatalError
from kvstore.failpoints import hit
from kvstore.storage.lmdb.damage import damaged_row
from kvstore.storage.lmdb.environment import (
    DAMAGE_ERRORS,
    has_checksums,
    open_environment,
    open_tables,
    sums_of,
    sync_and_close,
)
from kvstore.storage.lmdb.files import free_bytes
from kvstore.storage.row_limits import key_fits, key_refused
from kvstore.storage.row_sums import RowSums, first_damaged

if TYPE_CHECKING:
    from kvstore.storage.lmdb.journal import Journal

META_PAGES: Final = 2
FREELIST_PAGES: Final = 1  # LMDB does not report how many it uses; an empty one has this many
CHURN_PAGES: Final = 16
READER_CHECK_COMMITS: Final = 64
SCAN_FIRST_ROWS: Final = 64


class LmdbTables:
    """The rows of one open environment, under one write transaction that is always open."""

    def __init__(self, path: Path, map_size_bytes: int, *, sync: bool = True) -> None:
        """Open the environment at path; sync=False is for a copy that nothing depends on yet."""
        self._path = path
        self._map_size_bytes = map_size_bytes
        self._journal: Journal | None = None
        self._failed: KvstoreError | None = None
        self._pending_ops = 0
        self._used_bytes = 0  # of the file: all pages ever used
        self._commits = 0
        self.commit_ns = 0
        self.commit_seconds = Histogram(DISK_BOUNDS)
        self._fast_sums: RowSums | None = None
        self._map_is_pinned = False  # another thread reads through the map: it must not move
        self._env = open_environment(path, map_size_bytes, sync=sync)
        try:
            self._dbs = open_tables(self._env, path)
            self._use_sums()
            self._map_size_bytes = max(map_size_bytes, self._env.info()["map_size"])
            self._begin()
        except BaseException:
            self._env.close()
            raise

    @property
    def has_checksums(self) -> bool:
        """Whether the rows are stored with checksums: not in an environment of the older format."""
        return self._has_checksums

    def use_checksums_of(self, sums: RowSums) -> None:
        """Use this implementation of the checksums, where there are any, instead of Python's."""
        self._fast_sums = sums
        self._use_sums()

    def _use_sums(self) -> None:
        """Use the checksums that the environment's mark names."""
        with self._env.begin() as txn:
            self._has_checksums = has_checksums(txn, self._path)
        sums = sums_of(has_sums=self._has_checksums)
        self._sums: RowSums = (self._fast_sums or sums) if self._has_checksums else sums

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of key, or None."""
        try:
            stored = self._get(key, None, self._dbs[table])
        except lmdb.BadValsizeError:
            return None  # an empty key
        except lmdb.Error as error:
            raise self._fatal("read", error) from error
        if stored is None:
            return None
        value = self._sums.value(key, stored)
        if value is None:
            raise self._damaged(table, [key], [stored])
        return value

    def get_many(self, table: Table, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys, in their order; a missing key raises CorruptionError."""
        keys, stored = self._stored(table, keys)
        values = self._sums.values(keys, stored)
        if values is None:
            raise self._damaged(table, keys, stored)
        return values

    def get_fields(self, table: Table, keys: Sequence[bytes], head: bytes, tail: bytes) -> bytes:
        """Return head, the values of keys as fields 2 of a message, and tail; see get_many."""
        keys, stored = self._stored(table, keys)
        fields = self._sums.fields(keys, stored, head, tail)
        if fields is None:
            raise self._damaged(table, keys, stored)
        return fields

    def _stored(self, table: Table, keys: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Return keys and what is stored of them, checksums included."""
        key_list: list[bytes] = keys if isinstance(keys, list) else list(keys)
        get, db = self._get, self._dbs[table]
        try:
            stored = [get(key, None, db) for key in key_list]
        except lmdb.BadValsizeError:  # an empty key
            stored = [get(key, None, db) if key else None for key in key_list]
        except lmdb.Error as error:
            raise self._fatal("read", error) from error
        if None in stored:
            missing = key_list[stored.index(None)]
            raise CorruptionError(f"{self._path}: {BUCKETS[table].decode()} has no row {missing!r}")
        return key_list, stored  # type: ignore[return-value]  # None was excluded, without a copy

    def scan(self, table: Table, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        """Return up to limit rows with start <= key < end (end None: no bound), ascending."""
        if limit <= 0:
            return []
        try:
            cursor = self._txn.cursor(self._dbs[table])
            if not cursor.set_range(start):
                return []
            found = cursor.iternext()
            stored = list(islice(found, limit)) if end is None else _rows_before(found, end, limit)
        except lmdb.Error as error:
            raise self._fatal("read", error) from error
        return self._checked(table, stored)

    def last(self, table: Table) -> Row | None:
        """Return the row with the greatest key, or None for an empty table."""
        try:
            cursor = self._txn.cursor(self._dbs[table])
            stored = [cursor.item()] if cursor.last() else []
        except lmdb.Error as error:
            raise self._fatal("read", error) from error
        return self._checked(table, stored)[0] if stored else None

    def _checked(self, table: Table, stored: list[Row]) -> list[Row]:
        rows = self._sums.rows(stored)
        if rows is None:
            raise self._damaged(table, [key for key, _ in stored], [each for _, each in stored])
        return rows

    def _damaged(self, table: Table, keys: list[bytes], stored: list[bytes]) -> KvstoreError:
        """Refuse every further call; return the error that names the damaged row."""
        at = first_damaged(keys, stored)
        self._failed = damaged_row(self._path / "data.mdb", table, keys[at], stored[at])
        return self._failed

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Set the value of key; DataDirError for a key of a length no row can have."""
        try:
            ((_, stored),) = self._sums.seal([(key, value)])
            self._put(key, stored, db=self._dbs[table])
        except lmdb.BadValsizeError:
            raise key_refused(table, key) from None
        except lmdb.Error as error:
            raise self._fatal("write", error) from error
        self._pending_ops += 1
        if self._journal is not None:
            self._journal.touch(table, key)

    def append(self, table: Table, rows: Iterable[Row]) -> None:
        """Set rows whose keys ascend and are greater than every key of the table (fast path).

        Rows out of order raise ValueError, a key of a length no row can have DataDirError; the
        rows before it are in the table then.
        """
        batch = rows if isinstance(rows, list) else list(rows)
        if self._journal is not None:
            self._journal.append(table, batch)
        self._pending_ops += len(batch)
        try:
            sealed = self._sums.seal(batch)
            _, added = self._txn.cursor(self._dbs[table]).putmulti(sealed, append=True)
        except lmdb.BadValsizeError:
            bad = next(key for key, _ in batch if not key_fits(key))
            raise key_refused(table, bad) from None
        except lmdb.Error as error:
            raise self._fatal("write", error) from error
        if added != len(batch):
            raise ValueError(f"row {added} of {len(batch)} is not after all rows of {table.name}")

    def delete(self, table: Table, key: bytes) -> bool:
        """Remove key; return whether it was there."""
        try:
            existed = self._delete(key, b"", self._dbs[table])
        except lmdb.BadValsizeError:
            return False
        except lmdb.Error as error:
            raise self._fatal("write", error) from error
        if existed:
            self._pending_ops += 1
            if self._journal is not None:
                self._journal.touch(table, key)
        return existed

    def delete_many(self, table: Table, keys: Iterable[bytes]) -> None:
        """Remove keys; missing ones are ignored."""
        delete = self.delete
        for key in keys:
            delete(table, key)

    def clear(self, table: Table) -> None:
        """Remove every row of table."""
        db = self._dbs[table]
        try:
            self._pending_ops += self._txn.stat(db)["entries"]
            self._txn.drop(db, delete=False)
        except lmdb.Error as error:
            raise self._fatal("write", error) from error
        if self._journal is not None:
            self._journal.clear(table)

    def pending_ops(self) -> int:
        """Return how many rows were written or removed since the last commit."""
        return self._pending_ops

    def commit(self) -> None:
        """Make everything written so far durable (synced); raise StorageFatalError if it fails."""
        if self._failed is not None:
            raise self._refusal()
        if not self._pending_ops:
            return
        hit("beforeCommit")
        began_ns = time.monotonic_ns()
        try:
            self._txn.commit()
        except lmdb.Error as error:
            raise self._fatal("commit", error) from error
        self._begin()
        took_ns = time.monotonic_ns() - began_ns
        self.commit_ns += took_ns
        self.commit_seconds.add(took_ns * NANOSECOND_S)
        hit("afterCommit")
        self._commits += 1
        if self._commits % READER_CHECK_COMMITS == 0:
            self.clear_dead_readers()

    def size_bytes(self) -> int:
        """Return the size of the database: pages ever used times page size."""
        return self._size_bytes

    def size_in_use_bytes(self) -> int:
        """Return size_bytes less the pages that are free for reuse."""
        return self._size_in_use_bytes

    def clear_dead_readers(self) -> int:
        """Free the reader slots of processes that are gone; return how many there were."""
        try:
            return self._env.reader_check()
        except lmdb.Error as error:
            raise self._fatal("reader check", error) from error

    def release(self) -> "tuple[lmdb.Environment, list[lmdb._Database]]":
        """End the open transaction without a commit; return the open environment and its tables."""
        self._txn.abort()
        return self._env, self._dbs

    def detach(self) -> Callable[[], None]:
        """End the open transaction; return a function, for any thread, that syncs and closes."""
        env, _ = self.release()
        return lambda: sync_and_close(env)

    def abandon(self) -> None:
        """Close the environment without a commit."""
        self._txn.abort()
        self._env.close()

    def _begin(self) -> None:
        """Begin the next write transaction; the map grows here, while none is open."""
        try:
            self._used_bytes = used_bytes = self._measure()
            if used_bytes * 2 > self._map_size_bytes and not self._map_is_pinned:
                self._map_size_bytes = max(self._map_size_bytes * 2, used_bytes * 2)
                self._env.set_mapsize(self._map_size_bytes)
            hit("beforeStartDBTxn")
            self._txn = txn = self._env.begin(write=True)
            hit("afterStartDBTxn")
        except lmdb.Error as error:
            raise self._fatal(f"begin (map of {self._map_size_bytes} bytes)", error) from error
        self._get, self._put, self._delete = txn.get, txn.put, txn.delete
        self._pending_ops = 0

    def _measure(self) -> int:
        """Set the sizes to those of the last commit; return the bytes of all pages ever used."""
        env = self._env
        with env.begin() as txn:
            stats = [env.stat(), *(txn.stat(db) for db in self._dbs)]
            pages_ever = env.info()["last_pgno"] + 1
        page_bytes = stats[0]["psize"]
        pages_in_use = META_PAGES + FREELIST_PAGES
        for stat in stats:
            pages_in_use += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        pages_free = max(0, pages_ever - pages_in_use - CHURN_PAGES)
        self._size_in_use_bytes = pages_in_use * page_bytes
        self._size_bytes = (pages_in_use + pages_free) * page_bytes
        return pages_ever * page_bytes

    def _refusal(self) -> KvstoreError:
        return StorageFatalError(f"no call is accepted after a failure: {self._failed}")

    def _fatal(self, doing: str, error: lmdb.Error) -> KvstoreError:
        """Refuse every further call; return the error that says why."""
        if self._failed is not None:
            return self._refusal()
        if isinstance(error, DAMAGE_ERRORS):
            self._failed = CorruptionError(f"{self._path / 'data.mdb'}: {doing} failed: {error}")
        elif isinstance(error, lmdb.MapFullError):
            self._failed = StorageFatalError(
                f"{self._path}: {doing} failed: one transaction needs more than the rest of the "
                f"map of {self._map_size_bytes} bytes"
            )
        else:
            # LMDB reports a write that a full disk cut short as an input/output error.
            free = f"its file system has {free_bytes(self._path)} bytes free"
            self._failed = StorageFatalError(f"{self._path}: {doing} failed: {error} ({free})")
        return self._failed


def _rows_before(rows: Iterator[Row], end: bytes, limit: int) -> list[Row]:
    """Take up to limit rows with key < end, in growing chunks, so that few are read needlessly."""
    taken: list[Row] = []
    chunk_rows = SCAN_FIRST_ROWS
    while len(taken) < limit:
        chunk = list(islice(rows, min(chunk_rows, limit - len(taken))))
        if not chunk or chunk[-1][0] >= end:
            taken += [row for row in chunk if row[0] < end]
            break
        taken += chunk
        chunk_rows *= 2
    return taken
