"""What packets do: a node with the proxy's rules, a client, and endpoints, in namespaces.

One suite for all modes that write rules, in both families.
"""

import asyncio
import functools
import os
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from kvstack.agents.proxy import modes
from kvstack.agents.proxy.backend import Backend, BackendError
from kvstack.agents.proxy.choice import Here
from kvstack.agents.proxy.cluster_view import ClusterView
from kvstack.agents.proxy.connections import delete_stale, frontends
from kvstack.agents.proxy.iptables import program as iptables
from kvstack.agents.proxy.machine_lock import machine_lock
from kvstack.agents.proxy.modes import IPTABLES, NFTABLES
from kvstack.agents.proxy.nftables import program as nftables
from kvstack.agents.proxy.nftables.backend import NftBackend
from kvstack.agents.proxy.rule_settings import LocalTraffic, RuleSettings
from kvstack.agents.proxy.services import FAMILIES, Family
from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.net import iptables as run_iptables
from kvstack.component.net.nft import run as run_nft
from tests.agents.proxy.objects import balanced, endpoint, endpoint_slice, service
from tests.support.network.routed import (
    SILENCE_S,
    TIMEOUT_S,
    Answer,
    RefusedError,
    Routed,
    SilentError,
    routed,
)
from tests.support.waiting import wait_for

NODE_PORT, PORT = 30080, 8080
ROUTES_LOOPBACK: Final = Path("/proc/sys/net/ipv4/conf/all/route_localnet")


class Variant(NamedTuple):
    """A mode, its programs, and a family."""

    mode: str
    family: Family
    is_old: bool = False
    """Whether iptables is to write the kernel's older tables."""

    @property
    def name(self) -> str:
        return f"{self.mode}{'-legacy' if self.is_old else ''}-ipv{self.family}"


VARIANTS: Final = (
    Variant(NFTABLES, 4),
    Variant(NFTABLES, 6),
    Variant(IPTABLES, 4),
    Variant(IPTABLES, 6),
    Variant(IPTABLES, 4, is_old=True),
)


class Node:
    """The node in the middle, and what it serves."""

    def __init__(self, network: Routed, variant: Variant) -> None:
        family = variant.family
        self.variant = variant
        self.network = network
        self.view = ClusterView(family, Here("here"))
        is_four = family == 4
        self.cluster_ip = "10.96.0.10" if is_four else "fd00:96::10"
        self.other_ip = "10.96.0.11" if is_four else "fd00:96::11"
        self.unused_ip = "10.96.0.99" if is_four else "fd00:96::99"
        self.vip = "203.0.113.7" if is_four else "2001:db8:1::7"
        self.external_ip = "198.51.100.4" if is_four else "2001:db8:2::4"
        self.bits = 32 if is_four else 128
        self.settings = RuleSettings(
            family,
            local=LocalTraffic(("10.201.2.0/23" if is_four else "fd00:c9:2::/47",)),
            node_ips=(network.gateway("client"),),
            service_ranges=("10.96.0.0/16" if is_four else "fd00:96::/112",),
        )
        self._made: list[Backend] = []
        self.backend = self.make_backend()
        self._known: dict[str, dict[str, Any]] = {}
        self.write_all()

    def make_backend(self) -> Backend:
        log = LineLogger([], "error")
        found = modes.backend(self.variant.mode, self.settings, log, leaves_rules=False)
        self._made.append(found)
        return found

    def close(self) -> None:
        """Let go of the kernel; the rules go with the namespace."""
        for each in self._made:
            if isinstance(each, NftBackend):
                self.inside(functools.partial(asyncio.run, each.close()))

    def write_all(self) -> None:
        self.inside(lambda: asyncio.run(self.backend.write_all(self.view)))

    def inside(self, work: Callable[[], Any]) -> Any:
        """Call a function in the node's namespace; threads that it makes are there, too."""
        return self.network.run("", work)

    def is_there(self) -> bool:
        return bool(self.inside(lambda: asyncio.run(self.backend.is_there())))

    def serve(self, *objects: dict[str, Any]) -> None:
        """Take objects as they are now."""
        for new in objects:
            old = self._known.get(new["metadata"]["name"])
            self._known[new["metadata"]["name"]] = new
            if new["kind"] == "Service":
                self.view.set_service(old, new)
            else:
                self.view.set_slice(old, new)
        changes = self.view.take_changes()
        self.inside(lambda: asyncio.run(self.backend.write(changes, self.view)))

    def service(self, name: str = "web", *given: dict[str, Any], **spec: Any) -> dict[str, Any]:
        return service(name, *given, **{"clusterIP": self.cluster_ip, **spec})

    @property
    def family(self) -> str:
        """As slices have it."""
        return FAMILIES[self.variant.family]

    @property
    def table(self) -> str:
        """Of nftables."""
        return f"{'ip' if self.variant.family == 4 else 'ip6'} kube-proxy"

    def own_addresses(self) -> set[str]:
        return {self.network.gateway(each) for each in ("client", "one", "two")}

    def use(self, **settings: Any) -> None:
        """Write all with other settings."""
        self.settings = replace(self.settings, **settings)
        self.backend = self.make_backend()
        self.write_all()

    def names(self, asked: int, address: str, port: int = 80, client: str = "client") -> set[str]:
        return {self.network.ask(client, address, port).name for _ in range(asked)}


def problem(variant: Variant) -> str:
    if variant.is_old and shutil.which("iptables-legacy") is None:
        return "there is no iptables-legacy"
    return modes.problem_of(variant.mode, variant.family)


@pytest.fixture(params=VARIANTS, ids=lambda each: each.name)
def node(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Node]:
    variant: Variant = request.param
    if variant.is_old and (found := shutil.which("iptables-legacy")):
        for name in ("iptables", "iptables-restore", "iptables-save"):
            (tmp_path / name).symlink_to(Path(found).resolve())
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if reason := problem(variant):
        pytest.skip(reason)
    with routed(("client", "one", "two"), variant.family) as network:
        for name in ("one", "two"):
            network.serve(name, PORT)
            network.serve(name, PORT, "UDP")
        node = Node(network, variant)  # one and two are its pods
        try:
            yield node
        finally:
            node.close()


def only_with(*variants: Variant) -> pytest.MarkDecorator:
    """Run a test with some variants alone."""
    ids = [each.name for each in variants]
    return pytest.mark.parametrize("node", variants, ids=ids, indirect=True)


def both(node: Node, where: str = "here", **more: Any) -> dict[str, Any]:
    one, two = (node.network.address(name) for name in ("one", "two"))
    return endpoint_slice(endpoint(one), endpoint(two, where), family=node.family, **more)


def only(node: Node, name: str, where: str = "here", **more: Any) -> dict[str, Any]:
    end = endpoint(node.network.address(name), where)
    return endpoint_slice(end, family=node.family, **more)


def test_a_cluster_ip_reaches_every_endpoint(node: Node) -> None:
    node.serve(node.service(), both(node))
    assert node.names(30, node.cluster_ip) == {"one", "two"}
    assert node.names(30, node.cluster_ip, client="") == {"one", "two"}


def test_a_change_of_endpoints_is_followed(node: Node) -> None:
    node.serve(node.service(), both(node))
    node.serve(only(node, "two"))
    assert node.names(10, node.cluster_ip) == {"two"}
    node.serve(only(node, "one"))
    assert node.names(10, node.cluster_ip) == {"one"}


def test_a_pod_is_seen_by_its_address_and_others_by_the_nodes(node: Node) -> None:
    node.serve(node.service(), only(node, "two"))
    network, ip = node.network, node.cluster_ip
    assert network.ask("one", ip, 80) == Answer("two", network.address("one"))
    assert network.ask("client", ip, 80) == Answer("two", network.gateway("two"))


def test_a_pod_reaches_itself(node: Node) -> None:
    node.serve(node.service(), only(node, "one"))
    assert node.network.ask("one", node.cluster_ip, 80).name == "one"


def test_udp(node: Node) -> None:
    dns = node.service("web", {"port": 53, "protocol": "UDP"})
    node.serve(dns, only(node, "two", protocol="UDP"))
    assert node.network.ask("one", node.cluster_ip, 53, "UDP").name == "two"


@only_with(Variant(NFTABLES, 4), Variant(IPTABLES, 4))
def test_sctp(node: Node) -> None:
    """Without sockets of SCTP, which kernels may lack: a first packet, and where it arrives."""
    protocol: dict[str, Any] = {"port": 53, "protocol": "SCTP"}
    node.serve(node.service("web", protocol), only(node, "two", protocol="SCTP"))
    sent, came = (
        node.network.run(
            each, lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP)
        )
        for each in ("client", "two")
    )
    with sent, came:
        came.settimeout(TIMEOUT_S)
        sent.sendto(sctp_init(4000, 53), (node.cluster_ip, 0))
        packet, (client, _) = came.recvfrom(1024)
    head = 4 * (packet[0] & 15)
    assert struct.unpack_from(">H", packet, head + 2) == (PORT,)
    assert client == node.network.gateway("two")


def sctp_init(source: int, target: int) -> bytes:
    """Return the packet that asks for an association; conntrack reads its checksum, too."""
    chunk = struct.pack(">BBHIIHHI", 1, 0, 20, 7, 65_536, 1, 1, 1)
    return (
        struct.pack(">HHI", source, target, 0)
        + _crc32c(struct.pack(">HHII", source, target, 0, 0) + chunk)
        + chunk
    )


def _crc32c(data: bytes) -> bytes:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ 0x82F63B78 * (value & 1)
    return struct.pack("<I", value ^ 0xFFFFFFFF)


def test_without_endpoints_it_is_refused(node: Node) -> None:
    node.serve(ports(node), endpoint_slice(family=node.family))
    for client in ("client", ""):
        with pytest.raises(RefusedError):
            node.network.ask(client, node.cluster_ip, 80)
    with pytest.raises(RefusedError):
        node.network.ask("client", node.network.gateway("client"), NODE_PORT)


def test_ports_that_a_service_lacks(node: Node) -> None:
    """With nftables they are refused and unused addresses drop; with iptables there is no rule."""
    node.serve(node.service(), both(node))
    if node.variant.mode == NFTABLES:
        with pytest.raises(RefusedError):
            node.network.ask("client", node.cluster_ip, 81)
        assert node.network.is_silent("client", node.unused_ip, 80)
    else:
        with pytest.raises((OSError, SilentError)):
            node.network.ask("client", node.cluster_ip, 81, patience_s=SILENCE_S)


def ports(node: Node, **more: Any) -> dict[str, Any]:
    given = node.service(type="NodePort", **more)
    given["spec"]["ports"][0]["nodePort"] = NODE_PORT
    return given


def test_a_node_port(node: Node) -> None:
    network = node.network
    node.serve(ports(node), both(node))
    where = network.gateway("client")
    assert node.names(30, where, NODE_PORT) == {"one", "two"}
    assert network.ask("client", where, NODE_PORT).client in node.own_addresses()
    with pytest.raises(RefusedError):  # not an address on which node ports are served
        network.ask("client", network.gateway("one"), NODE_PORT)
    node.serve(endpoint_slice(family=node.family))
    with pytest.raises(RefusedError):
        network.ask("client", where, NODE_PORT)


def test_node_ports_on_every_address(node: Node) -> None:
    network = node.network
    node.use(node_ips=None)
    node.serve(ports(node), both(node))
    for address in (network.gateway("client"), network.gateway("one")):
        assert node.names(30, address, NODE_PORT) == {"one", "two"}
    loopback = "127.0.0.1" if network.family == 4 else "::1"
    with pytest.raises(RefusedError):
        network.ask("", loopback, NODE_PORT)
    if node.variant.mode == IPTABLES and network.family == 4:
        node.use(node_ips=None, serves_loopback=True)
        assert node.names(30, loopback, NODE_PORT, "") == {"one", "two"}
        assert network.run("", lambda: ROUTES_LOOPBACK.read_text().strip()) == "1"


@only_with(Variant(IPTABLES, 4))
def test_neighbours_reach_nothing_on_loopback(node: Node) -> None:
    """Node ports there need a kernel that routes loopback addresses: others are kept out."""
    network = node.network
    network.serve("", PORT)
    node.use(node_ips=None, serves_loopback=True)
    attacked = "127.9.9.9"
    network.run("client", lambda: ROUTES_LOOPBACK.write_text("1"))
    for own in ("127.0.0.0/8", "127.0.0.1"):
        network.ip("client", "route", "delete", "local", own, "dev", "lo", "table", "local")
    network.ip("client", "route", "add", attacked, "via", network.gateway("client"))
    assert network.is_silent("client", attacked, PORT)
    node.inside(lambda: iptables.restore(4, "*filter\n-F KUBE-FIREWALL\nCOMMIT\n"))
    assert network.ask("client", attacked, PORT).name == ""  # it is the rule that keeps them out
    node.write_all()
    assert network.is_silent("client", attacked, PORT)


def test_external_local_keeps_the_clients_address_and_takes_endpoints_of_the_node(
    node: Node,
) -> None:
    network = node.network
    where = network.gateway("client")
    node.serve(ports(node, externalTrafficPolicy="Local"), both(node, "there"))
    for _ in range(10):
        answer = network.ask("client", where, NODE_PORT)
        assert answer == Answer("one", network.address("client"))
    # Pods and the node itself are not bound by it.
    assert node.names(30, where, NODE_PORT, "one") == {"one", "two"}
    assert node.names(30, where, NODE_PORT, "") == {"one", "two"}


def test_external_local_without_endpoints_here_is_silent(node: Node) -> None:
    where = node.network.gateway("client")
    node.serve(ports(node, externalTrafficPolicy="Local"), only(node, "two", "there"))
    assert node.network.is_silent("client", where, NODE_PORT)
    assert node.names(3, where, NODE_PORT, "one") == {"two"}


def test_internal_local(node: Node) -> None:
    node.serve(node.service(internalTrafficPolicy="Local"), both(node, "there"))
    assert node.names(20, node.cluster_ip) == {"one"}
    node.serve(only(node, "two", "there"))
    assert node.network.is_silent("client", node.cluster_ip, 80)


def endpoint_of(node: Node, timeout_s: int) -> dict[str, Any]:
    client = {"clientIP": {"timeoutSeconds": timeout_s}}
    return node.service(sessionAffinity="ClientIP", sessionAffinityConfig=client)


def test_a_client_stays_with_its_endpoint(node: Node) -> None:
    node.serve(endpoint_of(node, 100), both(node))
    first = node.names(15, node.cluster_ip)
    assert len(first) == 1
    other = {"one": "two", "two": "one"}[first.pop()]
    node.serve(only(node, other))
    assert node.names(3, node.cluster_ip) == {other}
    node.serve(both(node))
    assert node.names(15, node.cluster_ip) == {other}
    # Another time is another set, or rule, in the same transaction.
    node.serve(endpoint_of(node, 50))
    assert len(node.names(15, node.cluster_ip)) == 1
    node.serve(node.service())
    assert node.names(30, node.cluster_ip) == {"one", "two"}


@only_with(Variant(NFTABLES, 4), Variant(IPTABLES, 4))
def test_a_client_stays_no_longer_than_its_time(node: Node) -> None:
    node.serve(endpoint_of(node, 1), both(node))
    first = node.names(1, node.cluster_ip)
    # Each connection begins the second anew.
    wait_for(lambda: node.names(1, node.cluster_ip) != first, every_s=1.2)


def test_addresses_from_outside_and_who_may_reach_them(node: Node) -> None:
    network, vip = node.network, node.vip

    def open_to(*ranges: str) -> None:
        more = {"loadBalancerSourceRanges": list(ranges)} if ranges else {}
        addresses = {"clusterIP": node.cluster_ip, "externalIPs": [node.external_ip]}
        node.serve(balanced(vip, **addresses, **more))

    open_to()
    node.serve(both(node))
    assert node.names(30, vip) == {"one", "two"}
    assert node.names(30, node.external_ip) == {"one", "two"}

    open_to(f"{network.address('client')}/{node.bits}")
    assert node.names(3, vip) <= {"one", "two"}
    assert network.is_silent("one", vip, 80)
    assert node.names(3, node.external_ip, client="one") <= {"one", "two"}

    open_to("192.0.2.0/24" if network.family == 4 else "2001:db8:9::/48")
    assert network.is_silent("client", vip, 80)
    assert node.names(3, node.cluster_ip) <= {"one", "two"}


def test_of_two_services_with_one_address_the_first_by_name_has_it(node: Node) -> None:
    one, two = (node.network.address(each) for each in ("one", "two"))

    def claim(name: str, cluster_ip: str) -> dict[str, Any]:
        return node.service(name, clusterIP=cluster_ip, externalIPs=[node.external_ip])

    for name, ip, end in (("b", node.other_ip, two), ("a", node.cluster_ip, one)):
        slice_ = endpoint_slice(endpoint(end), name=f"{name}-1", of=name, family=node.family)
        node.serve(claim(name, ip), slice_)
        assert node.names(3, node.external_ip) == {"two" if name == "b" else "one"}
    node.write_all()
    assert node.names(3, node.external_ip) == {"one"}
    node.serve(node.service("a", clusterIP=node.cluster_ip))
    assert node.names(3, node.external_ip) == {"two"}


@only_with(Variant(IPTABLES, 4), Variant(IPTABLES, 6))
def test_a_health_check_passes_a_firewall(node: Node) -> None:
    """kube-proxy's rules of iptables let it through; nftables leaves that to the firewall."""
    where = node.network.gateway("client")
    node.network.serve("", 32_000)
    rule = "-p tcp --dport 32000 -j DROP"
    node.inside(
        lambda: iptables.restore(node.variant.family, f"*filter\n-A INPUT {rule}\nCOMMIT\n")
    )
    assert node.network.is_silent("client", where, 32_000)
    local = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32_000}
    node.serve(balanced(node.vip, clusterIP=node.cluster_ip, **local), both(node))
    assert node.network.ask("client", where, 32_000).name == ""


def test_all_of_it_can_be_written_again(node: Node) -> None:
    node.serve(endpoint_of(node, 100), both(node))
    first = node.names(1, node.cluster_ip)
    node.write_all()
    assert node.names(15, node.cluster_ip) == first  # clients stay with their endpoints
    node.serve(node.service(), only(node, "one"))
    node.backend = node.make_backend()  # of a process that is started again
    node.write_all()
    assert node.names(3, node.cluster_ip) == {"one"}


def test_rules_that_somebody_has_flushed_are_missed(node: Node) -> None:
    assert node.is_there()
    if node.variant.mode == NFTABLES:
        texts = ("flush ruleset\n", f"flush table {node.table}\n")
        flushes = [functools.partial(nftables.apply, text) for text in texts]
    else:
        nat = (("PREROUTING", "nat"), ("KUBE-POSTROUTING", "nat"))
        chains = (*nat, ("FORWARD", "filter"), ("KUBE-FORWARD", "filter"))
        flushes = [
            functools.partial(iptables.restore, node.variant.family, f"*{t}\n-F {c}\nCOMMIT\n")
            for c, t in chains
        ]
    for flush in flushes:
        node.inside(flush)
        assert not node.is_there(), flush
        node.write_all()
        assert node.is_there()


@only_with(Variant(NFTABLES, 4), Variant(NFTABLES, 6))
def test_a_change_of_deleted_rules_fails(node: Node) -> None:
    """After a failure all is written."""
    node.serve(node.service(), both(node))
    node.inside(lambda: nftables.apply("flush ruleset\n"))
    with pytest.raises(BackendError, match="No such file or directory"):
        node.serve(only(node, "two"))
    node.write_all()
    assert node.names(10, node.cluster_ip) == {"two"}
    node.serve(only(node, "one"))
    assert node.names(10, node.cluster_ip) == {"one"}


def test_nothing_is_left_in_the_end(node: Node) -> None:
    node.serve(endpoint_of(node, 100), both(node))
    node.inside(lambda: asyncio.run(node.backend.close()))
    assert node.inside(rules_of_machine) == ""


def rules_of_machine() -> str:
    """Return what somebody sees who looks for rules of a proxy."""
    found = [run_nft("list", "ruleset")] if nftables.is_installed() else []
    found += [run_iptables.saved(each) for each in (4, 6) if iptables.is_installed(each)]
    return "\n".join(line for each in found for line in each.splitlines() if "KUBE-" in line)


def test_rules_of_the_other_mode_go(node: Node) -> None:
    (other,) = (each for each in modes.WITH_RULES if each != node.variant.mode)
    if reason := modes.problem_of(other, node.variant.family):
        pytest.skip(reason)
    node.serve(node.service(), both(node))
    settings, log = node.settings, LineLogger([], "error")
    backend = modes.backend(other, settings, log, leaves_rules=True)
    node.inside(lambda: asyncio.run(backend.write_all(node.view)))
    assert not node.is_there()
    assert node.names(30, node.cluster_ip) == {"one", "two"}
    assert not node.inside(lambda: modes.remove_rules(node.variant.mode, node.variant.family))
    assert node.inside(lambda: modes.remove_rules(other, node.variant.family))
    assert not node.inside(lambda: modes.remove_rules(other, node.variant.family))


def test_flows_of_udp_leave_an_endpoint_that_is_gone(node: Node) -> None:
    network, source = node.network, 4000
    one = network.address("one")
    dns = {"port": 53, "protocol": "UDP"}
    of_other: Any = {"protocol": "UDP", "of": "other", "name": "other-1", "family": node.family}
    node.serve(node.service("web", dns), only(node, "one", protocol="UDP"))
    other = node.service("other", dns, clusterIP=node.other_ip)
    node.serve(other, endpoint_slice(endpoint(one), **of_other))

    def sticky_service(address: str) -> str:
        return network.ask("client", address, 53, "UDP", source_port=source).name

    ips = node.cluster_ip, node.other_ip
    assert [sticky_service(each) for each in ips] == ["one", "one"]
    node.serve(only(node, "two", protocol="UDP"))
    assert [sticky_service(each) for each in ips] == ["two", "one"]
    served = [each for each in node.view.served() if each.port.name.service == "web"]
    where = frontends(served, node.view)
    assert node.inside(lambda: delete_stale(node.variant.family, where)) == 0


def test_one_proxy_writes_rules_and_none_takes_anothers_unasked(node: Node, tmp_path: Path) -> None:
    def hold(*, takes_over: bool) -> None:
        again = pytest.raises(ConfigError, match="another proxy writes")
        with machine_lock(takes_over=takes_over, state=tmp_path), again:
            hold_again()

    def hold_again() -> None:
        with machine_lock(takes_over=True, state=tmp_path):
            pass

    if node.variant.family == 4:
        with pytest.raises(ConfigError, match="belong to another program"):  # the fixture's
            node.inside(lambda: hold(takes_over=False))
    node.inside(lambda: hold(takes_over=True))
    node.inside(lambda: hold(takes_over=False))  # it was taken over
    node.inside(lambda: asyncio.run(node.backend.close()))
    node.inside(lambda: hold(takes_over=False))
