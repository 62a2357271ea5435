"""Takes over the data directory of an etcd: its database file becomes an LMDB state.

    <member>/snap/db                      etcd's state, or one that etcdutl restored
    <member>/snap/<index:016x>.snap.db    one received with a snapshot, not yet installed
    <member>/lmdb                         this server's state

    import  snap/db → lmdb.tmp/lmdb, synced
    move    snap/db → snap/db.taken-over, fsync(snap)        etcd's state counts until here
    move    lmdb.tmp/lmdb → lmdb, fsync(member)
    remove  lmdb.tmp

Each step is durable before the next. The files at a start show where the last one ended:

    found                                        done
    snap/db, maybe lmdb.tmp                      a new import
    no snap/db, lmdb.tmp/lmdb, no lmdb           the import is complete: the moves
    lmdb, maybe lmdb.tmp                         lmdb.tmp is removed
    snap/db and lmdb                             refused: two states, and which is newer is unknown

Every bucket is copied row by row. A bucket without a table here is refused by name, and so is a
version newer than this server's: nothing is dropped silently, and a refusal changes nothing. The
database file is locked against etcd and other readers while it is read. The log in <member>/wal
stays where it is; only the index of its last snapshot matters here, since it may require the
received database.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kvstore.backend import BUCKETS, Backend, Row, Table
from kvstore.errors import DataDirError
from kvstore.meta_rows import (
    CLUSTER_VERSION_KEY,
    CONSISTENT_INDEX_KEY,
    STORAGE_VERSION_KEY,
)
from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.files import Files, OsFiles
from kvstore.storage.lmdb.files import LmdbFiles
from kvstore.storage.row_source import RowSource, small_rows
from kvstore.types import CLUSTER_VERSION, SERVER_VERSION

BATCH_BYTES_MAX: Final = 4 << 20
BATCH_ROWS_MAX: Final = 8192
COMMIT_BYTES: Final = 64 << 20

Progress = Callable[[int, int], None]


class RowSink(Protocol):
    """The methods of a backend that rows are copied with."""

    def append(self, table: Table, rows: Iterable[Row]) -> None: ...
    def commit(self) -> None: ...


class TakenOver(NamedTuple):
    """What was taken over; zeros if an earlier start completed the import."""

    rows: int
    size_bytes: int  # of the database file
    consistent_index: int


def take_over(
    member_dir: Path,
    open_backend: Callable[[Path], Backend],
    *,
    snapshot_index: int = 0,
    progress: Progress | None = None,
    files: Files | None = None,
) -> TakenOver | None:
    """Take over an etcd's state in member_dir, if there is one; return None if not.

    open_backend makes a new backend under the directory it is given, in `<directory>/lmdb`.
    snapshot_index is that of the log's last snapshot, 0 for none. progress is called now and then
    with (bytes imported, about how many there are). Raises DataDirError (locked, newer, not
    etcd's, two states, the required database is missing, a file that cannot be renamed),
    CorruptionError, or what the backend raises.
    """
    move = _Move(member_dir, files or OsFiles())
    try:
        if not move.is_needed(snapshot_index):
            return None
        lock = LmdbFiles(member_dir)  # the lock of a running server
        try:
            return _locked_take_over(move, open_backend, snapshot_index, progress)
        finally:
            lock.unlock()
    except OSError as error:
        raise DataDirError(
            f"{member_dir}: an etcd's state cannot be taken over: {error}"
        ) from error


def _locked_take_over(
    move: "_Move",
    open_backend: Callable[[Path], Backend],
    snapshot_index: int,
    progress: Progress | None,
) -> TakenOver:
    if move.imported():
        move.finish()
        return TakenOver(0, 0, 0)
    with _open_source(move, snapshot_index) as source:
        check_buckets(source)
        meta, cluster = small_rows(source, Table.META), small_rows(source, Table.CLUSTER)
        refuse_newer(source.path, STORAGE_VERSION_KEY, meta.get(STORAGE_VERSION_KEY))
        refuse_newer(source.path, CLUSTER_VERSION_KEY, cluster.get(CLUSTER_VERSION_KEY))
        move.clear()
        rows = _import(source, move, open_backend, progress)
        move.finish()
        return TakenOver(rows, source.size_bytes, _consistent_index(source))


class _Move:
    """The paths in a member directory and the steps between them."""

    def __init__(self, member_dir: Path, files: Files) -> None:
        self._files = files
        self._member = member_dir
        self._snap = member_dir / "snap"
        self._live = member_dir / "lmdb"
        self._swapped_out = member_dir / "lmdb.old"  # the state, if a swap was interrupted
        self._taken = self._snap / "db.taken-over"
        self.build = member_dir / "lmdb.tmp"
        self._built = self.build / "lmdb"
        self.db = self._snap / "db"

    def received(self, index: int) -> Path:
        """Return the path of the database received with the snapshot at index."""
        return self._snap / f"{index:016x}.snap.db"

    def exists(self, path: Path) -> bool:
        """Return whether a file exists."""
        return self._files.exists(path)

    def is_needed(self, snapshot_index: int) -> bool:
        """Return whether there is something to take over; remove leftovers of earlier attempts."""
        exists = self._files.exists
        if exists(self._live) or exists(self._swapped_out):
            if exists(self.db):
                raise DataDirError(
                    f"{self._member} contains two states, {self._live.name} and etcd's snap/db: "
                    "move the one that should not be used out of the directory"
                )
            self.clear()
            return False
        received = snapshot_index > 0 and exists(self.received(snapshot_index))
        return exists(self.db) or self.imported() or received

    def imported(self) -> bool:
        """Return whether an import is complete and not yet moved."""
        return (
            not self._files.exists(self.db)
            and self._files.exists(self._taken)
            and self._files.exists(self._built)
        )

    def clear(self) -> None:
        """Remove an interrupted import, or what is left of a complete one."""
        if self._files.exists(self.build):
            self._files.remove_tree(self.build)

    def install_received(self, index: int) -> None:
        """Replace the current database by a received one, as etcd does at its start."""
        self._files.rename(self.received(index), self.db)
        self._files.sync_directory(self._snap)

    def finish(self) -> None:
        """Make the import the state; may be called again after a crash in it."""
        self._files.sync_directory(self._built)
        self._files.sync_directory(self.build)
        self._files.sync_directory(self._member)
        if self._files.exists(self.db):
            self._files.rename(self.db, self._taken)
            self._files.sync_directory(self._snap)
        self._files.rename(self._built, self._live)
        self._files.sync_directory(self._member)
        self.clear()


def _open_source(move: _Move, snapshot_index: int) -> EtcdDbReader:
    """Open the database to import: snap/db, or the received one if the log is ahead of it."""
    index = 0
    if move.exists(move.db):
        source = EtcdDbReader(move.db, exclusive=True)
        index = _consistent_index(source)
        if snapshot_index <= index:
            return source
        source.close()
    received = move.received(snapshot_index)
    if not move.exists(received):
        raise DataDirError(
            f"{move.db} is at index {index} and the log begins at its snapshot {snapshot_index}: "
            f"{received.name} is required and missing"
        )
    source = EtcdDbReader(received, exclusive=True)
    try:
        _check_index(source, snapshot_index)
        move.install_received(snapshot_index)
    except BaseException:
        source.close()
        raise
    return source


def _check_index(source: EtcdDbReader, snapshot_index: int) -> None:
    index = _consistent_index(source)
    if index < snapshot_index:
        raise DataDirError(f"{source.path} is at index {index}, below {snapshot_index}")


def _consistent_index(source: EtcdDbReader) -> int:
    """Return the raft index that a database has applied, 0 if it has none."""
    value = small_rows(source, Table.META).get(CONSISTENT_INDEX_KEY, b"")
    return int.from_bytes(value)


def check_buckets(source: RowSource) -> None:
    """Raise DataDirError unless every bucket has a table here, and an etcd's buckets are there."""
    names = source.buckets()
    unknown = [repr(name) for name in names if name not in BUCKETS]
    if unknown:
        raise DataDirError(
            f"{source.path} has buckets that this server cannot store: {', '.join(unknown)}"
        )
    for table in (Table.KEY, Table.META):
        if BUCKETS[table] not in names:
            raise DataDirError(
                f"{source.path} is not an etcd database: no bucket {BUCKETS[table].decode()!r}"
            )


def refuse_newer(path: Path, key: bytes, value: bytes | None) -> None:
    """Raise DataDirError for a version whose major.minor is newer than this server's.

    value is the row of key in the database at path, None if it has none.
    """
    if value is None:
        return
    text = value.decode("ascii", "backslashreplace")
    parts = text.split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        raise DataDirError(f"{path}: invalid version {text!r} in {key.decode()}")
    ours = CLUSTER_VERSION.split(".")
    if (int(parts[0]), int(parts[1])) > (int(ours[0]), int(ours[1])):
        raise DataDirError(
            f"{path}: {key.decode()} is {text}, this is version {SERVER_VERSION}, which "
            f"reads up to {ours[0]}.{ours[1]}"
        )


def _import(
    source: EtcdDbReader,
    move: _Move,
    open_backend: Callable[[Path], Backend],
    progress: Progress | None,
) -> int:
    """Copy every row of source into a new backend in move.build; return how many."""
    try:
        backend = open_backend(move.build)
        try:
            rows = copy_rows(source, backend, progress)
        finally:
            backend.close()
    except BaseException:
        move.clear()
        raise
    return rows


def copy_rows(
    source: RowSource,
    backend: RowSink,
    progress: Progress | None = None,
    *,
    commit_bytes: int = COMMIT_BYTES,
) -> int:
    """Copy every row of source into an empty backend, committing on the way; return how many.

    The last rows are uncommitted on return. Buckets without a table here are skipped: see
    check_buckets. progress is called with (bytes copied, about how many there are).
    """
    row_count = byte_count = uncommitted_bytes = 0
    names = set(source.buckets())
    for table in Table:
        if BUCKETS[table] not in names:
            continue
        for rows, size in _batches(source.scan(BUCKETS[table])):
            backend.append(table, rows)
            row_count += len(rows)
            byte_count += size
            uncommitted_bytes += size
            if uncommitted_bytes >= commit_bytes:  # LMDB keeps the pages of a transaction in memory
                backend.commit()
                uncommitted_bytes = 0
            if progress is not None:
                progress(byte_count, source.size_bytes)
    return row_count


def _batches(rows: Iterator[Row]) -> Iterator[tuple[list[Row], int]]:
    """Yield (rows, bytes in them); a batch exceeds BATCH_BYTES_MAX by its last row at most."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row[0]) + len(row[1])
        if size >= BATCH_BYTES_MAX or len(batch) >= BATCH_ROWS_MAX:
            yield batch, size
            batch = []
            size = 0
    if batch:
        yield batch, size
