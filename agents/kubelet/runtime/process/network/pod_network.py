"""The network of one node's pods: a bridge of the machine, and a pair of interfaces for each pod.

    node ── bridge (first address of the range) ── kv… ═ eth0 of a pod (the next ones)

The bridge is there while a pod is on it. Several nodes may be on one machine: what they change is
changed under a lock, and a bridge without pods that is in the way was left behind and goes.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.pod_addresses import NoAddressError, PodAddresses
from kvstack.agents.kubelet.runtime.process.network import translation
from kvstack.agents.kubelet.runtime.process.network.netlink import Link, Netlink, Route
from kvstack.agents.kubelet.runtime.process.network.translation import TranslationError
from kvstack.agents.kubelet.runtime.runtime import Port, StartError

STATE: Final = Path("/run/kvstack")
"""Of all nodes of this machine: locks, and what is mounted for pods."""
PREFIX: Final = "kv-"
"""Of the names of bridges."""
INTERFACE: Final = "eth0"
"""Of a pod."""
_PAIR, _PAIR_DIGITS = "kv", 10
_HEX: Final = frozenset("0123456789abcdef")
_GATEWAY: Final = "the bridge"
_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
_FAILED: Final = "FailedCreatePodSandBox"


class PodNetwork:
    """The pods of one node; its methods may wait for the kernel, and are called in threads."""

    def __init__(self, node: str, state: Path = STATE) -> None:
        """node: what tells it from other nodes of this machine; nothing is made yet."""
        self._state = state
        self.bridge: Final = PREFIX + hashlib.sha256(node.encode()).hexdigest()[:8]
        self._addresses: PodAddresses | None = None
        self._kept: dict[str, str] = {}  # uid → address of a pod of before
        self._shown: dict[str, Sequence[Port]] = {}  # by address
        self._applied = ""

    @property
    def network(self) -> IPv4Network | None:
        """The range of the pods; None: there is none."""
        return None if self._addresses is None else self._addresses.network

    def use_ranges(self, ranges: Sequence[str]) -> None:
        """Take the ranges of the node (podCIDRs): the first of IPv4 is used from now on."""
        wanted = next((IPv4Network(each) for each in ranges if ":" not in each), None)
        if wanted is None or wanted == self.network:
            return
        self._addresses = PodAddresses(wanted)
        self._addresses.keep(str(wanted[1]), _GATEWAY)
        for uid, address in self._kept.items():
            self._addresses.keep(address, uid)

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
                outside.add_pair(name, INTERFACE, namespace, mtu)
                outside.join(name, self.bridge)
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

    def disconnect(self, uid: str) -> None:
        """Take the interfaces of a pod away, and the bridge with the last; raises OSError."""
        with self._lock(), Netlink() as outside:
            address = self._kept.pop(uid, "")
            self._shown.pop(address, None)
            if self._addresses is not None:
                self._addresses.free(address, uid)
            links = outside.links()
            if any(each.name == pair_name(uid) for each in links):
                outside.delete(pair_name(uid))
            own = next((each for each in links if each.name == self.bridge), None)
            if own is not None and not _has_ports(own, outside.links()):
                self._remove_bridge(outside, self.bridge)
                self._applied = ""
            elif own is not None:
                with contextlib.suppress(TranslationError):  # a rule too many leads nowhere
                    self._translate()

    def _make_bridge(self, outside: Netlink) -> int:
        """Make the bridge unless it is there; return the size of packets that fits its way out."""
        assert self._addresses is not None, "the node has a range"
        network = self._addresses.network
        links, routes = outside.links(), outside.routes()
        if all(each.name != self.bridge for each in links):
            for name in in_the_way(network, links, routes):
                if not name.startswith(PREFIX) or _has_ports(_named(links, name), links):
                    text = f"the range {network} of the node's pods is in use on {name}"
                    raise StartError(_FAILED, text)
                self._remove_bridge(outside, name)
            mac = bytes((0x0A, 0x58)) + network[1].packed
            outside.add_bridge(self.bridge, mac)
            outside.set_up(self.bridge)
            translation.let_through(self.bridge)
            _FORWARDING.write_text("1")
            # So that ports of the node are reached over its loopback, too.
            Path(f"/proc/sys/net/ipv4/conf/{self.bridge}/route_localnet").write_text("1")
        with contextlib.suppress(FileExistsError):
            outside.add_address(self.bridge, IPv4Interface(f"{network[1]}/{network.prefixlen}"))
        ways = [each.link for each in routes if each.network.prefixlen == 0]
        return next((each.mtu for each in links if each.number in ways), 0)

    def remove_idle_bridge(self, name: str) -> bool:
        """Take a bridge away unless a pod is on it; return whether it is gone. OSError."""
        with self._lock(), Netlink() as outside:
            links = outside.links()
            if all(each.name != name for each in links):
                return True
            if _has_ports(_named(links, name), links):
                return False
            self._remove_bridge(outside, name)
            return True

    def _remove_bridge(self, outside: Netlink, name: str) -> None:
        outside.delete(name)
        with contextlib.suppress(TranslationError):  # it had none
            translation.let_through_no_more(name)
            if translation.is_available():
                translation.remove(name)

    def _translate(self) -> None:
        """Let the machine translate what its pods are now."""
        assert self._addresses is not None, "the node has a range"
        shown = {address: ports for address, ports in self._shown.items() if ports}
        text = translation.rules(self.bridge, self._addresses.network, shown)
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


def pair_name(uid: str) -> str:
    """Return the name of a pod's interface on the node."""
    return _PAIR + hashlib.sha256(uid.encode()).hexdigest()[:_PAIR_DIGITS]


def is_pair_name(name: str) -> bool:
    """Whether an interface of the machine is a pod's."""
    digits = name.removeprefix(_PAIR)
    return len(digits) == _PAIR_DIGITS == len(name) - len(_PAIR) and not set(digits) - _HEX


def in_the_way(network: IPv4Network, links: Sequence[Link], routes: Sequence[Route]) -> list[str]:
    """Return the interfaces that have a part of a range, or all of it."""
    names = {each.number: each.name for each in links}
    taken = [each for each in routes if each.network.subnet_of(network)]
    return sorted({names[each.link] for each in taken if each.link in names})


def _named(links: Sequence[Link], name: str) -> Link:
    return next(each for each in links if each.name == name)


def _has_ports(bridge: Link, links: Sequence[Link]) -> bool:
    return any(each.master == bridge.number for each in links)
