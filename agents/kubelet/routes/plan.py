"""From Nodes to routes: where packets for the pods of other nodes go.

    node b, podCIDR 10.244.1.0/24, InternalIP 192.168.0.2, which is on link of eth0:
        10.244.1.0/24 via 192.168.0.2 dev eth0
    node c, podCIDR 10.244.2.0/24, InternalIP 203.0.113.7, which is behind a router:
        10.244.2.0/24 through the tunnel to 203.0.113.7

A Node is written by the machine that it stands for, which may be hostile: a range has to be a part
of the cluster's, and of nobody else's; of two nodes with one range, the older has it. Nothing here
asks the kernel or the API.
"""

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import Any, Final, NamedTuple, TypeAlias

Object: TypeAlias = dict[str, Any]

AUTOMATIC, HOST_GATEWAY, VXLAN, NONE = "auto", "host-gw", "vxlan", "none"
MODES: Final = (AUTOMATIC, HOST_GATEWAY, VXLAN, NONE)
"""How nodes are reached: on link as a gateway, else through the tunnel; always one; not by us."""
_HOST_BITS: Final = 32


class Connected(NamedTuple):
    """A network that the machine is on."""

    network: IPv4Network
    link: int
    """Number of the interface."""


class Way(NamedTuple):
    """Where packets for a range go."""

    network: IPv4Network
    via: IPv4Address
    """Address of the node."""
    link: int
    """Number of the interface; 0: through the tunnel."""


class Refusal(NamedTuple):
    """A node to which there is no way, and why."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Machine:
    """What the kernel says of this machine; routes of ours are not in it."""

    addresses: frozenset[IPv4Address] = frozenset()
    connected: Sequence[Connected] = ()
    routed: Sequence[IPv4Network] = ()
    """Networks behind gateways, without the default route."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What this node's kernel should have."""

    own: IPv4Network
    """Range of this node."""
    ways: Mapping[IPv4Network, Way] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()

    @property
    def tunneled(self) -> list[Way]:
        """Those through the tunnel."""
        return [each for each in self.ways.values() if not each.link]


class UnsuitableError(Exception):
    """A node says of itself what is not believed."""


def plan(
    own_name: str,
    nodes: Iterable[Object],
    machine: Machine,
    mode: str,
    cluster_range: IPv4Network,
) -> Plan | None:
    """Return the routes of a node; None: it has no range yet, or is not there.

    UnsuitableError: what this node itself was given is not believed.
    mode: of MODES, but not NONE; cluster_range: of the pods of all nodes.
    """
    found = sorted(nodes, key=_age)
    own = next((each for each in found if each["metadata"]["name"] == own_name), None)
    own_range = None if own is None else range_of(own, cluster_range)
    if own_range is None:
        return None
    taken = _Ranges()
    taken.add(own_range, own_name)
    ways: dict[IPv4Network, Way] = {}
    refusals = []
    for each in found:
        name = each["metadata"]["name"]
        if name == own_name:
            continue
        try:
            way = _way(each, machine, mode, cluster_range, taken)
        except UnsuitableError as error:
            refusals.append(Refusal(name, str(error)))
            continue
        if way is not None:
            taken.add(way.network, name)
            ways[way.network] = way
    return Plan(own_range, ways, tuple(refusals))


def range_of(node: Object, cluster_range: IPv4Network) -> IPv4Network | None:
    """Return the range of IPv4 that a node has for its pods; None: none yet; UnsuitableError."""
    spec = node.get("spec") or {}
    given = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
    text = next((each for each in given if ":" not in each), None)
    if text is None:
        return None
    try:
        found = IPv4Network(text)
    except ValueError as error:
        raise UnsuitableError(f"its range {text!r} is none: {error}") from error
    if not found.subnet_of(cluster_range):
        raise UnsuitableError(f"its range {found} is not in that of the cluster, {cluster_range}")
    return found


def address_of(node: Object) -> IPv4Address | None:
    """Return a node's first InternalIP of IPv4; None: it has told none yet; UnsuitableError."""
    for each in (node.get("status") or {}).get("addresses") or ():
        text = str(each.get("address", ""))
        if each.get("type") == "InternalIP" and ":" not in text:
            try:
                return IPv4Address(text)
            except AddressValueError as error:
                raise UnsuitableError(f"its InternalIP {text!r} is none: {error}") from error
    return None


def on_link(address: IPv4Address, machine: Machine) -> int:
    """Return the number of the interface on whose network an address is; 0: on none."""
    reached = [
        each
        for each in machine.connected
        if address in each.network and each.network.prefixlen < _HOST_BITS
    ]
    return max(reached, key=lambda each: each.network.prefixlen).link if reached else 0


def _way(
    node: Object, machine: Machine, mode: str, cluster_range: IPv4Network, taken: "_Ranges"
) -> Way | None:
    """Return the way to a node; None: there is none yet, or none is needed; UnsuitableError."""
    network, address = range_of(node, cluster_range), address_of(node)
    if network is None or address is None or address in machine.addresses:
        return None  # a node of this machine has its own bridge
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        raise UnsuitableError(f"its InternalIP {address} is of no other machine")
    if int(address) >= int(IPv4Address("240.0.0.0")):
        raise UnsuitableError(f"its InternalIP {address} is of no machine")
    if address in cluster_range:
        raise UnsuitableError(f"its InternalIP {address} is one of pods ({cluster_range})")
    if other := taken.owner(network):
        raise UnsuitableError(f"its range {network} is, in part, that of the node {other}")
    for each in machine.connected:
        if each.network.overlaps(network):
            raise UnsuitableError(f"its range {network} is in use here: {each.network}")
    for routed in machine.routed:
        if routed.subnet_of(network):
            raise UnsuitableError(f"its range {network} covers a route of this machine: {routed}")
    link = 0 if mode == VXLAN else on_link(address, machine)
    if not link and mode == HOST_GATEWAY:
        raise UnsuitableError(
            f"its InternalIP {address} is on no network of this machine, and the mode is {mode}"
        )
    return Way(network, address, link)


class _Ranges:
    """Ranges that do not overlap, and whose they are."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._rows: list[tuple[int, str]] = []

    def add(self, network: IPv4Network, name: str) -> None:
        """Note a range that overlaps none of those before."""
        at = bisect(self._begins, int(network.network_address))
        self._begins.insert(at, int(network.network_address))
        self._rows.insert(at, (int(network.broadcast_address), name))

    def owner(self, network: IPv4Network) -> str:
        """Return who has a part of a range; empty: nobody."""
        begin, end = int(network.network_address), int(network.broadcast_address)
        at = bisect(self._begins, end)  # the last one that begins before the end of it
        if at and self._rows[at - 1][0] >= begin:
            return self._rows[at - 1][1]
        return ""


def _age(node: Object) -> tuple[str, str]:
    meta = node["metadata"]
    return (meta.get("creationTimestamp") or "", meta["name"])
