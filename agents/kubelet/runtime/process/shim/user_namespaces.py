"""User namespaces: creating and entering them, and idmapped mounts.

    with member(CLONE_NEWUSER | CLONE_NEWNET, 1879048192) as pid:
        ...                                  /proc/<pid>/ns/user, …/net: the new namespaces
    held = idmapped("/data/volume", user)    a mount that belongs to no directory yet
    attach(held, "/somewhere")

Id 0 of such a namespace is `first` outside of it, 1 is `first + 1`, and so on, for 65536 ids; all
other ids have no name in it, and its root has no power over their files. An idmapped mount shows
a file that belongs to id 0 on the disk as one of the namespace's id 0.
"""

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import syscalls

CLONE_NEWUSER: Final = 0x10000000
IDS: Final = 65_536
"""The number of ids of a namespace."""

_SETRESUID: Final = {"x86_64": 117, "aarch64": 147}
_CLONE_VM: Final = 0x100
_STACK_BYTES: Final = 64 << 10
_LIVES_S: Final = 10
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_FSOPEN_CLOEXEC, _FSMOUNT_CLOEXEC, _FSCONFIG_CMD_CREATE = 1, 1, 6
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH, _MOVE_MOUNT_T_SYMLINKS = 4, 0x10
_MOUNT_ATTR_IDMAP: Final = 0x100000

_libc = ctypes.CDLL(None, use_errno=True)


def is_restricted() -> bool:
    """Whether this process is in a user namespace that lacks ids of the machine."""
    return _ids("uid") != [(0, 1 << 32)]


def has_id(number: int, kind: str = "uid") -> bool:
    """Whether an id is mapped in the user namespace of this process; kind: uid or gid."""
    return any(first <= number < first + count for first, count in _ids(kind))


def may_set_groups() -> bool:
    """Whether processes of this user namespace may set supplementary groups."""
    try:
        return Path("/proc/self/setgroups").read_text().strip() != "deny"
    except OSError:
        return True  # the kernel has no such limit


def _ids(kind: str) -> list[tuple[int, int]]:
    """Return the ranges of ids that have a name here: the first, and how many follow it."""
    rows = [line.split() for line in Path(f"/proc/self/{kind}_map").read_text().splitlines()]
    found = [(int(first), int(count)) for first, _, count in rows]
    return [(0, 1 << 32)] if found == [(0, (1 << 32) - 1)] else found


@contextlib.contextmanager
def member(flags: int, first: int) -> Iterator[int]:
    """Give the id of a process in new namespaces, which ends with the block; OSError.

    flags: CLONE_NEW*; with CLONE_NEWUSER the others belong to that. first: what its id 0 is.

    The process shares this one's memory, as that of a vfork does: a copy of a large process would
    take milliseconds. It only calls `sleep` of the C library, with all signals blocked.
    """
    stack = ctypes.create_string_buffer(_STACK_BYTES)
    top = (ctypes.addressof(stack) + _STACK_BYTES) & ~15
    before = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        pid = _libc.clone(
            ctypes.cast(_libc.sleep, ctypes.c_void_p),
            ctypes.c_void_p(top),
            flags | _CLONE_VM | signal.SIGCHLD,
            ctypes.c_void_p(_LIVES_S),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _checked(pid, "clone")
    try:
        if flags & CLONE_NEWUSER:
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{pid}/{name}").write_text(f"0 {first} {IDS}")
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def enter(namespace: int) -> None:
    """Become root of a user namespace, for ever; of a process with a single thread. OSError."""
    syscalls.setns(namespace, CLONE_NEWUSER)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


@contextlib.contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Be another user in this thread alone, as long as the block lasts; OSError.

    Settings of a namespace (/proc/sys) can be its root's only, not those of the machine's root.
    """
    _set_effective_user(user)
    try:
        yield
    finally:
        _set_effective_user(0)


def _set_effective_user(user: int) -> None:
    number = _SETRESUID.get(os.uname().machine, -1)  # the C library would set it of all threads
    _checked(_libc.syscall(number, -1, user, -1), f"setresuid {user}")


def idmapped(source: str, namespace: int, *, is_recursive: bool = True) -> int:
    """Return a descriptor of a copy of a mount that maps owners into a namespace; OSError.

    A file system that does not support it is EINVAL.
    """
    more = _AT_RECURSIVE if is_recursive else 0
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | more
    found = _libc.syscall(_OPEN_TREE, _AT_FDCWD, source.encode(), flags)
    held = _checked(found, f"open_tree {source}")
    what = f"the file system of {os.path.realpath(source)} has no idmapped mounts, by which a pod "
    _map(held, namespace, more, f"{what}with a user namespace uses it")
    return held


def idmapped_memory(namespace: int) -> int:
    """Return a descriptor of an empty file system in memory that is mapped likewise; OSError."""
    context = _checked(_libc.syscall(_FSOPEN, b"tmpfs", _FSOPEN_CLOEXEC), "fsopen tmpfs")
    try:
        made = _libc.syscall(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        _checked(made, "fsconfig tmpfs")
        held = _checked(_libc.syscall(_FSMOUNT, context, _FSMOUNT_CLOEXEC, 0), "fsmount tmpfs")
    finally:
        os.close(context)
    _map(held, namespace, 0, "idmapped mount of tmpfs")
    return held


def _map(descriptor: int, namespace: int, flags: int, what: str) -> None:
    """Map the owners of a mount that belongs to no directory; closed where that fails; OSError."""
    attributes = struct.pack("=QQQQ", _MOUNT_ATTR_IDMAP, 0, 0, namespace)
    given = ctypes.create_string_buffer(attributes, len(attributes))
    result = _libc.syscall(
        _MOUNT_SETATTR, descriptor, b"", _AT_EMPTY_PATH | flags, given, len(attributes)
    )
    try:
        _checked(result, what)
    except OSError:
        os.close(descriptor)
        raise


def attach(descriptor: int, target: str) -> None:
    """Put a mount that belongs to no directory at a place, and close its descriptor; OSError."""
    try:
        found = _libc.syscall(
            *(_MOVE_MOUNT, descriptor, b"", _AT_FDCWD, target.encode()),
            _MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_SYMLINKS,
        )
        _checked(found, f"move_mount to {target}")
    finally:
        os.close(descriptor)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
