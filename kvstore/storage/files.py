"""The disk as the log and the snapshot files use it: an interface, and the operating system's.

    Wal, snapshot files ──► Files ◄── OsFiles (this machine) | a simulated disk | a faulty disk

Every disk keeps these rules:

- A read returns the bytes that were written.
- Written bytes survive a power cut once `sync_data` or `sync` has returned. Before that, any of
  their 512-byte sectors may be lost.
- A name that was made, renamed or removed stays so once `sync_directory` of its directory has
  returned.
- A failure is an OSError; the caller knows the path and gives the error its meaning.
- A write may be short, and then ends between two sectors of the file.

Handles are small numbers (file descriptors here). All calls come from one thread.
"""

import errno
import fcntl
import os
import shutil
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from kvstore.storage.writeback import begin_writeback
from kvstore.types import override

FREED_BYTES: Final = 8 << 20  # of a removed file at once
FREED_PAUSE_S: Final = 0.02
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600

# struct flock on 64-bit Linux: l_type, l_whence, padding, l_start, l_len, l_pid, padding.
# An open-file-description lock needs pid 0; start 0 and length 0 mean the whole file.
_WRITE_LOCK: Final = struct.pack("hh4xqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_OFD_SETLK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_LOCKED_ELSEWHERE: Final = frozenset({errno.EAGAIN, errno.EACCES})
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})  # the disk has no space
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})  # no descriptor is left
_NOT_SUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class Files(Protocol):
    """A disk; every method may raise OSError."""

    def exists(self, path: Path) -> bool:
        """Return whether a file or directory has this name."""
        ...

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make a directory (0700) and its missing parents, unless it exists."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with everything in it, if it exists."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file or directory atomically; an existing file is replaced."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        ...

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        """Open a file; create makes it (0600) if it is missing, and implies write."""
        ...

    def close(self, handle: int) -> None:
        """Close a file and release its lock."""
        ...

    def close_removed(self, handles: Sequence[int]) -> None:
        """Close files that were opened for writing and removed since, without delaying others."""
        ...

    def try_lock(self, handle: int) -> bool:
        """Lock a file opened for writing, exclusively; False if another process has it locked."""
        ...

    def size_bytes(self, handle: int) -> int:
        """Return the length of a file."""
        ...

    def data_end(self, handle: int) -> int:
        """Return an offset after which every byte is zero; not always the lowest such offset."""
        ...

    def read(self, handle: int, offset: int, size_bytes: int) -> bytes:
        """Return size_bytes from offset, fewer only at the end of the file."""
        ...

    def write(self, handle: int, offset: int, data: bytes) -> int:
        """Write at offset; return how many bytes were written, which may be fewer than given."""
        ...

    def truncate(self, handle: int, size_bytes: int) -> None:
        """Cut a file to size_bytes, or extend it with zeros that may have no blocks yet."""
        ...

    def allocate(self, handle: int, size_bytes: int) -> None:
        """Reserve zeroed blocks up to size_bytes; extends the file, never shortens it."""
        ...

    def begin_writeback(self, handle: int, offset: int, size_bytes: int) -> None:
        """Have the disk begin to write what a sync_data will wait for; never raises."""
        ...

    def sync_data(self, handle: int) -> None:
        """Make the bytes of a file durable, and the metadata needed to read them."""
        ...

    def sync(self, handle: int) -> None:
        """Make the bytes and all metadata of a file durable."""
        ...


def write_all(files: Files, handle: int, offset: int, data: bytes) -> None:
    """Write all of data at offset, in as many writes as it takes; may raise OSError."""
    while data:
        written = files.write(handle, offset, data)
        if written <= 0:
            raise OSError(errno.EIO, f"a write stored none of {len(data)} bytes")
        offset += written
        data = data[written:]


def write_file(files: Files, path: Path, data: bytes, size_bytes: int) -> None:
    """Make a file of data and zeros up to size_bytes; durable, except for its name."""
    handle = files.open(path, create=True)
    try:
        files.truncate(handle, 0)
        write_all(files, handle, 0, data)
        files.truncate(handle, size_bytes)
        files.sync(handle)
    finally:
        files.close(handle)


class OsFiles:
    """The disk of this machine."""

    def exists(self, path: Path) -> bool:
        """See Files."""
        return path.exists()

    def list_directory(self, path: Path) -> list[str]:
        """See Files."""
        return sorted(os.listdir(path))

    def make_directory(self, path: Path) -> None:
        """See Files."""
        for missing in (*reversed(path.parents), path):
            with suppress(FileExistsError):
                missing.mkdir(DIRECTORY_MODE)

    def remove(self, path: Path) -> None:
        """See Files."""
        path.unlink()

    def remove_tree(self, path: Path) -> None:
        """See Files."""
        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def rename(self, old: Path, new: Path) -> None:
        """See Files."""
        old.rename(new)

    def sync_directory(self, path: Path) -> None:
        """See Files."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        """See Files."""
        flags = os.O_RDWR if write or create else os.O_RDONLY
        return os.open(path, flags | (os.O_CREAT if create else 0), FILE_MODE)

    def close(self, handle: int) -> None:
        """See Files."""
        os.close(handle)

    def close_removed(self, handles: Sequence[int]) -> None:
        """See Files; a thread frees their blocks a piece at a time.

        To free a written file of 64 MB at once takes 17 ms on ext4, and syncs of other files wait
        for that. A gigabyte of segments would stop the turn for a quarter of a second.
        """
        if handles:
            threading.Thread(
                target=_free_gradually, args=(tuple(handles),), name="free-blocks", daemon=True
            ).start()

    def try_lock(self, handle: int) -> bool:
        """See Files; etcd's kind of lock: of the open file description, else BSD flock."""
        try:
            if _OFD_SETLK is not None:
                fcntl.fcntl(handle, _OFD_SETLK, _WRITE_LOCK)
                return True
        except OSError as error:
            if error.errno in _LOCKED_ELSEWHERE:
                return False
            if error.errno not in _NOT_SUPPORTED:
                raise
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def size_bytes(self, handle: int) -> int:
        """See Files."""
        return os.fstat(handle).st_size

    def data_end(self, handle: int) -> int:
        """See Files; the kernel reports preallocated blocks that were never written as holes."""
        end, size = 0, os.fstat(handle).st_size
        try:
            while end < size:
                end = os.lseek(handle, os.lseek(handle, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but holes from here on
                return end
            if error.errno not in _NOT_SUPPORTED:
                raise
            return size
        return end

    def read(self, handle: int, offset: int, size_bytes: int) -> bytes:
        """See Files."""
        parts: list[bytes] = []
        while size_bytes > 0:
            part = os.pread(handle, size_bytes, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size_bytes -= len(part)
        return b"".join(parts)

    def write(self, handle: int, offset: int, data: bytes) -> int:
        """See Files."""
        return os.pwrite(handle, data, offset)

    def truncate(self, handle: int, size_bytes: int) -> None:
        """See Files."""
        os.ftruncate(handle, size_bytes)

    def allocate(self, handle: int, size_bytes: int) -> None:
        """See Files; without preallocation in the file system the file is extended only."""
        try:
            os.posix_fallocate(handle, 0, size_bytes)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
            if os.fstat(handle).st_size < size_bytes:
                os.ftruncate(handle, size_bytes)

    def begin_writeback(self, handle: int, offset: int, size_bytes: int) -> None:
        """See Files."""
        begin_writeback(handle, offset, size_bytes)

    def sync_data(self, handle: int) -> None:
        """See Files."""
        os.fdatasync(handle)

    def sync(self, handle: int) -> None:
        """See Files."""
        os.fsync(handle)


def _free_gradually(descriptors: Sequence[int]) -> None:
    """Shorten removed files step by step and close them."""
    for descriptor in descriptors:
        status = os.fstat(descriptor)
        size_bytes = status.st_size if status.st_nlink == 0 else 0  # a link keeps its content
        with suppress(OSError):  # closing frees the rest
            while size_bytes > 0:
                size_bytes = max(size_bytes - FREED_BYTES, 0)
                os.ftruncate(descriptor, size_bytes)
                time.sleep(FREED_PAUSE_S)
        os.close(descriptor)


class UnsyncedFiles(OsFiles):
    """OsFiles without syncs (--unsafe-no-fsync): the system decides when to write."""

    @override
    def begin_writeback(self, handle: int, offset: int, size_bytes: int) -> None:
        """Do nothing."""

    @override
    def sync_data(self, handle: int) -> None:
        """Do nothing."""

    @override
    def sync(self, handle: int) -> None:
        """Do nothing."""

    @override
    def sync_directory(self, path: Path) -> None:
        """Do nothing."""
