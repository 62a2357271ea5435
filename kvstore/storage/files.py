"""The one disk port: what the log and the snapshot files ask of an operating system.

    Wal, snapshot files ──► Files ◄── OsFiles (this machine) | a simulated disk | a faulty disk

The law every disk must keep: bytes written are what a later read gives back; after `sync_data` or
`sync` returned they survive a power cut, before that any of their 512-byte sectors may be lost; a
name made, renamed or removed survives once `sync_directory` of its directory returned. Failures
are OSError; whoever calls knows the path and gives the error its meaning. A write may be short,
and then ends between two sectors of the file.

Handles are small numbers (file descriptors here). All calls come from one thread. This module
knows nothing of what the bytes mean.
"""

import errno
import fcntl
import os
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from kvstore.types import override

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600

# struct flock on 64-bit Linux: l_type, l_whence, padding, l_start, l_len, l_pid, padding.
# An open-file-description lock needs pid 0; start 0 and length 0 mean the whole file.
_WRITE_LOCK: Final = struct.pack("hh4xqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_OFD_SETLK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_LOCKED_ELSEWHERE: Final = frozenset({errno.EAGAIN, errno.EACCES})
_NOT_SUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class Files(Protocol):
    """A disk; every method may raise OSError."""

    def exists(self, path: Path) -> bool:
        """Tell whether a file or directory has this name."""
        ...

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make a directory (0700) and its missing parents; one that is there is fine."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with everything in it; one that is not there is fine."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory a new name, atomically; an existing file gives way."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        ...

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        """Open a file; create makes it (0600) if it is not there and implies write."""
        ...

    def close(self, handle: int) -> None:
        """Close a file and drop its lock."""
        ...

    def try_lock(self, handle: int) -> bool:
        """Take the exclusive lock of a file opened for writing; False if another holds it."""
        ...

    def size_bytes(self, handle: int) -> int:
        """Return the length of a file."""
        ...

    def data_end(self, handle: int) -> int:
        """Return an offset from which on every byte is zero; cheap, so not always the first."""
        ...

    def read(self, handle: int, offset: int, size_bytes: int) -> bytes:
        """Return size_bytes from offset, fewer only at the end of the file."""
        ...

    def write(self, handle: int, offset: int, data: bytes) -> int:
        """Write at offset; return how many bytes were taken, which may be fewer than given."""
        ...

    def truncate(self, handle: int, size_bytes: int) -> None:
        """Cut a file to size_bytes, or grow it with zeros that may have no blocks yet."""
        ...

    def allocate(self, handle: int, size_bytes: int) -> None:
        """Reserve zeroed blocks up to size_bytes; grows the file, never shrinks it."""
        ...

    def sync_data(self, handle: int) -> None:
        """Make the bytes of a file durable, and as much of its metadata as reading them needs."""
        ...

    def sync(self, handle: int) -> None:
        """Make the bytes and all metadata of a file durable."""
        ...


def write_all(files: Files, handle: int, offset: int, data: bytes) -> None:
    """Write all of data at offset, in as many writes as the disk wants; may raise OSError."""
    while data:
        taken = files.write(handle, offset, data)
        if taken <= 0:
            raise OSError(errno.EIO, f"a write took none of {len(data)} bytes")
        offset += taken
        data = data[taken:]


def write_file(files: Files, path: Path, data: bytes, size_bytes: int) -> None:
    """Make a file of data and zeros up to size_bytes, durable but for its name."""
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

    def try_lock(self, handle: int) -> bool:
        """See Files; the lock is etcd's: of the open file, BSD flock where there is none."""
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
        """See Files; preallocated blocks that were never written are holes to the kernel."""
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
        """See Files; a file system without preallocation gets a file that is only long."""
        try:
            os.posix_fallocate(handle, 0, size_bytes)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
            if os.fstat(handle).st_size < size_bytes:
                os.ftruncate(handle, size_bytes)

    def sync_data(self, handle: int) -> None:
        """See Files."""
        os.fdatasync(handle)

    def sync(self, handle: int) -> None:
        """See Files."""
        os.fsync(handle)


class UnsyncedFiles(OsFiles):
    """OsFiles that leave it to the system when to write: for data nobody will miss."""

    @override
    def sync_data(self, handle: int) -> None:
        """Do nothing."""

    @override
    def sync(self, handle: int) -> None:
        """Do nothing."""

    @override
    def sync_directory(self, path: Path) -> None:
        """Do nothing."""
