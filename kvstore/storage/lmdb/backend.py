"""The state on disk: etcd's buckets as LMDB tables, written through one open transaction.

    <directory>/lmdb/   one environment, ten named tables = BUCKETS, and in the main table one
                        record of our own, FORMAT_KEY → msgpack {format, created_by}

One write transaction is open all the time. The turn thread reads and writes through it, so it
sees its own uncommitted rows; `commit` ends it with a sync and begins the next. LMDB never
overwrites a page of the last commit, so a crash anywhere leaves exactly that commit.

- **Thread**: a write transaction belongs to the thread that began it. Open the backend in the
  thread that runs the turn; only the two threads of a running copy touch the environment besides.
- **Failure**: after a failed write or commit nothing more is accepted; every call raises
  StorageFatalError (or CorruptionError) with the first reason. What was not committed is replayed
  from the log by the next process.
- **Room**: the map is sparse address space. It is doubled between transactions when half of it is
  used; one transaction that needs the rest of it fails and names the limit.
- **Sizes** are those of the last commit. A page that is free counts as size and not as in use.
  LMDB copies pages on write and cannot reuse those of the last two commits, so a few free pages
  are its breath and no part of the data: CHURN_PAGES of them are not counted.
- **Readers**: other processes read a commit through `open_reader`. Pages freed since then cannot
  be reused while it lasts. Slots of dead processes are cleared every READER_CHECK_COMMITS commits;
  a live one that falls behind is told by `readers()`, and whoever started it must end it.
- **Fork**: neither the environment nor the lock survives fork() without exec(); spawn instead.

Defragmentation is told in `defragment` (the copy) and `lmdb_files` (the swap). This is the only
module that imports lmdb.
"""

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb

from kvstore.errors import (
    CorruptionError,
    DataDirError,
    DefragmentError,
    KvstoreError,
    StorageFatalError,
)
from kvstore.failpoints import hit
from kvstore.histograms import DISK_BOUNDS, NANOSECOND_S, Histogram
from kvstore.mvcc.backend import BUCKETS, Row, Table
from kvstore.storage.lmdb.defragment import Aside, Defragmentation, Journal
from kvstore.storage.lmdb.files import (
    LmdbFiles,
    free_bytes,
    received_path,
    remove_tree,
    sync_directory,
)
from kvstore.storage.row_limits import key_fits, key_refused
from kvstore.types import SERVER_VERSION, override

FORMAT_KEY: Final = b"kvstore"
FORMAT_VERSION: Final = 1
MAP_SIZE_BYTES: Final = 256 << 30
META_PAGES: Final = 2
FREELIST_PAGES: Final = 1  # LMDB does not tell how many it uses; an empty one has this many
CHURN_PAGES: Final = 16
READER_CHECK_COMMITS: Final = 64
JOURNAL_KEYS_MAX: Final = 1_000_000
SCAN_FIRST_ROWS: Final = 64
READER_ATTEMPTS_MAX: Final = 100
READER_RETRY_S: Final = 0.01
_MAX_DBS: Final = len(BUCKETS)
_ROTTEN: Final = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError)


class ReaderSlot(NamedTuple):
    """One reading transaction in the environment's reader table."""

    pid: int
    txn_id: int
    commits_behind: int


class LmdbTables:
    """The rows of one open environment, under one write transaction that is always open."""

    def __init__(self, path: Path, map_size_bytes: int, *, sync: bool = True) -> None:
        """Open the environment at path; sync=False is for a copy that nothing depends on yet."""
        self._path = path
        self._map_size_bytes = map_size_bytes
        self._journal: Journal | None = None
        self._failed: KvstoreError | None = None
        self._pending = 0
        self._commits = 0
        self.commit_ns = 0
        self.commit_seconds = Histogram(DISK_BOUNDS)
        self._map_pinned = False  # another thread reads through the map: it must not move
        self._env = _open_environment(path, map_size_bytes, sync=sync)
        try:
            self._dbs = _open_tables(self._env, path)
            self._map_size_bytes = max(map_size_bytes, self._env.info()["map_size"])
            self._begin()
        except BaseException:
            self._env.close()
            raise

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the value of key, or None."""
        try:
            return self._get(key, None, self._dbs[table])
        except lmdb.BadValsizeError:
            return None  # no row has an empty key
        except lmdb.Error as error:
            raise self._fatal("read", error) from error

    def get_many(self, table: Table, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys, in their order; a missing key raises CorruptionError."""
        get, db = self._get, self._dbs[table]
        try:
            values = [get(key, None, db) for key in keys]
        except lmdb.BadValsizeError:
            values = [self.get(table, key) for key in keys]
        except lmdb.Error as error:
            raise self._fatal("read", error) from error
        if None in values:
            missing = keys[values.index(None)]
            raise CorruptionError(f"{self._path}: {BUCKETS[table].decode()} lacks row {missing!r}")
        return values  # type: ignore[return-value]  # None was just ruled out, without a copy

    def scan(self, table: Table, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        """Return up to limit rows with start <= key < end (end None: no bound), ascending."""
        if limit <= 0:
            return []
        try:
            cursor = self._txn.cursor(self._dbs[table])
            if not cursor.set_range(start):
                return []
            rows = cursor.iternext()
            return list(islice(rows, limit)) if end is None else _rows_before(rows, end, limit)
        except lmdb.Error as error:
            raise self._fatal("read", error) from error

    def last(self, table: Table) -> Row | None:
        """Return the row with the greatest key, or None for an empty table."""
        try:
            cursor = self._txn.cursor(self._dbs[table])
            return cursor.item() if cursor.last() else None
        except lmdb.Error as error:
            raise self._fatal("read", error) from error

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Set the value of key; a key no row can have raises DataDirError."""
        try:
            self._put(key, value, db=self._dbs[table])
        except lmdb.BadValsizeError:
            raise key_refused(table, key) from None
        except lmdb.Error as error:
            raise self._fatal("write", error) from error
        self._pending += 1
        if self._journal is not None:
            self._journal.touch(table, key)

    def append(self, table: Table, rows: Iterable[Row]) -> None:
        """Set rows whose keys ascend and are greater than every key of the table (fast path).

        Rows out of order raise ValueError, a key no row can have DataDirError; the rows before it
        are in the table then.
        """
        batch = rows if isinstance(rows, list) else list(rows)
        if self._journal is not None:
            self._journal.append(table, batch)
        self._pending += len(batch)
        try:
            _, added = self._txn.cursor(self._dbs[table]).putmulti(batch, append=True)
        except lmdb.BadValsizeError:
            bad = next(key for key, _ in batch if not key_fits(key))
            raise key_refused(table, bad) from None
        except lmdb.Error as error:
            raise self._fatal("write", error) from error
        if added != len(batch):
            raise ValueError(f"row {added} of {len(batch)} is not after all rows of {table.name}")

    def delete(self, table: Table, key: bytes) -> bool:
        """Remove key; tell whether it was there."""
        try:
            found = self._delete(key, b"", self._dbs[table])
        except lmdb.BadValsizeError:
            return False
        except lmdb.Error as error:
            raise self._fatal("write", error) from error
        if found:
            self._pending += 1
            if self._journal is not None:
                self._journal.touch(table, key)
        return found

    def delete_many(self, table: Table, keys: Iterable[bytes]) -> None:
        """Remove keys; those that are not there are passed over."""
        delete = self.delete
        for key in keys:
            delete(table, key)

    def clear(self, table: Table) -> None:
        """Remove every row of table."""
        db = self._dbs[table]
        try:
            self._pending += self._txn.stat(db)["entries"]
            self._txn.drop(db, delete=False)
        except lmdb.Error as error:
            raise self._fatal("write", error) from error
        if self._journal is not None:
            self._journal.clear(table)

    def pending_ops(self) -> int:
        """Return how many rows were written or removed since the last commit."""
        return self._pending

    def commit(self) -> None:
        """Make everything written so far durable (synced); raise StorageFatalError if it fails."""
        if self._failed is not None:
            raise self._refuse()
        if not self._pending:
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
        """End the open transaction without a commit; return the environment and its tables."""
        self._txn.abort()
        return self._env, self._dbs

    def detach(self) -> Callable[[], None]:
        """End the open transaction; return the call, for any thread, that syncs and closes."""
        env, _ = self.release()
        return lambda: _sync_and_close(env)

    def abandon(self) -> None:
        """Close the environment without a commit."""
        self._txn.abort()
        self._env.close()

    def _begin(self) -> None:
        """Begin the next write transaction; the map grows here, where none is open."""
        try:
            used_bytes = self._measure()
            if used_bytes * 2 > self._map_size_bytes and not self._map_pinned:
                self._map_size_bytes = max(self._map_size_bytes * 2, used_bytes * 2)
                self._env.set_mapsize(self._map_size_bytes)
            hit("beforeStartDBTxn")
            self._txn = txn = self._env.begin(write=True)
            hit("afterStartDBTxn")
        except lmdb.Error as error:
            raise self._fatal(f"begin (map of {self._map_size_bytes} bytes)", error) from error
        self._get, self._put, self._delete = txn.get, txn.put, txn.delete
        self._pending = 0

    def _measure(self) -> int:
        """Take the sizes of the last commit; return the bytes of all pages ever used."""
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

    def _refuse(self) -> KvstoreError:
        return StorageFatalError(f"nothing more is accepted after: {self._failed}")

    def _fatal(self, doing: str, error: lmdb.Error) -> KvstoreError:
        """Turn the backend off and return the error that tells why."""
        if self._failed is not None:
            return self._refuse()
        if isinstance(error, _ROTTEN):
            self._failed = CorruptionError(f"{self._path / 'data.mdb'}: {doing} failed: {error}")
        elif isinstance(error, lmdb.MapFullError):
            self._failed = StorageFatalError(
                f"{self._path}: {doing} failed: one transaction needs more than the rest of the "
                f"map of {self._map_size_bytes} bytes"
            )
        else:
            # LMDB calls a write that a full disk cut short an input/output error.
            room = f"its file system has {free_bytes(self._path)} bytes free"
            self._failed = StorageFatalError(f"{self._path}: {doing} failed: {error} ({room})")
        return self._failed


class LmdbBackend(LmdbTables):
    """The state of one member; `kvstore.mvcc.backend.Backend` on LMDB."""

    def __init__(
        self,
        directory: Path,
        *,
        map_size_bytes: int = MAP_SIZE_BYTES,
        journal_keys_max: int = JOURNAL_KEYS_MAX,
    ) -> None:
        """Open the state under directory, making it if there is none.

        journal_keys_max bounds the memory of a defragmentation: about 100 bytes a key.

        Raises DataDirError (in use, foreign, of a newer format, not writable), CorruptionError.
        """
        self._files = LmdbFiles(directory)
        self._journal_keys_max = journal_keys_max
        self._defragmentation: Defragmentation[LmdbTables] | None = None
        self._removal: Aside | None = None
        self._closed = False
        try:
            self._files.recover()
            super().__init__(self._files.live, map_size_bytes)
            self._sync_names(directory)
        except BaseException:
            self._files.unlock()
            raise

    def _sync_names(self, directory: Path) -> None:
        try:
            sync_directory(self._files.live)
            sync_directory(directory)
        except OSError as error:
            self._env.close()
            raise DataDirError(f"data directory {directory}: {error}") from error

    def close(self) -> None:
        """Commit and release the files; after a failure only release them."""
        if self._closed:
            return
        try:
            if self._failed is None:
                self.commit()
        finally:
            self.abandon()

    @override
    def abandon(self) -> None:
        """Release the files without a commit."""
        if self._closed:
            return
        self._closed = True
        self._end_defragmentation()
        if self._removal is not None:
            self._removal.join()
        self._failed = self._failed or StorageFatalError(f"{self._path} is closed")
        super().abandon()
        self._files.unlock()

    # Readers in other processes

    def readers(self) -> list[ReaderSlot]:
        """Return the readers of other processes, the one furthest behind first.

        LMDB keeps no times: a reader's age is counted in commits. One that keeps pages from being
        reused for longer than its starter means to allow must be ended by its starter (by pid);
        the slot is freed by the next check.
        """
        slots = _parse_readers(self._env.readers(), self._env.info()["last_txnid"])
        others = [slot for slot in slots if slot.pid != os.getpid()]
        return sorted(others, key=lambda slot: slot.txn_id)

    def oldest_reader(self) -> ReaderSlot | None:
        """Return the reader of another process that is furthest behind, if there is one."""
        slots = self.readers()
        return slots[0] if slots else None

    # Defragmentation

    def defragmenting(self) -> bool:
        """Tell whether step_defragment has something to do."""
        return self._defragmentation is not None

    def start_defragment(self) -> None:
        """Begin to copy the live rows into a fresh file; requests go on meanwhile.

        Raises DefragmentError if one is under way or there is no room for a second file.
        """
        if self._failed is not None:
            raise self._refuse()
        if self._defragmentation is not None:
            raise DefragmentError("a defragmentation is under way already")
        self.commit()
        self._remove_leftovers()
        needed_bytes, has_bytes = self._size_in_use_bytes, free_bytes(self._files.directory)
        if needed_bytes > has_bytes:
            raise DefragmentError(
                f"the copy needs {needed_bytes} bytes, {self._files.directory} has {has_bytes}"
            )
        if (planted := hit("defragOpenFileError")) is not None:
            raise DefragmentError(str(planted))
        env = self._env
        try:
            self._defragmentation = Defragmentation(
                original=self,
                files=self._files,
                source=lambda fd: env.copyfd(fd, compact=True),  # in C, other threads go on
                open_copy=lambda sync: LmdbTables(
                    self._files.copy, self._map_size_bytes, sync=sync
                ),
                keys_max=self._journal_keys_max,
            )
        except OSError as error:
            raise DefragmentError(f"the copy cannot be started: {error}") from error
        self._follow(self._defragmentation)

    def step_defragment(self) -> bool:
        """Do a bounded slice of the work; return True once the fresh file has taken over.

        Raises DefragmentError if the copy is given up (the old file stays in use), and
        StorageFatalError if the old file is hurt too.
        """
        defragmentation = self._defragmentation
        if defragmentation is None:
            raise DefragmentError("no defragmentation is under way")
        if self._failed is not None:
            raise self._refuse()
        try:
            tables = defragmentation.step()
            if tables is not None:
                hit("defragBeforeRename")
                self._swap(tables)
                return True
        except (OSError, KvstoreError, lmdb.Error) as error:
            final = self._give_up(error)
            raise final from (error if final is not error else None)
        self._follow(defragmentation)
        return False

    def _follow(self, defragmentation: Defragmentation[LmdbTables]) -> None:
        """Journal where it wants it, and keep the map in place while it reads through it."""
        self._journal = defragmentation.journal
        self._map_pinned = defragmentation.reading()

    def _end_defragmentation(self) -> None:
        if self._defragmentation is not None:
            self._defragmentation.drop()
        self._defragmentation = self._journal = None
        self._map_pinned = False

    def _swap(self, tables: LmdbTables) -> None:
        """Commit both, put the fresh file in the old one's place, go on with it."""
        self.commit()
        old, _ = self.release()
        try:
            self._files.swap()
        except OSError as error:
            self._begin()
            raise DefragmentError(str(error)) from error
        except StorageFatalError as error:
            self._failed = error
            raise
        self._env, self._dbs = tables.release()
        self._defragmentation = self._journal = None
        self._begin()
        self._removal = Aside(lambda: self._remove_old(old), "defragment-remove")

    # A state received with a snapshot

    def take_received(self, index: int) -> bool:
        """Put the state received with the snapshot at index in this one's place; False: none."""
        if self._failed is not None:
            raise self._refuse()
        path = received_path(self._files.directory, index)
        if not path.exists():
            return False
        self._end_defragmentation()
        try:
            self._remove_leftovers()
            # Opened under its own name: an environment survives being renamed.
            tables = LmdbTables(path, self._map_size_bytes)
        except KvstoreError as error:
            self._failed = StorageFatalError(f"{path} cannot take the state's place: {error}")
            raise self._failed from error
        old, _ = self.release()
        try:
            self._files.swap(path)
        except (OSError, StorageFatalError) as error:
            self._failed = StorageFatalError(f"{path} cannot take the state's place: {error}")
            raise self._failed from error
        self._env, self._dbs = tables.release()
        self._begin()
        self._removal = Aside(lambda: self._remove_old(old), "received-remove")
        return True

    def drop_received(self, up_to_index: int) -> None:
        """Delete the states received with snapshots up to this index that were not taken."""
        try:
            for index, path in self._files.received():
                if index <= up_to_index:
                    remove_tree(path)
        except OSError as error:
            self._failed = StorageFatalError(f"{self._files.directory}: {error}")
            raise self._failed from error

    def _remove_old(self, env: lmdb.Environment) -> None:
        """Unmap and remove the old file, off the turn thread: for a large file it takes long."""
        env.close()
        self._files.remove_old()

    def _remove_leftovers(self) -> None:
        """Make sure that the last swap's old file is gone before there is to be another."""
        if self._removal is not None:
            self._removal.join()
            self._removal = None
        try:
            self._files.remove_old()  # again, if that failed
        except OSError as error:
            raise DefragmentError(f"{self._files.old} cannot be removed: {error}") from error

    def _give_up(self, cause: Exception) -> KvstoreError:
        """Drop the copy; return the error to raise: this file's own, if it is the one hurt."""
        if self._failed is not None:
            return self._failed
        self._end_defragmentation()
        return DefragmentError(f"given up, the old file stays in use: {cause}")


class ReadSnapshot:
    """One commit, as another process sees it; it stays the same however long it is read."""

    def __init__(
        self,
        env: lmdb.Environment,
        txn: "lmdb.Transaction[Any]",
        path: Path,
        *,
        has_views: bool = False,
    ) -> None:
        self._txn = txn
        self._path = path
        self._has_views = has_views
        try:
            self._dbs = [env.open_db(bucket, txn=txn, create=False) for bucket in BUCKETS]
            self.size_bytes = (env.info()["last_pgno"] + 1) * txn.stat()["psize"]
        except lmdb.Error as error:
            raise CorruptionError(f"{path / 'data.mdb'}: {error}") from error

    def tables(self) -> tuple[Table, ...]:
        """Return all tables, in the bytewise order of their bucket names."""
        return tuple(Table)

    def scan(self, table: Table, start: bytes = b"") -> Iterator[Row]:
        """Yield the rows with key >= start, ascending; damage raises CorruptionError."""
        try:
            cursor = self._txn.cursor(self._dbs[table])
            if cursor.set_range(start):
                rows = cursor.iternext()
                if self._has_views:
                    rows = ((bytes(key), bytes(value)) for key, value in rows)
                yield from rows
        except lmdb.Error as error:
            raise CorruptionError(f"{self._path / 'data.mdb'}: {error}") from error

    def views(self, table: Table) -> "Iterator[tuple[memoryview, memoryview]]":
        """Yield all rows as they lie in the map, valid while this snapshot is open.

        Of a value that is only measured nothing is read. For a snapshot opened with views.
        """
        try:
            yield from self._txn.cursor(self._dbs[table])
        except lmdb.Error as error:
            raise CorruptionError(f"{self._path / 'data.mdb'}: {error}") from error

    def leaf_pages(self, table: Table) -> int:
        """Return over how many pages the rows of a table are spread; large values lie beside."""
        try:
            return int(self._txn.stat(self._dbs[table])["leaf_pages"])
        except lmdb.Error as error:
            raise CorruptionError(f"{self._path / 'data.mdb'}: {error}") from error

    def txn_id(self) -> int:
        """Return the number of the commit that is read."""
        return self._txn.id()


@contextmanager
def open_reader(directory: Path, *, views: bool = False) -> Iterator[ReadSnapshot]:
    """Read the last commit of the state under directory, from another process than the server.

    The snapshot keeps the pages it can see from being reused: read it and be gone. A swap by
    defragmentation does not disturb it. With views, `views()` can be used. Raises DataDirError if
    there is no state to read.
    """
    path = directory / "lmdb"
    for _ in range(READER_ATTEMPTS_MAX):
        opened = _try_reader(path, views=views)
        if opened is not None:
            break
        time.sleep(READER_RETRY_S)
    else:
        raise DataDirError(f"{path} cannot be opened: it is missing or was swapped at each attempt")
    env, txn = opened
    try:
        yield ReadSnapshot(env, txn, path, has_views=views)
    finally:
        txn.abort()
        env.close()


def _try_reader(
    path: Path, *, views: bool
) -> "tuple[lmdb.Environment, lmdb.Transaction[Any]] | None":
    """Begin a read; None if the directory was missing or swapped meanwhile.

    The data file and the lock file are found by name, one after the other: both are of one
    environment only if the directory is the same before and after.
    """
    try:
        before = path.stat().st_ino
        env = lmdb.open(str(path), map_size=0, max_dbs=_MAX_DBS, readonly=True, create=False)
    except FileNotFoundError:
        return None
    except lmdb.Error as error:
        if error.code == errno.ENOENT or not path.exists():
            return None
        if isinstance(error, _ROTTEN):
            text = f"offset 0: not an LMDB file: {error}"
            raise CorruptionError(f"{path / 'data.mdb'}: {text}") from error
        raise DataDirError(f"{path} cannot be read: {error}") from error
    try:
        txn: lmdb.Transaction[Any] = env.begin(buffers=True) if views else env.begin()
        if path.stat().st_ino == before:
            return env, txn
        txn.abort()
    except (FileNotFoundError, lmdb.MapResizedError):
        env.close()
        return None
    env.close()
    return None


def _open_environment(path: Path, map_size_bytes: int, *, sync: bool) -> lmdb.Environment:
    data_path = path / "data.mdb"
    try:
        env = lmdb.open(str(path), map_size=map_size_bytes, max_dbs=_MAX_DBS, mode=0o600, sync=sync)
        _extend(data_path, env)
    except lmdb.InvalidError as error:
        raise CorruptionError(f"{data_path}: offset 0: not an LMDB file: {error}") from error
    except (lmdb.Error, OSError) as error:
        raise DataDirError(
            f"{path} cannot be opened with a map of {map_size_bytes} bytes: {error}"
        ) from error
    return env


def _extend(data_path: Path, env: lmdb.Environment) -> None:
    """Lengthen a file that ends before its last page: then damage is an error and no SIGBUS.

    An undamaged file may be short too: pages that were taken and given back within one
    transaction are never written.
    """
    needed_bytes = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if data_path.stat().st_size < needed_bytes:
        os.truncate(data_path, needed_bytes)


def _sync_and_close(env: lmdb.Environment) -> None:
    try:
        env.sync(True)
    finally:
        env.close()


def _open_tables(env: lmdb.Environment, path: Path) -> "list[lmdb._Database]":
    """Check the format record (write it if the environment is new) and open the tables."""
    try:
        with env.begin(write=True) as txn:
            record = txn.get(FORMAT_KEY)
            if record is not None:
                _check_format(record, path)
            elif txn.stat()["entries"]:
                raise DataDirError(f"{path} is an LMDB environment of another program")
            else:
                txn.put(FORMAT_KEY, _format_record())
            return [env.open_db(bucket, txn=txn) for bucket in BUCKETS]
    except _ROTTEN as error:
        raise CorruptionError(f"{path / 'data.mdb'}: {error}") from error
    except lmdb.Error as error:
        raise DataDirError(f"{path} cannot be written: {error}") from error


def _format_record() -> bytes:
    # A process that only reads has no use for it.
    import msgpack  # type: ignore[import-untyped]

    record: bytes = msgpack.packb({"format": FORMAT_VERSION, "created_by": SERVER_VERSION})
    return record


def _check_format(record: bytes, path: Path) -> None:
    import msgpack

    try:
        fields = msgpack.unpackb(record)
        version, created_by = fields["format"], fields["created_by"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"{path}: the format record {record!r} cannot be read") from error
    if version > FORMAT_VERSION:
        raise DataDirError(
            f"{path} has format {version} (created by version {created_by}); this is version "
            f"{SERVER_VERSION}, which reads formats up to {FORMAT_VERSION}"
        )


def _rows_before(rows: Iterator[Row], end: bytes, limit: int) -> list[Row]:
    """Take up to limit rows with key < end, in growing gulps, so that few are read in vain."""
    taken: list[Row] = []
    gulp = SCAN_FIRST_ROWS
    while len(taken) < limit:
        chunk = list(islice(rows, min(gulp, limit - len(taken))))
        if not chunk or chunk[-1][0] >= end:
            taken += [row for row in chunk if row[0] < end]
            break
        taken += chunk
        gulp *= 2
    return taken


def _parse_readers(table: str, last_txn_id: int) -> list[ReaderSlot]:
    """Parse LMDB's own listing: a heading, then lines of pid, thread and transaction."""
    slots = []
    for line in table.splitlines():
        columns = line.split()
        if len(columns) == 3 and columns[0].isdigit() and columns[2].isdigit():
            pid, txn_id = int(columns[0]), int(columns[2])
            slots.append(ReaderSlot(pid, txn_id, last_txn_id - txn_id))
    return slots
