"""Interfaces, addresses and routes of the kernel (rtnetlink).

    with Netlink() as links:            of the namespace in which it is made, in whatever thread
        links.add_bridge("kv-1", mac)
        links.add_pair("kvpod2", "eth0", namespace, mtu, mac)

Every call raises OSError with the kernel's reason.
"""

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

from kvstack.component.net.netlink_attributes import (
    NESTED,
    attribute,
    attributes,
    error_code,
    message,
    messages,
)

Address: TypeAlias = IPv4Address | IPv6Address
Interface: TypeAlias = IPv4Interface | IPv6Interface
Network: TypeAlias = IPv4Network | IPv6Network

_NEW_LINK, _DELETE_LINK, _GET_LINK, _NEW_ADDRESS, _DELETE_ADDRESS = 16, 17, 18, 20, 21
_NEW_ROUTE, _DELETE_ROUTE, _GET_ROUTE = 24, 25, 26
_ACK, _DUMP, _REPLACE, _EXCLUSIVE, _CREATE = 4, 0x300, 0x100, 0x200, 0x400
_ERROR, _DONE = 2, 3
_UP: Final = 1
_MAIN_TABLE, _LOCAL_TABLE = 254, 255
_BOOT, _UNIVERSE, _LINK, _HOST, _UNICAST, _LOCAL = 3, 0, 253, 254, 1, 2
_LOOPBACK: Final = "lo"
_BUFFER: Final = 1 << 16
_KINDS: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
_NO_DETECTION: Final = 2
"""Flag of an address that is used at once, without a look whether a neighbour has it (IPv6)."""
_NO_ROUTE: Final = 0x200
"""Flag of an address that makes no route."""
NODE_ROUTE: Final = 75
"""The protocol of routes to pods of other nodes, which identifies them."""
SERVICE_ROUTE: Final = 76
"""The protocol of local routes for ranges of cluster IPs."""

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
    """A route of the main table of IPv4."""

    network: IPv4Network
    link: int
    """Number of the interface."""
    gateway: IPv4Address | None = None
    protocol: int = 0
    """The protocol of the route: who added it."""


class Route6(NamedTuple):
    """A route of the main table of IPv6."""

    network: IPv6Network
    link: int
    gateway: IPv6Address | None = None
    protocol: int = 0


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
        """Close the socket."""
        self._socket.close()

    def links(self) -> list[Link]:
        """Return all interfaces."""
        body = _LINK_HEAD.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0)
        found = []
        for payload in self.ask(_GET_LINK, _DUMP, body):
            index = _LINK_HEAD.unpack_from(payload)[3]
            given = dict(attributes(payload[_LINK_HEAD.size :]))
            name = given[3].rstrip(b"\0").decode()
            found.append(Link(name, index, _number(given.get(10)), _number(given.get(4))))
        return found

    def routes(self) -> list[Route]:
        """Return the routes of the main table of IPv4."""
        found = []
        for length, protocol, given in self._routes(socket.AF_INET):
            network = IPv4Network((given.get(1, bytes(4)), length))
            gateway = IPv4Address(given[5]) if 5 in given else None
            found.append(Route(network, _number(given.get(4)), gateway, protocol))
        return found

    def routes_of_ipv6(self) -> list[Route6]:
        """Return the routes of the main table of IPv6; none: the kernel does not have it."""
        found = []
        for length, protocol, given in self._routes(socket.AF_INET6):
            network = IPv6Network((given.get(1, bytes(16)), length))
            gateway = IPv6Address(given[5]) if 5 in given else None
            found.append(Route6(network, _number(given.get(4)), gateway, protocol))
        return found

    def local_ranges(self) -> list[Network]:
        """Return the ranges that were made local by `add_local_range`, of both families."""
        ranges: list[Network] = []
        for length, protocol, given in self._routes(socket.AF_INET, _LOCAL_TABLE):
            if protocol == SERVICE_ROUTE:
                ranges.append(IPv4Network((given.get(1, bytes(4)), length)))
        for length, protocol, given in self._routes(socket.AF_INET6, _LOCAL_TABLE):
            if protocol == SERVICE_ROUTE:
                ranges.append(IPv6Network((given.get(1, bytes(16)), length)))
        return ranges

    def add_local_range(self, network: Network) -> None:
        """Make every address of a range one of this machine, so that sockets can listen there."""
        self.ask(_NEW_ROUTE, _ACK | _CREATE | _EXCLUSIVE, self._local_range(network))

    def remove_local_range(self, network: Network) -> None:
        """Undo `add_local_range`."""
        self.ask(_DELETE_ROUTE, _ACK, self._local_range(network))

    def _local_range(self, network: Network) -> bytes:
        head = (_KINDS[network.version], network.prefixlen, 0, 0)
        body = _ROUTE_HEAD.pack(*head, _LOCAL_TABLE, SERVICE_ROUTE, _HOST, _LOCAL, 0)
        body += attribute(1, network.network_address.packed)
        return body + attribute(4, struct.pack("=I", self.index(_LOOPBACK)))

    def _routes(
        self, kind: int, table: int = _MAIN_TABLE
    ) -> Iterator[tuple[int, int, dict[int, bytes]]]:
        """Give the length, the protocol and the attributes of each route of a table."""
        for payload in self.ask(_GET_ROUTE, _DUMP, _ROUTE_HEAD.pack(kind, *bytes(8))):
            head = _ROUTE_HEAD.unpack_from(payload)
            if head[0] == kind and head[4] == table:
                yield head[1], head[5], dict(attributes(payload[_ROUTE_HEAD.size :]))

    def add_bridge(self, name: str, mac: bytes) -> None:
        """Make a bridge, whose address stays as interfaces come and go."""
        kind = attribute(18 | NESTED, attribute(1, b"bridge"))
        self._change_link(_NEW_LINK, name, attribute(1, mac) + kind, _CREATE | _EXCLUSIVE)

    def add_pair(self, name: str, peer: str, namespace: int, mtu: int, mac: bytes) -> None:
        """Make two interfaces that are joined; the peer is in a namespace, given as descriptor.

        mac: the hardware address of the peer.
        """
        size = attribute(4, struct.pack("=I", mtu)) if mtu else b""
        other = _LINK_HEAD.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0)
        other += attribute(3, peer.encode() + b"\0") + attribute(1, mac) + size
        other += attribute(28, struct.pack("=i", namespace))
        data = attribute(2 | NESTED, attribute(1 | NESTED, other))
        kind = attribute(18 | NESTED, attribute(1, b"veth") + data)
        self._change_link(_NEW_LINK, name, size + kind, _CREATE | _EXCLUSIVE)

    def set_up(self, name: str) -> None:
        """Set an interface up."""
        self._change_link(_NEW_LINK, name, b"", 0, is_up=True)

    def delete(self, name: str) -> None:
        """Delete an interface if it exists.

        A pair goes without being deleted when the namespace of one of the two ends, at any time.
        """
        try:
            self._change_link(_DELETE_LINK, name, b"", 0)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise

    def add_address(self, name: str, address: Interface, *, routes: bool = True) -> None:
        """Give an interface an address; routes: and with it the route to its network.

        Of IPv6 an address alone has such a route, too.
        """
        flags = _NO_DETECTION if address.version == 6 else 0
        kind, length = _KINDS[address.version], address.network.prefixlen
        packed = address.ip.packed
        body = _ADDRESS_HEAD.pack(kind, length, flags, 0, self.index(name))
        body += attribute(2, packed) + attribute(1, packed)
        if not routes:
            body += attribute(8, struct.pack("=I", flags | _NO_ROUTE))
        self.ask(_NEW_ADDRESS, _ACK | _CREATE, body)

    def delete_address(self, name: str, address: Interface) -> None:
        """Delete an address of an interface."""
        kind, length = _KINDS[address.version], address.network.prefixlen
        body = _ADDRESS_HEAD.pack(kind, length, 0, 0, self.index(name))
        self.ask(_DELETE_ADDRESS, _ACK, body + attribute(2, address.ip.packed))

    def add_host_route(self, address: Address, name: str, source: Address) -> None:
        """Send what is for an address out of an interface; source: of the machine's own packets."""
        head = (_KINDS[address.version], address.max_prefixlen, 0, 0)
        body = _ROUTE_HEAD.pack(*head, _MAIN_TABLE, _BOOT, _LINK, _UNICAST, 0)
        body += attribute(1, address.packed)
        body += attribute(4, struct.pack("=I", self.index(name))) + attribute(7, source.packed)
        self.ask(_NEW_ROUTE, _ACK | _CREATE | _REPLACE, body)

    def add_default_route(self, gateway: Address, name: str) -> None:
        """Send what has no other route to a gateway, which is reached by an interface."""
        head = (_KINDS[gateway.version], 0, 0, 0, _MAIN_TABLE, _BOOT, _UNIVERSE, _UNICAST, 0)
        body = _ROUTE_HEAD.pack(*head) + attribute(5, gateway.packed)
        body += attribute(4, struct.pack("=I", self.index(name)))
        self.ask(_NEW_ROUTE, _ACK | _CREATE, body)

    def index(self, name: str) -> int:
        """Return the number of an interface."""
        for each in self.links():
            if each.name == name:
                return each.number
        raise OSError(f"interface {name} does not exist")

    def _change_link(
        self, kind: int, name: str, attributes: bytes, flags: int, *, is_up: bool = False
    ) -> None:
        up = _UP if is_up else 0
        head = _LINK_HEAD.pack(socket.AF_UNSPEC, 0, 0, 0, up, up)
        body = head + attribute(3, name.encode() + b"\0") + attributes
        self.ask(kind, _ACK | flags, body)

    def ask(self, kind: int, flags: int, body: bytes) -> list[bytes]:
        """Send a request; return what came as its answer; flags: besides that it is one."""
        self._number += 1
        self._socket.send(message(kind, flags, self._number, body))
        replies: list[bytes] = []
        while True:
            for got, number, payload in messages(self._socket.recv(_BUFFER)):
                if number != self._number:
                    continue
                if got == _DONE:
                    return replies
                if got == _ERROR:
                    if code := error_code(payload):
                        raise OSError(code, os.strerror(code))
                    return replies
                replies.append(payload)


def _number(data: bytes | None) -> int:
    return int.from_bytes(data, sys.byteorder) if data else 0
