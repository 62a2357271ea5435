"""The directories of the LMDB state: the lock on them, and how a new state replaces the old one.

    <directory>/lmdb.lock      locked (flock) while the process lives: one server per directory
    <directory>/lmdb/          data.mdb, lock.mdb: the state
    <directory>/lmdb.defrag/   a compacted copy being made; not needed until the swap
    <directory>/lmdb.old/      the state that was swapped out, to be removed
    <directory>/lmdb.received.<index>/    a complete state received with a snapshot
    <directory>/lmdb.receiving.<index>/   one being made

The swap is two renames in one parent, made durable by one fsync of it:

    lmdb → lmdb.old, lmdb.defrag → lmdb, fsync(parent), remove lmdb.old

It begins only when both hold the same rows and both are synced. So `recover` finds a complete state
wherever the swap was interrupted:

    found at start                    interrupted            recover
    lmdb, maybe lmdb.defrag           before the swap        removes lmdb.defrag
    lmdb.old, lmdb.defrag, no lmdb    between the renames    moves lmdb.old back, removes the copy
    lmdb, lmdb.old                    after the renames      removes lmdb.old

A received state replaces the current one by the same swap. The log
decides whether it is used, not `recover`: the start requests it again.

This module does not look inside the files.
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
    """Return the path of the state received with the snapshot at index."""
    return directory / f"{RECEIVED_PREFIX}{index:016x}"


class LmdbFiles:
    """The paths under one directory and the lock on them."""

    def __init__(self, directory: Path) -> None:
        """Lock the directory, making it if there is none.

        Raises DataDirError if it cannot be made or another process has locked it.
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
        """Finish or undo an interrupted swap; make the live directory if there is none."""
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

    def swap(self, new: Path | None = None) -> None:
        """Replace the live directory by the copy, or by another one.

        Raises OSError if nothing has changed, StorageFatalError if that is not certain.
        """
        new = new or self.copy
        sync_directory(new)
        self.live.rename(self.old)
        try:
            new.rename(self.live)
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
        """Remove the copy, if there is one."""
        remove_tree(self.copy)

    def remove_old(self) -> None:
        """Remove the state that was swapped out, if it is still there."""
        remove_tree(self.old)

    def received(self) -> Iterator[tuple[int, Path]]:
        """Yield (index, path) of the received states."""
        for path in sorted(self.directory.glob(f"{RECEIVED_PREFIX}*")):
            yield int(path.name.removeprefix(RECEIVED_PREFIX), 16), path

    def unlock(self) -> None:
        """Release the lock on the directory."""
        os.close(self._lock_fd)


def free_bytes(path: Path) -> int:
    """Return how many bytes an unprivileged process can still write at a path; 0 if missing."""
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
    """Remove a directory with everything in it, if it exists."""
    if path.exists():
        import shutil  # it imports three compressors; most processes have nothing to remove

        shutil.rmtree(path)
