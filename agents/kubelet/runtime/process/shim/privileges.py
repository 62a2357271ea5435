"""What a container's processes may ask of the kernel: capabilities, and a filter of system calls.

The filter of `RuntimeDefault` refuses (EPERM) what changes the machine or looks into others, as
filters of container engines do; everything else is let through. A capability that is given lets
through the calls that need it.
"""

import ctypes
import os
import struct
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import syscalls

CAPABILITIES: Final = {
    name: number
    for number, name in enumerate(
        [
            "CHOWN",
            "DAC_OVERRIDE",
            "DAC_READ_SEARCH",
            "FOWNER",
            "FSETID",
            "KILL",
            "SETGID",
            "SETUID",
            "SETPCAP",
            "LINUX_IMMUTABLE",
            "NET_BIND_SERVICE",
            "NET_BROADCAST",
            "NET_ADMIN",
            "NET_RAW",
            "IPC_LOCK",
            "IPC_OWNER",
            "SYS_MODULE",
            "SYS_RAWIO",
            "SYS_CHROOT",
            "SYS_PTRACE",
            "SYS_PACCT",
            "SYS_ADMIN",
            "SYS_BOOT",
            "SYS_NICE",
            "SYS_RESOURCE",
            "SYS_TIME",
            "SYS_TTY_CONFIG",
            "MKNOD",
            "LEASE",
            "AUDIT_WRITE",
            "AUDIT_CONTROL",
            "SETFCAP",
            "MAC_OVERRIDE",
            "MAC_ADMIN",
            "SYSLOG",
            "WAKE_ALARM",
            "BLOCK_SUSPEND",
            "AUDIT_READ",
            "PERFMON",
            "BPF",
            "CHECKPOINT_RESTORE",
        ]
    )
}
DEFAULT: Final = frozenset(
    [
        "CHOWN",
        "DAC_OVERRIDE",
        "FSETID",
        "FOWNER",
        "MKNOD",
        "NET_RAW",
        "SETGID",
        "SETUID",
        "SETFCAP",
        "SETPCAP",
        "NET_BIND_SERVICE",
        "SYS_CHROOT",
        "KILL",
        "AUDIT_WRITE",
    ]
)
"""What a container has unless its security context says otherwise."""

_LAST: Final = Path("/proc/sys/kernel/cap_last_cap")
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_REFUSED: Final = (
    # Name, number on x86_64, number on aarch64 (-1: none), the capability that lets it through.
    ("acct", 163, 89, "SYS_PACCT"),
    ("add_key", 248, 217, ""),
    ("bpf", 321, 280, "BPF"),
    ("clock_adjtime", 305, 266, "SYS_TIME"),
    ("clock_settime", 227, 112, "SYS_TIME"),
    ("create_module", 174, -1, "SYS_MODULE"),
    ("delete_module", 176, 106, "SYS_MODULE"),
    ("finit_module", 313, 273, "SYS_MODULE"),
    ("fsconfig", 431, 431, "SYS_ADMIN"),
    ("fsmount", 432, 432, "SYS_ADMIN"),
    ("fsopen", 430, 430, "SYS_ADMIN"),
    ("fspick", 433, 433, "SYS_ADMIN"),
    ("init_module", 175, 105, "SYS_MODULE"),
    ("ioperm", 173, -1, "SYS_RAWIO"),
    ("iopl", 172, -1, "SYS_RAWIO"),
    ("kcmp", 312, 272, "SYS_PTRACE"),
    ("kexec_file_load", 320, 294, "SYS_BOOT"),
    ("kexec_load", 246, 104, "SYS_BOOT"),
    ("keyctl", 250, 219, ""),
    ("lookup_dcookie", 212, 18, "SYS_ADMIN"),
    ("mount", 165, 40, "SYS_ADMIN"),
    ("mount_setattr", 442, 442, "SYS_ADMIN"),
    ("move_mount", 429, 429, "SYS_ADMIN"),
    ("move_pages", 279, 239, "SYS_NICE"),
    ("name_to_handle_at", 303, 264, "DAC_READ_SEARCH"),
    ("nfsservctl", 180, 42, ""),
    ("open_by_handle_at", 304, 265, "DAC_READ_SEARCH"),
    ("open_tree", 428, 428, "SYS_ADMIN"),
    ("perf_event_open", 298, 241, "PERFMON"),
    ("pivot_root", 155, 41, ""),
    ("process_vm_readv", 310, 270, "SYS_PTRACE"),
    ("process_vm_writev", 311, 271, "SYS_PTRACE"),
    ("quotactl", 179, 60, "SYS_ADMIN"),
    ("reboot", 169, 142, "SYS_BOOT"),
    ("request_key", 249, 218, ""),
    ("setns", 308, 268, "SYS_ADMIN"),
    ("settimeofday", 164, 170, "SYS_TIME"),
    ("swapoff", 168, 225, "SYS_ADMIN"),
    ("swapon", 167, 224, "SYS_ADMIN"),
    ("umount2", 166, 39, "SYS_ADMIN"),
    ("unshare", 272, 97, "SYS_ADMIN"),
    ("userfaultfd", 323, 282, ""),
)
_X32: Final = 0x40000000
_LOAD, _EQUAL, _ABOVE, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _EPERM, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_NR, _ARCH = 0, 4


def granted(added: Iterable[str], dropped: Iterable[str]) -> set[str]:
    """Return the capabilities of a container; names may begin with CAP_, ALL means all of them."""
    add = {each.upper().removeprefix("CAP_") for each in added}
    drop = {each.upper().removeprefix("CAP_") for each in dropped}
    found = set(CAPABILITIES) if "ALL" in add else set(DEFAULT)
    found = set() if "ALL" in drop else found - drop
    return found | (add & CAPABILITIES.keys()) if "ALL" not in add else found - drop


def limit_capabilities(kept: Collection[str]) -> None:
    """Let no program that is executed from now on get others; OSError."""
    last = int(_LAST.read_text())
    for name, number in CAPABILITIES.items():
        if name not in kept and number <= last:
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, number)


def filter_calls(capabilities: Collection[str]) -> None:
    """Refuse system calls that a container with these capabilities must not make; OSError."""
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(f"no filter of system calls is known for {machine}")
    program = _program(machine, capabilities)
    filters = ctypes.create_string_buffer(program, len(program))

    # A count of instructions, aligned as a pointer is, and where they are.
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(filters))
    given = ctypes.create_string_buffer(head, len(head))
    syscalls.prctl(syscalls.PR_SET_SECCOMP, syscalls.SECCOMP_MODE_FILTER, ctypes.byref(given))


def _program(machine: str, capabilities: Collection[str]) -> bytes:
    """Return the filter as the kernel takes it: instructions of eight bytes."""
    numbers = [
        number
        for _, x86_64, aarch64, capability in _REFUSED
        if (number := x86_64 if machine == "x86_64" else aarch64) >= 0
        and capability not in capabilities
    ]
    out = [
        _instruction(_LOAD, 0, 0, _ARCH),
        _instruction(_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        _instruction(_RETURN, 0, 0, _KILL),
        _instruction(_LOAD, 0, 0, _NR),
    ]
    if machine == "x86_64":  # calls by their numbers of the x32 interface get around the list
        out += [_instruction(_ABOVE, 0, 1, _X32), _instruction(_RETURN, 0, 0, _EPERM)]
    for position, number in enumerate(numbers):
        out.append(_instruction(_EQUAL, len(numbers) - position, 0, number))
    out += [_instruction(_RETURN, 0, 0, _ALLOW), _instruction(_RETURN, 0, 0, _EPERM)]
    return b"".join(out)


def _instruction(code: int, if_true: int, if_false: int, operand: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, operand)
