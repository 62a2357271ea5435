"""A node and machines around it, each in a network namespace: what packets really do.

    with routed(("client", "one", "two")) as network:
        network.address("one")                        10.201.2.2: the node is its way out
        network.run("", apply_rules)                  a function, in the namespace of the node
        network.serve("one", 8080)                    answers with its name and who asks
        network.ask("client", "10.96.0.10", 80)       Answer("one", "10.201.1.2")

With `family=6` all addresses are of IPv6. Only root has it; elsewhere the test is skipped and says
so. Nothing of the machine's own network is touched, and the namespaces go in the end.
"""

import contextlib
import ctypes
import functools
import itertools
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple, TypeVar

import pytest

T = TypeVar("T")

TIMEOUT_S: Final = 30.0
"""So long an answer is waited for."""
SILENCE_S: Final = 1.0
"""So long an answer is waited for that may not come."""
_ANSWER_BYTES_MAX: Final = 1024
_NEW_NET: Final = 0x40000000
_KINDS: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_numbers = itertools.count()


class Answer(NamedTuple):
    """Who answered, and whom it saw."""

    name: str
    client: str


class RefusedError(Exception):
    """The connection was refused."""


class SilentError(Exception):
    """Nothing came back."""


class Routed:
    """The namespaces; the node's own has the name ""."""

    def __init__(
        self, prefix: str, names: Sequence[str], stack: ExitStack, family: int = 4
    ) -> None:
        self.family: Final = family
        self._prefix = prefix
        self._names = list(names)
        self._stack = stack

    def namespace(self, name: str) -> str:
        """Return how `ip netns` knows it."""
        return f"{self._prefix}-{name or 'node'}"

    def address(self, name: str) -> str:
        """Return the address of a machine."""
        return self._address(name, 2)

    def gateway(self, name: str) -> str:
        """Return the address of the node that a machine sees."""
        return self._address(name, 1)

    def _address(self, name: str, last: int) -> str:
        return _of(self._names.index(name), last, self.family)

    def ip(self, name: str, *arguments: str) -> None:
        """Run the program `ip` in a namespace."""
        _ip("-n", self.namespace(name), *arguments)

    def run(self, name: str, work: Callable[[], T]) -> T:
        """Call a function in a namespace: its sockets and its programs are there."""

        def inside() -> T:
            _enter(self.namespace(name))
            return work()

        with ThreadPoolExecutor(1) as threads:
            return threads.submit(inside).result()

    def socket(self, name: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        """Return a socket of a namespace."""
        return self.run(name, lambda: socket.socket(_KINDS[self.family], kind))

    @property
    def _anywhere(self) -> str:
        return "0.0.0.0" if self.family == 4 else "::"

    def serve(self, name: str, port: int, protocol: str = "TCP") -> None:
        """Answer on a port of a machine until the test ends."""
        kind = socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM
        server = self.socket(name, kind)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((self._anywhere, port))
        if protocol == "TCP":
            server.listen()
        answer = answer_connections if protocol == "TCP" else _answer_packets
        self._stack.callback(answer(server, name))

    def is_silent(self, name: str, address: str, port: int, protocol: str = "TCP") -> bool:
        """Whether a machine that asks an address hears nothing at all."""
        return self.are_silent((name, address, port, protocol))

    def are_silent(self, *asked: tuple[str, str, int, str]) -> bool:
        """Whether machines that ask addresses at the same time hear nothing, any of them.

        asked: machine, address, port and protocol of each.
        """

        def is_one_silent(one: tuple[str, str, int, str]) -> bool:
            name, address, port, protocol = one
            try:
                self.ask(name, address, port, protocol, patience_s=SILENCE_S)
            except SilentError:
                return True
            return False

        with ThreadPoolExecutor(len(asked)) as threads:
            return all(list(threads.map(is_one_silent, asked)))

    def ask(
        self,
        name: str,
        address: str,
        port: int,
        protocol: str = "TCP",
        *,
        source_port: int = 0,
        patience_s: float = TIMEOUT_S,
    ) -> Answer:
        """Ask an address from a machine; raises RefusedError or, if nothing comes, SilentError."""
        kind = socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM
        with self.socket(name, kind) as client:
            client.settimeout(patience_s)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            client.bind((self._anywhere, source_port))
            try:
                client.connect((address, port))
                client.send(b"who?")
                found = client.recv(_ANSWER_BYTES_MAX).decode()
            except TimeoutError as error:
                raise SilentError from error
            except ConnectionRefusedError as error:
                raise RefusedError from error
        who, _, seen = found.partition(" ")
        return Answer(who, seen)


@contextmanager
def routed(names: Sequence[str], family: int = 4, *, both: bool = False) -> Iterator[Routed]:
    """Make a node and machines, each joined with it by a network of their own.

    both: the networks have the other family, too; what is asked and told is of the one.
    """
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    prefix = f"kvr{os.getpid()}-{next(_numbers)}"
    with ExitStack() as stack:
        found = Routed(prefix, names, stack, family)
        try:
            _make(found, names, stack, (4, 6) if both else (family,))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces are to be had: {getattr(error, 'stderr', error)}")
        yield found


def _make(found: Routed, names: Sequence[str], stack: ExitStack, families: Sequence[int]) -> None:
    for name in ("", *names):
        _ip("netns", "add", found.namespace(name))
        stack.callback(_ip, "netns", "delete", found.namespace(name))
        _ip("-n", found.namespace(name), "link", "set", "lo", "up")
        if 6 in families:  # links are used at once, without a look for others' addresses
            for where in ("all", "default"):
                setting = f"net/ipv6/conf/{where}/accept_dad"
                found.run(name, functools.partial(_set, setting, "0"))
    node = found.namespace("")
    for at, name in enumerate(names):
        outside = f"to{at}"
        own = found.namespace(name)
        _ip("-n", node, "link", "add", outside, "type", "veth", "peer", "eth0", "netns", own)
        for family in families:
            _address(node, outside, _of(at, 1, family))
            _address(own, "eth0", _of(at, 2, family))
        _ip("-n", node, "link", "set", outside, "up")
        _ip("-n", own, "link", "set", "eth0", "up")
        for family in families:
            _ip("-n", own, "route", "add", "default", "via", _of(at, 1, family))
    # The node's own way to what is no one's: addresses of Services are translated before.
    _ip("-n", node, "link", "add", "outside", "type", "veth", "peer", "nowhere")
    _ip("-n", node, "link", "set", "nowhere", "up")
    for family in families:
        _address(node, "outside", "10.202.0.1" if family == 4 else "fd00:ca::1")
    _ip("-n", node, "link", "set", "outside", "up")
    for family in families:
        _ip("-n", node, f"-{family}", "route", "add", "default", "dev", "outside")
        forwarding = "ipv4/ip_forward" if family == 4 else "ipv6/conf/all/forwarding"
        found.run("", functools.partial(_set, f"net/{forwarding}", "1"))


def _of(at: int, last: int, family: int) -> str:
    """Return an address of the network of a machine."""
    return f"10.201.{at + 1}.{last}" if family == 4 else f"fd00:c9:{at + 1}::{last}"


def _address(namespace: str, device: str, address: str) -> None:
    bits, more = ("64", ("nodad",)) if ":" in address else ("24", ())
    _ip("-n", namespace, "address", "add", f"{address}/{bits}", "dev", device, *more)


def _set(name: str, value: str) -> None:
    with open(f"/proc/sys/{name}", "w") as file:
        file.write(value)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _enter(namespace: str) -> None:
    """Move this thread into a namespace."""
    descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.setns(descriptor, _NEW_NET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(descriptor)


def answer_connections(server: socket.socket, name: str) -> Callable[[], None]:
    """Answer on a socket with a name and the client's address; return what ends it."""
    return _answering(_connections, server, name)


def _answer_packets(server: socket.socket, name: str) -> Callable[[], None]:
    return _answering(_packets, server, name)


def _answering(
    work: Callable[[socket.socket, str], None], server: socket.socket, name: str
) -> Callable[[], None]:
    thread = threading.Thread(target=work, args=(server, name), daemon=True)
    thread.start()

    def end() -> None:
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)  # wakes the thread
        server.close()
        thread.join()

    return end


def _connections(server: socket.socket, name: str) -> None:
    while True:
        try:
            client, (address, *_) = server.accept()
        except OSError:
            return  # it was closed
        with client, contextlib.suppress(OSError):
            client.settimeout(TIMEOUT_S)
            client.recv(_ANSWER_BYTES_MAX)
            client.send(f"{name} {address}".encode())


def _packets(server: socket.socket, name: str) -> None:
    server.settimeout(0.1)
    while True:
        try:
            _, client = server.recvfrom(_ANSWER_BYTES_MAX)
            server.sendto(f"{name} {client[0]}".encode(), client)
        except TimeoutError:
            continue
        except OSError:
            return  # it was closed
