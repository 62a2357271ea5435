"""What a path is: a database file, an etcd's data directory, or one of ours; and who holds it.

    <file>                           an etcd database, with or without the digest of a snapshot
    <dir>/member/snap/db             an etcd's data directory
    <dir>/member/lmdb                ours
    <dir>/member/wal or --wal-dir    the log of either

A directory is held while it is worked on: the last segment of its log is locked as a server would
lock it, ours also by its `lmdb.lock`. A server that runs is thereby noticed before anything is
read, and cannot be started meanwhile. The lock on an etcd's database file is its reader's affair.
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


class Kind(Enum):
    """Whose format a path is in."""

    FILE = "etcd database file"
    ETCD = "etcd data directory"
    KVSTORE = "kvstore data directory"


class Place(NamedTuple):
    """A path and what is where under it; of a FILE only path and db mean anything."""

    path: Path
    kind: Kind
    db: Path  # the database file, or the directory of the LMDB state
    member: Path
    wal: Path

    @property
    def snap(self) -> Path:
        """Where the snapshot files are."""
        return self.member / "snap"


def find(path: Path, wal_dir: Path | None = None) -> Place:
    """Return what is at path; raise DataDirError if it is none of the three."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise DataDirError(f"{path}: {_lower(error)}") from error
    if stat.S_ISREG(mode):
        return Place(path, Kind.FILE, path, path.parent, path.parent)
    if not stat.S_ISDIR(mode):
        raise DataDirError(f"{path}: expected a database file or a data directory")
    member = path / "member"
    wal = wal_dir or member / "wal"
    ours, etcds = member / "lmdb", member / "snap" / "db"
    if ours.is_dir() and etcds.exists():
        raise DataDirError(
            f"{member} holds two states, lmdb and etcd's snap/db: move the one that is not to be "
            "used out of the directory"
        )
    if ours.is_dir():
        return Place(path, Kind.KVSTORE, ours, member, wal)
    if etcds.exists():
        return Place(path, Kind.ETCD, etcds, member, wal)
    raise DataDirError(
        f"{path}: expected a data directory, found neither member/lmdb nor member/snap/db in it"
    )


def find_directory(path: Path, wal_dir: Path | None = None) -> Place:
    """Return what is at path; raise DataDirError unless it is a data directory."""
    place = find(path, wal_dir)
    if place.kind is Kind.FILE:
        raise DataDirError(f"{path}: expected a data directory, found a file")
    return place


@contextmanager
def held(place: Place, timeout_s: float, *, for_writing: bool = False) -> Iterator[None]:
    """Keep servers away from a directory; a file is locked by its reader.

    Waits up to timeout_s (0: without end) for a server to go; for_writing leaves the lock on our
    state to the backend that will write it. Raises DataDirError.
    """
    with ExitStack() as stack:
        if place.kind is Kind.KVSTORE and not for_writing:
            lock = patiently(lambda: LmdbFiles(place.member), timeout_s)
            stack.callback(lock.unlock)
        if place.kind is not Kind.FILE:
            stack.callback(patiently(lambda: _lock_log(place.wal), timeout_s))
        yield


def patiently(take: Callable[[], T], timeout_s: float) -> T:
    """Return take(), trying again up to timeout_s (0: without end) while another process holds it.

    Whatever take raises for another reason, or at the end, goes through.
    """
    began_s = time.monotonic()
    told = False
    while True:
        try:
            return take()
        except DataDirError as error:
            waited_s = time.monotonic() - began_s
            if not _is_held(error) or (timeout_s and waited_s >= timeout_s):
                raise
            if not told and waited_s >= NOTICE_AFTER_S:
                told = True
                sys.stderr.write(f"waiting: {error}\n")
        time.sleep(POLL_S)


def _is_held(error: DataDirError) -> bool:
    return isinstance(error.__cause__ or error.__context__, BlockingIOError)


def _lock_log(directory: Path) -> Callable[[], None]:
    """Lock the last segment of a log; return how to let it go. No log, nothing to lock."""
    files = OsFiles()
    try:
        segments = list_segments(files, directory)
        if not segments:
            return lambda: None
        path = segments[-1].path
        handle = files.open(path, write=True)
    except OSError as error:
        if error.errno == errno.EROFS:
            return lambda: None  # nobody can be writing here
        raise DataDirError(f"{directory}: cannot be locked: {_lower(error)}") from error
    if not files.try_lock(handle):
        files.close(handle)
        raise DataDirError(
            f"{path} is in use by another process: stop the server that runs on it first"
        ) from BlockingIOError(errno.EAGAIN, "locked")
    return lambda: files.close(handle)


def _lower(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
