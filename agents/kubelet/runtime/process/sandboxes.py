"""Pod sandboxes: namespaces of network, IPC, host name, users, and /dev/shm.

    ROOT/pods/<uid>/sandbox.json    what is known of it
    STATE/netns/<uid>.net  .ipc  .uts  .user    its namespaces, where containers outlive their node
    STATE/shm/<node>/<uid>/         a file system in memory

A namespace is held by a descriptor of this process, or by a mount. Those of a node whose containers
end with it go as it goes, however it ends. To a user namespace belong the others that are made with
it, so that root of the pod has its power over these alone (see `user_ids` for its ids).
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final, TypeVar

from kvstack.agents.kubelet.cancellation import until_done
from kvstack.agents.kubelet.runtime.process.network import translator
from kvstack.agents.kubelet.runtime.process.network.pod_network import PodNetwork
from kvstack.agents.kubelet.runtime.process.network.translation import (
    Translation,
    TranslationError,
    host_ports,
)
from kvstack.agents.kubelet.runtime.process.node_lock import shm_of
from kvstack.agents.kubelet.runtime.process.shim import syscalls, user_namespaces
from kvstack.agents.kubelet.runtime.process.user_ids import NoIdsError, UserIds
from kvstack.agents.kubelet.runtime.runtime import ConnectError, Port, Sandbox, StartError
from kvstack.component.net.netlink import Netlink

_T = TypeVar("_T")

RECORD: Final = "sandbox.json"
_FLAGS: Final = {
    "net": syscalls.CLONE_NEWNET,
    "ipc": syscalls.CLONE_NEWIPC,
    "uts": syscalls.CLONE_NEWUTS,
}
_SHM_FLAGS: Final = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
_USERS: Final = "user"
_SHM_OPTIONS: Final = "mode=1777,size=65536k"
_PROBE: Final = "kv-probe"
_OWN_NETWORK: Final = "/proc/thread-self/ns/net"
_NSFS: Final = 0x6E736673


class HeldSandbox:
    """The sandbox of one pod."""

    def __init__(
        self,
        uid: str,
        addresses: Sequence[str],
        namespaces: Mapping[str, int],
        first_id: int = 0,
        ports: Sequence[Port] = (),
    ) -> None:
        """addresses: none: it shares the node's network; namespaces: descriptors by kind.

        first_id: which id of the machine is root of its user namespace; 0: it has none.
        ports: those that the node shows.
        """
        self.uid: Final = uid
        self.addresses: Final = tuple(addresses)
        self.ports: Final = tuple(ports)
        self.namespaces: Final = namespaces
        self.first_id: Final = first_id

    @property
    def user_namespace(self) -> int:
        """The descriptor of its user namespace; -1: it has none."""
        return self.namespaces.get(_USERS, -1)

    def flags(self) -> list[tuple[int, int]]:
        """Return descriptors, and what kind of namespace each is; without that of users."""
        return [(each, _FLAGS[kind]) for kind, each in self.namespaces.items() if kind != _USERS]

    def close(self) -> None:
        """Release the sandbox."""
        for each in self.namespaces.values():
            os.close(each)


class Sandboxes:
    """The sandboxes of one node; all but `open` waits for nothing but the kernel."""

    def __init__(
        self, pods: Path, state: Path, network: PodNetwork, *, outlives_node: bool
    ) -> None:
        """pods: directory of the pods' directories."""
        self._pods = pods
        self._state = state
        self._network = network
        self._outlives_node = outlives_node
        self._ids = UserIds(state, network.bridge)
        self._held: dict[str, HeldSandbox] = {}
        self._lost: set[str] = set()

    def open(self) -> None:
        """Find the sandboxes of before; those that went with their node are lost."""
        for file in self._pods.glob(f"*/{RECORD}"):
            uid, record = file.parent.name, json.loads(file.read_text())
            namespaces = self._pinned(uid, record["kinds"])
            if namespaces is None:
                self._lost.add(uid)
                # What still runs of it would be known to no policy.
                self._network.disconnect(uid)
                continue
            # Kubelets before this one kept one address.
            addresses = record.get("addresses") or list(filter(None, [record.get("address")]))
            ports = [Port(**each) for each in record["ports"]]
            if addresses:
                self._network.keep(uid, addresses, ports)
            self._held[uid] = HeldSandbox(
                uid, addresses, namespaces, record.get("first_id", 0), ports
            )
        self._ids.open([uid for uid, each in self._held.items() if each.first_id])

    def close(self) -> None:
        """Release all sandboxes; mounts are removed, unless containers outlive the node.

        Every sandbox is closed, even if others fail; OSError has all failures.
        """
        problems: list[str] = []
        for uid in list(self._held):
            steps = [self._let_go] if self._outlives_node else self._removal(uid)
            for step in steps:
                try:
                    step(uid)
                except OSError as error:
                    problems.append(f"{uid}: {error}")
        if problems:
            raise OSError(f"sandboxes of pods were not removed: {'; '.join(problems)}")

    def get(self, uid: str) -> HeldSandbox | None:
        """Return the sandbox of a pod; None: there is none."""
        return self._held.get(uid)

    def uids(self) -> Collection[str]:
        """Return the pods that have one."""
        return self._held.keys()

    async def make(self, sandbox: Sandbox, *, has_network: bool, has_users: bool = False) -> bool:
        """Make a pod's sandbox unless it is there; return whether another was lost; StartError.

        has_network: whether it gets an address of its own; has_users: a user namespace.
        """
        if sandbox.uid in self._held:
            return False
        # Whoever is cancelled meanwhile waits for the thread, so that `close` finds what it made.
        try:
            await until_done(self._hold(sandbox, has_network=has_network, has_users=has_users))
        except (OSError, NoIdsError) as error:
            raise StartError("FailedCreatePodSandBox", str(error)) from error
        was_lost = sandbox.uid in self._lost
        self._lost.discard(sandbox.uid)
        return was_lost

    async def _hold(self, sandbox: Sandbox, *, has_network: bool, has_users: bool) -> None:
        self._held[sandbox.uid] = await in_own_thread(
            lambda: self._make(sandbox, has_network=has_network, has_users=has_users)
        )

    def _make(self, sandbox: Sandbox, *, has_network: bool, has_users: bool) -> HeldSandbox:
        """Make namespaces, in a thread that ends then; StartError, OSError."""
        uid = sandbox.uid
        self._clean(uid)
        kinds = [] if sandbox.has_host_ipc else ["ipc"]
        kinds += [] if sandbox.has_host_network else ["uts"]
        kinds += ["net"] if has_network and not sandbox.has_host_network else []
        kinds += [_USERS] if has_users else []
        namespaces: dict[str, int] = {}
        addresses: tuple[str, ...] = ()
        first = 0
        with contextlib.ExitStack() as stack:
            outside = stack.enter_context(Netlink())
            own = os.open(_OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, own)
            try:
                first = self._ids.take(uid) if has_users else 0
                namespaces |= _namespaces(kinds, first)
                if "uts" in namespaces and sandbox.hostname:
                    syscalls.set_host_name(sandbox.hostname)
                with user_namespaces.acting_as(first):
                    for name, value in sandbox.sysctls.items():
                        Path("/proc/sys", *name.split(".")).write_text(value)
                if "net" in namespaces:
                    inside = stack.enter_context(Netlink())
                    inside.set_up("lo")
                    # What is set of the machine, and its programs, are those of this namespace.
                    syscalls.setns(own, syscalls.CLONE_NEWNET)
                    ports = sandbox.ports
                    addresses = self._network.connect(
                        uid, namespaces["net"], ports, outside, inside
                    )
                if not sandbox.has_host_ipc:
                    shm = self.shm(uid)
                    shm.mkdir(mode=0o755, parents=True, exist_ok=True)
                    options = f"{_SHM_OPTIONS},uid={first},gid={first}"
                    syscalls.mount("tmpfs", str(shm), "tmpfs", _SHM_FLAGS, options)
                self._keep(sandbox, namespaces, addresses, first)
            except BaseException:
                for each in namespaces.values():
                    os.close(each)
                if addresses:
                    self._network.disconnect(uid)
                self._clean(uid)
                self._ids.release(uid)
                raise
        return HeldSandbox(uid, addresses, namespaces, first, host_ports(sandbox.ports))

    def _keep(
        self, sandbox: Sandbox, namespaces: Mapping[str, int], addresses: Sequence[str], first: int
    ) -> None:
        """Write the record of a sandbox for a later kubelet."""
        if self._outlives_node:
            for kind, descriptor in namespaces.items():
                pin = self._pin(sandbox.uid, kind)
                pin.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                pin.touch()
                syscalls.mount(f"/proc/self/fd/{descriptor}", str(pin), "", syscalls.MS_BIND)
        directory = self._pods / sandbox.uid
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        ports = [asdict(each) for each in host_ports(sandbox.ports)]
        record = {
            "addresses": addresses,
            "kinds": list(namespaces),
            "ports": ports,
            "first_id": first,
        }
        (directory / RECORD).write_text(json.dumps(record))

    def remove(self, uid: str) -> None:
        """End a pod's sandbox, if it has one; raises OSError, and may be called again then."""
        for step in self._removal(uid):
            step(uid)

    def _removal(self, uid: str) -> list[Callable[[str], None]]:
        """Return the steps in which a sandbox ends; each raises OSError.

        It is disconnected while it is still known, so that a second try disconnects it, too.
        """
        held = self._held.get(uid)
        is_connected = held is not None and held.addresses
        return [
            *([self._network.disconnect] if is_connected else []),
            self._let_go,
            self._clean,
            self._ids.release,
            self._remove_record,
        ]

    def _let_go(self, uid: str) -> None:
        """Close the descriptors of a sandbox."""
        held = self._held.pop(uid, None)
        self._lost.discard(uid)
        if held is not None:
            held.close()

    def _remove_record(self, uid: str) -> None:
        (self._pods / uid / RECORD).unlink(missing_ok=True)

    def shm(self, uid: str) -> Path:
        """Return the file system in memory that containers of a pod share."""
        return shm_of(self._state, self._network.bridge) / uid

    async def connect(
        self, uid: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect with a port of a pod's loopback; raises ConnectError."""
        held = self._held.get(uid)
        descriptor = -1 if held is None else held.namespaces.get("net", -1)
        made = await in_own_thread(lambda: _socket_in(descriptor))
        try:
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
            return await asyncio.open_connection(sock=made)
        except OSError as error:
            made.close()
            where = self._pin(uid, "net") if descriptor >= 0 else "host"
            raise ConnectError(
                f'failed to execute portforward in network namespace "{where}": failed to connect '
                f'to localhost:{port} inside namespace "{uid}", IPv4: dial tcp4 127.0.0.1:{port}: '
                f"connect: {_reason(error)}"
            ) from error

    def _pin(self, uid: str, kind: str) -> Path:
        return self._state / "netns" / f"{uid}.{kind}"

    def _pinned(self, uid: str, kinds: list[str]) -> dict[str, int] | None:
        """Return the namespaces that mounts hold; None: they are not there."""
        namespaces: dict[str, int] = {}
        for kind in kinds:
            try:
                namespaces[kind] = os.open(self._pin(uid, kind), os.O_RDONLY | os.O_CLOEXEC)
                is_one = _is_namespace(namespaces[kind])
            except OSError:
                is_one = False
            if not is_one:
                for each in namespaces.values():
                    os.close(each)
                return None
        return namespaces

    def _clean(self, uid: str) -> None:
        """Unmount everything of a pod."""
        for kind in (*_FLAGS, _USERS):
            pin = self._pin(uid, kind)
            if pin.exists():
                with contextlib.suppress(OSError):  # it is not a mount point
                    syscalls.unmount(str(pin), syscalls.MNT_DETACH)
                pin.unlink()
        shm = self.shm(uid)
        if shm.is_dir():
            if shm.is_mount():
                syscalls.unmount(str(shm), syscalls.MNT_DETACH)
            shutil.rmtree(shm)


def _namespaces(kinds: Sequence[str], first: int) -> dict[str, int]:
    """Make namespaces, which this thread enters but for that of users; return descriptors.

    first: which id is root of that of users. The thread is one that ends then. OSError.
    """
    descriptors: dict[str, int] = {}
    flags = sum(_FLAGS[each] for each in kinds if each != _USERS)
    try:
        if _USERS in kinds:  # which no thread can enter
            with user_namespaces.member(flags | user_namespaces.CLONE_NEWUSER, first) as pid:
                for kind in kinds:
                    descriptors[kind] = os.open(
                        f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC
                    )
            for kind in descriptors.keys() - {_USERS}:
                syscalls.setns(descriptors[kind], _FLAGS[kind])
        else:
            syscalls.unshare(flags)
            for kind in kinds:
                path = f"/proc/thread-self/ns/{kind}"
                descriptors[kind] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except BaseException:
        for each in descriptors.values():
            os.close(each)
        raise
    return descriptors


def _reason(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()


def _is_namespace(descriptor: int) -> bool:
    return syscalls.file_system(descriptor) == _NSFS


def _socket_in(namespace: int) -> socket.socket:
    """Return a socket of a network namespace (-1: of this one); in a thread that ends then."""
    if namespace >= 0:
        syscalls.setns(namespace, syscalls.CLONE_NEWNET)
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


async def in_own_thread(work: Callable[[], _T]) -> _T:
    """Run a function in a thread of its own, whose namespaces end with it."""
    done: Future[_T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            done.set_exception(error)

    threading.Thread(target=run, name="namespaces").start()
    return await asyncio.wrap_future(done)


def probe_network() -> str:
    """Return why this process can make no networks for pods; empty: it can."""
    problems: list[str] = []

    def work() -> None:
        try:
            with Netlink() as outside:
                outside.routes()
            syscalls.unshare(syscalls.CLONE_NEWNET)
            with Netlink() as inside:
                inside.add_bridge(_PROBE, bytes.fromhex("0a5800000001"))
            if translator.program():
                network = IPv4Network("10.0.0.0/24")
                translator.apply(Translation(_PROBE, _PROBE, network, network))
        except (OSError, TranslationError) as error:
            problems.append(str(error))

    thread = threading.Thread(target=work, name="namespaces")
    thread.start()
    thread.join()
    return problems[0] if problems else ""
