"""The filter of system calls of a container: seccomp's profile `RuntimeDefault`.

    load(capabilities)      this process and its children, for ever

It refuses what profiles of container engines refuse: what changes the machine, looks into other
processes, or has let programs out of containers. A capability lets through the calls that need it.

    EPERM             a call of the list; new namespaces by clone; other systems by personality
    ENOSYS            clone3, whose flags a filter cannot see: the C library takes clone then; and
                      what is newer than this list
    EAFNOSUPPORT      sockets of virtual machines (AF_VSOCK) and of the kernel's ciphers (AF_ALG)
    the process ends  a call by the numbers of another architecture (32 bits)

Everything else is let through: what a container may do is limited by its namespaces, ids and
capabilities first.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Collection, Iterator
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import syscalls

_ADMIN: Final = "SYS_ADMIN"
_NOBODY: Final = ""
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
REFUSED: Final = (
    # Name, number on x86_64, number on aarch64 (-1: none), the capabilities that let it through.
    ("_sysctl", 156, -1, _NOBODY),
    ("acct", 163, 89, "SYS_PACCT"),
    ("add_key", 248, 217, _NOBODY),
    ("afs_syscall", 183, -1, _NOBODY),
    ("bpf", 321, 280, "BPF SYS_ADMIN"),
    ("chroot", 161, 51, "SYS_CHROOT"),
    ("clock_adjtime", 305, 266, "SYS_TIME"),
    ("clock_settime", 227, 112, "SYS_TIME"),
    ("create_module", 174, -1, "SYS_MODULE"),
    ("delete_module", 176, 106, "SYS_MODULE"),
    ("epoll_ctl_old", 214, -1, _NOBODY),
    ("epoll_wait_old", 215, -1, _NOBODY),
    ("fanotify_init", 300, 262, _ADMIN),
    ("finit_module", 313, 273, "SYS_MODULE"),
    ("fsconfig", 431, 431, _ADMIN),
    ("fsmount", 432, 432, _ADMIN),
    ("fsopen", 430, 430, _ADMIN),
    ("fspick", 433, 433, _ADMIN),
    ("get_kernel_syms", 177, -1, _NOBODY),
    ("get_mempolicy", 239, 236, "SYS_NICE"),
    ("getpmsg", 181, -1, _NOBODY),
    ("init_module", 175, 105, "SYS_MODULE"),
    ("io_uring_enter", 426, 426, _NOBODY),
    ("io_uring_register", 427, 427, _NOBODY),
    ("io_uring_setup", 425, 425, _NOBODY),
    ("ioperm", 173, -1, "SYS_RAWIO"),
    ("iopl", 172, -1, "SYS_RAWIO"),
    ("kcmp", 312, 272, "SYS_PTRACE"),
    ("kexec_file_load", 320, 294, "SYS_BOOT"),
    ("kexec_load", 246, 104, "SYS_BOOT"),
    ("keyctl", 250, 219, _NOBODY),
    ("lookup_dcookie", 212, 18, _ADMIN),
    ("mbind", 237, 235, "SYS_NICE"),
    ("migrate_pages", 256, 238, "SYS_NICE"),
    ("mount", 165, 40, _ADMIN),
    ("mount_setattr", 442, 442, _ADMIN),
    ("move_mount", 429, 429, _ADMIN),
    ("move_pages", 279, 239, "SYS_NICE"),
    ("name_to_handle_at", 303, 264, "DAC_READ_SEARCH"),
    ("nfsservctl", 180, 42, _NOBODY),
    ("open_by_handle_at", 304, 265, "DAC_READ_SEARCH"),
    ("open_tree", 428, 428, _ADMIN),
    ("open_tree_attr", 467, 467, _ADMIN),
    ("perf_event_open", 298, 241, "PERFMON SYS_ADMIN"),
    ("pidfd_getfd", 438, 438, "SYS_PTRACE"),
    ("pivot_root", 155, 41, _NOBODY),
    ("process_madvise", 440, 440, "SYS_PTRACE"),
    ("process_vm_readv", 310, 270, "SYS_PTRACE"),
    ("process_vm_writev", 311, 271, "SYS_PTRACE"),
    ("putpmsg", 182, -1, _NOBODY),
    ("query_module", 178, -1, _NOBODY),
    ("quotactl", 179, 60, _ADMIN),
    ("quotactl_fd", 443, 443, _ADMIN),
    ("reboot", 169, 142, "SYS_BOOT"),
    ("request_key", 249, 218, _NOBODY),
    ("security", 185, -1, _NOBODY),
    ("set_mempolicy", 238, 237, "SYS_NICE"),
    ("set_mempolicy_home_node", 450, 450, "SYS_NICE"),
    ("setdomainname", 171, 162, _ADMIN),
    ("sethostname", 170, 161, _ADMIN),
    ("setns", 308, 268, _ADMIN),
    ("settimeofday", 164, 170, "SYS_TIME"),
    ("swapoff", 168, 225, _ADMIN),
    ("swapon", 167, 224, _ADMIN),
    ("sysfs", 139, -1, _NOBODY),
    ("syslog", 103, 116, "SYSLOG"),
    ("tuxcall", 184, -1, _NOBODY),
    ("umount2", 166, 39, _ADMIN),
    ("unshare", 272, 97, _ADMIN),
    ("uselib", 134, -1, _NOBODY),
    ("userfaultfd", 323, 282, _NOBODY),
    ("ustat", 136, -1, _NOBODY),
    ("vhangup", 153, 58, "SYS_TTY_CONFIG"),
    ("vserver", 236, -1, _NOBODY),
)
_PTRACE: Final = ("ptrace", 101, 117, "SYS_PTRACE")
_PTRACE_HEEDS_FILTERS_SINCE: Final = (4, 8)
"""The version of Linux before which a traced process could bypass its filter."""
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_PERSONALITY: Final = {"x86_64": 135, "aarch64": 92}
_SOCKET: Final = {"x86_64": 41, "aarch64": 198}
_CLONE3: Final = 435
_KNOWN_MAX: Final = 469
"""The last number of Linux 6.17 on both architectures. Above it are those of x32, too."""
_NEW_NAMESPACES: Final = 0x7E020000
"""CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID and NET."""
_DOMAINS: Final = (0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, Linux on 32 bits, both as if the kernel were 2.6, and the question which it is."""
_FAMILIES: Final = (38, 40)
"""AF_ALG, AF_VSOCK."""

_LOAD, _EQUAL, _ABOVE, _HAS_BITS, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the data of a filter; of the argument its lower half."""


def check() -> None:
    """Find out whether the filter can be loaded, and load none; OSError."""
    _known_machine()
    syscalls.check_seccomp_action(_ERROR)


def load(capabilities: Collection[str]) -> None:
    """Refuse system calls that a container with these capabilities must not make; OSError."""
    filters = program(_known_machine(), capabilities)
    held = ctypes.create_string_buffer(filters, len(filters))

    # A count of instructions, aligned as a pointer is, and where they are.
    head = struct.pack("@HP", len(filters) // 8, ctypes.addressof(held))
    given = ctypes.create_string_buffer(head, len(head))
    syscalls.prctl(syscalls.PR_SET_SECCOMP, syscalls.SECCOMP_MODE_FILTER, ctypes.byref(given))


def _known_machine() -> str:
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no filter of system calls is known for {machine}")
    return machine


def program(machine: str, capabilities: Collection[str]) -> bytes:
    """Return the filter as the kernel takes it: instructions of eight bytes."""
    out = [
        _instruction(_LOAD, 0, 0, _ARCHITECTURE),
        _instruction(_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        _instruction(_RETURN, 0, 0, _KILL),
        _instruction(_LOAD, 0, 0, _NUMBER),
        _instruction(_ABOVE, 0, 1, _KNOWN_MAX),
        _error(errno.ENOSYS),
    ]
    for number in _refused(machine, capabilities):
        out += [_instruction(_EQUAL, 0, 1, number), _error(errno.EPERM)]
    if _ADMIN not in capabilities:
        out += [_instruction(_EQUAL, 0, 1, _CLONE3), _error(errno.ENOSYS)]
        flags = [_instruction(_HAS_BITS, 0, 1, _NEW_NAMESPACES), _error(errno.EPERM)]
        out += _by_argument(_CLONE[machine], flags)
    domains = [_instruction(_EQUAL, len(_DOMAINS) - i, 0, each) for i, each in enumerate(_DOMAINS)]
    out += _by_argument(_PERSONALITY[machine], [*domains, _error(errno.EPERM)])
    families = [_instruction(_EQUAL, len(_FAMILIES) - i, 0, x) for i, x in enumerate(_FAMILIES)]
    allowed = _instruction(_RETURN, 0, 0, _ALLOW)
    out += _by_argument(_SOCKET[machine], [*families, allowed, _error(errno.EAFNOSUPPORT)])
    return b"".join([*out, allowed])


def _refused(machine: str, capabilities: Collection[str]) -> Iterator[int]:
    words = os.uname().release.split(".")
    is_old = (int(words[0]), int(words[1].partition("-")[0])) < _PTRACE_HEEDS_FILTERS_SINCE
    for _, x86_64, aarch64, passes in (*REFUSED, *([_PTRACE] if is_old else [])):
        number = x86_64 if machine == "x86_64" else aarch64
        if number >= 0 and not any(each in capabilities for each in passes.split()):
            yield number


def _by_argument(number: int, tests: list[bytes]) -> list[bytes]:
    """Return tests of the first argument of one call, which is let through if none of them ends."""
    return [
        _instruction(_EQUAL, 0, len(tests) + 2, number),
        _instruction(_LOAD, 0, 0, _FIRST_ARGUMENT),
        *tests,
        _instruction(_RETURN, 0, 0, _ALLOW),
    ]


def _error(number: int) -> bytes:
    return _instruction(_RETURN, 0, 0, _ERROR | number)


def _instruction(code: int, if_true: int, if_false: int, operand: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, operand)
