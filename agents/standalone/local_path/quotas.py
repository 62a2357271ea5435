"""Limits of directories, by the project quotas of their file system (ext4 and XFS, `prjquota`).

    quotas = ProjectQuotas(root)
    quotas.problem()                why directories have no limits here; empty: they have
    quotas.limit(path, 1 << 30)     a project of its own for a new directory; or another limit
    quotas.free(project)            once the directory is gone

A project is a number that files have, and new ones get from their directory. Numbers are taken that
is unused on the file system. The owner of a file may give it another project, unless in a user
namespace: the limit is for pods that do not try to get around it.
"""

import ctypes
import errno
import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import Final, NamedTuple

_GET_ATTRIBUTES, _SET_ATTRIBUTES = 0x801C581F, 0x401C5820
_ATTRIBUTES: Final = struct.Struct("=IIIII8x")
"""Flags, hint of the extent's size, count of extents, project, another hint."""
_PROJECT: Final = 3
_INHERIT: Final = 0x200
_QUOTACTL_FD: Final = 443
_GET_QUOTA, _SET_QUOTA = 0x800007, 0x800008
_OF_PROJECTS: Final = 2
_QUOTA: Final = struct.Struct("=8QI4x")
"""Limits of blocks (two), bytes used, limits of inodes (two), inodes used, times, what is set."""
_LIMITS: Final = 0b101
"""The flags of the limits of blocks and inodes."""
_BLOCK: Final = 1024
_FILE_BYTES: Final = 4096
"""So many bytes a file: who makes files that are empty is limited, too."""
_FILES_MIN: Final = 1024
_FIRST: Final = 0x6B76_0000
_TRIES: Final = 100_000
_NONE: Final = {
    errno.ENOSYS: "the kernel has no quotactl_fd (Linux 5.14)",
    errno.ENOTSUP: "its file system has no project quotas",
    errno.ENOTTY: "its file system has no projects",
    errno.ESRCH: "its file system is not mounted with prjquota",
    errno.ENODEV: "its file system has no quotas",
    errno.EINVAL: "its file system has no project quotas",
    errno.EPERM: "only root may set quotas",
}
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


class Use(NamedTuple):
    """The limits and the usage of a project."""

    bytes_max: int
    """0: unlimited."""
    bytes: int
    files_max: int
    files: int

    @property
    def is_free(self) -> bool:
        """Whether the project is unused."""
        return not any(self)


class ProjectQuotas:
    """The projects of the directories in one directory; its methods block on the disk."""

    def __init__(self, root: Path) -> None:
        """root: it need not be there yet."""
        self._root = root
        self._lock = threading.Lock()
        """Held while a number is chosen: the next one has to see it."""
        self._next = _FIRST

    def problem(self) -> str:
        """Return why directories have no limits; empty: they have. OSError: unknown."""
        existing = next(each for each in (self._root, *self._root.parents) if each.is_dir())
        descriptor = os.open(existing, _FLAGS)
        try:
            _attributes(descriptor)
            _use(descriptor, _FIRST)
        except OSError as error:
            if error.errno not in _NONE:
                raise
            return _NONE[error.errno]
        finally:
            os.close(descriptor)
        return ""

    def limit(self, path: Path, size_bytes: int) -> None:
        """Set the limit of a directory; OSError.

        One that has files and no project was made without limits, and stays so.
        """
        held = os.open(path, _FLAGS)
        try:
            project = self._project(held)
            if project:
                _set_limits(held, project, size_bytes)
        finally:
            os.close(held)

    def _project(self, descriptor: int) -> int:
        """Return the project of a directory, which is given one if it is new; 0: it has none."""
        with self._lock:
            values = _attributes(descriptor)
            if values[_PROJECT]:
                return values[_PROJECT]
            with os.scandir(descriptor) as entries:
                if any(True for _ in entries):
                    return 0
            project = self._free_project(descriptor)
            values[0] |= _INHERIT
            values[_PROJECT] = project
            fcntl.ioctl(descriptor, _SET_ATTRIBUTES, _ATTRIBUTES.pack(*values))
            return project

    def _free_project(self, held: int) -> int:
        for number in range(self._next, self._next + _TRIES):
            if _use(held, number).is_free:
                self._next = number + 1
                return number
        raise OSError(errno.ENOSPC, f"{_TRIES} projects are in use", str(self._root))

    def project_of(self, path: Path) -> int:
        """Return the project of a directory with limits; 0: no project or no directory. OSError."""
        try:
            held = os.open(path, _FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            return 0
        try:
            project = _attributes(held)[_PROJECT]
        finally:
            os.close(held)
        return project if project >= _FIRST else 0

    def use_of(self, path: Path) -> Use:
        """Return what a directory may have and has; OSError."""
        held = os.open(path, _FLAGS)
        try:
            return _use(held, _attributes(held)[_PROJECT])
        finally:
            os.close(held)

    def free(self, project: int) -> None:
        """Remove the limits of a project whose directory is gone; OSError."""
        held = os.open(self._root, _FLAGS)
        try:
            _set_limits(held, project, 0)
        finally:
            os.close(held)
        self._next = min(self._next, project)


def _attributes(held: int) -> list[int]:
    data = bytearray(_ATTRIBUTES.size)
    fcntl.ioctl(held, _GET_ATTRIBUTES, data)
    return list(_ATTRIBUTES.unpack(data))


def _use(held: int, project: int) -> Use:
    buffer = ctypes.create_string_buffer(_QUOTA.size)
    try:
        _quotactl(held, _GET_QUOTA, project, buffer)
    except OSError as error:
        if error.errno != errno.ENOENT:  # XFS: it is unused
            raise
        return Use(0, 0, 0, 0)
    blocks, _, used, files, _, has, *_ = _QUOTA.unpack(buffer.raw)
    return Use(blocks * _BLOCK, used, files, has)


def _set_limits(held: int, project: int, size_bytes: int) -> None:
    """Set the limits of a project; 0: none."""
    blocks = -(-size_bytes // _BLOCK)
    files = max(size_bytes // _FILE_BYTES, _FILES_MIN) if size_bytes else 0
    data = _QUOTA.pack(blocks, 0, 0, files, 0, 0, 0, 0, _LIMITS)
    _quotactl(held, _SET_QUOTA, project, ctypes.create_string_buffer(data, len(data)))


def _quotactl(held: int, command: int, project: int, buffer: "ctypes.Array[ctypes.c_char]") -> None:
    number = ctypes.c_uint(command << 8 | _OF_PROJECTS)
    if _libc.syscall(_QUOTACTL_FD, held, number, ctypes.c_uint(project), buffer):
        code = ctypes.get_errno()
        raise OSError(code, f"quotactl_fd: {os.strerror(code)}")
