"""From Nodes to routes, hostile ones too."""

from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from kvstack.agents.kubelet.routes.plan import (
    AUTOMATIC,
    HOST_GATEWAY,
    VXLAN,
    Connected,
    Machine,
    Plan,
    Refusal,
    UnsuitableError,
    Way,
    plan,
)

CLUSTER = IPv4Network("10.244.0.0/16")
MACHINE = Machine(
    frozenset(map(IPv4Address, ("127.0.0.1", "192.168.0.1", "10.244.0.1"))),
    (
        Connected(IPv4Network("192.168.0.0/24"), 2),
        Connected(IPv4Network("10.244.0.0/24"), 5),
        Connected(IPv4Network("10.244.200.0/24"), 6),
    ),
    (IPv4Network("10.244.210.128/25"), IPv4Network("10.0.0.0/8")),
)


def node(name: str, network: str, ip: str, age: int = 1) -> dict[str, Any]:
    addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": ip}]
    return {
        "metadata": {"name": name, "creationTimestamp": f"2026-11-24T10:00:{age:02}Z"},
        "spec": {"podCIDR": network, "podCIDRs": [network]} if network else {},
        "status": {"addresses": addresses if ip else []},
    }


OWN = node("a", "10.244.0.0/24", "192.168.0.1", 0)


def planned(*others: dict[str, Any], mode: str = AUTOMATIC) -> Plan:
    found = plan("a", [*others, OWN], MACHINE, mode, CLUSTER)
    assert found is not None
    return found


def way(network: str, ip: str, link: int) -> Way:
    return Way(IPv4Network(network), IPv4Address(ip), link)


def test_a_neighbour_is_a_gateway_and_what_is_behind_a_router_is_tunneled_to() -> None:
    found = planned(
        node("b", "10.244.1.0/24", "192.168.0.2"), node("c", "10.244.2.0/24", "203.0.113.7")
    )
    assert list(found.ways.values()) == [
        way("10.244.1.0/24", "192.168.0.2", 2),
        way("10.244.2.0/24", "203.0.113.7", 0),
    ]
    assert found.own == IPv4Network("10.244.0.0/24")
    assert found.refusals == ()


def test_one_mode_is_kept_to() -> None:
    near, far = node("b", "10.244.1.0/24", "192.168.0.2"), node("c", "10.244.2.0/24", "203.0.113.7")
    assert [each.link for each in planned(near, far, mode=VXLAN).ways.values()] == [0, 0]
    found = planned(near, far, mode=HOST_GATEWAY)
    assert list(found.ways) == [IPv4Network("10.244.1.0/24")]
    reason = "its InternalIP 203.0.113.7 is on no network of this machine, and the mode is host-gw"
    assert found.refusals == (Refusal("c", reason),)


@pytest.mark.parametrize(
    ("network", "ip"), [("", "192.168.0.2"), ("10.244.1.0/24", ""), ("fd00::/64", "192.168.0.2")]
)
def test_a_node_that_has_not_reported_all_yet_is_waited_for(network: str, ip: str) -> None:
    found = planned(node("b", network, ip))
    assert (found.ways, found.refusals) == ({}, ())


def test_another_node_of_this_machine_needs_no_route() -> None:
    found = planned(node("b", "10.244.200.0/24", "192.168.0.1"))
    assert (found.ways, found.refusals) == ({}, ())


@pytest.mark.parametrize(
    ("network", "ip", "why"),
    [
        ("0.0.0.0/0", "192.168.0.2", "is not in that of the cluster"),
        ("192.168.0.0/24", "192.168.0.2", "is not in that of the cluster"),
        ("10.0.0.0/8", "192.168.0.2", "is not in that of the cluster"),
        ("10.244.0.0/16", "192.168.0.2", "is, in part, that of the node a"),
        ("10.244.0.128/25", "192.168.0.2", "is, in part, that of the node a"),
        ("10.244.200.0/25", "192.168.0.2", "is in use here: 10.244.200.0/24"),
        ("10.244.210.0/24", "192.168.0.2", "covers a route of this machine: 10.244.210.128/25"),
        ("10.244.1.7/24", "192.168.0.2", "is none: 10.244.1.7/24 has host bits set"),
        ("10.244.1.0/99", "192.168.0.2", "is none"),
        ("nonsense", "192.168.0.2", "'nonsense' is none"),
        ("10.244.1.0/24", "127.0.0.1", ""),
        ("10.244.1.0/24", "127.3.2.1", "is of no other machine"),
        ("10.244.1.0/24", "0.0.0.0", "is of no other machine"),
        ("10.244.1.0/24", "224.0.0.1", "is of no other machine"),
        ("10.244.1.0/24", "255.255.255.255", "is of no machine"),
        ("10.244.1.0/24", "10.244.1.1", "is one of pods"),
        ("10.244.1.0/24", "somewhere", "'somewhere' is none"),
    ],
)
def test_a_hostile_node_gets_no_route(network: str, ip: str, why: str) -> None:
    found = planned(node("b", network, ip))
    assert found.ways == {}
    assert [each.node for each in found.refusals] == (["b"] if why else [])
    assert all(why in each.reason for each in found.refusals)


def test_of_two_nodes_with_one_range_the_older_has_it() -> None:
    first, second = (
        node("z", "10.244.1.0/24", "192.168.0.2", 1),
        node("b", "10.244.1.0/25", "192.168.0.3", 2),
    )
    for nodes in ((first, second), (second, first)):
        found = planned(*nodes)
        assert list(found.ways.values()) == [way("10.244.1.0/24", "192.168.0.2", 2)]
        reason = "its range 10.244.1.0/25 is, in part, that of the node z"
        assert found.refusals == (Refusal("b", reason),)


def test_nobody_takes_the_own_range_however_old_they_are() -> None:
    young = {**OWN, "metadata": {"name": "a", "creationTimestamp": "2026-11-24T11:00:00Z"}}
    other = node("b", "10.244.0.0/24", "192.168.0.2")
    found = plan("a", [other, young], MACHINE, AUTOMATIC, CLUSTER)
    assert found is not None
    assert found.ways == {}
    assert len(found.refusals) == 1


def test_without_an_own_range_nothing_is_planned() -> None:
    other = node("b", "10.244.1.0/24", "192.168.0.2")
    assert plan("a", [other], MACHINE, AUTOMATIC, CLUSTER) is None
    assert plan("a", [other, node("a", "", "192.168.0.1")], MACHINE, AUTOMATIC, CLUSTER) is None


def test_an_own_range_outside_of_the_cluster_is_an_error() -> None:
    with pytest.raises(UnsuitableError, match=r"10\.9\.0\.0/24 is not in that of the cluster"):
        plan("a", [node("a", "10.9.0.0/24", "192.168.0.1")], MACHINE, AUTOMATIC, CLUSTER)


def test_many_nodes_have_each_their_way() -> None:
    others = [node(f"n{at}", f"10.244.{at}.0/24", f"203.0.{at}.1") for at in range(1, 200)]
    found = planned(*others)
    assert len(found.tunneled) == 199
    assert found.refusals == ()
