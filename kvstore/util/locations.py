"""The format of a path: a database file, etcd's data directory or ours; and its locks.

    <file>                           an etcd database, with or without the digest of a snapshot
    <dir>/member/snap/db             etcd's data directory
    <dir>/member/lmdb                ours
    <dir>/member/wal or --wal-dir    the log of either

A directory is locked while it is in use: the last segment of its log as a server locks it, ours
also by its `lmdb.lock`. So a running server is noticed before anything is read, and none can be
started meanwhile. The reader of an etcd database file locks the file itself.
"""

import errno
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from kvstore.errors import DataDirError
from kvstore.storage.files import OsFiles
from kvstore.storage.lmdb.files import LmdbFiles
from kvstore.storage.wal.segment import list_segments

POLL_S: Final = 0.05
NOTICE_AFTER_S: Final = 1.0

T = TypeVar("T")


class DataFormat(Enum):
    """The format of a path."""

    FILE = "etcd database file"
    ETCD = "etcd data directory"
    KVSTORE = "kvstore data directory"


class Location(NamedTuple):
    """A path and the paths under it; for a FILE only path and db have a meaning."""

    path: Path
    format: DataFormat
    db: Path  # the database file, or the directory of the LMDB state
    member: Path
    wal: Path

    @property
    def snap(self) -> Path:
        """The directory of the snapshot files."""
        return self.member / "snap"


def locate(path: Path, wal_dir: Path | None = None) -> Location:
    """Return the location of a path; DataDirError if it has none of the three formats."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise DataDirError(f"{path}: {_lower(error)}") from error
    if stat.S_ISREG(mode):
        return Location(path, DataFormat.FILE, path, path.parent, path.parent)
    if not stat.S_ISDIR(mode):
        raise DataDirError(f"{path}: expected a database file or a data directory")
    member = path / "member"
    wal = wal_dir or member / "wal"
    ours, etcds = member / "lmdb", member / "snap" / "db"
    if ours.is_dir() and etcds.exists():
        raise DataDirError(
            f"{member} contains two states, lmdb and etcd's snap/db: move the one that should "
            "not be used out of the directory"
        )
    if ours.is_dir():
        return Location(path, DataFormat.KVSTORE, ours, member, wal)
    if etcds.exists():
        return Location(path, DataFormat.ETCD, etcds, member, wal)
    raise DataDirError(
        f"{path}: expected a data directory, found neither member/lmdb nor member/snap/db in it"
    )


def locate_directory(path: Path, wal_dir: Path | None = None) -> Location:
    """Return the location of a data directory; DataDirError if it is not one."""
    location = locate(path, wal_dir)
    if location.format is DataFormat.FILE:
        raise DataDirError(f"{path}: expected a data directory, found a file")
    return location


@contextmanager
def locked(location: Location, timeout_s: float, *, for_writing: bool = False) -> Iterator[None]:
    """Lock a directory against servers; a database file is locked by its reader.

    Waits up to timeout_s (0: no limit) for a server to stop. With for_writing, the backend that
    will write our state locks it itself. Raises DataDirError.
    """
    with ExitStack() as stack:
        if location.format is DataFormat.KVSTORE and not for_writing:
            lock = retry_while_locked(lambda: LmdbFiles(location.member), timeout_s)
            stack.callback(lock.unlock)
        if location.format is not DataFormat.FILE:
            stack.callback(retry_while_locked(lambda: _lock_log(location.wal), timeout_s))
        yield


def retry_while_locked(take: Callable[[], T], timeout_s: float) -> T:
    """Return take(), repeated for up to timeout_s (0: no limit) while another process has the lock.

    Other errors of take, and the last one, are raised.
    """
    started_s = time.monotonic()
    is_announced = False
    while True:
        try:
            return take()
        except DataDirError as error:
            waited_s = time.monotonic() - started_s
            if not _is_locked(error) or (timeout_s and waited_s >= timeout_s):
                raise
            if not is_announced and waited_s >= NOTICE_AFTER_S:
                is_announced = True
                sys.stderr.write(f"waiting: {error}\n")
        time.sleep(POLL_S)


def _is_locked(error: DataDirError) -> bool:
    return isinstance(error.__cause__ or error.__context__, BlockingIOError)


def _lock_log(directory: Path) -> Callable[[], None]:
    """Lock the last segment of a log, if there is one; return what unlocks it."""
    files = OsFiles()
    try:
        segments = list_segments(files, directory)
        if not segments:
            return lambda: None
        path = segments[-1].path
        handle = files.open(path, write=True)
    except OSError as error:
        if error.errno == errno.EROFS:
            return lambda: None  # no server can be writing here
        raise DataDirError(f"{directory}: cannot be locked: {_lower(error)}") from error
    if not files.try_lock(handle):
        files.close(handle)
        raise DataDirError(
            f"{path} is in use by another process: stop the server that runs on it first"
        ) from BlockingIOError(errno.EAGAIN, "locked")
    return lambda: files.close(handle)


def _lower(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
