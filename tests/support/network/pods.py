"""Pods of a node in network namespaces, as the runtime of processes joins them; and a neighbour.

    with pods_of(("10.9.8.0/24", "fd00:9::/64"), tmp_path) as pods:
        pods.add("one", Port(80, 8080))       its addresses
        pods.ask("one", pods.address("two", 6), 80)

The neighbour `client` is on a network of each family with the node, which is its way out.
"""

import contextlib
import functools
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final, TypeVar

from kvstack.agents.kubelet.runtime.process.network.pod_network import PodNetwork
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.agents.kubelet.runtime.runtime import Port
from kvstack.component.net.netlink import Netlink
from tests.support.network.routed import (
    TIMEOUT_S,
    Answer,
    RefusedError,
    Routed,
    SilentError,
    answer_connections,
    routed,
)

T = TypeVar("T")

CLIENT: Final = "client"
CLIENT_ADDRESSES: Final = {4: "10.201.1.2", 6: "fd00:c9:1::2"}
NODE_ADDRESSES: Final = {4: "10.201.1.1", 6: "fd00:c9:1::1"}
_KINDS: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_ANYWHERE: Final = {4: "0.0.0.0", 6: "::"}


class Pods:
    """The node, its neighbour and its pods."""

    def __init__(self, machine: Routed, network: PodNetwork, stack: ExitStack) -> None:
        self.machine: Final = machine
        self.network: Final = network
        self.addresses: Final[dict[str, tuple[str, ...]]] = {}
        self._stack = stack
        self._namespaces: dict[str, int] = {}

    def add(self, name: str, *ports: Port) -> tuple[str, ...]:
        """Make a pod."""

        def namespace() -> int:
            syscalls.unshare(syscalls.CLONE_NEWNET)
            with Netlink() as inside:
                inside.set_up("lo")
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

        made = self._namespaces[name] = _in_thread(namespace)
        self._stack.callback(os.close, made)
        inside = self.run(name, Netlink)

        def connect() -> tuple[str, ...]:
            with Netlink() as outside, inside:
                return self.network.connect(name, made, ports, outside, inside)

        self.addresses[name] = self.machine.run("", connect)
        return self.addresses[name]

    def address(self, name: str, family: int) -> str:
        """Return the address of a pod."""
        return next(e for e in self.addresses[name] if ip_address(e).version == family)

    def run(self, name: str, work: Callable[[], T]) -> T:
        """Call a function in the network of a pod, of the client, or of the node (empty)."""
        if name in ("", CLIENT):
            return self.machine.run(name, work)

        def inside() -> T:
            syscalls.setns(self._namespaces[name], syscalls.CLONE_NEWNET)
            return work()

        return _in_thread(inside)

    def ip(self, name: str, *arguments: str) -> None:
        """Run the program `ip` in the network of a pod, of the client, or of the node."""
        command = ["ip", *arguments]
        self.run(name, lambda: subprocess.run(command, check=True, capture_output=True))

    def serve(self, name: str, port: int) -> None:
        """Answer on a port of all addresses until the test ends."""
        families = (4, 6) if self.run(name, lambda: Path("/proc/net/if_inet6").exists()) else (4,)
        for family in families:
            server = self.run(name, functools.partial(_server, family, port))
            self._stack.callback(answer_connections(server, name))

    def ask(
        self,
        name: str,
        address: str,
        port: int,
        *,
        source: str = "",
        patience_s: float = TIMEOUT_S,
    ) -> Answer:
        """Ask an address by TCP; raises RefusedError, SilentError."""
        family = ip_address(address.partition("%")[0]).version

        def connect() -> str:
            with socket.socket(_KINDS[family]) as client:
                client.settimeout(patience_s)
                if source:
                    client.bind(_name(source, 0))
                client.connect(_name(address, port))
                client.send(b"who?")
                return client.recv(1024).decode()

        try:
            who, _, seen = self.run(name, connect).partition(" ")
        except TimeoutError as error:
            raise SilentError from error
        except ConnectionRefusedError as error:
            raise RefusedError from error
        return Answer(who, seen)

    def is_silent(self, name: str, address: str, port: int, *, source: str = "") -> bool:
        """Whether nothing at all comes back."""
        try:
            self.ask(name, address, port, source=source, patience_s=0.7)
        except SilentError:
            return True
        return False


@contextlib.contextmanager
def pods_of(ranges: Sequence[str], state: Path, whole: Sequence[str] = ()) -> Iterator[Pods]:
    """Make a node with ranges for its pods; whole: those of the pods of all nodes."""
    with ExitStack() as stack:
        machine = stack.enter_context(routed((CLIENT,), both=True))
        network = PodNetwork("node", state, [ip_network(each) for each in whole])
        pods = Pods(machine, network, stack)
        machine.run("", lambda: network.use_ranges(ranges))
        machine.run("", network.open)
        yield pods


def _name(address: str, port: int) -> tuple[object, ...]:
    """Return how sockets know an address, which may name an interface of this network."""
    ((*_, found), *_) = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    return found


def _server(family: int, port: int) -> socket.socket:
    server = socket.socket(_KINDS[family])
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == 6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    server.bind((_ANYWHERE[family], port))
    server.listen()
    return server


def _in_thread(work: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()
