"""The capabilities of a container's processes; system calls are limited by `seccomp`."""

import errno
from collections.abc import Collection, Iterable
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
"""The default capabilities of containers."""

_CAPABILITIES_MAX: Final = 64
"""The kernel keeps them in words of so many bits."""


def granted(added: Iterable[str], dropped: Iterable[str]) -> set[str]:
    """Return the capabilities of a container; names may begin with CAP_, ALL means all of them."""
    add = {each.upper().removeprefix("CAP_") for each in added}
    drop = {each.upper().removeprefix("CAP_") for each in dropped}
    found = set(CAPABILITIES) if "ALL" in add else set(DEFAULT)
    found = set() if "ALL" in drop else found - drop
    return found | (add & CAPABILITIES.keys()) if "ALL" not in add else found - drop


def limit_capabilities(kept: Collection[str]) -> None:
    """Limit the capabilities of programs that are executed from now on; OSError.

    Capabilities that have no name here go as well. The kernel is asked which there are, not /proc:
    in a container something else may be mounted there.
    """
    numbers = {CAPABILITIES[name] for name in kept}
    for number in range(_CAPABILITIES_MAX):
        try:
            syscalls.prctl(syscalls.PR_CAPBSET_READ, number)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return  # the one before was the last
        if number not in numbers:
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, number)
