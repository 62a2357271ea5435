"""Reads one commit of a state from another process than the server, and lists such readers.

A reader sees the last commit there was when it began, however long it reads. Pages freed since
then cannot be reused while it lasts, so it should end soon. LMDB keeps no times: a reader's age is
counted in commits. The slots of dead processes are cleared by the server.
"""

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb

from kvstore.backend import BUCKETS, Row, Table
from kvstore.errors import CorruptionError, DataDirError
from kvstore.storage.lmdb.damage import damaged_row
from kvstore.storage.lmdb.environment import DAMAGE_ERRORS, TABLES_MAX, has_checksums, sums_of
from kvstore.storage.row_sums import SUM_BYTES

READER_ATTEMPTS_MAX: Final = 100
READER_RETRY_S: Final = 0.01
ROWS_PER_CHECK: Final = 64


class ReaderSlot(NamedTuple):
    """One reading transaction, as the environment's reader table lists it."""

    pid: int
    txn_id: int
    commits_behind: int


def parse_readers(table: str, last_txn_id: int) -> list[ReaderSlot]:
    """Parse LMDB's listing: a heading, then lines of pid, thread and transaction."""
    slots = []
    for line in table.splitlines():
        columns = line.split()
        if len(columns) == 3 and columns[0].isdigit() and columns[2].isdigit():
            pid, txn_id = int(columns[0]), int(columns[2])
            slots.append(ReaderSlot(pid, txn_id, last_txn_id - txn_id))
    return slots


class ReadSnapshot:
    """One commit, as another process sees it; it never changes while it is read."""

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
            self.has_checksums = has_checksums(txn, path)
        except lmdb.Error as error:
            raise CorruptionError(f"{path / 'data.mdb'}: {error}") from error

    def scan(self, table: Table, start: bytes = b"") -> Iterator[Row]:
        """Yield the rows with key >= start, ascending; damage raises CorruptionError."""
        try:
            cursor = self._txn.cursor(self._dbs[table])
            if cursor.set_range(start):
                yield from self._checked(table, cursor.iternext())
        except lmdb.Error as error:
            raise CorruptionError(f"{self._path / 'data.mdb'}: {error}") from error

    def _checked(self, table: Table, rows: Iterator[Row]) -> Iterator[Row]:
        sums = sums_of(has_sums=self.has_checksums)
        while page := list(islice(rows, ROWS_PER_CHECK)):
            if self._has_views:
                page = [(bytes(key), bytes(value)) for key, value in page]
            checked = sums.rows(page)
            if checked is not None:
                yield from checked
                continue
            for key, stored in page:
                value = sums.value(key, stored)
                if value is None:
                    raise damaged_row(self._path / "data.mdb", table, key, stored)
                yield key, value

    def views(
        self, table: Table, *, check: bool = True
    ) -> "Iterator[tuple[memoryview, memoryview]]":
        """Yield all rows as views into the map, valid while this snapshot is open.

        With check=False a value is not read if only its length is used. For a snapshot
        opened with views.
        """
        try:
            rows = iter(self._txn.cursor(self._dbs[table]))
            if not self.has_checksums:
                yield from rows
                return
            value = sums_of(has_sums=True).value
            for key, stored in rows:
                if check and value(bytes(key), bytes(stored)) is None:
                    path = self._path / "data.mdb"
                    raise damaged_row(path, table, bytes(key), bytes(stored))
                yield key, stored[:-SUM_BYTES]
        except lmdb.Error as error:
            raise CorruptionError(f"{self._path / 'data.mdb'}: {error}") from error

    def leaf_pages(self, table: Table) -> int:
        """Return how many leaf pages a table has; large values have pages of their own."""
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

    A swap by defragmentation does not disturb the snapshot. With views, `views()` can be used.
    Raises DataDirError if there is no state to read.
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

    The data file and the lock file are opened by name, one after the other. Both belong to one
    environment only if the directory is the same before and after.
    """
    try:
        before = path.stat().st_ino
        env = lmdb.open(str(path), map_size=0, max_dbs=TABLES_MAX, readonly=True, create=False)
    except FileNotFoundError:
        return None
    except lmdb.Error as error:
        if error.code == errno.ENOENT or not path.exists():
            return None
        if isinstance(error, DAMAGE_ERRORS):
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
