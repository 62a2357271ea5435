"""The network of pods that are processes, as far as it is decided without the kernel."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.process.network import cluster_range, translation
from kvstack.agents.kubelet.runtime.process.network.netlink import Link, Route
from kvstack.agents.kubelet.runtime.process.network.pod_network import (
    PodNetwork,
    in_the_way,
    pair_name,
)
from kvstack.agents.kubelet.runtime.runtime import Port
from kvstore.errors import ConfigError

RANGE = IPv4Network("10.244.0.0/24")


def test_what_is_translated() -> None:
    shown = {
        "10.244.0.2": [Port(80, 8080), Port(53, 5353, "UDP", "192.0.2.1")],
        "10.244.0.3": translation.host_ports([Port(443, 0), Port(443, 8443, "TCP", "0.0.0.0")]),
    }
    lines = [each.strip() for each in translation.rules("kv-1", RANGE, shown).splitlines()]
    assert lines[:2] == ["table ip kv-1", "delete table ip kv-1"]
    assert [each for each in lines if "dnat to" in each] == 2 * [
        "fib daddr type local tcp dport 8080 dnat to 10.244.0.2:80",
        "ip daddr 192.0.2.1 udp dport 5353 dnat to 10.244.0.2:53",
        "fib daddr type local tcp dport 8443 dnat to 10.244.0.3:443",
    ]
    assert 'ip saddr 10.244.0.0/24 oifname != "kv-1" masquerade' in lines


@pytest.mark.parametrize(
    ("network", "names"),
    [
        ("0.0.0.0/0", []),
        ("10.0.0.0/8", []),
        ("10.244.0.0/24", ["eth0"]),
        ("10.244.0.128/25", ["eth0"]),
        ("10.244.1.0/24", []),
    ],
)
def test_what_is_in_the_way_of_a_range(network: str, names: list[str]) -> None:
    links = [Link("lo", 1, 0, 65536), Link("eth0", 2, 0, 1500)]
    assert in_the_way(RANGE, links, [Route(IPv4Network(network), 2)]) == names


def test_nodes_and_pods_have_names_of_their_own() -> None:
    names = {PodNetwork("a").bridge, PodNetwork("b").bridge, pair_name("a"), pair_name("b")}
    assert len(names) == 4
    assert all(len(each) <= 15 for each in names)  # as long as the kernel lets them be


def test_the_first_range_of_ipv4_is_used() -> None:
    network = PodNetwork("a")
    network.use_ranges(["fd00::/64"])
    assert network.network is None
    network.use_ranges(["fd00::/64", "10.9.8.0/24", "10.9.9.0/24"])
    assert network.network == IPv4Network("10.9.8.0/24")


def test_two_clusters_of_a_machine_take_two_ranges(tmp_path: Path) -> None:
    state, first, second = tmp_path / "state", tmp_path / "first", tmp_path / "second"
    one, other = cluster_range.take(first, state), cluster_range.take(second, state)
    assert not one.network.overlaps(other.network)
    with pytest.raises(ConfigError, match="in use by another cluster"):
        cluster_range.take(first, state)
    one.give_back()
    again = cluster_range.take(first, state)
    assert again.network == one.network
    for each in (again, other):
        each.give_back()
