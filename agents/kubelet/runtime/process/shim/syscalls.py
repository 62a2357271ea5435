"""Calls of the kernel that Python has no names for; each raises OSError."""

import ctypes
import os
import struct
import sys
from typing import Final

CLONE_NEWNS: Final = 0x20000
CLONE_NEWUTS: Final = 0x4000000
CLONE_NEWIPC: Final = 0x8000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC = 32, 4096, 8192, 16384
MS_PRIVATE, MS_SLAVE, MS_SHARED = 1 << 18, 1 << 19, 1 << 20
MNT_DETACH: Final = 2

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SECCOMP_MODE_FILTER: Final = 2

_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    if flags:
        _checked(_libc.unshare(flags), "unshare")


def setns(descriptor: int, flags: int) -> None:
    """Enter namespaces: of a process, by its descriptor, or one, by its file."""
    _checked(_libc.setns(descriptor, flags), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or bind a file."""
    found = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _checked(found, f"mount {source} at {target}")


def read_only_below(path: str) -> None:
    """Let nothing be changed in a mount, nor in those below it (from Linux 5.12)."""
    attributes = struct.pack("=QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    given = ctypes.create_string_buffer(attributes, len(attributes))
    _checked(
        _libc.syscall(
            _MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE, given, len(attributes)
        ),
        f"mount_setattr {path}",
    )


def unmount(target: str, flags: int = 0) -> None:
    """Take a mount away."""
    _checked(_libc.umount2(target.encode(), flags), f"unmount {target}")


def pivot_root(new_root: str, old_root: str) -> None:
    """Make a mount the root of this mount namespace."""
    number = _PIVOT_ROOT[os.uname().machine]
    _checked(_libc.syscall(number, new_root.encode(), old_root.encode()), "pivot_root")


def prctl(option: int, value: int, pointer: object = None) -> None:
    """Set something of this process."""
    argument = ctypes.c_void_p(None) if pointer is None else pointer
    _checked(_libc.prctl(option, ctypes.c_ulong(value), argument, None, None), f"prctl {option}")


def set_host_name(name: str) -> None:
    """Name the host of this namespace."""
    encoded = name.encode()
    _checked(_libc.sethostname(encoded, len(encoded)), "sethostname")


def file_system(descriptor: int) -> int:
    """Return the kind of the file system of an open file, as the kernel numbers it."""
    buffer = ctypes.create_string_buffer(256)  # its first word is the kind
    _checked(_libc.fstatfs(descriptor, buffer), "fstatfs")
    return int.from_bytes(buffer.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
