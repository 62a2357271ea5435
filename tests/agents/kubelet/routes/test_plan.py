"""From Nodes to routes, hostile ones too."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from kvstack.agents.kubelet.hollow.nodes import new_node
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
    tunnel_hardware,
)

CLUSTER = (ip_network("10.244.0.0/16"), ip_network("fd00:7::/48"))
MACHINE = Machine(
    frozenset(
        map(
            ip_address,
            ("127.0.0.1", "192.168.0.1", "10.244.0.1", "::1", "2001:db8::1", "fe80::1"),
        )
    ),
    tuple(
        Connected(ip_network(network), link)
        for network, link in (
            ("192.168.0.0/24", 2),
            ("2001:db8::/64", 2),
            ("fe80::/64", 2),
            ("10.244.0.0/24", 5),
            ("fd00:7::/64", 5),
            ("10.244.200.0/24", 6),
            ("fd00:7:0:c8::/64", 6),
        )
    ),
    tuple(
        map(
            ip_network,
            ("10.244.210.128/25", "10.0.0.0/8", "fd00:7:0:d2:8000::/65", "fd00::/8"),
        )
    ),
)


def node(name: str, network: str, ip: str, age: int = 1) -> dict[str, Any]:
    """Return a Node; network, ip: of one family, or of both with a comma."""
    addresses = [{"type": "InternalIP", "address": each} for each in filter(None, ip.split(","))]
    networks = [each for each in network.split(",") if each]
    return {
        "metadata": {"name": name, "creationTimestamp": f"2026-11-24T10:00:{age:02}Z"},
        "spec": {"podCIDR": networks[0], "podCIDRs": networks} if networks else {},
        "status": {"addresses": [{"type": "Hostname", "address": name}, *addresses]},
    }


OWN = node("a", "10.244.0.0/24", "192.168.0.1", 0)


BOTH = node("a", "10.244.0.0/24,fd00:7::/64", "192.168.0.1,2001:db8::1", 0)


def planned(*others: dict[str, Any], mode: str = AUTOMATIC, own: dict[str, Any] = OWN) -> Plan:
    found = plan("a", [*others, own], MACHINE, mode, CLUSTER)
    assert found is not None
    return found


def way(network: str, ip: str, link: int) -> Way:
    return Way(ip_network(network), ip_address(ip), link)


def test_a_neighbour_is_a_gateway_and_what_is_behind_a_router_is_tunneled_to() -> None:
    found = planned(
        node("b", "10.244.1.0/24", "192.168.0.2"), node("c", "10.244.2.0/24", "203.0.113.7")
    )
    assert list(found.ways.values()) == [
        way("10.244.1.0/24", "192.168.0.2", 2),
        way("10.244.2.0/24", "203.0.113.7", 0),
    ]
    assert found.own == {4: ip_network("10.244.0.0/24")}
    assert found.addresses == {4: ip_address("192.168.0.1")}
    assert found.refusals == ()


def test_one_mode_is_kept_to() -> None:
    near, far = node("b", "10.244.1.0/24", "192.168.0.2"), node("c", "10.244.2.0/24", "203.0.113.7")
    assert [each.link for each in planned(near, far, mode=VXLAN).ways.values()] == [0, 0]
    found = planned(near, far, mode=HOST_GATEWAY)
    assert list(found.ways) == [ip_network("10.244.1.0/24")]
    reason = "its InternalIP 203.0.113.7 is on no network of this machine, and the mode is host-gw"
    assert found.refusals == (Refusal("c", reason),)


@pytest.mark.parametrize(
    ("network", "ip"), [("", "192.168.0.2"), ("10.244.1.0/24", ""), ("fd00::/64", "192.168.0.2")]
)
def test_a_node_that_has_not_reported_all_yet_is_waited_for(network: str, ip: str) -> None:
    found = planned(node("b", network, ip))
    assert (found.ways, found.refusals) == ({}, ())


def test_a_hollow_node_needs_no_route() -> None:
    hollow = node("hollow-1", "10.244.1.0/24", "127.0.0.11")
    assert planned(hollow).refusals
    hollow["metadata"]["labels"] = new_node("hollow-1", 1)["metadata"]["labels"]
    found = planned(hollow)
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
    assert len(found.tunneled(4)) == 199
    assert found.tunneled(6) == []
    assert found.refusals == ()


def test_each_family_has_a_way_by_its_own_address() -> None:
    near = node("b", "10.244.1.0/24,fd00:7:0:1::/64", "192.168.0.2,2001:db8::2")
    far = node("c", "10.244.2.0/24,fd00:7:0:2::/64", "203.0.113.7,2001:db8:7::7")
    found = planned(near, far, own=BOTH)
    assert list(found.ways.values()) == [
        way("10.244.1.0/24", "192.168.0.2", 2),
        way("10.244.2.0/24", "203.0.113.7", 0),
        way("fd00:7:0:1::/64", "2001:db8::2", 2),
        way("fd00:7:0:2::/64", "2001:db8:7::7", 0),
    ]
    assert found.own == {4: ip_network("10.244.0.0/24"), 6: ip_network("fd00:7::/64")}
    assert [str(each.network) for each in found.tunneled(6)] == ["fd00:7:0:2::/64"]
    assert found.refusals == ()


def test_a_family_that_one_of_two_nodes_has_no_address_of_is_tunneled_over_the_other() -> None:
    """Both come to the same answer, whichever has more addresses."""
    other = node("b", "10.244.1.0/24,fd00:7:0:1::/64", "192.168.0.2")
    found = planned(other, own=BOTH)
    assert list(found.ways.values()) == [
        way("10.244.1.0/24", "192.168.0.2", 2),
        way("fd00:7:0:1::/64", "192.168.0.2", 0),
    ]
    less = node("a", "10.244.0.0/24,fd00:7::/64", "192.168.0.1", 0)
    more = node("b", "10.244.1.0/24,fd00:7:0:1::/64", "192.168.0.2,2001:db8::2")
    assert planned(more, own=less).ways == found.ways
    only_6 = node("b", "10.244.1.0/24", "2001:db8::2")
    assert list(planned(only_6, own=BOTH).tunneled(6)) == [way("10.244.1.0/24", "2001:db8::2", 0)]


def test_without_a_common_family_there_is_no_way_and_it_says_why() -> None:
    six = node("b", "10.244.1.0/24", "2001:db8::2")
    found = planned(six)
    reason = (
        "it has no InternalIP of IPv4 for its range 10.244.1.0/24, "
        "and the two have addresses of no common family"
    )
    assert (found.ways, found.refusals) == ({}, (Refusal("b", reason),))
    less = node("b", "10.244.1.0/24,fd00:7:0:1::/64", "192.168.0.2")
    found = planned(less, own=BOTH, mode=HOST_GATEWAY)
    assert list(found.ways) == [ip_network("10.244.1.0/24")]
    assert [each.reason for each in found.refusals] == [
        "it has no InternalIP of IPv6 for its range fd00:7:0:1::/64, and the mode is host-gw"
    ]


@pytest.mark.parametrize(
    ("network", "ip", "why"),
    [
        ("::/0", "2001:db8::2", "is not in that of the cluster"),
        ("fd00:8::/64", "2001:db8::2", "is not in that of the cluster"),
        ("fd00:7::/48", "2001:db8::2", "is, in part, that of the node a"),
        ("fd00:7:0:c8::/65", "2001:db8::2", "is in use here: fd00:7:0:c8::/64"),
        ("fd00:7:0:d2::/64", "2001:db8::2", "covers a route of this machine"),
        ("fd00:7:0:1::1/64", "2001:db8::2", "has host bits set"),
        ("fd00:7:0:1::/64", "::1", ""),
        ("fd00:7:0:1::/64", "fe80::1", ""),
        ("fd00:7:0:1::/64", "fe80::2", "is of no other machine"),
        ("fd00:7:0:1::/64", "::", "is of no other machine"),
        ("fd00:7:0:1::/64", "ff02::1", "is of no other machine"),
        ("fd00:7:0:1::/64", "::ffff:192.168.0.2", "is of no machine"),
        ("fd00:7:0:1::/64", "fd00:7::5", "is one of pods"),
        ("fd00:7:0:1::/64", "2001:db8::2,10.244.1.1", "is one of pods"),
        ("fd00:7:0:1::/64", "2001::db8::2", "is none"),
    ],
)
def test_a_hostile_node_of_ipv6_gets_no_route(network: str, ip: str, why: str) -> None:
    found = planned(node("b", network, ip), own=BOTH)
    assert found.ways == {}
    assert [each.node for each in found.refusals] == (["b"] if why else [])
    assert all(why in each.reason for each in found.refusals)


def test_ends_of_a_tunnel_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind different routers many addresses end in the same octets."""
    one, two = ip_address("2001:db8:1::2"), ip_address("2001:db8:2::2")
    hardware = {tunnel_hardware(each) for each in (one, two, ip_address("0.0.0.2"))}
    assert len(hardware) == 3
    assert all(each[0] == 0x0A and len(each) == 6 for each in hardware)

    monkeypatch.setattr(
        "kvstack.agents.kubelet.routes.plan.tunnel_hardware", lambda each: each.packed[-1:]
    )
    found = planned(
        node("b", "fd00:7:0:1::/64", str(one)), node("c", "fd00:7:0:2::/64", str(two)), own=BOTH
    )
    assert list(found.ways) == [ip_network("fd00:7:0:1::/64")]
    reason = "its InternalIP 2001:db8:2::2 has the hardware address of 2001:db8:1::2"
    assert found.refusals == (Refusal("c", reason),)


def test_a_scope_is_no_part_of_an_address() -> None:
    found = planned(node("b", "fd00:7:0:1::/64", "2001:db8::2%eth0"), own=BOTH)
    assert found.ways == {}
    assert "is none: it has a scope" in found.refusals[0].reason
