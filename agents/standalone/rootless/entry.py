"""Entering the user namespace of a node: from then on this process is root of its own namespaces.

    entered = enter()          None: it stays outside; entered.problem says why
    entered.outside            the process outside

The process has to have a single thread yet. What it mounts is seen by itself and by its pods; /run
is a file system of its own, with the previous contents. Without an uplink the network leads nowhere
but to pods and Services.
"""

import os
import time
from dataclasses import dataclass, field
from ipaddress import ip_interface
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.agents.standalone.rootless import facts
from kvstack.agents.standalone.rootless.ids import Subordinates, maps
from kvstack.agents.standalone.rootless.outside import RESOLVERS, Outside, OutsideError
from kvstack.component.net.netlink import Netlink

_RUN: Final = "/run"
_OWN: Final = frozenset(("kvstack", "netns", "xtables.lock"))
"""Entries of /run that belong to nodes of the machine, and to its network."""
_RESOLV_CONF: Final = Path("/etc/resolv.conf")
_UPLINK_S: Final = 10.0
_LOOK_S: Final = 0.02
_NOWHERE: Final = ("outside", "nowhere")
"""The interfaces of a network without an uplink."""
_ADDRESS: Final = ip_interface("10.0.2.100/24")
"""The node's, in a network without an uplink: as slirp4netns gives it."""


@dataclass(frozen=True, slots=True)
class NamespaceEntry:
    """The outcome of entering a user namespace."""

    outside: Outside | None = None
    """None: the process has not entered one."""
    problem: str = ""
    """Why."""
    limits: list[str] = field(default_factory=list)
    """The node's limitations, with reasons."""


def enter(directory: Path) -> NamespaceEntry:
    """Enter a user namespace, if that can be done; directory: of this process, for its files.

    An error that comes once it is entered ends the process: OSError, OutsideError.
    """
    uid, gid = os.getuid(), os.getgid()
    subordinates = facts.own_subordinates()
    outside = Outside.start()
    try:
        syscalls.unshare(facts.NAMESPACES)
    except OSError as error:
        outside.close()
        return NamespaceEntry(problem=facts.explained(os.strerror(error.errno or 0)))
    try:
        limits = _map(outside, subordinates, uid, gid)
        _mount(directory)
        limits += _connect(outside, directory)
    except (OSError, OutsideError):
        outside.close()
        raise
    return NamespaceEntry(outside, limits=limits)


def _map(outside: Outside, subordinates: Subordinates, uid: int, gid: int) -> list[str]:
    """Become root inside; return what is lacking of ids."""
    limits = []
    if problem := subordinates.problem:
        outside.map_ids(os.getpid(), maps(uid, (0, 0)), maps(gid, (0, 0)))
        limits.append(f"pods have one user, this one: {problem}")
    else:
        uids, gids = maps(uid, subordinates.uids), maps(gid, subordinates.gids)
        outside.map_ids(os.getpid(), uids, gids)
        os.setgroups([])  # those of the user outside are none of the node's
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    return limits


def _mount(directory: Path) -> None:
    """Create a mount namespace, with a writable /run; OSError."""
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_SLAVE)
    before = directory / "machine-run"
    before.mkdir(mode=0o700, parents=True, exist_ok=True)
    syscalls.mount(_RUN, str(before), "", syscalls.MS_BIND | syscalls.MS_REC)
    # The directory may be below /run, and then its path is hidden.
    descriptor = os.open(before, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        syscalls.mount("tmpfs", _RUN, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755")
        for name in set(os.listdir(descriptor)) - _OWN:
            _show(Path(f"/proc/self/fd/{descriptor}", name), Path(_RUN, name))
        syscalls.unmount(f"/proc/self/fd/{descriptor}", syscalls.MNT_DETACH)
    finally:
        os.close(descriptor)


def _show(source: Path, target: Path) -> None:
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
        return
    if source.is_dir():
        target.mkdir()
    else:
        target.touch()
    syscalls.mount(str(source), str(target), "", syscalls.MS_BIND | syscalls.MS_REC)


def _connect(outside: Outside, directory: Path) -> list[str]:
    """Connect the network with the machine's; return the limitations."""
    with Netlink() as links:
        links.set_up("lo")
    if not (program := facts.uplink()):
        _lead_nowhere()
        return ["pods reach nothing outside: neither pasta nor slirp4netns is installed"]
    try:
        outside.connect(os.getpid(), program)
        _await_route(program)
    except OutsideError as error:
        _lead_nowhere()
        return [f"pods reach nothing outside: {error}"]
    file = directory / "resolv.conf"
    others = [each for each in _resolv_conf() if not each.startswith("nameserver")]
    file.write_text("\n".join([f"nameserver {RESOLVERS[program]}", *others, ""]))
    if _RESOLV_CONF.exists():
        syscalls.mount(str(file), os.path.realpath(_RESOLV_CONF), "", syscalls.MS_BIND)
    return []


def _resolv_conf() -> list[str]:
    try:
        return _RESOLV_CONF.read_text().splitlines()
    except OSError:
        return []  # a machine without resolvers


def _await_route(program: str) -> None:
    """Wait until the uplink is the way out; OutsideError: it does not come."""
    deadline_s = time.monotonic() + _UPLINK_S
    with Netlink() as links:
        while not any(each.network.prefixlen == 0 for each in links.routes()):
            if time.monotonic() > deadline_s:
                raise OutsideError(f"{program} made no route within {_UPLINK_S:g} s")
            time.sleep(_LOOK_S)


def _lead_nowhere() -> None:
    """Give the node an address, and packets to Services a way on which they are translated."""
    inside, other = _NOWHERE
    with Netlink() as links:
        if any(each.name == inside for each in links.links()):
            return
        own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            links.add_pair(inside, other, own, 0, bytes.fromhex("0a5800000002"))
        finally:
            os.close(own)
        links.set_up(other)
        links.add_address(inside, _ADDRESS)
        links.set_up(inside)
        links.add_default_route(_ADDRESS.network[2], inside)
