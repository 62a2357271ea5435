"""Mounts that are prepared aside, and moved to their target once all of their flags are set.

    stage = Stage("/var/lib/kubelet/…/layer")
    path = stage.bind(source)                       a descriptor; the path is of the stage
    set_flags(path, MS_NODEV, is_recursive=True)
    stage.move(path, target)                        the descriptor of the target

The stage is private, and targets are held descriptors: processes that rename or replace directories
of a container meanwhile can redirect neither a mount nor its flags.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import syscalls, user_namespaces
from kvstack.agents.kubelet.runtime.process.shim.rooted import path_of
from kvstack.agents.kubelet.runtime.process.shim.syscalls import (
    MS_BIND,
    MS_MOVE,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
)

_MOUNTS: Final = Path("/proc/self/mountinfo")
_MOUNT_POINT: Final = 4


class Stage:
    """The directory in which one container's mounts are prepared."""

    def __init__(self, directory: str) -> None:
        """directory: of the node alone."""
        self._directory = f"{directory}/stage"
        self._file = f"{directory}/stage-file"
        os.makedirs(self._directory, exist_ok=True)
        Path(self._file).touch()

    def empty(self) -> str:
        """Return where a file system may be mounted, to be moved."""
        return self._directory

    def bind(self, source: int, user_namespace: int = -1) -> str:
        """Bind a file or directory with all that is mounted below it; return where; OSError.

        user_namespace: a descriptor of that which owners are mapped into; -1: they are not.
        """
        is_directory = stat.S_ISDIR(os.fstat(source).st_mode)
        path = self._directory if is_directory else self._file
        if user_namespace < 0:
            mount(path_of(source), path, "", MS_BIND | MS_REC)
        else:
            user_namespaces.attach(user_namespaces.idmapped(path_of(source), user_namespace), path)
        return path

    def attach(self, copy: int, *, is_directory: bool) -> str:
        """Put a copy of a mount on the stage, and close its descriptor; return where; OSError."""
        path = self._directory if is_directory else self._file
        user_namespaces.attach(copy, path)
        return path

    def move(self, path: str, target: int) -> None:
        """Move what is mounted on the stage to where it is to be; OSError."""
        mount(path, path_of(target), "", MS_MOVE)


def set_flags(path: str, flags: int, *, is_recursive: bool = False) -> None:
    """Set MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC of a mount, or also of those below; OSError."""
    try:
        syscalls.set_mount_flags(path, flags, is_recursive=is_recursive)
    except OSError as error:
        # Linux before 5.12, or a filter of system calls that does not know it.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        remount(path, flags, is_recursive=is_recursive)


def is_shared(path: str) -> bool:
    """Whether the mount at a path has shared propagation."""
    is_so = False
    for line in _MOUNTS.read_bytes().splitlines():
        fields = line.split(b" ")
        if os.fsdecode(_unescaped(fields[_MOUNT_POINT])) == path:  # the last one covers others
            optional = fields[_MOUNT_POINT + 2 : fields.index(b"-")]
            is_so = any(each.startswith(b"shared:") for each in optional)
    return is_so


def remount(path: str, flags: int, *, is_recursive: bool = False) -> None:
    """Emulate `set_flags`, one mount after the other."""
    for each in _mounts_below(path) if is_recursive else (path,):
        mount("none", each, "", MS_BIND | MS_REMOUNT | flags | _flags(each))


def _flags(path: str) -> int:
    """Return the flags that a mount has; a remount would take them away."""
    found = os.statvfs(path).f_flag
    return sum(flag for flag in (MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC) if found & flag)


def mount_points() -> list[str]:
    """Return where something is mounted, the outer ones first."""
    lines = _MOUNTS.read_bytes().splitlines()
    fields = (line.split(b" ", _MOUNT_POINT + 1)[_MOUNT_POINT] for line in lines)
    return [os.fsdecode(_unescaped(each)) for each in fields]


def _mounts_below(path: str) -> list[str]:
    """Return a mount and those below it."""
    return [each for each in mount_points() if each == path or each.startswith(f"{path}/")]


def _unescaped(text: bytes) -> bytes:
    """Return a path as it is: spaces, tabs, line feeds and backslashes are octal numbers there."""
    first, *parts = text.split(b"\\")
    return first + b"".join(bytes((int(part[:3], 8),)) + part[3:] for part in parts)
