"""The kernel's routes to other nodes, and the tunnel (VXLAN); of both only differences are written.

    with Kernel() as kernel:
        kernel.machine()                what the plan has to know
        kernel.bring(plan, address)     routes and tunnel as the plan says
        kernel.clear()                  none of either

Routes are ours by their protocol, the tunnel by its name: what a process before left is taken up,
or away. The hardware address of a node's end of the tunnel follows from its range, so that nodes
need to tell each other nothing besides the API. Every call raises OSError.
"""

import socket
import struct
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any, Final, NamedTuple, TypeAlias

from kvstack.agents.kubelet.routes.plan import Connected, Machine, Plan, Way
from kvstack.agents.kubelet.runtime.process.network.netlink import NODE_ROUTE, Link, Netlink, Route
from kvstack.agents.kubelet.runtime.process.network.pod_network import hardware_address
from kvstack.component.net.netlink_attributes import NESTED, attribute, attributes

Object: TypeAlias = dict[str, Any]

TUNNEL: Final = "kvxlan1"
PORT: Final = 8472
"""Of UDP: what Linux and flannel take."""
_IDENTIFIER: Final = 1
_OVERHEAD: Final = 50
"""Bytes that the tunnel adds to a packet."""
_MTU: Final = 1500
"""Where an interface tells none."""

_NEW_LINK, _NEW_ADDRESS, _GET_ADDRESS, _NEW_ROUTE, _DELETE_ROUTE = 16, 20, 22, 24, 25
_NEW_NEIGHBOUR, _DELETE_NEIGHBOUR, _GET_NEIGHBOUR, _GET_LINK = 28, 29, 30, 18
_ACK, _DUMP, _REPLACE, _EXCLUSIVE, _CREATE = 4, 0x300, 0x100, 0x200, 0x400
_BRIDGE: Final = 7
_MAIN_TABLE: Final = 254
_UNIVERSE, _UNICAST = 0, 1
_ON_LINK: Final = 4
_PERMANENT, _SELF = 0x80, 2
_DESTINATION, _HARDWARE = 1, 2  # of a neighbour
_ALIAS: Final = 20

_LINK_HEAD: Final = struct.Struct("=BBHiII")
_ADDRESS_HEAD: Final = struct.Struct("=BBBBi")
_ROUTE_HEAD: Final = struct.Struct("=BBBBBBBBI")
_NEIGHBOUR_HEAD: Final = struct.Struct("=BBHiHBB")


class _Neighbour(NamedTuple):
    """Which address (of the tunnel, or under it) has which hardware address."""

    family: int
    address: IPv4Address
    hardware: bytes


class Kernel(Netlink):
    """A conversation about the routes of one network namespace."""

    def machine(self) -> Machine:
        """Return what the machine has besides routes of ours."""
        tunnel = self._tunnel()
        number = tunnel.number if tunnel else -1
        routes = [
            each
            for each in self.routes()
            if each.protocol != NODE_ROUTE and each.link != number and each.network.prefixlen
        ]
        return Machine(
            frozenset(each for each, link in self._addresses() if link != number),
            [Connected(each.network, each.link) for each in routes if _is_connected(each)],
            [each.network for each in routes if not _is_connected(each)],
        )

    def bring(self, plan: Plan, address: IPv4Address) -> list[str]:
        """Let the kernel have what a plan says; address: of this node; return what was changed."""
        changes: list[str] = []
        tunnel = 0
        if plan.tunneled:
            tunnel = self._keep_tunnel(plan.own, address, changes)
            self._keep_neighbours(plan, tunnel, changes)
        wanted = {each.network: _route(each, tunnel) for each in plan.ways.values()}
        self._keep_routes(wanted, changes)
        if not plan.tunneled:
            self._remove_tunnel(changes)
        return changes

    def clear(self) -> list[str]:
        """Take away what is ours; return what was."""
        changes: list[str] = []
        self._keep_routes({}, changes)
        self._remove_tunnel(changes)
        return changes

    # Routes.

    def _keep_routes(self, wanted: Mapping[IPv4Network, Route], changes: list[str]) -> None:
        ours = [each for each in self.routes() if each.protocol == NODE_ROUTE]
        there: set[IPv4Network] = set()
        for each in ours:
            if wanted.get(each.network) == each and each.network not in there:
                there.add(each.network)
            else:
                self._change_route(_DELETE_ROUTE, each, 0)
                changes.append(f"-{each.network}")
        for network, route in wanted.items():
            if network not in there:
                self._change_route(_NEW_ROUTE, route, _CREATE | _EXCLUSIVE)
                changes.append(f"+{network}")

    def _change_route(self, kind: int, route: Route, flags: int) -> None:
        network, via = route.network, route.gateway
        head = _ROUTE_HEAD.pack(
            *(socket.AF_INET, network.prefixlen, 0, 0, _MAIN_TABLE),
            *(NODE_ROUTE, _UNIVERSE, _UNICAST, _ON_LINK),
        )
        body = attribute(1, network.network_address.packed)
        body += attribute(4, struct.pack("=I", route.link))
        body += attribute(5, via.packed) if via is not None else b""
        self.ask(kind, _ACK | flags, head + body)

    # The tunnel.

    def _tunnel(self) -> Link | None:
        return next((each for each in self.links() if each.name == TUNNEL), None)

    def _remove_tunnel(self, changes: list[str]) -> None:
        if self._tunnel() is not None:
            self.delete(TUNNEL)
            changes.append(f"-{TUNNEL}")

    def _keep_tunnel(self, own: IPv4Network, address: IPv4Address, changes: list[str]) -> int:
        """Make this node's end of the tunnel, unless it is there; return its number."""
        mtu = self._mtu_at(address) - _OVERHEAD
        alias = f"kvstack {own} {address} {_IDENTIFIER} {PORT} {mtu}"
        known = self._tunnel()
        if known is not None and self._alias(known) != alias:
            self._remove_tunnel(changes)
            known = None
        if known is not None:
            return known.number
        data = attribute(1, struct.pack("=I", _IDENTIFIER)) + attribute(4, address.packed)
        data += attribute(7, b"\0") + attribute(15, struct.pack("!H", PORT))  # it learns nothing
        kind = attribute(1, b"vxlan") + attribute(2 | NESTED, data)
        head = _LINK_HEAD.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0)
        body = attribute(3, TUNNEL.encode() + b"\0")
        body += attribute(1, hardware_address(own.network_address))
        body += attribute(4, struct.pack("=I", mtu)) + attribute(18 | NESTED, kind)
        self.ask(_NEW_LINK, _ACK | _CREATE | _EXCLUSIVE, head + body)
        made = self.index(TUNNEL)
        # What this machine itself sends to pods comes from an address that leads back the same way.
        self.add_address(TUNNEL, IPv4Interface(f"{own.network_address}/32"))
        self.set_up(TUNNEL)
        named = attribute(_ALIAS, alias.encode())  # last: a tunnel half made is made anew
        self.ask(_NEW_LINK, _ACK, _number_head(made) + named)
        changes.append(f"+{TUNNEL}")
        return made

    def _alias(self, link: Link) -> str:
        body = _number_head(link.number)
        for payload in self.ask(_GET_LINK, _ACK, body):
            given = dict(attributes(payload[_LINK_HEAD.size :]))
            return given.get(_ALIAS, b"").rstrip(b"\0").decode("utf-8", "replace")
        return ""

    def _mtu_at(self, address: IPv4Address) -> int:
        """Return the size of packets of the interface that has an address."""
        links = {each.number: each for each in self.links()}
        found = [links[link].mtu for each, link in self._addresses() if each == address]
        return min(filter(None, found), default=_MTU)

    # Neighbours: who is at the other ends.

    def _keep_neighbours(self, plan: Plan, tunnel: int, changes: list[str]) -> None:
        wanted: set[_Neighbour] = set()
        for each in plan.tunneled:
            end = each.network.network_address
            wanted.add(_Neighbour(socket.AF_INET, end, hardware_address(end)))
            wanted.add(_Neighbour(_BRIDGE, each.via, hardware_address(end)))
        there = self._neighbours(tunnel)
        for gone in there - wanted:
            self._change_neighbour(_DELETE_NEIGHBOUR, gone, tunnel, 0)
            changes.append(f"-{gone.address}")
        for new in wanted - there:
            flags = _CREATE | (_REPLACE if new.family == socket.AF_INET else 0)
            self._change_neighbour(_NEW_NEIGHBOUR, new, tunnel, flags)
            changes.append(f"+{new.address}")

    def _neighbours(self, link: int) -> set[_Neighbour]:
        found = set()
        for family in (socket.AF_INET, _BRIDGE):
            body = _NEIGHBOUR_HEAD.pack(family, 0, 0, 0, 0, 0, 0)
            for payload in self.ask(_GET_NEIGHBOUR, _DUMP, body):
                its_family, _, _, its_link, state, _, _ = _NEIGHBOUR_HEAD.unpack_from(payload)
                given = dict(attributes(payload[_NEIGHBOUR_HEAD.size :]))
                is_whole = _DESTINATION in given and _HARDWARE in given
                if (its_family, its_link) == (family, link) and is_whole and state & _PERMANENT:
                    address = IPv4Address(given[_DESTINATION])
                    found.add(_Neighbour(family, address, given[_HARDWARE]))
        return found

    def _change_neighbour(self, kind: int, one: _Neighbour, link: int, flags: int) -> None:
        own = _SELF if one.family == _BRIDGE else 0
        head = _NEIGHBOUR_HEAD.pack(one.family, 0, 0, link, _PERMANENT, own, 0)
        body = attribute(_DESTINATION, one.address.packed) + attribute(_HARDWARE, one.hardware)
        self.ask(kind, _ACK | flags, head + body)

    def _addresses(self) -> list[tuple[IPv4Address, int]]:
        """Return the machine's addresses, each with the number of its interface."""
        found = []
        body = _ADDRESS_HEAD.pack(socket.AF_INET, 0, 0, 0, 0)
        for payload in self.ask(_GET_ADDRESS, _DUMP, body):
            link = _ADDRESS_HEAD.unpack_from(payload)[4]
            given = dict(attributes(payload[_ADDRESS_HEAD.size :]))
            packed = given.get(2) or given.get(1)
            if packed:
                found.append((IPv4Address(packed), link))
        return found


def _is_connected(route: Route) -> bool:
    return route.gateway is None and bool(route.link)


def _number_head(number: int) -> bytes:
    return _LINK_HEAD.pack(socket.AF_UNSPEC, 0, 0, number, 0, 0)


def _route(way: Way, tunnel: int) -> Route:
    if way.link:
        return Route(way.network, way.link, way.via, NODE_ROUTE)
    return Route(way.network, tunnel, way.network.network_address, NODE_ROUTE)
