"""What packets do: a node with policies of its pods, which are machines in namespaces."""

import shutil
import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from typing import Any

import pytest

from kvstack.agents.network_policy.cluster import Cluster
from kvstack.agents.network_policy.nftables.table import Table
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.net import nft
from kvstack.component.net.hosts import has_ipv6
from tests.agents.network_policy.objects import (
    do,
    namespace,
    pod,
    policy,
    put_namespace,
    put_pod,
    put_policy,
)
from tests.support.network.routed import Routed, SilentError, routed

pytestmark = pytest.mark.skipif(
    shutil.which("nft") is None, reason="the program nft is not installed"
)

PODS = ("a", "b", "c")
OUTSIDE = "outside"
NAME = "kvstack-network-policy-test"


class Node:
    """A node whose pods are isolated as policies say."""

    def __init__(self, network: Routed) -> None:
        self.network = network
        self.cluster = Cluster()
        self.table = Table(NAME, (6 if network.family == 6 else 4,))
        self.apply(self.table.whole(self.cluster))
        put_namespace(self.cluster, namespace("x"), namespace("y", team="red"))
        for name in PODS:
            self.put(name)

    @property
    def ip(self) -> str:
        """As rules have the family."""
        return "ip" if self.network.family == 4 else "ip6"

    @property
    def service_ip(self) -> str:
        return "10.96.0.1" if self.network.family == 4 else "fd00:96::1"

    @property
    def everywhere(self) -> str:
        return "0.0.0.0/0" if self.network.family == 4 else "::/0"

    def block(self, name: str) -> Object:
        """Return the network of a machine without its own address."""
        address = self.network.address(name)
        whole, own = (24, 32) if self.network.family == 4 else (64, 128)
        network = ip_network(f"{address}/{whole}", strict=False)
        return {"cidr": str(network), "except": [f"{address}/{own}"]}

    def put(self, name: str, **more: Any) -> None:
        space = "y" if name == "c" else "x"
        put_pod(self.cluster, pod(space, name, self.network.address(name), **more))

    def apply(self, text: str) -> None:
        if text:
            self.network.run("", lambda: nft.apply(text))

    def sync(self, *objects: Object) -> str:
        put_policy(self.cluster, *objects)
        text = self.table.change(self.cluster.take_changes())
        self.apply(text)
        return text

    def reaches(self, source: str, target: str, port: int = 80, protocol: str = "TCP") -> bool:
        """Whether a pod is answered; an answer is waited for as long as a busy machine needs."""
        address = self.network.address(target)
        try:
            return self.network.ask(source, address, port, protocol).name == target
        except SilentError:
            return False

    def is_blocked(self, source: str, target: str, port: int = 80, protocol: str = "TCP") -> bool:
        """Whether a pod is not answered for a while, which is what a dropped packet looks like."""
        return self.network.are_silent(self.way(source, target, port, protocol))

    def way(
        self, source: str, target: str, port: int = 80, protocol: str = "TCP"
    ) -> tuple[str, str, int, str]:
        """Return who asks whom, for `are_silent`."""
        return source, self.network.address(target), port, protocol


@pytest.fixture(params=[4, 6], ids=["ipv4", "ipv6"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    if request.param == 6 and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with routed((*PODS, OUTSIDE), request.param) as network:
        for name in (*PODS, OUTSIDE):
            for port in (80, 81):
                network.serve(name, port)
            network.serve(name, 80, "UDP")
        yield Node(network)


def chains(node: Node) -> set[str]:
    text = node.network.run("", lambda: nft.run("list", "table", "inet", NAME))
    return {line.split()[1] for line in text.splitlines() if line.strip().startswith("chain ")}


def from_pods(**labels: str) -> Object:
    return {"from": [{"podSelector": {"matchLabels": labels}}]}


def test_what_comes_in(node: Node) -> None:
    node.sync()
    assert node.reaches("b", "a")
    assert node.reaches(OUTSIDE, "a")
    rule = {**from_pods(pod="b"), "ports": [{"port": "web"}, {"port": 80, "protocol": "UDP"}]}
    node.sync(policy("x", "p", podSelector={"matchLabels": {"pod": "a"}}, ingress=[rule]))
    assert node.reaches("b", "a")
    assert node.reaches("b", "a", 80, "UDP")
    blocked = node.way("b", "a", 81), node.way("c", "a"), node.way(OUTSIDE, "a")
    assert node.network.are_silent(*blocked)
    assert node.reaches("a", "c")  # and what it asks is answered
    assert node.reaches("", "a")  # its node, whatever policies say
    assert node.reaches("c", "b")  # which is not selected


def test_what_goes_out(node: Node) -> None:
    block = node.block(OUTSIDE)
    node.sync(policy("x", "p", policyTypes=["Egress"], podSelector={"matchLabels": {"pod": "a"}},
                     egress=[{"to": [{"namespaceSelector": {"matchLabels": {"team": "red"}}}]},
                             {"to": [{"ipBlock": block}]}]))  # fmt: skip
    assert node.reaches("a", "c")
    assert node.reaches("b", "a")
    node.network.serve("", 80)
    to_node = ("a", node.network.gateway("a"), 80, "TCP")  # neither to the node itself
    assert node.network.are_silent(node.way("a", "b"), node.way("a", OUTSIDE), to_node)
    node.sync(policy("x", "q", policyTypes=["Egress"], egress=[
        {"to": [{"ipBlock": {"cidr": node.everywhere}}], "ports": [{"port": 80}]}]))  # fmt: skip
    assert node.network.ask("a", node.network.gateway("a"), 80).name == ""
    assert node.reaches("a", "b")
    assert node.network.are_silent(node.way("a", "b", 81), node.way("a", "b", 80, "UDP"))


def test_what_leaves_one_pod_must_be_let_into_the_other(node: Node) -> None:
    allowed = policy("x", "out", policyTypes=["Egress"], egress=[{}])
    node.sync(allowed, policy("y", "in"))
    assert node.is_blocked("a", "c")
    assert node.reaches("a", "b")
    node.sync(policy("y", "in", ingress=[{"from": [{"namespaceSelector": {}}]}]))
    assert node.reaches("a", "c")


def test_a_service_is_judged_by_its_endpoint(node: Node) -> None:
    """Translation comes first: of a port 8080 that leads to 80, the policy says 80."""
    address, x = node.network.address("c"), node.ip
    target = f"[{address}]" if ":" in address else address
    node.apply(
        f"add table {x} test\n"
        f"add chain {x} test pre {{ type nat hook prerouting priority -100 ; }}\n"
        f"add rule {x} test pre {x} daddr {node.service_ip} tcp dport 8080 dnat to {target}:80\n"
    )

    def is_silent() -> bool:
        return node.network.is_silent("a", node.service_ip, 8080)

    def is_answered() -> bool:
        return node.network.ask("a", node.service_ip, 8080).name == "c"

    one: dict[str, Any] = {"to": [{"namespaceSelector": {}}]}
    node.sync(policy("x", "p", policyTypes=["Egress"], egress=[{**one, "ports": [{"port": 8080}]}]))
    assert is_silent()
    node.sync(policy("x", "p", policyTypes=["Egress"], egress=[{**one, "ports": [{"port": 80}]}]))
    assert is_answered()
    node.sync(policy("y", "q", ingress=[from_pods(pod="a")]))
    assert is_silent()
    both = {"podSelector": {"matchLabels": {"pod": "a"}}, "namespaceSelector": {}}
    node.sync(policy("y", "q", ingress=[{"from": [both]}]))
    assert is_answered()


def test_a_pod_reaches_itself_through_a_service(node: Node) -> None:
    address, x = node.network.address("a"), node.ip
    target = f"[{address}]" if ":" in address else address
    node.apply(
        f"add table {x} test\n"
        f"add chain {x} test pre {{ type nat hook prerouting priority -100 ; }}\n"
        f"add chain {x} test post {{ type nat hook postrouting priority 100 ; }}\n"
        f"add rule {x} test pre {x} daddr {node.service_ip} tcp dport 80 dnat to {target}:80\n"
        f"add rule {x} test post {x} saddr {address} {x} daddr {address} masquerade\n"
    )
    node.sync(policy("x", "p", policyTypes=["Ingress", "Egress"]))
    assert node.network.ask("a", node.service_ip, 80).name == "a"
    assert node.network.is_silent("b", node.service_ip, 80)


def test_connections_go_on_and_new_ones_are_judged(node: Node) -> None:
    def dial() -> socket.socket:
        made = node.network.socket("b")
        made.settimeout(5)
        made.connect((node.network.address("a"), 80))
        return made

    with dial() as before:
        node.sync(policy("x", "p"))
        before.send(b"who?")
        assert before.recv(100).startswith(b"a ")
    assert node.is_blocked("b", "a")


def test_one_pods_change_writes_that_pod_alone(node: Node) -> None:
    node.sync(policy("x", "p", ingress=[from_pods(role="client")]))
    assert node.is_blocked("b", "a")
    node.put("b", labels={"pod": "b", "role": "client"})
    text = node.sync()
    assert node.reaches("b", "a")
    assert len(text.splitlines()) == 1
    assert text.startswith(f"add element inet {NAME} peers-")
    node.put("b")
    assert node.sync().startswith(f"delete element inet {NAME} peers-")
    assert node.is_blocked("b", "a")


def test_what_is_used_no_more_goes(node: Node) -> None:
    fixed = chains(node)
    block = {"from": [{"ipBlock": {"cidr": node.everywhere}}]}
    one = policy("x", "p", ingress=[{**from_pods(pod="b"), "ports": [{"port": "web"}]}, block])
    node.sync(one, policy("x", "q", policyTypes=["Egress"]))
    assert len(chains(node) - fixed) == 4
    node.put("a", phase="Failed")
    node.sync()
    do(node.cluster.set_policy("x/p", None))
    node.sync()
    do(node.cluster.set_policy("x/q", None))
    node.sync()
    for statement in node.table.take_stale():
        node.apply(statement)
    assert chains(node) == fixed
    text = node.network.run("", lambda: nft.run("list", "table", "inet", NAME))
    assert "peers-" not in text
    assert "elements" not in text
    node.apply(node.table.delete)
    assert NAME not in node.network.run("", lambda: nft.run("list", "tables"))


def test_all_of_it_is_written_anew_whatever_is_there(node: Node) -> None:
    node.sync(policy("x", "p", ingress=[from_pods(pod="b")]))
    for spoil in ("", f"flush table inet {NAME}\n", f"delete table inet {NAME}\n"):
        node.apply(spoil)
        node.apply(node.table.whole(node.cluster))
        assert node.reaches("b", "a")
        assert node.is_blocked("c", "a")
    assert not node.table.change(node.cluster.take_changes())


@pytest.mark.parametrize("families", [(4,), (6,), (4, 6)])
def test_the_kernel_takes_what_every_kind_of_rule_writes(
    families: tuple[Any, ...], apart: Callable[[str], None]
) -> None:
    cluster, table = Cluster(), Table(NAME, families)
    blocks = [{"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}, {"cidr": "fd00::/8"},
              {"cidr": "::/0", "except": ["fe80::/10"]}, {"cidr": "0.0.0.0/0"}]  # fmt: skip
    ports = [{"port": 80}, {"port": 70, "endPort": 90}, {"port": 1, "protocol": "SCTP"},
             {"protocol": "UDP"}, {"port": "web"}, {"port": "dns", "protocol": "UDP"}]  # fmt: skip
    peers = [*({"ipBlock": each} for each in blocks), {"podSelector": {}},
             {"namespaceSelector": {}}]  # fmt: skip
    rules: list[Object] = [{}, {"ports": ports}, {"ports": ports, "from": peers}]
    rules += [{"from": [peer], "ports": [port]} for peer in peers for port in ports]
    one = policy(
        "x",
        "p",
        ingress=rules,
        policyTypes=["Ingress", "Egress"],
        egress=[{("to" if k == "from" else k): v for k, v in r.items()} for r in rules],
    )
    first = table.whole(cluster)
    put_policy(cluster, one)
    put_pod(cluster, pod("x", "a", "10.0.0.1"), pod("x", "b", "fd00::1"))
    apart(first + table.change(cluster.take_changes()) + table.whole(cluster))


@pytest.fixture
def apart() -> Iterator[Callable[[str], None]]:
    """Write rules in a namespace of nobody."""
    with routed(()) as network:
        yield lambda text: network.run("", lambda: nft.apply(text))


def test_ten_thousand_blocks(apart: Callable[[str], None]) -> None:
    blocks = [
        {"cidr": f"10.{n >> 8}.{n & 255}.0/24", "except": [f"10.{n >> 8}.{n & 255}.128/25"]}
        for n in range(10_000)
    ]
    cluster, table = Cluster(), Table(NAME, (4,))
    put_policy(cluster, policy("x", "p", ingress=[{"from": [{"ipBlock": b} for b in blocks]}]))
    put_pod(cluster, pod("x", "a", "10.244.0.1"))
    text = table.whole(cluster)
    assert text.count(" accept\n") == 6 + 1  # of the fixed chains, and of one set of all blocks
    apart(text)
