"""The network of one node's pods: a bridge of the machine, and a pair of interfaces for each pod.

    node ─┬─ bridge kv-…   first address of the range, the route to all of it, and no ports
          ├─ kvpod… ═ eth0 of a pod     the next address; a route to it alone, which goes before
          └─ kvpod… ═ eth0 of a pod     pods find all others behind their node (proxy_arp)

So every packet between pods is routed, and passes the rules of Services and policies, whatever the
machine's bridges do (br_netfilter). The bridge is there from the node's start to its stop, so that
what listens at its address (the cluster's DNS) is reached before the first pod. Several nodes may
be on one machine: what they change is changed under a lock. A bridge that is in the way, without
pods and without a node that lives, was left behind, and goes.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.pod_addresses import NoAddressError, PodAddresses
from kvstack.agents.kubelet.runtime.process.network import translation
from kvstack.agents.kubelet.runtime.process.network.netlink import (
    NODE_ROUTE,
    Link,
    Netlink,
    Route,
)
from kvstack.agents.kubelet.runtime.process.network.translation import TranslationError
from kvstack.agents.kubelet.runtime.runtime import Port, StartError

STATE: Final = Path("/run/kvstack")
"""Of all nodes of this machine: locks, and what is mounted for pods."""
PREFIX: Final = "kv-"
"""Of the names of bridges."""
INTERFACE: Final = "eth0"
"""Of a pod."""
PAIR: Final = "kvpod"
"""Of the names of pods' interfaces on their node."""
_PAIR_DIGITS: Final = 10
_HEX: Final = frozenset("0123456789abcdef")
_LOCAL: Final = bytes((0x0A, 0x58))
"""First two octets of MAC addresses: administered locally, of one interface."""
_GATEWAY: Final = "the bridge"
_PAIR_SETTINGS: Final = (
    ("ipv4/conf/{}/proxy_arp", "1"),
    ("ipv4/neigh/{}/proxy_delay", "0"),
    # So that ports of the node are reached over its loopback, too.
    ("ipv4/conf/{}/route_localnet", "1"),
)
_NO_IPV6: Final = "ipv6/conf/{}/disable_ipv6"
"""Pods have no address of it: over the link's they would reach their node past all rules."""
_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
_FAILED: Final = "FailedCreatePodSandBox"


class PodNetwork:
    """The pods of one node; its methods may wait for the kernel, and are called in threads."""

    def __init__(
        self,
        node: str,
        state: Path = STATE,
        cluster_range: IPv4Network | None = None,
        lives: Callable[[str], bool] = lambda _name: True,
    ) -> None:
        """node: what tells it from other nodes of this machine; nothing is made yet.

        cluster_range: of the pods of all nodes; None: other nodes are not told from the outside.
        lives: whether the node of a bridge lives; OSError.
        """
        self._state = state
        self._cluster_range = cluster_range
        self.bridge: Final = PREFIX + hashlib.sha256(node.encode()).hexdigest()[:8]
        self._addresses: PodAddresses | None = None
        self._kept: dict[str, str] = {}  # uid → address of a pod of before
        self._shown: dict[str, Sequence[Port]] = {}  # by address
        self._applied = ""
        self._lives = lives
        self._is_open = False

    @property
    def network(self) -> IPv4Network | None:
        """The range of the pods; None: there is none."""
        return None if self._addresses is None else self._addresses.network

    def use_ranges(self, ranges: Sequence[str]) -> None:
        """Take the ranges of the node (podCIDRs): the first of IPv4 is used from now on.

        StartError: it is not of the pods of all nodes, to which it has to belong.
        """
        wanted = next((IPv4Network(each) for each in ranges if ":" not in each), None)
        if wanted is None or wanted == self.network:
            return
        whole = self._cluster_range
        if whole is not None and not wanted.subnet_of(whole):
            text = f"the range {wanted} of the node is not in that of the cluster, {whole}"
            raise StartError(_FAILED, text)
        self._addresses = PodAddresses(wanted)
        self._is_open = False  # a bridge of another range goes if it can
        self._addresses.keep(str(wanted[1]), _GATEWAY)
        for uid, address in self._kept.items():
            self._addresses.keep(address, uid)

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
        """Take the bridge away, unless pods that outlive their node are on it; OSError."""
        self.remove_idle_bridge(self.bridge)
        self._is_open = False

    def keep(self, uid: str, address: str, ports: Sequence[Port]) -> None:
        """Remember what a pod has since before."""
        self._kept[uid] = address
        self._shown[address] = translation.host_ports(ports)
        if self._addresses is not None:
            self._addresses.keep(address, uid)

    def connect(
        self, uid: str, namespace: int, ports: Sequence[Port], outside: Netlink, inside: Netlink
    ) -> str:
        """Join a namespace with the node; return its address; raises StartError.

        namespace: a descriptor; outside, inside: conversations about the node's and about it.
        """
        assert self._addresses is not None, "the node has a range"
        shown = translation.host_ports(ports)
        if shown and not translation.is_available():
            raise StartError(_FAILED, "hostPort needs the program nft, which is not installed")
        network = self._addresses.network
        try:
            with self._lock():
                address = self._addresses.of(uid)
                self._kept[uid] = address
                mtu = self._make_bridge(outside)
                name = pair_name(uid)
                if any(each.name == name for each in outside.links()):
                    outside.delete(name)  # of a sandbox that is still ending
                outside.add_pair(name, INTERFACE, namespace, mtu, hardware_address(address))
                self._set_up(name, IPv4Address(address), network, outside)
                self._shown[address] = shown
                self._translate()
            inside.add_address(INTERFACE, IPv4Interface(f"{address}/{network.prefixlen}"))
            inside.set_up(INTERFACE)
            inside.add_default_route(network[1])
        except NoAddressError as error:
            raise StartError(_FAILED, str(error)) from error
        except (OSError, TranslationError) as error:
            self.disconnect(uid)
            raise StartError(_FAILED, f"the pod cannot be connected: {error}") from error
        except StartError:
            self.disconnect(uid)
            raise
        return address

    def _set_up(
        self, name: str, address: IPv4Address, network: IPv4Network, outside: Netlink
    ) -> None:
        """Let the node's side of a pair lead to a pod; what the node sends has its own address."""
        settings = Path("/proc/sys/net")
        for setting, value in _PAIR_SETTINGS:
            (settings / setting.format(name)).write_text(value)
        if (ipv6 := settings / _NO_IPV6.format(name)).exists():
            ipv6.write_text("1")
        outside.add_address(name, IPv4Interface(f"{network[1]}/32"))
        outside.set_up(name)
        outside.add_host_route(address, name, network[1])

    def disconnect(self, uid: str) -> None:
        """Take the interfaces of a pod away; raises OSError."""
        with self._lock(), Netlink() as outside:
            address = self._kept.pop(uid, "")
            self._shown.pop(address, None)
            if self._addresses is not None:
                self._addresses.free(address, uid)
            links = outside.links()
            if any(each.name == pair_name(uid) for each in links):
                outside.delete(pair_name(uid))
            if self._addresses is not None and any(each.name == self.bridge for each in links):
                with contextlib.suppress(TranslationError):  # a rule too many leads nowhere
                    self._translate()

    def _make_bridge(self, outside: Netlink) -> int:
        """Make the bridge unless it is there; return the size of packets that fits its way out."""
        assert self._addresses is not None, "the node has a range"
        network = self._addresses.network
        links, routes = outside.links(), outside.routes()
        if all(each.name != self.bridge for each in links):
            for name in in_the_way(network, links, routes):
                is_left = name.startswith(PREFIX) and not self._lives(name)
                if not is_left or is_used(_named(links, name), links, routes):
                    text = f"the range {network} of the node's pods is in use on {name}"
                    raise StartError(_FAILED, text)
                self._remove_bridge(outside, name)
            outside.add_bridge(self.bridge, hardware_address(network[1]))
            outside.set_up(self.bridge)
            translation.let_through(PAIR, network)
            _FORWARDING.write_text("1")
        with contextlib.suppress(FileExistsError):
            outside.add_address(self.bridge, IPv4Interface(f"{network[1]}/{network.prefixlen}"))
        ways = [each.link for each in routes if each.network.prefixlen == 0]
        return next((each.mtu for each in links if each.number in ways), 0)

    def remove_idle_bridge(self, name: str) -> bool:
        """Take a bridge away unless a pod is on it; return whether it is gone. OSError."""
        with self._lock(), Netlink() as outside:
            return self._remove_if_idle(outside, name)

    def _remove_if_idle(self, outside: Netlink, name: str) -> bool:
        links = outside.links()
        if all(each.name != name for each in links):
            return True
        if is_used(_named(links, name), links, outside.routes()):
            return False
        self._remove_bridge(outside, name)
        return True

    def _remove_bridge(self, outside: Netlink, name: str) -> None:
        number = _named(outside.links(), name).number
        networks = [each.network for each in outside.routes() if each.link == number]
        outside.delete(name)
        if name == self.bridge:
            self._applied = ""
        with contextlib.suppress(TranslationError):  # it had none
            for network in networks:
                translation.let_through_no_more(PAIR, network)
            if translation.is_available():
                translation.remove(name)

    def _translate(self) -> None:
        """Let the machine translate what its pods are now."""
        assert self._addresses is not None, "the node has a range"
        shown = {address: ports for address, ports in self._shown.items() if ports}
        network = self._addresses.network
        whole = self._cluster_range or network
        text = translation.rules(self.bridge, PAIR, network, shown, whole)
        if text != self._applied and translation.is_available():
            translation.apply(text)
            self._applied = text

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


def hardware_address(address: str | IPv4Address) -> bytes:
    """Return the MAC address of an interface with an address of the range.

    It follows from the address: neighbours that still remember the pod that had the address before
    reach the new one at once.
    """
    return _LOCAL + IPv4Address(address).packed


def pair_name(uid: str) -> str:
    """Return the name of a pod's interface on the node."""
    return PAIR + hashlib.sha256(uid.encode()).hexdigest()[:_PAIR_DIGITS]


def is_pair_name(name: str) -> bool:
    """Whether an interface of the machine is a pod's."""
    digits = name.removeprefix(PAIR)
    return len(digits) == _PAIR_DIGITS == len(name) - len(PAIR) and not set(digits) - _HEX


def in_the_way(network: IPv4Network, links: Sequence[Link], routes: Sequence[Route]) -> list[str]:
    """Return the interfaces that have a part of a range, or all of it."""
    names = {each.number: each.name for each in links}
    taken = [
        each
        for each in routes
        if each.network.subnet_of(network) and each.protocol != NODE_ROUTE  # its node is gone
    ]
    found = {names[each.link] for each in taken if each.link in names}
    return sorted(each for each in found if not is_pair_name(each))  # those have a bridge beside


def _named(links: Sequence[Link], name: str) -> Link:
    return next(each for each in links if each.name == name)


def is_used(bridge: Link, links: Sequence[Link], routes: Sequence[Route]) -> bool:
    """Whether a pod has an address of a bridge's range."""
    pods = {each.number for each in links if is_pair_name(each.name)}
    networks = [each.network for each in routes if each.link == bridge.number]
    return any(
        each.network.subnet_of(whole) for each in routes if each.link in pods for whole in networks
    )
