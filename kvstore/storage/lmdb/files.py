"""The directories of the LMDB state: who owns them, and how a fresh copy takes the old one's place.

    <directory>/lmdb.lock      flock held for the life of the process: one server per directory
    <directory>/lmdb/          data.mdb, lock.mdb: the state
    <directory>/lmdb.defrag/   a compacted copy in the making; worth nothing until the swap
    <directory>/lmdb.old/      the state on its way out
    <directory>/lmdb.received.<index>/    a state received with a snapshot, complete (see received)
    <directory>/lmdb.receiving.<index>/   one in the making

The swap is two renames in one parent, made durable by one fsync of it:

    lmdb → lmdb.old, lmdb.defrag → lmdb, fsync(parent), remove lmdb.old

It begins only when both hold the same rows, both synced, so wherever it is cut off `recover` has a
complete state to go on with:

    found at start                    so the cut was         and recover
    lmdb, maybe lmdb.defrag           before the swap        removes lmdb.defrag
    lmdb.old, lmdb.defrag, no lmdb    between the renames    moves lmdb.old back, removes the copy
    lmdb, lmdb.old                    after the renames      removes lmdb.old

A received state takes the place of the current one by the same swap. Whether it is wanted is not
for `recover` to know: the log says so, and the boot asks for it again.

It knows nothing of what is inside the files.
"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvstore.errors import DataDirError, StorageFatalError

RECEIVED_PREFIX: Final = "lmdb.received."
RECEIVING_PREFIX: Final = "lmdb.receiving."


def received_path(directory: Path, index: int) -> Path:
    """Return where the state received with the snapshot at index waits to be taken."""
    return directory / f"{RECEIVED_PREFIX}{index:016x}"


class LmdbFiles:
    """The paths under one directory and the lock on them."""

    def __init__(self, directory: Path) -> None:
        """Take the directory, making it if need be.

        Raises DataDirError if it cannot be made or another process holds it.
        """
        self.directory = directory
        self.live = directory / "lmdb"
        self.copy = directory / "lmdb.defrag"
        self.old = directory / "lmdb.old"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_fd = os.open(directory / "lmdb.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataDirError(f"data directory {directory} cannot be used: {error}") from error
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock_fd)
            raise DataDirError(
                f"data directory {directory} is in use by another process ({error.strerror})"
            ) from error

    def recover(self) -> None:
        """Finish or undo a swap that was cut off, and make the live directory if there is none."""
        try:
            if self.old.exists() and not self.live.exists():
                self.old.rename(self.live)
            self.remove_copy()
            self.remove_old()
            for path in self.directory.glob(f"{RECEIVING_PREFIX}*"):
                remove_tree(path)
            self.live.mkdir(mode=0o700, exist_ok=True)
            sync_directory(self.directory)
        except OSError as error:
            raise DataDirError(f"data directory {self.directory}: {error}") from error

    def swap(self, fresh: Path | None = None) -> None:
        """Put the copy, or another fresh directory, in the place of the live one.

        Raises OSError if nothing has changed, StorageFatalError if that cannot be promised.
        """
        fresh = fresh or self.copy
        sync_directory(fresh)
        self.live.rename(self.old)
        try:
            fresh.rename(self.live)
        except OSError as error:
            self._undo(error)
            raise
        try:
            sync_directory(self.directory)
        except OSError as error:
            raise StorageFatalError(f"fsync of {self.directory} failed: {error}") from error

    def _undo(self, cause: OSError) -> None:
        try:
            self.old.rename(self.live)
        except OSError as error:
            raise StorageFatalError(
                f"{self.live} was moved to {self.old} and cannot be moved back: {error} "
                f"(after: {cause})"
            ) from error

    def make_copy_directory(self) -> None:
        """Make an empty directory for the copy."""
        self.remove_copy()
        self.copy.mkdir(mode=0o700)

    def remove_copy(self) -> None:
        """Remove what a copy left behind, if anything."""
        remove_tree(self.copy)

    def remove_old(self) -> None:
        """Remove the state that was swapped out, if it is still there."""
        remove_tree(self.old)

    def received(self) -> Iterator[tuple[int, Path]]:
        """Yield (index, path) of the received states that wait to be taken."""
        for path in sorted(self.directory.glob(f"{RECEIVED_PREFIX}*")):
            yield int(path.name.removeprefix(RECEIVED_PREFIX), 16), path

    def unlock(self) -> None:
        """Let another process have the directory."""
        os.close(self._lock_fd)


def free_bytes(path: Path) -> int:
    """Return how much an unprivileged process can still write at a path, 0 if it is not there."""
    try:
        status = os.statvfs(path)
    except FileNotFoundError:
        return 0
    return status.f_bavail * status.f_frsize


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_tree(path: Path) -> None:
    """Remove a directory with all in it; one that is not there is fine."""
    if path.exists():
        import shutil  # with three compressors: a child that has nothing to remove needs none

        shutil.rmtree(path)
