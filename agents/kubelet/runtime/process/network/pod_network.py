"""The network of one node's pods: a bridge of the machine, and a veth pair for each pod.

    node ─┬─ bridge kv-…   first address of the range, the route to all of it, and no ports
          ├─ kvpod… ═ eth0 of a pod     the next address; a route to it alone, which goes before
          └─ kvpod… ═ eth0 of a pod     pods find all others behind their node (proxy_arp)

A node has a range of IPv4, of IPv6 or of both, and a pod an address of each. In IPv6 a pod has a
route to its node alone (fe80::1 on its link), and no neighbours. So every packet between pods is
routed, and passes the rules of Services and policies, whatever the machine's bridges do
(br_netfilter). The bridge is there from the node's start to its stop, so that what listens at its
address (the cluster's DNS) is reached before the first pod. Several nodes may be on one machine:
what they change is changed under a lock. A bridge that is in the way, without pods and without a
node that lives, was left behind, and goes.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv6Interface, ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.agents.kubelet.runtime.pod_addresses import NoAddressError, PodAddresses
from kvstack.agents.kubelet.runtime.process.network import kernel_settings, translator
from kvstack.agents.kubelet.runtime.process.network.translation import (
    Translation,
    TranslationError,
    host_ports,
)
from kvstack.agents.kubelet.runtime.runtime import Port, StartError
from kvstack.component.net.hosts import has_ipv6
from kvstack.component.net.netlink import (
    NODE_ROUTE,
    Address,
    Interface,
    Link,
    Netlink,
    Network,
    Route,
    Route6,
)

STATE: Final = Path("/run/kvstack")
"""State of all nodes of this machine: locks, and mounts of pods."""
PREFIX: Final = "kv-"
"""The prefix of the names of bridges."""
INTERFACE: Final = "eth0"
"""The interface of a pod."""
PAIR: Final = "kvpod"
"""The prefix of the names of pods' interfaces on their node."""
_PAIR_DIGITS: Final = 10
_HEX: Final = frozenset("0123456789abcdef")
_LOCAL: Final = bytes((0x0A, 0x58))
"""First two octets of MAC addresses: administered locally, of one interface."""
_OWN_OCTETS: Final = 4
_GATEWAY: Final = "the bridge"
_LINK_GATEWAY: Final = IPv6Interface("fe80::1/64")
"""The node, as its pods see it on their links (IPv6)."""
_FAILED: Final = "FailedCreatePodSandBox"


class Way(NamedTuple):
    """The gateway of pods of a family."""

    interface: Interface
    """Its address, and the network that it finds on its link."""
    gateway: Address

    @property
    def everywhere(self) -> str:
        """The destination of its default route."""
        return "0.0.0.0/0" if self.gateway.version == 4 else "::/0"


class PodNetwork:
    """The pods of one node; its methods may wait for the kernel, and are called in threads."""

    def __init__(
        self,
        node: str,
        state: Path = STATE,
        cluster_ranges: Sequence[Network] = (),
        lives: Callable[[str], bool] = lambda _name: True,
    ) -> None:
        """node: a unique name among the nodes of this machine.

        cluster_ranges: of the pods of all nodes, one of a family at most; none: other nodes are
        treated as outside. lives: whether the node of a bridge is running; OSError.
        """
        self._state = state
        self._cluster_ranges: dict[int, Network] = {e.version: e for e in cluster_ranges}
        self.bridge: Final = PREFIX + hashlib.sha256(node.encode()).hexdigest()[:8]
        self._addresses: dict[int, PodAddresses] = {}  # by family, the first one first
        self._kept: dict[str, Sequence[str]] = {}  # uid → addresses of a pod of before
        self._shown: dict[str, Sequence[Port]] = {}  # by address
        self._applied: dict[int, Translation] = {}
        self._lives = lives
        self._is_open = False

    @property
    def networks(self) -> tuple[Network, ...]:
        """The ranges of the pods, one of a family at most, the first family first."""
        return tuple(each.network for each in self._addresses.values())

    def use_ranges(self, ranges: Sequence[str]) -> None:
        """Use the ranges of the node (podCIDRs): the first of each family that the kernel has.

        StartError: one is not of the pods of all nodes, to which it has to belong.
        """
        desired: dict[int, Network] = {}
        for each in map(ip_network, ranges):
            if each.version == 4 or has_ipv6():
                desired.setdefault(each.version, each)
        if not desired or tuple(desired.values()) == self.networks:
            return
        for version, network in desired.items():
            whole = self._cluster_ranges.get(version)
            if whole is not None and not is_part(network, whole):
                text = f"the range {network} of the node is not in that of the cluster, {whole}"
                raise StartError(_FAILED, text)
        self._addresses = {version: PodAddresses(each) for version, each in desired.items()}
        self._is_open = False  # a bridge of other ranges goes if it can
        for network in self.networks:
            self._keep(_GATEWAY, (str(network[1]),))
        for uid, addresses in self._kept.items():
            self._keep(uid, addresses)

    def _keep(self, uid: str, addresses: Sequence[str]) -> None:
        for each in addresses:
            if (own := self._addresses.get(ip_address(each).version)) is not None:
                own.keep(each, uid)

    def open(self) -> None:
        """Make the bridge of the range; raises StartError, and may be called again then."""
        try:
            with self._lock(), Netlink() as outside:
                if not self._is_open:
                    self._remove_if_idle(outside, self.bridge)  # it may be of another range
                self._make_bridge(outside)
                self._translate()
        except (OSError, TranslationError) as error:
            raise StartError(_FAILED, f"the bridge of the pods cannot be made: {error}") from error
        self._is_open = True

    def close(self) -> None:
        """Remove the bridge, unless pods that outlive their node are on it; OSError."""
        self.remove_idle_bridge(self.bridge)
        self._is_open = False

    def keep(self, uid: str, addresses: Sequence[str], ports: Sequence[Port]) -> None:
        """Remember the addresses and ports of an existing pod."""
        self._kept[uid] = tuple(addresses)
        self._shown.update(dict.fromkeys(addresses, host_ports(ports)))
        self._keep(uid, addresses)

    def connect(
        self, uid: str, namespace: int, ports: Sequence[Port], outside: Netlink, inside: Netlink
    ) -> tuple[str, ...]:
        """Join a namespace with the node; return its addresses; raises StartError.

        namespace: a descriptor; outside, inside: conversations about the node's and about it.
        """
        assert self._addresses, "the node has a range"
        try:
            with self._lock():
                addresses = self._take(uid)
                mtu = self._make_bridge(outside)
                name = pair_name(uid)
                if any(each.name == name for each in outside.links()):
                    outside.delete(name)  # of a sandbox that is still ending
                outside.add_pair(name, INTERFACE, namespace, mtu, hardware_address(addresses[0]))
                self._set_up(name, addresses, outside)
                self._shown.update(dict.fromkeys(map(str, addresses), host_ports(ports)))
                self._translate()
            self._set_up_inside(addresses, inside)
        except NoAddressError as error:
            self._give_back(uid)
            raise StartError(_FAILED, str(error)) from error
        except (OSError, TranslationError) as error:
            self.disconnect(uid)
            raise StartError(_FAILED, f"the pod cannot be connected: {error}") from error
        except StartError:
            self.disconnect(uid)
            raise
        return tuple(map(str, addresses))

    def _take(self, uid: str) -> list[Address]:
        """Allocate an address of each family for a pod, the first family first; NoAddressError."""
        taken: list[str] = []
        for own in self._addresses.values():
            taken.append(own.of(uid))
            self._kept[uid] = tuple(taken)
        return [ip_address(each) for each in taken]

    def _give_back(self, uid: str) -> None:
        for each in self._kept.pop(uid, ()):
            self._shown.pop(each, None)
            if (own := self._addresses.get(ip_address(each).version)) is not None:
                own.free(each, uid)

    def _set_up(self, name: str, addresses: Sequence[Address], outside: Netlink) -> None:
        """Set up the node's end of a pod's interface; traffic of the node has its own address."""
        families = {each.version for each in addresses}
        kernel_settings.set_pair(name, families, routes_loopback=bool(translator.program()))
        for each in addresses:
            own = self._addresses[each.version].network[1]
            outside.add_address(
                name, _LINK_GATEWAY if each.version == 6 else ip_interface(f"{own}/32")
            )
        outside.set_up(name)
        for each in addresses:
            outside.add_host_route(each, name, self._addresses[each.version].network[1])

    def way_of(self, address: str) -> Way:
        """Return how a pod with an address reaches others."""
        own = ip_address(address)
        network = self._addresses[own.version].network
        if own.version == 6:
            return Way(ip_interface(f"{own}/{own.max_prefixlen}"), _LINK_GATEWAY.ip)
        return Way(ip_interface(f"{own}/{network.prefixlen}"), network[1])

    def _set_up_inside(self, addresses: Sequence[Address], inside: Netlink) -> None:
        """Give a pod its addresses and its way out."""
        ways = [self.way_of(str(each)) for each in addresses]
        for way in ways:
            inside.add_address(INTERFACE, way.interface)
        inside.set_up(INTERFACE)
        for way in ways:
            inside.add_default_route(way.gateway, INTERFACE)

    def disconnect(self, uid: str) -> None:
        """Remove the interfaces of a pod; raises OSError."""
        with self._lock(), Netlink() as outside:
            self._give_back(uid)
            links = outside.links()
            if any(each.name == pair_name(uid) for each in links):
                outside.delete(pair_name(uid))
            if self._addresses and any(each.name == self.bridge for each in links):
                with contextlib.suppress(TranslationError):  # a rule too many leads nowhere
                    self._translate()

    def _make_bridge(self, outside: Netlink) -> int:
        """Make the bridge unless it is there; return the size of packets that fits its way out."""
        assert self._addresses, "the node has a range"
        links, routes = outside.links(), _all_routes(outside)
        if all(each.name != self.bridge for each in links):
            for network in self.networks:
                self._make_way(network, links, routes, outside)
            outside.add_bridge(self.bridge, hardware_address(self.networks[0][1]))
            kernel_settings.set_bridge(self.bridge, self._addresses)
            outside.set_up(self.bridge)
            for network in self.networks:
                translator.let_through(PAIR, network)
                kernel_settings.forward(network.version)
        for network in self.networks:
            with contextlib.suppress(FileExistsError):
                own = ip_interface(f"{network[1]}/{network.prefixlen}")
                outside.add_address(self.bridge, own)
        ways = [each.link for each in routes if each.network.prefixlen == 0]
        return next((each.mtu for each in links if each.number in ways), 0)

    def _make_way(
        self,
        network: Network,
        links: Sequence[Link],
        routes: Sequence[Route | Route6],
        outside: Netlink,
    ) -> None:
        """Remove the bridge of a node that has ended, if it has a part of a range."""
        for name in in_the_way(network, links, routes):
            if all(each.name != name for each in outside.links()):
                continue  # it went with the other family
            is_left = name.startswith(PREFIX) and not self._lives(name)
            if not is_left or is_used(_find_link(links, name), links, routes):
                text = f"the range {network} of the node's pods is in use on {name}"
                raise StartError(_FAILED, text)
            self._remove_bridge(outside, name)

    def remove_idle_bridge(self, name: str) -> bool:
        """Remove a bridge unless a pod is on it; return whether it is gone. OSError."""
        with self._lock(), Netlink() as outside:
            return self._remove_if_idle(outside, name)

    def _remove_if_idle(self, outside: Netlink, name: str) -> bool:
        links = outside.links()
        if all(each.name != name for each in links):
            return True
        routes = _all_routes(outside)
        if is_used(_find_link(links, name), links, routes):
            return False
        self._remove_bridge(outside, name)
        return True

    def _remove_bridge(self, outside: Netlink, name: str) -> None:
        number = _find_link(outside.links(), name).number
        routes = _all_routes(outside)
        networks = [each.network for each in routes if each.link == number]
        outside.delete(name)
        if name == self.bridge:
            self._applied.clear()
        with contextlib.suppress(TranslationError):  # it had none
            for network in networks:
                translator.let_through_no_more(PAIR, network)
            translator.remove(name)

    def _translate(self) -> None:
        """Update the address translation for the current pods, if a program for it exists."""
        for network in self.networks:
            family = network.version
            shown = {
                address: tuple(ports)
                for address, ports in self._shown.items()
                if ports and ip_address(address).version == family
            }
            whole = self._cluster_ranges.get(family, network)
            wanted = Translation(self.bridge, PAIR, network, whole, shown)
            if wanted != self._applied.get(family) and translator.program(family):
                translator.apply(wanted)
                self._applied[family] = wanted

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep other nodes of this machine from changing its network meanwhile."""
        self._state.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(self._state / "network.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def hardware_address(address: str | Address) -> bytes:
    """Return the MAC address of an interface with an address of the range.

    It follows from the address: neighbours that still remember the pod that had the address before
    reach the new one at once.
    """
    return _LOCAL + ip_address(address).packed[-_OWN_OCTETS:]


def _all_routes(outside: Netlink) -> list[Route | Route6]:
    return [*outside.routes(), *outside.routes_of_ipv6()]


def is_part(network: Network, whole: Network) -> bool:
    """Whether a range is a part of another, or all of it."""
    return (
        network.version == whole.version
        and network.network_address in whole
        and network.broadcast_address in whole
    )


def pair_name(uid: str) -> str:
    """Return the name of a pod's interface on the node."""
    return PAIR + hashlib.sha256(uid.encode()).hexdigest()[:_PAIR_DIGITS]


def is_pair_name(name: str) -> bool:
    """Whether an interface of the machine belongs to a pod."""
    digits = name.removeprefix(PAIR)
    return len(digits) == _PAIR_DIGITS == len(name) - len(PAIR) and not set(digits) - _HEX


def in_the_way(
    network: Network, links: Sequence[Link], routes: Sequence[Route | Route6]
) -> list[str]:
    """Return the interfaces that have a part of a range, or all of it."""
    names = {each.number: each.name for each in links}
    taken = [
        each
        for each in routes
        if is_part(each.network, network) and each.protocol != NODE_ROUTE  # its node is gone
    ]
    found = {names[each.link] for each in taken if each.link in names}
    return sorted(each for each in found if not is_pair_name(each))  # those have a bridge beside


def _find_link(links: Sequence[Link], name: str) -> Link:
    return next(each for each in links if each.name == name)


def is_used(bridge: Link, links: Sequence[Link], routes: Sequence[Route | Route6]) -> bool:
    """Whether a pod has an address of a bridge's range."""
    pods = {each.number for each in links if is_pair_name(each.name)}
    networks = [each.network for each in routes if each.link == bridge.number]
    return any(
        is_part(each.network, whole) for each in routes if each.link in pods for whole in networks
    )
