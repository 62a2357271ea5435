"""From Nodes to routes to the pods of other nodes. Pure.

    node b, podCIDR 10.244.1.0/24, InternalIP 192.168.0.2, which is on link of eth0:
        10.244.1.0/24 via 192.168.0.2 dev eth0
    node c, podCIDR 10.244.2.0/24, InternalIP 203.0.113.7, which is behind a router:
        10.244.2.0/24 through the tunnel to 203.0.113.7
    node d, podCIDR fd00:7:0:3::/64, InternalIP 192.168.0.4 and none of IPv6:
        fd00:7:0:3::/64 through the tunnel to 192.168.0.4

A range is reached by an address of its own family if both nodes have one, and through a tunnel of
the other family otherwise; both nodes come to the same answer.

A Node is written by its own machine, which may be hostile: a range has to be a part of the
cluster's, and must not overlap another node's; of two nodes with one range, the older has it.
Pods of hollow nodes have no network: no route leads to them, and none is missed.
"""

import hashlib
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
)
from typing import Final, NamedTuple, TypeAlias

from kvstack.agents.kubelet.hollow.nodes import is_hollow
from kvstack.apimachinery.objects.json_object import Object

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

AUTOMATIC, HOST_GATEWAY, VXLAN, NONE = "auto", "host-gw", "vxlan", "none"
MODES: Final = (AUTOMATIC, HOST_GATEWAY, VXLAN, NONE)
"""How nodes are reached: on-link as a gateway, else by tunnel; always one; not by kvstack."""
FAMILIES: Final = (4, 6)
_RESERVED: Final = IPv4Network("240.0.0.0/4")
_LOCAL: Final = bytes((0x0A, 0x58))
"""First two octets of hardware addresses: administered locally, of one interface."""
_OWN_OCTETS: Final = 5


class Connected(NamedTuple):
    """A network that the machine is on."""

    network: Network
    link: int
    """Number of the interface."""


class Way(NamedTuple):
    """The route to a range."""

    network: Network
    via: Address
    """Address of the node; of the other family only through the tunnel."""
    link: int
    """Number of the interface; 0: through the tunnel."""


class Refusal(NamedTuple):
    """An unreachable node, and why."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Machine:
    """The state of the kernel, in both families, without our own routes."""

    addresses: frozenset[Address] = frozenset()
    connected: Sequence[Connected] = ()
    routed: Sequence[Network] = ()
    """Networks behind gateways, without the default route."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The desired state of this node's kernel."""

    own: Mapping[int, Network]
    """Ranges of this node, by family."""
    addresses: Mapping[int, Address]
    """The addresses of this node, by family."""
    ways: Mapping[Network, Way] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()

    def tunneled(self, family: int) -> list[Way]:
        """Return those through the tunnel whose packets are of a family."""
        return [e for e in self.ways.values() if not e.link and e.via.version == family]


class UnsuitableError(Exception):
    """A node says of itself what is not believed."""


def plan(
    own_name: str,
    nodes: Iterable[Object],
    machine: Machine,
    mode: str,
    cluster_ranges: Sequence[Network],
) -> Plan | None:
    """Return the routes of a node; None: it has no range or address yet, or is not there.

    UnsuitableError: what this node itself was given is not believed.
    mode: of MODES, but not NONE; cluster_ranges: of the pods of all nodes, one of a family at most.
    """
    by_age = sorted(nodes, key=_age)
    own = next((each for each in by_age if each["metadata"]["name"] == own_name), None)
    if own is None:
        return None
    rules = _Rules(mode, cluster_ranges, machine, addresses_of(own))
    own_ranges = {e: found for e in FAMILIES if (found := rules.range_of(own, e)) is not None}
    if not own_ranges or not rules.own:
        return None
    others = [
        each for each in by_age if each["metadata"]["name"] != own_name and not is_hollow(each)
    ]
    ways: dict[Network, Way] = {}
    refusals: list[Refusal] = []
    for family, own_range in own_ranges.items():
        taken = _Ranges()
        taken.add(own_range, own_name)
        for each in others:
            name = each["metadata"]["name"]
            try:
                way = rules.way(each, family, taken)
            except UnsuitableError as error:
                refusals.append(Refusal(name, str(error)))
                continue
            if way is not None:
                taken.add(way.network, name)
                ways[way.network] = way
    return Plan(own_ranges, rules.own, ways, tuple(dict.fromkeys(refusals)))


def addresses_of(node: Object) -> dict[int, Address]:
    """Return a node's first InternalIP of each family that it has reported; UnsuitableError."""
    addresses: dict[int, Address] = {}
    for each in (node.get("status") or {}).get("addresses") or ():
        if each.get("type") != "InternalIP":
            continue
        text = str(each.get("address", ""))
        try:
            one = IPv6Address(text) if ":" in text else IPv4Address(text)
        except AddressValueError as error:
            raise UnsuitableError(f"its InternalIP {text!r} is none: {error}") from error
        if isinstance(one, IPv6Address) and one.scope_id is not None:
            raise UnsuitableError(f"its InternalIP {text!r} is none: it has a scope")
        addresses.setdefault(one.version, one)
    return addresses


def tunnel_hardware(address: Address) -> bytes:
    """Return the hardware address of the end that a node has of a tunnel, by the node's address.

    An address of IPv6 is longer, and nodes behind different routers often end in the same octets.
    """
    if address.version == 4:
        return _LOCAL + address.packed
    return _LOCAL[:1] + hashlib.sha256(address.packed).digest()[:_OWN_OCTETS]


def on_link(address: Address, machine: Machine) -> int:
    """Return the number of the interface on whose network an address is; 0: on none."""
    reached = [
        each
        for each in machine.connected
        if address in each.network and each.network.prefixlen < address.max_prefixlen
    ]
    return max(reached, key=lambda each: each.network.prefixlen).link if reached else 0


class _Rules:
    """Settings of the routes to all nodes."""

    def __init__(
        self,
        mode: str,
        cluster_ranges: Sequence[Network],
        machine: Machine,
        own: Mapping[int, Address],
    ) -> None:
        self._mode = mode
        self._cluster_ranges: dict[int, Network] = {e.version: e for e in cluster_ranges}
        self._machine = machine
        self.own = own
        self._ends = {tunnel_hardware(each): each for each in own.values()}

    def range_of(self, node: Object, family: int) -> Network | None:
        """Return the range of a family that a node has for its pods; None: none yet.

        UnsuitableError: it is not one that a node may have.
        """
        whole = self._cluster_ranges.get(family)
        spec = node.get("spec") or {}
        given = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
        text = next((each for each in given if (":" in each) == (family == 6)), None)
        if text is None or whole is None:
            return None
        try:
            found = IPv6Network(text) if family == 6 else IPv4Network(text)
        except ValueError as error:
            raise UnsuitableError(f"its range {text!r} is none: {error}") from error
        if not _is_part(found, whole):
            raise UnsuitableError(f"its range {found} is not in that of the cluster, {whole}")
        return found

    def way(self, node: Object, family: int, taken: "_Ranges") -> Way | None:
        """Return the way to a node's pods; None: there is none yet, or none is needed.

        UnsuitableError: there will be none.
        """
        network, addresses = self.range_of(node, family), addresses_of(node)
        if network is None or not addresses:
            return None
        if any(each in self._machine.addresses for each in addresses.values()):
            return None  # a node of this machine has its own bridge
        for each in addresses.values():
            self._check_address(each)
        self._check_range(network, taken)
        return self._way_by(network, addresses)

    def _way_by(self, network: Network, addresses: Mapping[int, Address]) -> Way:
        """Return the way by the address of the range's family, else by one of the other."""
        family = network.version
        if family in addresses and family in self.own:
            address = addresses[family]
            link = 0 if self._mode == VXLAN else on_link(address, self._machine)
            if not link and self._mode == HOST_GATEWAY:
                raise UnsuitableError(
                    f"its InternalIP {address} is on no network of this machine, and the mode is "
                    f"{self._mode}"
                )
            return Way(network, address, link) if link else self._tunneled(network, address)
        who = "it" if family in self.own else "this node"
        problem = f"{who} has no InternalIP of IPv{family} for its range {network}"
        if self._mode == HOST_GATEWAY:
            raise UnsuitableError(f"{problem}, and the mode is {self._mode}")
        common = [each for each in addresses if each in self.own]
        if not common:
            raise UnsuitableError(f"{problem}, and the two have addresses of no common family")
        return self._tunneled(network, addresses[common[0]])

    def _tunneled(self, network: Network, address: Address) -> Way:
        """Return the way through a tunnel, unless its end would be taken for that of another."""
        other = self._ends.setdefault(tunnel_hardware(address), address)
        if other != address:
            raise UnsuitableError(f"its InternalIP {address} has the hardware address of {other}")
        return Way(network, address, 0)

    def _check_address(self, address: Address) -> None:
        """Raise UnsuitableError if no other machine can have an address."""
        is_local = address.is_loopback or address.is_unspecified or address.is_multicast
        if is_local or (address.version == 6 and address.is_link_local):
            raise UnsuitableError(f"its InternalIP {address} is of no other machine")
        if isinstance(address, IPv4Address):
            is_of_none = address in _RESERVED
        else:
            is_of_none = address.ipv4_mapped is not None
        if is_of_none:
            raise UnsuitableError(f"its InternalIP {address} is of no machine")
        whole = self._cluster_ranges.get(address.version)
        if whole is not None and address in whole:
            raise UnsuitableError(f"its InternalIP {address} is one of pods ({whole})")

    def _check_range(self, network: Network, taken: "_Ranges") -> None:
        """Raise UnsuitableError if a range belongs to another node."""
        if other := taken.owner(network):
            raise UnsuitableError(f"its range {network} is, in part, that of the node {other}")
        for each in self._machine.connected:
            if _overlaps(each.network, network):
                raise UnsuitableError(f"its range {network} is in use here: {each.network}")
        for routed in self._machine.routed:
            if _is_part(routed, network):
                raise UnsuitableError(
                    f"its range {network} covers a route of this machine: {routed}"
                )


class _Ranges:
    """Ranges of one family that do not overlap, and whose they are."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._rows: list[tuple[int, str]] = []

    def add(self, network: Network, name: str) -> None:
        """Note a range that overlaps none of those before."""
        at = bisect(self._begins, int(network.network_address))
        self._begins.insert(at, int(network.network_address))
        self._rows.insert(at, (int(network.broadcast_address), name))

    def owner(self, network: Network) -> str:
        """Return the node that has a part of a range; empty: none."""
        begin, end = int(network.network_address), int(network.broadcast_address)
        at = bisect(self._begins, end)  # the last one that begins before the end of it
        if at and self._rows[at - 1][0] >= begin:
            return self._rows[at - 1][1]
        return ""


def _is_part(network: Network, whole: Network) -> bool:
    if network.version != whole.version or network.prefixlen < whole.prefixlen:
        return False
    return network.network_address in whole


def _overlaps(one: Network, other: Network) -> bool:
    return _is_part(one, other) or _is_part(other, one)


def _age(node: Object) -> tuple[str, str]:
    meta = node["metadata"]
    return (meta.get("creationTimestamp") or "", meta["name"])
