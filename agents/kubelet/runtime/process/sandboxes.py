"""What the containers of a pod share: namespaces of network, IPC and host name, and /dev/shm.

    ROOT/pods/<uid>/sandbox.json    what is known of it
    STATE/netns/<uid>.net  .ipc  .uts    its namespaces, where containers outlive their node
    STATE/shm/<node>/<uid>/         a file system in memory

A namespace is held by a descriptor of this process, or by a mount. Those of a node whose containers
end with it go as it goes, however it ends.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final, TypeVar

from kvstack.agents.kubelet.runtime.process.network import translation
from kvstack.agents.kubelet.runtime.process.network.netlink import Netlink
from kvstack.agents.kubelet.runtime.process.network.pod_network import PodNetwork
from kvstack.agents.kubelet.runtime.process.network.translation import TranslationError
from kvstack.agents.kubelet.runtime.process.presence import shm_of
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.agents.kubelet.runtime.runtime import ConnectError, Port, Sandbox, StartError

_T = TypeVar("_T")

RECORD: Final = "sandbox.json"
_FLAGS: Final = {
    "net": syscalls.CLONE_NEWNET,
    "ipc": syscalls.CLONE_NEWIPC,
    "uts": syscalls.CLONE_NEWUTS,
}
_SHM_OPTIONS: Final = "mode=1777,size=65536k"
_PROBE: Final = "kv-probe"
_OWN_NETWORK: Final = "/proc/thread-self/ns/net"
_NSFS: Final = 0x6E736673


class Held:
    """The sandbox of one pod."""

    def __init__(self, uid: str, address: str, namespaces: Mapping[str, int]) -> None:
        """address: empty: it shares the node's network; namespaces: descriptors by kind."""
        self.uid: Final = uid
        self.address: Final = address
        self.namespaces: Final = namespaces

    def flags(self) -> list[tuple[int, int]]:
        """Return descriptors, and what kind of namespace each is."""
        return [(each, _FLAGS[kind]) for kind, each in self.namespaces.items()]

    def close(self) -> None:
        """Hold it no more."""
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
        self._held: dict[str, Held] = {}
        self._lost: set[str] = set()

    def open(self) -> None:
        """Find the sandboxes of before; those that went with their node are lost."""
        for file in self._pods.glob(f"*/{RECORD}"):
            uid, record = file.parent.name, json.loads(file.read_text())
            namespaces = self._pinned(uid, record["kinds"])
            if namespaces is None:
                self._lost.add(uid)
                continue
            address = record["address"]
            if address:
                self._network.keep(uid, address, [Port(**each) for each in record["ports"]])
            self._held[uid] = Held(uid, address, namespaces)

    def close(self) -> None:
        """Hold nothing more; what is mounted goes, unless containers outlive the node."""
        for uid, each in list(self._held.items()):
            if self._outlives_node:
                each.close()
            else:
                self.remove(uid)
        self._held.clear()

    def get(self, uid: str) -> Held | None:
        """Return the sandbox of a pod; None: there is none."""
        return self._held.get(uid)

    def uids(self) -> Collection[str]:
        """Return the pods that have one."""
        return self._held.keys()

    async def make(self, sandbox: Sandbox, *, has_network: bool) -> bool:
        """Make a pod's sandbox unless it is there; return whether another was lost; StartError.

        has_network: whether it gets an address of its own.
        """
        if sandbox.uid in self._held:
            return False
        try:
            held = await in_own_thread(lambda: self._make(sandbox, has_network=has_network))
        except OSError as error:
            raise StartError("FailedCreatePodSandBox", str(error)) from error
        self._held[sandbox.uid] = held
        was_lost = sandbox.uid in self._lost
        self._lost.discard(sandbox.uid)
        return was_lost

    def _make(self, sandbox: Sandbox, *, has_network: bool) -> Held:
        """Make namespaces, in a thread that ends then; StartError, OSError."""
        uid = sandbox.uid
        self._clean(uid)
        kinds = [] if sandbox.has_host_ipc else ["ipc"]
        kinds += [] if sandbox.has_host_network else ["uts"]
        kinds += ["net"] if has_network and not sandbox.has_host_network else []
        made: dict[str, int] = {}
        address = ""
        with contextlib.ExitStack() as stack:
            outside = stack.enter_context(Netlink())
            own = os.open(_OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, own)
            syscalls.unshare(sum(_FLAGS[each] for each in kinds))
            try:
                for kind in kinds:
                    made[kind] = os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
                if "uts" in made and sandbox.hostname:
                    syscalls.set_host_name(sandbox.hostname)
                for name, value in sandbox.sysctls.items():
                    Path("/proc/sys", *name.split(".")).write_text(value)
                if "net" in made:
                    inside = stack.enter_context(Netlink())
                    inside.set_up("lo")
                    # What is set of the machine, and its programs, are those of this namespace.
                    syscalls.setns(own, syscalls.CLONE_NEWNET)
                    ports = sandbox.ports
                    address = self._network.connect(uid, made["net"], ports, outside, inside)
                if not sandbox.has_host_ipc:
                    shm = self.shm(uid)
                    shm.mkdir(mode=0o755, parents=True, exist_ok=True)
                    syscalls.mount("tmpfs", str(shm), "tmpfs", 0, _SHM_OPTIONS)
                self._keep(sandbox, made, address)
            except BaseException:
                for each in made.values():
                    os.close(each)
                if address:
                    self._network.disconnect(uid)
                self._clean(uid)
                raise
        return Held(uid, address, made)

    def _keep(self, sandbox: Sandbox, made: Mapping[str, int], address: str) -> None:
        """Let a later kubelet find a sandbox."""
        if self._outlives_node:
            for kind, descriptor in made.items():
                pin = self._pin(sandbox.uid, kind)
                pin.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                pin.touch()
                syscalls.mount(f"/proc/self/fd/{descriptor}", str(pin), "", syscalls.MS_BIND)
        directory = self._pods / sandbox.uid
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        ports = [asdict(each) for each in sandbox.ports if each.host_port]
        record = {"address": address, "kinds": list(made), "ports": ports}
        (directory / RECORD).write_text(json.dumps(record))

    def remove(self, uid: str) -> None:
        """End a pod's sandbox, if it has one; raises OSError."""
        held = self._held.pop(uid, None)
        self._lost.discard(uid)
        if held is not None:
            held.close()
            if held.address:
                self._network.disconnect(uid)
        self._clean(uid)
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
        found: dict[str, int] = {}
        for kind in kinds:
            try:
                found[kind] = os.open(self._pin(uid, kind), os.O_RDONLY | os.O_CLOEXEC)
                is_one = _is_namespace(found[kind])
            except OSError:
                is_one = False
            if not is_one:
                for each in found.values():
                    os.close(each)
                return None
        return found

    def _clean(self, uid: str) -> None:
        """Take away what is mounted for a pod."""
        for kind in _FLAGS:
            pin = self._pin(uid, kind)
            if pin.exists():
                with contextlib.suppress(OSError):  # it is no mount
                    syscalls.unmount(str(pin), syscalls.MNT_DETACH)
                pin.unlink()
        shm = self.shm(uid)
        if shm.is_dir():
            if shm.is_mount():
                syscalls.unmount(str(shm), syscalls.MNT_DETACH)
            shutil.rmtree(shm)


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
    """Do something in a thread of its own, whose namespaces end with it."""
    done: Future[_T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="namespaces").start()
    return await asyncio.wrap_future(done)


def probe_network() -> str:
    """Return why this process can make no networks for pods; empty: it can."""
    found: list[str] = []

    def work() -> None:
        try:
            with Netlink() as outside:
                outside.routes()
            syscalls.unshare(syscalls.CLONE_NEWNET)
            with Netlink() as inside:
                inside.add_bridge(_PROBE, bytes.fromhex("0a5800000001"))
            if translation.is_available():
                translation.apply(translation.rules(_PROBE, IPv4Network("10.0.0.0/24"), {}))
        except (OSError, TranslationError) as error:
            found.append(str(error))

    thread = threading.Thread(target=work, name="namespaces")
    thread.start()
    thread.join()
    return found[0] if found else ""
