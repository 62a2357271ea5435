"""What packets do: a node with the proxy's rules, a client, and endpoints, in namespaces."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.proxy.choice import Here
from kvstack.agents.proxy.cluster_view import ClusterView
from kvstack.agents.proxy.connections import delete_stale, frontends
from kvstack.agents.proxy.nftables import program
from kvstack.agents.proxy.nftables.backend import machine_lock
from kvstack.agents.proxy.nftables.layout import CANARY, Layout, LocalTraffic
from kvstack.agents.proxy.nftables.port_rules import rules_of
from kvstack.agents.proxy.nftables.ruleset import Ruleset, TableContents
from kvstack.component.errors import ConfigError
from tests.agents.proxy.objects import balanced, endpoint, endpoint_slice, service
from tests.support.network.routed import Answer, RefusedError, Routed, routed

pytestmark = pytest.mark.skipif(bool(program.problem()), reason=program.problem() or "-")

CLUSTER_IP, NODE_PORT, PORT = "10.96.0.10", 30080, 8080
VIP, EXTERNAL_IP = "203.0.113.7", "198.51.100.4"


class Node:
    """The node in the middle, and what it serves."""

    def __init__(self, network: Routed, pods: Sequence[str]) -> None:
        """pods: machines that are pods of the node."""
        self.network = network
        self.view = ClusterView(4, Here("here"))
        self.layout = Layout(
            4,
            local=LocalTraffic(tuple(f"{network.address(each)}/32" for each in pods)),
            node_ips=(network.gateway("client"),),
            service_ranges=("10.96.0.0/16",),
        )
        self.ruleset = Ruleset(self.layout)
        self._known: dict[str, dict[str, Any]] = {}
        self.apply(self.ruleset.whole(TableContents()))

    def apply(self, text: str) -> None:
        self.network.run("", lambda: program.apply(text))

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
        self.apply(
            self.ruleset.change(
                {n: rules_of(each, self.layout) if each else None for n, each in changes.items()}
            )
        )

    def names(self, asked: int, address: str, port: int = 80, client: str = "client") -> set[str]:
        return {self.network.ask(client, address, port).name for _ in range(asked)}


@pytest.fixture
def node() -> Iterator[Node]:
    with routed(("client", "one", "two")) as network:
        for name in ("one", "two"):
            network.serve(name, PORT)
            network.serve(name, PORT, "UDP")
        yield Node(network, ("one", "two"))


def both(node: Node, where: str = "here", **more: Any) -> dict[str, Any]:
    one, two = (node.network.address(name) for name in ("one", "two"))
    return endpoint_slice(endpoint(one), endpoint(two, where), **more)


def only(node: Node, name: str, where: str = "here", **more: Any) -> dict[str, Any]:
    return endpoint_slice(endpoint(node.network.address(name), where), **more)


def test_a_cluster_ip_reaches_every_endpoint(node: Node) -> None:
    node.serve(service(), both(node))
    assert node.names(30, CLUSTER_IP) == {"one", "two"}
    assert node.names(30, CLUSTER_IP, client="") == {"one", "two"}


def test_a_change_of_endpoints_is_followed(node: Node) -> None:
    node.serve(service(), both(node))
    node.serve(only(node, "two"))
    assert node.names(10, CLUSTER_IP) == {"two"}
    node.serve(only(node, "one"))
    assert node.names(10, CLUSTER_IP) == {"one"}


def test_a_pod_is_seen_by_its_address_and_others_by_the_nodes(node: Node) -> None:
    node.serve(service(), only(node, "two"))
    network = node.network
    assert network.ask("one", CLUSTER_IP, 80) == Answer("two", network.address("one"))
    assert network.ask("client", CLUSTER_IP, 80) == Answer("two", network.gateway("two"))


def test_a_pod_reaches_itself(node: Node) -> None:
    node.serve(service(), only(node, "one"))
    assert node.network.ask("one", CLUSTER_IP, 80).name == "one"


def test_udp(node: Node) -> None:
    node.serve(service("web", {"port": 53, "protocol": "UDP"}), only(node, "two", protocol="UDP"))
    assert node.network.ask("one", CLUSTER_IP, 53, "UDP").name == "two"


def test_without_endpoints_it_is_refused(node: Node) -> None:
    node.serve(service(type="NodePort"), endpoint_slice())
    for client in ("client", ""):
        with pytest.raises(RefusedError):
            node.network.ask(client, CLUSTER_IP, 80)


def test_other_ports_are_refused_and_other_addresses_silent(node: Node) -> None:
    node.serve(service(), both(node))
    with pytest.raises(RefusedError):
        node.network.ask("client", CLUSTER_IP, 81)
    assert node.network.is_silent("client", "10.96.0.99", 80)


def ports(**more: Any) -> dict[str, Any]:
    given = service(type="NodePort", **more)
    given["spec"]["ports"][0]["nodePort"] = NODE_PORT
    return given


def test_a_node_port(node: Node) -> None:
    network = node.network
    node.serve(ports(), both(node))
    where = network.gateway("client")
    assert node.names(30, where, NODE_PORT) == {"one", "two"}
    assert network.ask("client", where, NODE_PORT).client.endswith(".1")  # the node's
    with pytest.raises(RefusedError):  # not an address on which node ports are served
        network.ask("client", network.gateway("one"), NODE_PORT)
    node.serve(endpoint_slice())
    with pytest.raises(RefusedError):
        network.ask("client", where, NODE_PORT)


def test_external_local_keeps_the_clients_address_and_takes_endpoints_of_the_node(
    node: Node,
) -> None:
    network = node.network
    where = network.gateway("client")
    node.serve(ports(externalTrafficPolicy="Local"), both(node, "there"))
    for _ in range(10):
        answer = network.ask("client", where, NODE_PORT)
        assert answer == Answer("one", network.address("client"))
    # Pods and the node itself are not bound by it.
    assert node.names(30, where, NODE_PORT, "one") == {"one", "two"}
    assert node.names(30, where, NODE_PORT, "") == {"one", "two"}


def test_external_local_without_endpoints_here_is_silent(node: Node) -> None:
    where = node.network.gateway("client")
    node.serve(ports(externalTrafficPolicy="Local"), only(node, "two", "there"))
    assert node.network.is_silent("client", where, NODE_PORT)
    assert node.names(3, where, NODE_PORT, "one") == {"two"}


def test_internal_local(node: Node) -> None:
    node.serve(service(internalTrafficPolicy="Local"), both(node, "there"))
    assert node.names(20, CLUSTER_IP) == {"one"}
    node.serve(only(node, "two", "there"))
    assert node.network.is_silent("client", CLUSTER_IP, 80)


def test_a_client_stays_with_its_endpoint(node: Node) -> None:
    given = service(
        sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 100}}
    )
    node.serve(given, both(node))
    first = node.names(15, CLUSTER_IP)
    assert len(first) == 1
    other = {"one": "two", "two": "one"}[first.pop()]
    node.serve(only(node, other))
    assert node.names(3, CLUSTER_IP) == {other}
    node.serve(both(node))
    assert node.names(15, CLUSTER_IP) == {other}
    # Another time is another set, in the same transaction.
    given = service(
        sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 50}}
    )
    node.serve(given)
    assert len(node.names(15, CLUSTER_IP)) == 1
    node.serve(service())
    assert node.names(30, CLUSTER_IP) == {"one", "two"}


def test_addresses_from_outside_and_who_may_reach_them(node: Node) -> None:
    network = node.network
    open_ = balanced(VIP, externalIPs=[EXTERNAL_IP])
    node.serve(open_, both(node))
    assert node.names(30, VIP) == {"one", "two"}
    assert node.names(30, EXTERNAL_IP) == {"one", "two"}

    client = f"{network.address('client')}/32"
    node.serve(balanced(VIP, loadBalancerSourceRanges=[client]))
    assert node.names(3, VIP) <= {"one", "two"}
    assert network.is_silent("one", VIP, 80)

    node.serve(balanced(VIP, loadBalancerSourceRanges=["192.0.2.0/24"]))
    assert network.is_silent("client", VIP, 80)
    assert node.names(3, CLUSTER_IP) <= {"one", "two"}


def test_what_is_gone_is_deleted_and_all_of_it_can_be_written_again(node: Node) -> None:
    run, ruleset = node.network.run, node.ruleset
    node.serve(service(sessionAffinity="ClientIP"), both(node))
    node.serve(service(), only(node, "one"))
    for statement in ruleset.take_stale():
        node.apply(statement)
    chains = {name for name in run("", lambda: program.found(4)).chains if "web" in name}
    assert {name.partition("-")[0] for name in chains} == {"service"}
    assert not {name for name in run("", lambda: program.found(4)).sets if "web" in name}

    foreign = "add chain ip kube-proxy service-OLD\nadd set ip kube-proxy old { type mark ; }\n"
    node.apply(foreign)
    node.apply("add table ip others\nadd chain ip others kept\n")
    node.apply(ruleset.whole(run("", lambda: program.found(4))))
    for statement in ruleset.take_stale():
        node.apply(statement)
    after = run("", lambda: program.found(4))
    assert "service-OLD" not in after.chains
    assert "old" not in after.sets
    assert node.names(3, CLUSTER_IP) == {"one"}
    node.apply(ruleset.whole(TableContents(), anew=True))
    assert node.names(3, CLUSTER_IP) == {"one"}

    node.apply(ruleset.delete)
    assert run("", lambda: program.found(4)) == TableContents()
    node.apply("delete chain ip others kept\n")  # it was not touched


def test_a_whole_table_keeps_clients_with_their_endpoints(node: Node) -> None:
    node.serve(service(sessionAffinity="ClientIP"), both(node))
    first = node.names(1, CLUSTER_IP)
    found = node.network.run("", lambda: program.found(4))
    node.apply(node.ruleset.whole(found))
    assert node.names(15, CLUSTER_IP) == first


def test_flows_of_udp_leave_an_endpoint_that_is_gone(node: Node) -> None:
    network, source = node.network, 4000
    dns = service("web", {"port": 53, "protocol": "UDP"})
    node.serve(dns, only(node, "one", protocol="UDP"))
    other = service("other", {"port": 53, "protocol": "UDP"}, clusterIP="10.96.0.11")
    ends = (endpoint(network.address("one")),)
    node.serve(other, endpoint_slice(*ends, protocol="UDP", of="other", name="other-1"))

    def asked(address: str = CLUSTER_IP) -> str:
        return network.ask("client", address, 53, "UDP", source_port=source).name

    assert (asked(), asked("10.96.0.11")) == ("one", "one")
    node.serve(only(node, "two", protocol="UDP"))
    assert asked() == "one"  # as the kernel remembers
    served = [each for each in node.view.served() if each.port.name.service == "web"]
    where = frontends(served, node.view)
    assert network.run("", lambda: delete_stale(4, where)) == 1
    assert asked() == "two"
    assert network.run("", lambda: delete_stale(4, where)) == 0


def test_one_proxy_writes_the_table_and_none_takes_anothers_unasked(
    node: Node, tmp_path: Path
) -> None:
    def hold(*, takes_over: bool) -> None:
        again = pytest.raises(ConfigError, match="another proxy writes")
        with machine_lock(takes_over=takes_over, state=tmp_path), again:
            hold_again()

    def hold_again() -> None:
        with machine_lock(takes_over=True, state=tmp_path):
            pass

    run = node.network.run
    with pytest.raises(ConfigError, match="belong to another program"):  # the fixture's
        run("", lambda: hold(takes_over=False))
    run("", lambda: hold(takes_over=True))
    run("", lambda: hold(takes_over=False))  # it was taken over
    node.apply(node.ruleset.delete)
    run("", lambda: hold(takes_over=False))


def test_rules_that_somebody_has_flushed_are_missed(node: Node) -> None:
    run = node.network.run
    assert run("", lambda: program.has_rules(4, CANARY))
    node.apply("flush ruleset\n")
    assert not run("", lambda: program.has_rules(4, CANARY))
    node.apply(node.ruleset.whole(TableContents()))
    node.apply("flush table ip kube-proxy\n")
    assert not run("", lambda: program.has_rules(4, CANARY))
