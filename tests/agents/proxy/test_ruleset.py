"""The table as text: names, and that a change costs what it is about."""

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kvstack.agents.proxy.choice import Here
from kvstack.agents.proxy.cluster_view import ClusterView
from kvstack.agents.proxy.endpoints import Endpoint
from kvstack.agents.proxy.nftables.layout import Layout
from kvstack.agents.proxy.nftables.names import endpoint_base, service_base
from kvstack.agents.proxy.nftables.port_rules import rules_of
from kvstack.agents.proxy.nftables.ruleset import Ruleset, TableContents
from kvstack.agents.proxy.rule_settings import LocalTraffic, RuleSettings
from kvstack.agents.proxy.services import Family, PortName
from tests.agents.proxy.objects import balanced, endpoint, endpoint_slice, service


class Table:
    """A ruleset, and the objects that it is of."""

    def __init__(self, settings: RuleSettings | None = None) -> None:
        self.layout = Layout(settings or RuleSettings(4))
        self.view = ClusterView(4, Here("here"))
        self.ruleset = Ruleset(self.layout)

    def change(self) -> str:
        return self.ruleset.change(
            {
                name: rules_of(served, self.layout) if served else None
                for name, served in self.view.take_changes().items()
            }
        ).text(4)

    def fill(self, services: int) -> None:
        for at in range(services):
            ip = f"10.96.{at // 250}.{at % 250 + 1}"
            self.view.set_service(None, service(f"web-{at}", clusterIP=ip))
            self.view.set_slice(None, slice_of(at, 1, 2))
        self.change()


def slice_of(at: int, *last: int) -> dict[str, object]:
    ends = [endpoint(f"10.{10 + at // 250}.{at % 250}.{each}") for each in last]
    return endpoint_slice(*ends, name=f"web-{at}-x", of=f"web-{at}")


def test_names_are_kube_proxys() -> None:
    name = PortName("ns1", "svc1", "p80", "TCP")
    assert service_base(name) == "ULMVA6XW-ns1/svc1/tcp/p80"
    assert endpoint_base(name, Endpoint("10.180.0.1", 80)) == (
        "5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80"
    )
    assert service_base(name._replace(port="")).endswith("-ns1/svc1/tcp/")
    assert ":" not in endpoint_base(name, Endpoint("fd00::1", 80))
    assert len(service_base(name._replace(service="s" * 253))) == 240


def test_a_change_of_one_service_writes_no_more_where_there_are_many() -> None:
    sizes = []
    for count in (10, 2_000):
        table = Table()
        table.fill(count)
        table.view.set_slice(slice_of(7, 1, 2), slice_of(7, 1, 2, 3))
        text = table.change()
        assert text.count("add rule") == 1
        assert re.findall("(add|delete) element ip kube-proxy ([a-z-]+)", text) == [
            ("add", "tcp-endpoints-"),
            ("add", "hairpin-connections"),
        ]
        sizes.append(len(re.sub("[0-9]+", "0", text)))
    assert sizes[0] == sizes[1]


def test_a_change_of_one_service_is_no_more_work_where_there_are_many() -> None:
    few, many = (costs_of_changes(count) for count in (20, 5_000))
    assert all(more <= 2 * less for less, more in zip(few, many, strict=True)), (few, many)


def costs_of_changes(services: int) -> list[int]:
    """Return the steps that a change of endpoints, one service less and one more take."""
    table = Table()
    table.fill(services)

    def of_endpoints() -> None:
        table.view.set_slice(slice_of(7, 1, 2), slice_of(7, 1, 2, 3))
        assert table.change()

    def of_one_less() -> None:
        table.view.set_service(service("web-9", clusterIP="10.96.0.10"), None)
        assert table.change()

    def of_one_more() -> None:
        table.view.set_service(None, service("new", clusterIP="10.97.0.1"))
        assert table.change()

    return [steps_of(each) for each in (of_endpoints, of_one_less, of_one_more)]


def steps_of(do: Callable[[], object]) -> int:
    """Return how many steps of the interpreter a call takes: the same on a busy machine."""
    steps = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return steps


def test_what_did_not_change_is_not_written() -> None:
    table = Table()
    table.fill(3)
    table.view.set_slice(slice_of(1, 1, 2), slice_of(1, 2, 1))
    assert table.change() == ""


def test_two_services_of_one_pod_share_its_hairpin() -> None:
    table = Table()
    for name, ip in (("a", "10.96.0.1"), ("b", "10.96.0.2")):
        table.view.set_service(None, service(name, clusterIP=ip))
        table.view.set_slice(None, endpoint_slice(endpoint("10.0.0.5"), name=name, of=name))
    assert table.change().count("10.0.0.5 . 10.0.0.5 . tcp . 8080") == 1
    table.view.set_service(service("a", clusterIP="10.96.0.1"), None)
    assert "hairpin" not in table.change()
    table.view.set_service(service("b", clusterIP="10.96.0.2"), None)
    assert "delete element ip kube-proxy hairpin-connections" in table.change()


def claim(name: str, ip: str, since: str, claimed: str = "203.0.113.9") -> dict[str, Any]:
    """Return a Service that wants an address of outside."""
    obj = service(name, clusterIP=ip, externalIPs=[claimed])
    obj["metadata"]["creationTimestamp"] = since
    return obj


def test_of_two_services_that_claim_an_address_the_older_one_has_it() -> None:
    """Whatever their names: nobody takes what another Service has."""
    table = Table()
    older, newer = claim("b", "10.96.0.2", "2026-11-01"), claim("a", "10.96.0.1", "2026-11-02")
    table.view.set_service(None, older)
    table.view.set_slice(None, endpoint_slice(endpoint("10.0.0.5"), name="b", of="b"))
    back = f"goto external-{service_base(PortName('ns', 'b', '', 'TCP'))}"
    assert f"203.0.113.9 . tcp . 80 : {back}" in table.change()
    table.view.set_service(None, newer)
    table.view.set_slice(None, endpoint_slice(endpoint("10.0.0.6"), name="a", of="a"))
    assert "203.0.113.9" not in table.change()
    table.view.set_service(older, None)
    taken = f"goto external-{service_base(PortName('ns', 'a', '', 'TCP'))}"
    assert f"203.0.113.9 . tcp . 80 : {taken}" in table.change()


def test_of_two_services_of_one_age_the_first_by_name_has_an_address() -> None:
    table = Table()
    for name, ip in (("b", "10.96.0.2"), ("a", "10.96.0.1")):
        table.view.set_service(None, claim(name, ip, ""))
        table.view.set_slice(None, endpoint_slice(endpoint("10.0.0.5"), name=name, of=name))
        text = table.change()
        chain = f"external-{service_base(PortName('ns', name, '', 'TCP'))}"
        assert f"203.0.113.9 . tcp . 80 : goto {chain}" in text
    table.view.set_service(claim("a", "10.96.0.1", ""), None)
    back = f"goto external-{service_base(PortName('ns', 'b', '', 'TCP'))}"
    assert f"203.0.113.9 . tcp . 80 : {back}" in table.change()


@pytest.mark.parametrize("endpoints", [(), ("10.0.0.5",)])
def test_a_cluster_ip_is_not_to_be_claimed_by_another_service(endpoints: tuple[str, ...]) -> None:
    """Whoever may create Services would else serve the API server's address, or the DNS's."""
    table = Table(RuleSettings(4, service_ranges=("10.96.0.0/16",)))
    own = service("web", clusterIP="10.96.0.1")
    table.view.set_service(None, own)
    table.view.set_slice(None, endpoint_slice(*map(endpoint, endpoints), name="web", of="web"))
    rule = f"goto service-{service_base(PortName('ns', 'web', '', 'TCP'))}"
    text = table.change()
    assert f"10.96.0.1 . tcp . 80 : {rule}" in text or not endpoints
    hostile = claim("a", "10.96.0.2", "1970-01-01", "10.96.0.1")
    hostile["spec"]["type"] = "LoadBalancer"
    hostile["spec"]["loadBalancerSourceRanges"] = ["192.0.2.0/24"]
    hostile["status"] = {"loadBalancer": {"ingress": [{"ip": "10.96.0.1"}, {"ip": "192.0.2.7"}]}}
    table.view.set_service(None, hostile)
    table.view.set_slice(None, endpoint_slice(endpoint("10.0.0.6"), name="a", of="a"))
    text = table.change()
    assert "10.96.0.1 " not in text
    assert "192.0.2.7 . tcp . 80" in text


@pytest.mark.parametrize(
    "address", ["fd00::1%}; flush ruleset", "fe80::1%eth0", "10.0.0.5\n", "10.0.0.5 }"]
)
def test_what_is_no_plain_address_gets_into_no_rule(address: str) -> None:
    """A zone of IPv6 may be any text."""
    families: tuple[Family, ...] = (4, 6)
    for family in families:
        view = ClusterView(family, Here("node"))
        view.set_service(None, service("web", clusterIP=address))
        own = "10.96.0.2" if family == 4 else "fd00::2"
        view.set_service(None, service("two", clusterIP=own, externalIPs=[address]))
        slice_ = endpoint_slice(endpoint(address), name="web", of="web")
        slice_["addressType"] = f"IPv{family}"
        view.set_slice(None, slice_)
        assert view.take_changes() == {}
        assert len(view.refused) == 3


def test_a_service_may_not_fill_the_rules_of_all_nodes() -> None:
    view = ClusterView(4, Here("node"))
    ports = [{"name": f"p{each}", "port": each, "protocol": "TCP"} for each in range(1, 102)]
    ips = [f"203.0.113.{each}" for each in range(100)]
    view.set_service(None, service("web", *ports, externalIPs=ips))
    assert view.take_changes() == {}
    assert view.refused[0].why == "ValueError('101 ports at 101 addresses: above 10000 in all')"
    view.set_service(None, service("web", *ports, externalIPs=ips[:90]))
    assert len(view.take_changes()) == 101
    slice_ = endpoint_slice(*(endpoint("10.0.0.5") for _ in range(1000)), name="web", of="web")
    slice_["ports"] = ports
    view.set_slice(None, slice_)
    assert "1000 endpoints with 101 ports: above 100000" in view.refused[1].why


def test_chains_that_are_used_again_are_not_deleted() -> None:
    table = Table()
    one, slice_ = service(), endpoint_slice(endpoint("10.0.0.5"))
    table.view.set_service(None, one)
    table.view.set_slice(None, slice_)
    table.change()
    table.view.set_service(one, None)
    assert "flush chain" in table.change()
    table.view.set_service(None, one)
    table.change()
    assert table.ruleset.take_stale() == []
    table.view.set_service(one, None)
    table.change()
    (statement,) = table.ruleset.take_stale()
    assert statement.text(4).startswith("delete chain ip kube-proxy service-")
    assert table.ruleset.take_stale() == []


@pytest.mark.parametrize(
    ("local", "is_not"),
    [
        (LocalTraffic(("10.244.0.0/24",)), "ip saddr != 10.244.0.0/24"),
        (LocalTraffic(bridge="cni0"), 'iifname != "cni0"'),
        (LocalTraffic(interface_prefix="veth"), 'iifname != "veth*"'),
        (LocalTraffic(("fd00::/64",)), ""),
        (LocalTraffic(), ""),
    ],
)
def test_who_is_masqueraded_for(local: LocalTraffic, is_not: str) -> None:
    text = Ruleset(Layout(RuleSettings(4, local=local))).whole(TableContents())
    comment = "masquerade clusterIP traffic from outside cluster"
    assert (comment in text) is bool(is_not)
    if is_not:
        assert f"ip daddr @cluster-ips {is_not} mark set mark or 0x00004000" in text


def test_settings_of_the_table() -> None:
    settings = RuleSettings(4, masquerade_bit=15, masquerades_all=True, node_ips=None)
    text = Ruleset(Layout(settings)).whole(TableContents())
    assert 'mark set mark or 0x00008000 comment "masquerade all clusterIP traffic"' in text
    assert "fib daddr type local ip daddr != 127.0.0.0/8" in text
    assert "nodeport-ips" not in text
    six = Ruleset(Layout(RuleSettings(6))).whole(TableContents())
    assert "table ip6 kube-proxy" in six
    assert "ipv6_addr . inet_proto . inet_service" in six


def test_the_node_reaches_a_balancer_that_its_own_range_may() -> None:
    table = Table(RuleSettings(4, node_ip="192.0.2.5"))
    table.view.set_service(None, balanced("203.0.113.7", loadBalancerSourceRanges=["192.0.2.0/24"]))
    table.view.set_slice(None, endpoint_slice(endpoint("10.0.0.5")))
    assert "ip saddr != { 192.0.2.0/24, 203.0.113.7 } drop" in table.change()
