"""Rules of iptables as text: names, what a change writes and costs, and what is taken away."""

import re
from typing import Any

import pytest

from kvstack.agents.proxy.choice import Here
from kvstack.agents.proxy.cluster_view import ClusterView
from kvstack.agents.proxy.endpoints import Endpoint
from kvstack.agents.proxy.iptables.layout import Layout
from kvstack.agents.proxy.iptables.names import endpoint_chain, service_hash
from kvstack.agents.proxy.iptables.port_rules import rules_of
from kvstack.agents.proxy.iptables.removal import found_in, removal_of
from kvstack.agents.proxy.iptables.ruleset import Ruleset, TableContents
from kvstack.agents.proxy.rule_settings import LocalTraffic, RuleSettings
from kvstack.agents.proxy.services import PortName
from tests.agents.proxy.objects import balanced, endpoint, endpoint_slice, service
from tests.agents.proxy.test_ruleset import claim, slice_of, steps_of


class Tables:
    """A ruleset, and the objects that it is of."""

    def __init__(self, settings: RuleSettings | None = None) -> None:
        self.layout = Layout(settings or RuleSettings(4, local=LocalTraffic(("10.0.0.0/8",))))
        self.view = ClusterView(4, Here("here"))
        self.ruleset = Ruleset(self.layout)

    def change(self) -> list[str]:
        text = self.ruleset.change(
            {
                name: rules_of(served, self.layout) if served else None
                for name, served in self.view.take_changes().items()
            }
        )
        return text.splitlines()

    def fill(self, services: int) -> None:
        for at in range(services):
            ip = f"10.96.{at // 250}.{at % 250 + 1}"
            self.view.set_service(None, service(f"web-{at}", clusterIP=ip))
            self.view.set_slice(None, slice_of(at, 1, 2))
        self.change()


def test_names_are_kube_proxys() -> None:
    assert service_hash(PortName("default", "kubernetes", "https", "TCP")) == "NPX46M4PTMTKRN6Y"
    assert service_hash(PortName("kube-system", "kube-dns", "dns", "UDP")) == "TCOU7JCQXEZGVUNU"
    chain = endpoint_chain(PortName("ns", "web", "", "TCP"), Endpoint("fd00::1", 80))
    assert chain.startswith("KUBE-SEP-")
    assert len(chain) <= 28  # what the kernel takes


def test_rules_are_counted() -> None:
    tables = Tables()
    whole = tables.ruleset.whole({})
    assert sum(tables.ruleset.last_count.values()) == len(re.findall("\n-[AI] ", whole))
    assert tables.ruleset.last_count.keys() == tables.ruleset.count.keys()
    before = tables.ruleset.count["nat"]
    tables.view.set_service(None, service("web"))
    tables.view.set_slice(None, endpoint_slice(endpoint("10.10.0.1"), endpoint("10.10.0.2")))
    tables.change()
    more = tables.ruleset.count["nat"] - before
    assert tables.ruleset.last_count == {"nat": more, "filter": 0, "mangle": 0}


def test_the_rules_of_a_port() -> None:
    tables = Tables()
    name = PortName("ns", "web", "", "TCP")
    end = service_hash(name)
    one, two = (endpoint_chain(name, Endpoint(f"10.10.0.{at}", 8080)) for at in (1, 2))
    tables.view.set_service(None, service("web"))
    tables.view.set_slice(None, endpoint_slice(endpoint("10.10.0.1"), endpoint("10.10.0.2")))
    assert tables.change() == [
        "*nat",
        f":KUBE-SVC-{end} - [0:0]",
        f":{one} - [0:0]",
        f":{two} - [0:0]",
        f'-A KUBE-SVC-{end} -m comment --comment "ns/web cluster IP"'
        " -m tcp -p tcp -d 10.96.0.10 --dport 80 ! -s 10.0.0.0/8 -j KUBE-MARK-MASQ",
        f'-A KUBE-SVC-{end} -m comment --comment "ns/web -> 10.10.0.1:8080"'
        f" -m statistic --mode random --probability 0.5000000000 -j {one}",
        f'-A KUBE-SVC-{end} -m comment --comment "ns/web -> 10.10.0.2:8080" -j {two}',
        f'-A {one} -m comment --comment "ns/web" -s 10.10.0.1 -j KUBE-MARK-MASQ',
        f'-A {one} -m comment --comment "ns/web" -m tcp -p tcp'
        " -j DNAT --to-destination 10.10.0.1:8080",
        f'-A {two} -m comment --comment "ns/web" -s 10.10.0.2 -j KUBE-MARK-MASQ',
        f'-A {two} -m comment --comment "ns/web" -m tcp -p tcp'
        " -j DNAT --to-destination 10.10.0.2:8080",
        '-I KUBE-SERVICES -m comment --comment "ns/web cluster IP"'
        f" -m tcp -p tcp -d 10.96.0.10 --dport 80 -j KUBE-SVC-{end}",
        "COMMIT",
    ]


def test_a_change_writes_no_more_where_there_are_many() -> None:
    sizes = []
    for count in (10, 2_000):
        tables = Tables()
        tables.fill(count)
        tables.view.set_slice(slice_of(7, 1, 2), slice_of(7, 1, 3))
        lines = tables.change()
        assert not any(line.startswith(("-I", "-D")) for line in lines)  # of shared chains
        assert sum(line.startswith("-X") for line in lines) == 1
        sizes.append(len(lines))
    assert sizes[0] == sizes[1]


def test_a_change_is_no_more_work_where_there_are_many() -> None:
    def cost(count: int) -> int:
        tables = Tables()
        tables.fill(count)
        tables.view.set_slice(slice_of(7, 1, 2), slice_of(7, 1, 2, 3))
        tables.view.set_service(service("web-9", clusterIP="10.96.0.10"), None)
        return steps_of(tables.change)

    assert cost(5_000) <= 2 * cost(20)


def test_what_did_not_change_is_not_written() -> None:
    tables = Tables()
    tables.fill(3)
    tables.view.set_slice(slice_of(1, 1, 2), slice_of(1, 2, 1))
    assert tables.change() == []


def test_a_service_that_goes_leaves_nothing() -> None:
    tables = Tables()
    tables.fill(1)
    made = tables.ruleset.whole({})
    tables.view.set_service(service("web-0", clusterIP="10.96.0.1"), None)
    lines = tables.change()
    chains = {line[1:].split()[0] for line in made.splitlines() if line.startswith(":KUBE-S")}
    chains -= {"KUBE-SERVICES"}
    assert {line[3:] for line in lines if line.startswith("-X ")} == chains
    (removed,) = (line for line in lines if line.startswith("-D "))
    assert removed.replace("-D ", "-A ", 1) in made


def test_one_that_gets_endpoints_is_refused_no_more() -> None:
    tables = Tables()
    tables.view.set_service(None, service("web"))
    (refused,) = (line for line in tables.change() if line.startswith("-I"))
    assert "has no endpoints" in refused
    assert refused.endswith("-j REJECT")
    tables.view.set_slice(None, endpoint_slice(endpoint("10.10.0.1")))
    lines = tables.change()
    assert lines[:3] == ["*filter", refused.replace("-I", "-D", 1), "COMMIT"]


@pytest.mark.parametrize(
    ("local", "match"),
    [
        (LocalTraffic(("10.244.0.0/24",)), "! -s 10.244.0.0/24"),
        (LocalTraffic(bridge="cni0"), "! -i cni0"),
        (LocalTraffic(interface_prefix="veth"), "! -i veth+"),
        (LocalTraffic(("fd00::/64",)), ""),
        (LocalTraffic(), ""),
    ],
)
def test_who_is_masqueraded_for(local: LocalTraffic, match: str) -> None:
    tables = Tables(RuleSettings(4, local=local))
    tables.fill(1)
    marked = [line for line in tables.ruleset.whole({}).splitlines() if "cluster IP" in line]
    marked = [line for line in marked if "MARK-MASQ" in line]
    assert len(marked) == bool(match)
    assert all(match in line for line in marked)


def test_settings_of_the_tables() -> None:
    text = Ruleset(Layout(RuleSettings(4, masquerade_bit=15, node_ips=None))).whole({})
    assert "-j MARK --or-mark 0x008000" in text
    assert "--dst-type LOCAL ! -d 127.0.0.0/8 -j KUBE-NODEPORTS" in text
    assert "KUBE-FIREWALL" not in text
    assert "--ctstate INVALID -j DROP" in text
    liberal = RuleSettings(4, node_ips=None, serves_loopback=True, drops_invalid=False)
    text = Ruleset(Layout(liberal)).whole({})
    assert "--dst-type LOCAL -j KUBE-NODEPORTS" in text
    assert "-d 127.0.0.0/8 ! -s 127.0.0.0/8" in text
    assert "INVALID" not in text
    assert "--dst-type LOCAL ! -d ::1/128" in Ruleset(
        Layout(RuleSettings(6, node_ips=None, serves_loopback=True))
    ).whole({})
    all_ = Tables(RuleSettings(4, masquerades_all=True))
    all_.fill(1)
    assert "10.96.0.1 --dport 80 -j KUBE-MARK-MASQ" in all_.ruleset.whole({})


def test_the_node_reaches_a_balancer_that_its_own_range_may() -> None:
    tables = Tables(RuleSettings(4, node_ip="192.0.2.5"))
    tables.view.set_service(
        None, balanced("203.0.113.7", loadBalancerSourceRanges=["192.0.2.0/24"])
    )
    tables.view.set_slice(None, endpoint_slice(endpoint("10.0.0.5")))
    lines = [line for line in tables.change() if line.startswith("-A KUBE-FW-")]
    assert [line.partition(" -s ")[2].split()[0] for line in lines[:2]] == [
        "192.0.2.0/24",
        "203.0.113.7",
    ]


def test_comments_of_rules_that_choose_endpoints_can_be_left_out() -> None:
    tables = Tables()
    tables.view.set_service(None, service("web"))
    tables.view.set_slice(None, endpoint_slice(endpoint("10.10.0.1")))
    (served,) = (each for each in tables.view.take_changes().values() if each)
    rules = rules_of(served, tables.layout, has_comments=False)
    assert not any("comment" in line for each in rules.chains.values() for line in each)


def test_jumps_that_are_there_are_not_written_again() -> None:
    layout = Layout(RuleSettings(4))
    text = Ruleset(layout).whole({})
    assert text.count("\n-I ") == len(layout.jumps)
    there = {
        table: TableContents(
            jumps=frozenset((j.chain, j.target) for j in layout.jumps if j.table == table)
        )
        for table in ("filter", "nat")
    }
    assert "\n-I " not in Ruleset(layout).whole(there)


def test_chains_of_ports_that_are_gone_go_when_all_is_written() -> None:
    tables = Tables()
    tables.fill(1)
    found = {"nat": TableContents(frozenset(("KUBE-SVC-OLD", "KUBE-SEP-OLD", "DOCKER")))}
    lines = tables.ruleset.whole(found).splitlines()
    assert [line for line in lines if line.startswith("-X")] == [
        "-X KUBE-SEP-OLD",
        "-X KUBE-SVC-OLD",
    ]
    assert not any("DOCKER" in line for line in lines)


SAVED = """\
# Generated by iptables-save
*nat
:PREROUTING ACCEPT [1:2]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
:CNI-HOSTPORT - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SVC-AAAA - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-AAAA
-A CNI-HOSTPORT -s 10.0.0.0/8 -j KUBE-MARK-MASQ
COMMIT
# Completed
*raw
:PREROUTING ACCEPT [0:0]
COMMIT
"""


def test_what_is_taken_away() -> None:
    assert removal_of(SAVED).splitlines() == [
        "*nat",
        ":KUBE-SERVICES - [0:0]",
        ":KUBE-SVC-AAAA - [0:0]",
        '-D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
        "-X KUBE-SERVICES",
        "-X KUBE-SVC-AAAA",
        "COMMIT",
    ]
    assert removal_of(SAVED.replace("KUBE-", "CALI-")) == ""
    found: dict[str, Any] = found_in(SAVED)
    assert found["nat"].jumps == {("PREROUTING", "KUBE-SERVICES"), ("PREROUTING", "DOCKER")}
    assert "KUBE-SVC-AAAA" in found["nat"].chains
    assert found["raw"] == TableContents()


def test_nobody_takes_what_another_service_has() -> None:
    """Cluster IPs are not to be claimed, and an address of outside is the older Service's."""
    tables = Tables(RuleSettings(4, service_ranges=("10.96.0.0/16",)))
    tables.view.set_service(None, claim("b", "10.96.0.2", "2026-11-01"))
    tables.view.set_slice(None, endpoint_slice(endpoint("10.0.0.5"), name="b", of="b"))
    lines = tables.change()
    assert [each for each in lines if each.startswith("-I") and "-d 203.0.113.9 " in each]
    hostile = claim("a", "10.96.0.1", "2026-11-02")
    hostile["spec"]["externalIPs"] += ["10.96.0.2"]
    hostile["spec"]["type"] = "LoadBalancer"
    hostile["spec"]["loadBalancerSourceRanges"] = ["192.0.2.0/24"]
    hostile["status"] = {"loadBalancer": {"ingress": [{"ip": "10.96.0.2"}, {"ip": "192.0.2.7"}]}}
    tables.view.set_service(None, hostile)
    tables.view.set_slice(None, endpoint_slice(endpoint("10.0.0.6"), name="a", of="a"))
    text = "\n".join(tables.change())
    assert "-d 192.0.2.7 " in text
    assert "-d 203.0.113.9 " not in text
    assert "-d 10.96.0.2 " not in text
    tables.view.set_service(claim("b", "10.96.0.2", "2026-11-01"), None)
    assert "-d 203.0.113.9 " in "\n".join(tables.change())
