"""Interfaces, addresses and routes, as the kernel is asked for them (rtnetlink, IPv4).

    with Netlink() as links:            of the namespace in which it is made, in whatever thread
        links.add_bridge("kv-1", mac)
        links.add_pair("kv2", "eth0", namespace, mtu)

Every call raises OSError with the kernel's reason.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import TracebackType
from typing import Final, NamedTuple, Self

_NEW_LINK, _DELETE_LINK, _GET_LINK, _NEW_ADDRESS, _NEW_ROUTE, _GET_ROUTE = 16, 17, 18, 20, 24, 26
_SET_LINK: Final = 19
_BRIDGE: Final = 7
_REQUEST, _ACK, _DUMP, _EXCLUSIVE, _CREATE = 1, 4, 0x300, 0x200, 0x400
_ERROR, _DONE = 2, 3
_NESTED: Final = 0x8000
_TYPE: Final = 0x3FFF
_UP: Final = 1
_MAIN_TABLE: Final = 254
_BOOT, _UNIVERSE, _UNICAST = 3, 0, 1
_BUFFER: Final = 1 << 16

_HEAD: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_LINK_HEAD: Final = struct.Struct("=BBHiII")
_ADDRESS_HEAD: Final = struct.Struct("=BBBBi")
_ROUTE_HEAD: Final = struct.Struct("=BBBBBBBBI")


class Link(NamedTuple):
    """An interface."""

    name: str
    number: int
    master: int
    """Number of the bridge that it is a port of; 0: none."""
    mtu: int


class Route(NamedTuple):
    """A route of the main table."""

    network: IPv4Network
    link: int
    """Number of the interface."""


class Netlink:
    """A conversation with the kernel about one network namespace."""

    def __init__(self) -> None:
        """Speak of the namespace that this thread is in now."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._number = 0

    def __enter__(self) -> Self:
        """Nothing is to be done."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Speak no more."""
        self._socket.close()

    def links(self) -> list[Link]:
        """Return all interfaces."""
        body = _LINK_HEAD.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0)
        found = []
        for payload in self._ask(_GET_LINK, _DUMP, body):
            index = _LINK_HEAD.unpack_from(payload)[3]
            given = dict(_attributes(payload[_LINK_HEAD.size :]))
            name = given[3].rstrip(b"\0").decode()
            found.append(Link(name, index, _number(given.get(10)), _number(given.get(4))))
        return found

    def routes(self) -> list[Route]:
        """Return the routes of the main table."""
        body = _ROUTE_HEAD.pack(socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)
        found = []
        for payload in self._ask(_GET_ROUTE, _DUMP, body):
            head = _ROUTE_HEAD.unpack_from(payload)
            if head[4] != _MAIN_TABLE:
                continue
            given = dict(_attributes(payload[_ROUTE_HEAD.size :]))
            address = IPv4Address(given.get(1, bytes(4)))
            found.append(Route(IPv4Network((address, head[1])), _number(given.get(4))))
        return found

    def add_bridge(self, name: str, mac: bytes) -> None:
        """Make a bridge, whose address stays as interfaces come and go."""
        kind = _attribute(18 | _NESTED, _attribute(1, b"bridge"))
        self._change_link(_NEW_LINK, name, _attribute(1, mac) + kind, _CREATE | _EXCLUSIVE)

    def add_pair(self, name: str, peer: str, namespace: int, mtu: int) -> None:
        """Make two interfaces that are joined; the peer is in a namespace, given as descriptor."""
        size = _attribute(4, struct.pack("=I", mtu)) if mtu else b""
        other = _LINK_HEAD.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0)
        other += _attribute(3, peer.encode() + b"\0") + size
        other += _attribute(28, struct.pack("=i", namespace))
        data = _attribute(2 | _NESTED, _attribute(1 | _NESTED, other))
        kind = _attribute(18 | _NESTED, _attribute(1, b"veth") + data)
        self._change_link(_NEW_LINK, name, size + kind, _CREATE | _EXCLUSIVE)

    def join(self, name: str, bridge: str) -> None:
        """Make an interface a port of a bridge, and let it work.

        What came through a port may go back through it: a pod reaches its own port of the node.
        """
        master = _attribute(10, struct.pack("=I", self._index(bridge)))
        self._change_link(_NEW_LINK, name, master, 0, is_up=True)
        head = _LINK_HEAD.pack(_BRIDGE, 0, 0, self._index(name), 0, 0)
        turns = _attribute(12 | _NESTED, _attribute(4, b"\1"))
        self._ask(_SET_LINK, _ACK, head + turns)

    def set_up(self, name: str) -> None:
        """Let an interface work."""
        self._change_link(_NEW_LINK, name, b"", 0, is_up=True)

    def delete(self, name: str) -> None:
        """Take an interface away."""
        self._change_link(_DELETE_LINK, name, b"", 0)

    def add_address(self, name: str, address: IPv4Interface) -> None:
        """Give an interface an address, and with it the route to its network."""
        head = (socket.AF_INET, address.network.prefixlen, 0, 0, self._index(name))
        packed = address.ip.packed
        body = _ADDRESS_HEAD.pack(*head) + _attribute(2, packed) + _attribute(1, packed)
        self._ask(_NEW_ADDRESS, _ACK | _CREATE, body)

    def add_default_route(self, gateway: IPv4Address) -> None:
        """Send what has no other route to a gateway."""
        head = (socket.AF_INET, 0, 0, 0, _MAIN_TABLE, _BOOT, _UNIVERSE, _UNICAST, 0)
        body = _ROUTE_HEAD.pack(*head) + _attribute(5, gateway.packed)
        self._ask(_NEW_ROUTE, _ACK | _CREATE, body)

    def _index(self, name: str) -> int:
        for each in self.links():
            if each.name == name:
                return each.number
        raise OSError(f"there is no interface {name}")

    def _change_link(
        self, kind: int, name: str, attributes: bytes, flags: int, *, is_up: bool = False
    ) -> None:
        up = _UP if is_up else 0
        head = _LINK_HEAD.pack(socket.AF_UNSPEC, 0, 0, 0, up, up)
        body = head + _attribute(3, name.encode() + b"\0") + attributes
        self._ask(kind, _ACK | flags, body)

    def _ask(self, kind: int, flags: int, body: bytes) -> list[bytes]:
        """Send a request; return what came as its answer."""
        self._number += 1
        length = _HEAD.size + len(body)
        self._socket.send(_HEAD.pack(length, kind, _REQUEST | flags, self._number, 0) + body)
        found: list[bytes] = []
        while True:
            for got, number, payload in _messages(self._socket.recv(_BUFFER)):
                if number != self._number:
                    continue
                if got == _DONE:
                    return found
                if got == _ERROR:
                    code = -struct.unpack_from("=i", payload)[0]
                    if code:
                        raise OSError(code, os.strerror(code))
                    return found
                found.append(payload)


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Give kind, number and payload of each message."""
    at = 0
    while at + _HEAD.size <= len(data):
        length, kind, _, number, _ = _HEAD.unpack_from(data, at)
        yield kind, number, data[at + _HEAD.size : at + length]
        at += _aligned(length)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        yield kind & _TYPE, data[at + _ATTRIBUTE.size : at + length]
        at += _aligned(length)


def _attribute(kind: int, data: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(data)
    return _ATTRIBUTE.pack(length, kind) + data + bytes(_aligned(length) - length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _number(data: bytes | None) -> int:
    return int.from_bytes(data, sys.byteorder) if data else 0
