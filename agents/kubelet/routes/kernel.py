"""The kernel's routes to other nodes, and the tunnels (VXLAN): only differences are written.

    with Kernel() as kernel:
        kernel.machine()      what the plan has to know
        kernel.bring(plan)    routes and tunnels as the plan says
        kernel.clear()        none of either

There is a tunnel for each family of the nodes' addresses; each carries pods' packets of both.
Routes are ours by their protocol, a tunnel by its name: what a process before left is taken up, or
away. The hardware address of a node's end of a tunnel follows from its address, so that nodes need
to exchange nothing besides the API's objects. Every call raises OSError.
"""

import socket
import struct
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_interface
from typing import Final, NamedTuple, TypeAlias

from kvstack.agents.kubelet.routes.plan import (
    FAMILIES,
    Connected,
    Machine,
    Plan,
    Way,
    tunnel_hardware,
)
from kvstack.agents.kubelet.runtime.process.network import kernel_settings
from kvstack.component.net.netlink import (
    NODE_ROUTE,
    Address,
    Link,
    Netlink,
    Network,
    Route,
    Route6,
)
from kvstack.component.net.netlink_attributes import NESTED, attribute, attributes

AnyRoute: TypeAlias = Route | Route6

TUNNELS: Final = {4: "kvxlan1", 6: "kvxlan6"}
"""Names, by the family of the nodes' addresses."""
PORT: Final = 8472
"""The UDP port of VXLAN: the default of Linux and flannel."""
_IDENTIFIER: Final = 1
_OVERHEAD: Final = {4: 50, 6: 70}
"""Bytes that a tunnel adds to a packet."""
_LOCAL: Final = {4: 4, 6: 17}
"""Attribute of a tunnel: the address of this node."""
_MTU: Final = 1500
"""The MTU of interfaces that report none."""
_IPV6_MTU_MIN: Final = 1280
_KINDS: Final = {4: socket.AF_INET, 6: socket.AF_INET6}

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
    """The hardware address of an address (of a tunnel, or under it)."""

    family: int
    address: Address
    hardware: bytes


class Kernel(Netlink):
    """A conversation about the routes of one network namespace."""

    def machine(self) -> Machine:
        """Return what the machine has besides routes of ours."""
        tunnels = {each.number for each in self._tunnels().values()}
        routes = [
            each
            for each in self._all_routes()
            if each.protocol != NODE_ROUTE and each.link not in tunnels and each.network.prefixlen
        ]
        return Machine(
            frozenset(each for each, link in self._addresses() if link not in tunnels),
            [Connected(each.network, each.link) for each in routes if _is_connected(each)],
            [each.network for each in routes if not _is_connected(each)],
        )

    def bring(self, plan: Plan) -> list[str]:
        """Apply a plan to the kernel; return the changes."""
        changes: list[str] = []
        numbers: dict[int, int] = {}
        for family in FAMILIES:
            if ways := plan.tunneled(family):
                numbers[family] = self._keep_tunnel(family, plan, changes)
                self._keep_neighbours(ways, numbers[family], changes)
        desired = {each.network: _route(each, numbers) for each in plan.ways.values()}
        self._keep_routes(desired, changes)
        for family in FAMILIES:
            if family not in numbers:
                self._remove_tunnel(family, changes)
        return changes

    def clear(self) -> list[str]:
        """Remove everything of ours; return what was removed."""
        changes: list[str] = []
        self._keep_routes({}, changes)
        for family in FAMILIES:
            self._remove_tunnel(family, changes)
        return changes

    # Routes.

    def _all_routes(self) -> list[AnyRoute]:
        return [*self.routes(), *self.routes_of_ipv6()]

    def _keep_routes(self, desired: Mapping[Network, AnyRoute], changes: list[str]) -> None:
        ours = [each for each in self._all_routes() if each.protocol == NODE_ROUTE]
        there: set[Network] = set()
        for each in ours:
            if desired.get(each.network) == each and each.network not in there:
                there.add(each.network)
            else:
                self._change_route(_DELETE_ROUTE, each, 0)
                changes.append(f"-{each.network}")
        for network, route in desired.items():
            if network not in there:
                self._change_route(_NEW_ROUTE, route, _CREATE | _EXCLUSIVE)
                changes.append(f"+{network}")

    def _change_route(self, kind: int, route: AnyRoute, flags: int) -> None:
        network, via = route.network, route.gateway
        head = _ROUTE_HEAD.pack(
            *(_KINDS[network.version], network.prefixlen, 0, 0, _MAIN_TABLE),
            *(NODE_ROUTE, _UNIVERSE, _UNICAST, _ON_LINK),
        )
        body = attribute(1, network.network_address.packed)
        body += attribute(4, struct.pack("=I", route.link))
        body += attribute(5, via.packed) if via is not None else b""
        self.ask(kind, _ACK | flags, head + body)

    # The tunnels.

    def _tunnels(self) -> dict[int, Link]:
        """Return those that are there, by family."""
        by_name = {each.name: each for each in self.links()}
        return {family: by_name[name] for family, name in TUNNELS.items() if name in by_name}

    def _remove_tunnel(self, family: int, changes: list[str]) -> None:
        if family in self._tunnels():
            self.delete(TUNNELS[family])
            changes.append(f"-{TUNNELS[family]}")

    def _keep_tunnel(self, family: int, plan: Plan, changes: list[str]) -> int:
        """Make this node's end of a tunnel, unless it is there; return its number."""
        name, address = TUNNELS[family], plan.addresses[family]
        mtu = self._mtu_at(address) - _OVERHEAD[family]
        if 6 in plan.own and mtu < _IPV6_MTU_MIN:
            raise OSError(
                f"the tunnel would carry packets of {mtu} bytes, and IPv6 needs {_IPV6_MTU_MIN}: "
                f"the interface with {address} is too small (MTU {mtu + _OVERHEAD[family]})"
            )
        ranges = ",".join(map(str, plan.own.values()))
        alias = f"kvstack {ranges} {address} {_IDENTIFIER} {PORT} {mtu}"
        known = self._tunnels().get(family)
        if known is not None and self._alias(known) != alias:
            self._remove_tunnel(family, changes)
            known = None
        if known is not None:
            return known.number
        self._make_tunnel(name, address, mtu)
        kernel_settings.set_tunnel(name, plan.own)
        # What this machine itself sends to pods comes from an address that leads back the same way.
        for each in plan.own.values():
            own = ip_interface(f"{each.network_address}/{each.max_prefixlen}")
            self.add_address(name, own, routes=False)
        self.set_up(name)
        made = self.index(name)
        named = attribute(_ALIAS, alias.encode())  # last: a tunnel half made is made anew
        self.ask(_NEW_LINK, _ACK, _number_head(made) + named)
        changes.append(f"+{name}")
        return made

    def _make_tunnel(self, name: str, address: Address, mtu: int) -> None:
        data = attribute(1, struct.pack("=I", _IDENTIFIER))
        data += attribute(_LOCAL[address.version], address.packed)
        data += attribute(7, b"\0") + attribute(15, struct.pack("!H", PORT))  # it learns nothing
        kind = attribute(1, b"vxlan") + attribute(2 | NESTED, data)
        head = _LINK_HEAD.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0)
        body = attribute(3, name.encode() + b"\0")
        body += attribute(1, tunnel_hardware(address))
        body += attribute(4, struct.pack("=I", mtu)) + attribute(18 | NESTED, kind)
        self.ask(_NEW_LINK, _ACK | _CREATE | _EXCLUSIVE, head + body)

    def _alias(self, link: Link) -> str:
        body = _number_head(link.number)
        for payload in self.ask(_GET_LINK, _ACK, body):
            given = dict(attributes(payload[_LINK_HEAD.size :]))
            return given.get(_ALIAS, b"").rstrip(b"\0").decode("utf-8", "replace")
        return ""

    def _mtu_at(self, address: Address) -> int:
        """Return the size of packets of the interface that has an address."""
        links = {each.number: each for each in self.links()}
        found = [links[link].mtu for each, link in self._addresses() if each == address]
        return min(filter(None, found), default=_MTU)

    # Neighbours: who is at the other ends.

    def _keep_neighbours(self, ways: list[Way], tunnel: int, changes: list[str]) -> None:
        desired: set[_Neighbour] = set()
        for each in ways:
            end, hardware = each.network.network_address, tunnel_hardware(each.via)
            desired.add(_Neighbour(_KINDS[end.version], end, hardware))
            desired.add(_Neighbour(_BRIDGE, each.via, hardware))
        there = self._neighbours(tunnel)
        for gone in there - desired:
            self._change_neighbour(_DELETE_NEIGHBOUR, gone, tunnel, 0)
            changes.append(f"-{gone.address}")
        for new in desired - there:
            flags = _CREATE | (_REPLACE if new.family != _BRIDGE else 0)
            self._change_neighbour(_NEW_NEIGHBOUR, new, tunnel, flags)
            changes.append(f"+{new.address}")

    def _neighbours(self, link: int) -> set[_Neighbour]:
        neighbours = set()
        for family in (*_KINDS.values(), _BRIDGE):
            body = _NEIGHBOUR_HEAD.pack(family, 0, 0, 0, 0, 0, 0)
            for payload in self.ask(_GET_NEIGHBOUR, _DUMP, body):
                its_family, _, _, its_link, state, _, _ = _NEIGHBOUR_HEAD.unpack_from(payload)
                given = dict(attributes(payload[_NEIGHBOUR_HEAD.size :]))
                is_whole = _DESTINATION in given and _HARDWARE in given
                if (its_family, its_link) == (family, link) and is_whole and state & _PERMANENT:
                    address = ip_address(given[_DESTINATION])
                    neighbours.add(_Neighbour(family, address, given[_HARDWARE]))
        return neighbours

    def _change_neighbour(self, kind: int, one: _Neighbour, link: int, flags: int) -> None:
        own = _SELF if one.family == _BRIDGE else 0
        head = _NEIGHBOUR_HEAD.pack(one.family, 0, 0, link, _PERMANENT, own, 0)
        body = attribute(_DESTINATION, one.address.packed) + attribute(_HARDWARE, one.hardware)
        self.ask(kind, _ACK | flags, head + body)

    def _addresses(self) -> list[tuple[Address, int]]:
        """Return the machine's addresses, each with the number of its interface."""
        addresses: list[tuple[Address, int]] = []
        for kind in _KINDS.values():
            body = _ADDRESS_HEAD.pack(kind, 0, 0, 0, 0)
            for payload in self.ask(_GET_ADDRESS, _DUMP, body):
                its_kind, _, _, _, link = _ADDRESS_HEAD.unpack_from(payload)
                given = dict(attributes(payload[_ADDRESS_HEAD.size :]))
                packed = given.get(2) or given.get(1)
                if packed and its_kind == kind:  # a kernel without IPv6 returns all it has
                    addresses.append((ip_address(packed), link))
        return addresses


def _is_connected(route: AnyRoute) -> bool:
    return route.gateway is None and bool(route.link)


def _number_head(number: int) -> bytes:
    return _LINK_HEAD.pack(socket.AF_UNSPEC, 0, 0, number, 0, 0)


def _route(way: Way, tunnels: Mapping[int, int]) -> AnyRoute:
    """Return the route of a way; tunnels: numbers by family."""
    link = way.link or tunnels[way.via.version]
    via = way.via if way.link else way.network.network_address
    if isinstance(way.network, IPv6Network):
        assert isinstance(via, IPv6Address), "a gateway has the family of its range"
        return Route6(way.network, link, via, NODE_ROUTE)
    assert isinstance(way.network, IPv4Network)
    assert isinstance(via, IPv4Address), "a gateway has the family of its range"
    return Route(way.network, link, via, NODE_ROUTE)
