"""What a node can enforce on this machine's kernel, found by harmless trials.

    machine = look(Path("/var/lib/kvstack-node"))
    machine.user_namespaces     ""                          they can be made
                                "Operation not permitted"   why they cannot
    machine.summary()           "cgroups v1, namespaces, seccomp, …, no nft (not installed)"

Each function checks one feature; "" is a yes, anything else the reason. Checks may be repeated:
they write no file, mount nothing that others see, and leave no process. Control groups are checked
by `cgroups` and `devices`, which create groups.
"""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.devices import program
from kvstack.agents.kubelet.runtime.process.devices.rules import DEFAULT
from kvstack.agents.kubelet.runtime.process.shim import seccomp as filters
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.agents.kubelet.runtime.process.shim import user_namespaces as users
from kvstack.agents.kubelet.runtime.process.user_ids import FIRST
from kvstack.component.net import iptables as run_iptables
from kvstack.component.net import nft as run_nft

_KINDS: Final = {
    "mount": syscalls.CLONE_NEWNS,
    "process": syscalls.CLONE_NEWPID,
    "network": syscalls.CLONE_NEWNET,
    "IPC": syscalls.CLONE_NEWIPC,
    "host name": syscalls.CLONE_NEWUTS,
    "control group": syscalls.CLONE_NEWCGROUP,
}
_CGROUPS: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Features:
    """Features of this machine; all but the first are "" or the reason why they are missing."""

    cgroups: str = "none"
    """v1, v2, or none."""
    namespaces: str = ""
    user_namespaces: str = ""
    idmapped_mounts: str = ""
    """On the file system of the node's directory, and on tmpfs."""
    seccomp: str = ""
    device_limits: str = ""
    """By control groups."""
    openat2: str = ""
    nft: str = ""
    iptables: str = ""
    """Takes the place of nft, but for NetworkPolicies and tunnels."""

    def missing(self) -> dict[str, str]:
        """Return what there is not, and why."""
        return {_text(name): reason for name in self._names() if (reason := getattr(self, name))}

    def _names(self) -> list[str]:
        """Return the relevant features: iptables only without nft."""
        names = [each.name for each in fields(self)][1:]
        return names if self.nft else names[:-1]

    def summary(self) -> str:
        """Return all of it in one line."""
        there = [_text(name) for name in self._names() if not getattr(self, name)]
        lacking = [f"no {name} ({reason})" for name, reason in self.missing().items()]
        return ", ".join([f"cgroups {self.cgroups}", *there, *lacking])

    def consequences(self) -> list[str]:
        """Return what protects pods less because of what the machine cannot do."""
        reasons = {
            "user_namespaces": self.user_namespaces or self.idmapped_mounts,
            "seccomp": self.seccomp,
        }
        return [f"{CONSEQUENCES[name]}: {why}" for name, why in reasons.items() if why]


_WITHOUT_USERS: Final = (
    "pods have no user namespaces, hostUsers: false is refused, and pods of host:latest run as"
    " user 65534, or as the node's own if there is no other"
)
CONSEQUENCES: Final = {
    "namespaces": "no pods run here: containers need namespaces of their own",
    "user_namespaces": _WITHOUT_USERS,
    "idmapped_mounts": _WITHOUT_USERS,
    "seccomp": "system calls of pods are not filtered, and pods that ask for it are refused",
    "device_limits": "containers have no CAP_MKNOD, so that they cannot make device files",
    "openat2": "paths in containers are resolved part by part, which takes longer",
    "nft": "no NetworkPolicies, and no tunnels to other nodes",
    "iptables": "pods reach nothing outside of this machine unless it routes theirs, and listeners"
    " serve Services and hostPorts, which hides clients",
}
"""The consequences of missing features for pods, by name."""


def _text(name: str) -> str:
    return name.replace("_", " ")


def look(directory: Path) -> Features:
    """Find out what this machine can do for a node whose files are in a directory."""
    return Features(
        cgroups(),
        namespaces(),
        user_namespaces(),
        idmapped_mounts(directory),
        seccomp(),
        device_limits(),
        openat2(),
        nft(),
        iptables(),
    )


def cgroups() -> str:
    """Return the version of control groups that is mounted where it is looked for."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return "v2"
    return "v1" if (_CGROUPS / "memory").is_dir() else "none"


def namespaces() -> str:
    """Whether all kinds of namespaces but user namespaces can be created."""
    problems: dict[str, list[str]] = {}
    for name, flag in _KINDS.items():
        try:
            with users.member(flag, 0):
                pass
        except OSError as error:
            problems.setdefault(_reason(error), []).append(name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in problems.items())


def user_namespaces() -> str:
    """Whether user namespaces can be created, and ids of the machine mapped to them."""
    try:
        with users.member(users.CLONE_NEWUSER, FIRST):
            return ""
    except OSError as error:
        return _reason(error)


def idmapped_mounts(directory: Path) -> str:
    """Whether idmapped mounts work on the file system of a directory, and on tmpfs."""
    try:
        with users.member(users.CLONE_NEWUSER, FIRST) as pid:
            user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return _reason(error)
    try:
        os.close(users.idmapped(str(directory), user, is_recursive=False))
        os.close(users.idmapped_memory(user))
    except OSError as error:
        return _reason(error)
    finally:
        os.close(user)
    return ""


def seccomp() -> str:
    """Whether the filter of system calls can be loaded."""
    try:
        filters.check()
    except OSError as error:
        return _reason(error)
    return ""


def device_limits() -> str:
    """Whether control groups can limit devices: a controller of version 1, BPF with version 2."""
    version = cgroups()
    if version == "v1":
        return "" if (_CGROUPS / "devices").is_dir() else "no controller of devices is mounted"
    if version == "none":
        return "no control groups are mounted"
    try:
        os.close(program.load(program.instructions(DEFAULT)))
    except OSError as error:
        return _reason(error)
    return ""


def openat2() -> str:
    """Whether the kernel has openat2, which resolves a path below a directory."""
    try:
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        try:
            os.close(syscalls.open_at(root, ".", os.O_PATH, syscalls.RESOLVE_IN_ROOT))
        finally:
            os.close(root)
    except OSError as error:
        return _reason(error)
    return ""


def nft() -> str:
    """Whether rules of nftables can be written."""
    return "" if run_nft.is_installed() else "the program nft is not installed"


def iptables() -> str:
    """Whether rules of iptables can be written."""
    return "" if run_iptables.is_installed(4) else "the program iptables is not installed"


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
