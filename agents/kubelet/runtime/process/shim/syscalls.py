"""System calls that Python lacks; each raises OSError."""

import ctypes
import errno
import os
import resource
import struct
import sys
from typing import Final, NoReturn

CLONE_NEWNS: Final = 0x20000
CLONE_NEWCGROUP: Final = 0x2000000
CLONE_NEWUTS: Final = 0x4000000
CLONE_NEWIPC: Final = 0x8000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC = 32, 4096, 8192, 16384
MS_PRIVATE, MS_SLAVE, MS_SHARED = 1 << 18, 1 << 19, 1 << 20
MNT_DETACH: Final = 2

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_READ, PR_CAPBSET_DROP = 1, 22, 23, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SECCOMP_MODE_FILTER: Final = 2

RESOLVE_NO_MAGICLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT = 2, 8, 16
PROC_MAGIC, SYSFS_MAGIC, DEVPTS_MAGIC = 0x9FA0, 0x62656572, 0x1CD1
"""Kinds of file systems, as `file_system` returns them."""

_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_OPEN_TREE, _OPEN_TREE_CLONE, _AT_EMPTY_PATH = 428, 1, 0x1000
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41}
_OPENAT2, _CLOSE_RANGE, _CLOSE_RANGE_CLOEXEC = 437, 436, 4
_BPF: Final = {"x86_64": 321, "aarch64": 280}
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_SECCOMP_GET_ACTION_AVAIL: Final = 2
_FIRST_NOT_STANDARD: Final = 3

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
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _checked(result, f"mount {source} at {target}")


def set_mount_flags(path: str, flags: int, *, is_recursive: bool) -> None:
    """Set MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC of a mount, or also of those below it.

    From Linux 5.12 (ENOSYS before). Flags that are set already stay.
    """
    scope = _AT_RECURSIVE if is_recursive else 0
    # The attributes of mount_setattr have the numbers of the flags of mount.
    attributes = struct.pack("=QQQQ", flags, 0, 0, 0)
    given = ctypes.create_string_buffer(attributes, len(attributes))
    _checked(
        _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), scope, given, len(attributes)),
        f"mount_setattr {path}",
    )


def copy_of_mount(path: str, flags: int) -> int:
    """Return a descriptor of a file by a mount of its own, which is nowhere; OSError.

    flags: as of `set_mount_flags`; they are of that mount alone. From Linux 5.12.
    """
    descriptor = _libc.syscall(
        _OPEN_TREE, _AT_FDCWD, path.encode(), _OPEN_TREE_CLONE | os.O_CLOEXEC
    )
    if descriptor < 0:
        _failed(f"open_tree {path}")
    attributes = struct.pack("=QQQQ", flags, 0, 0, 0)
    given = ctypes.create_string_buffer(attributes, len(attributes))
    size = len(attributes)
    if _libc.syscall(_MOUNT_SETATTR, descriptor, b"", _AT_EMPTY_PATH, given, size) != 0:
        number = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(number, f"mount_setattr {path}: {os.strerror(number)}")
    return int(descriptor)


def copied_tree(path: str) -> int:
    """Return a descriptor of a copy of a mount with those below it, which shares what it shares.

    From Linux 5.2.
    """
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE
    held = _libc.syscall(_OPEN_TREE, _AT_FDCWD, path.encode(), flags)
    if held < 0:
        _failed(f"open_tree {path}")
    return int(held)


def unmount(target: str, flags: int = 0) -> None:
    """Unmount."""
    _checked(_libc.umount2(target.encode(), flags), f"unmount {target}")


def pivot_root(new_root: str, old_root: str) -> None:
    """Make a mount the root of this mount namespace."""
    number = _PIVOT_ROOT[os.uname().machine]
    _checked(_libc.syscall(number, new_root.encode(), old_root.encode()), "pivot_root")


def prctl(option: int, value: int, pointer: object = None) -> None:
    """Set something of this process."""
    argument = ctypes.c_void_p(None) if pointer is None else pointer
    if _libc.prctl(option, ctypes.c_ulong(value), argument, None, None) < 0:
        _failed(f"prctl {option}")


def set_host_name(name: str) -> None:
    """Name the host of this namespace."""
    encoded = name.encode()
    _checked(_libc.sethostname(encoded, len(encoded)), "sethostname")


def open_at(directory: int, path: str, flags: int, resolve: int) -> int:
    """Open a path by openat2 (from Linux 5.6; ENOSYS before); return the descriptor."""
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve)
    given = ctypes.create_string_buffer(how, len(how))
    found: int = _libc.syscall(_OPENAT2, directory, os.fsencode(path), given, len(how))
    if found < 0:
        _failed(f"open {path}")
    return found


def close_on_exec() -> None:
    """Set close-on-exec for all descriptors other than 0, 1 and 2."""
    last = ctypes.c_uint(0xFFFFFFFF)
    if _libc.syscall(_CLOSE_RANGE, _FIRST_NOT_STANDARD, last, _CLOSE_RANGE_CLOEXEC) == 0:
        return
    # Linux before 5.11, or a filter of system calls that does not know it.
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for each in range(_FIRST_NOT_STANDARD, limit):
        try:
            os.set_inheritable(each, False)
        except OSError:
            continue  # it is not open


def bpf(command: int, attributes: bytes) -> int:
    """Call bpf; return what it returns: a descriptor, or 0."""
    number = _BPF.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"bpf: its number on {os.uname().machine} is not known")
    given = ctypes.create_string_buffer(attributes, len(attributes))
    found: int = _libc.syscall(number, command, given, len(attributes))
    if found < 0:
        _failed("bpf")
    return found


def check_seccomp_action(action: int) -> None:
    """Find out whether the kernel knows an action of filters of system calls (from Linux 4.14)."""
    given = ctypes.c_uint32(action)
    number = _SECCOMP.get(os.uname().machine, -1)
    found = _libc.syscall(number, _SECCOMP_GET_ACTION_AVAIL, 0, ctypes.byref(given))
    _checked(found, "seccomp")


def file_system(descriptor: int) -> int:
    """Return the kind of the file system of an open file, as the kernel numbers it."""
    buffer = ctypes.create_string_buffer(256)  # its first word is the kind
    _checked(_libc.fstatfs(descriptor, buffer), "fstatfs")
    return int.from_bytes(buffer.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)


def _checked(result: int, what: str) -> None:
    if result != 0:
        _failed(what)


def _failed(what: str) -> NoReturn:
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")
