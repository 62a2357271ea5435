"""The network of pods that are processes, as far as it is decided without the kernel."""

import asyncio
import os
import subprocess
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.process.network import (
    cluster_range,
    iptables_rules,
    nft_rules,
    pod_network,
    translator,
)
from kvstack.agents.kubelet.runtime.process.network.pod_network import (
    PodNetwork,
    in_the_way,
    pair_name,
)
from kvstack.agents.kubelet.runtime.process.network.translation import Translation, host_ports
from kvstack.agents.kubelet.runtime.process.sandboxes import in_own_thread
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.agents.kubelet.runtime.runtime import Port, StartError
from kvstack.component.errors import ConfigError
from kvstack.component.net.hosts import has_ipv6
from kvstack.component.net.netlink import Link, Netlink, Route
from tests.agents.support.namespaces import has_namespaces

RANGE = IPv4Network("10.244.0.0/24")


SHOWN = {
    "10.244.0.2": [Port(80, 8080), Port(53, 5353, "UDP", "192.0.2.1"), Port(1, 1, host_ip="::1")],
    "10.244.0.3": host_ports([Port(443, 0), Port(443, 8443, "TCP", "0.0.0.0")]),
}
CLUSTER = IPv4Network("10.244.0.0/16")


def test_what_is_translated() -> None:
    text = nft_rules.rules(Translation("kv-1", "kvpod", RANGE, CLUSTER, SHOWN))
    lines = [each.strip() for each in text.splitlines()]
    assert lines[:2] == ["table ip kv-1", "delete table ip kv-1"]
    assert [each for each in lines if "dnat to" in each] == 2 * [
        "fib daddr type local tcp dport 8080 dnat to 10.244.0.2:80",
        "ip daddr 192.0.2.1 udp dport 5353 dnat to 10.244.0.2:53",
        "fib daddr type local tcp dport 8443 dnat to 10.244.0.3:443",
    ]
    to_others = 'ip saddr 10.244.0.0/24 ip daddr != 10.244.0.0/16 oifname != "kvpod*" masquerade'
    assert to_others in lines


def test_what_is_translated_by_iptables() -> None:
    lines = iptables_rules.rules(Translation("kv-1", "kvpod", RANGE, CLUSTER, SHOWN)).splitlines()
    assert [each for each in lines if "DNAT --to" in each] == [
        "-A kv-1-ports -m addrtype --dst-type LOCAL -p tcp -m tcp --dport 8080"
        " -j DNAT --to-destination 10.244.0.2:80",
        "-A kv-1-ports -d 192.0.2.1 -p udp -m udp --dport 5353"
        " -j DNAT --to-destination 10.244.0.2:53",
        "-A kv-1-ports -m addrtype --dst-type LOCAL -p tcp -m tcp --dport 8443"
        " -j DNAT --to-destination 10.244.0.3:443",
    ]
    leaving = "-A kv-1-leave -s 10.244.0.0/24 ! -d 10.244.0.0/16 ! -o kvpod+ -j MASQUERADE"
    assert leaving in lines


def test_pods_are_let_through_after_what_a_proxy_refuses() -> None:
    assert translator.after_services("-P FORWARD DROP\n") == 1
    rules = (
        "-P FORWARD DROP\n"
        "-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES\n"
        "-A FORWARD -j KUBE-FORWARD\n"
        "-A FORWARD -j DOCKER-USER\n"
    )
    assert translator.after_services(rules) == 3


def test_what_is_translated_in_ipv6() -> None:
    network = IPv6Network("fd00:0:0:1::/64")
    shown = {"fd00:0:0:1::2": [Port(80, 8080), Port(80, 81, host_ip="192.0.2.1")]}
    given = Translation("kv-1", "kvpod", network, IPv6Network("fd00::/48"), shown)
    text = nft_rules.rules(given)
    assert "table ip6 kv-1" in text
    assert text.count("tcp dport 8080 dnat to [fd00:0:0:1::2]:80") == 2
    assert "dport 81" not in text
    text = iptables_rules.rules(given)
    assert text.count("--dport 8080 -j DNAT --to-destination [fd00:0:0:1::2]:80") == 1
    assert "--dport 81 " not in text


@pytest.mark.skipif(not has_namespaces(), reason="interfaces need root and namespaces")
def test_an_address_that_is_used_again_has_the_hardware_address_of_before(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    def work() -> None:
        # This thread's networks end with it: that of the node, and one for each pod.
        syscalls.unshare(syscalls.CLONE_NEWNET)
        node = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        network = PodNetwork("a", tmp_path, [IPv4Network("10.9.0.0/16")])
        network.use_ranges(["10.9.8.0/30"])  # room for one pod
        for uid in ("one", "two"):
            with Netlink() as outside:
                syscalls.unshare(syscalls.CLONE_NEWNET)
                pod = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
                with Netlink() as inside:
                    syscalls.setns(node, syscalls.CLONE_NEWNET)
                    address = network.connect(uid, pod, (), outside, inside)
                    syscalls.setns(pod, syscalls.CLONE_NEWNET)
                    text = subprocess.check_output(["ip", "-br", "link", "show", "eth0"], text=True)
                    seen.append((address[0], text.split()[2]))
            syscalls.setns(node, syscalls.CLONE_NEWNET)
            network.disconnect(uid)
            os.close(pod)
        os.close(node)

    asyncio.run(in_own_thread(work))
    assert seen == 2 * [("10.9.8.2", "0a:58:0a:09:08:02")]


@pytest.mark.skipif(not has_namespaces(), reason="interfaces need root and namespaces")
def test_the_bridge_is_there_from_the_start_to_the_stop(tmp_path: Path) -> None:
    """Also without pods; what a killed node left makes place, what a living one has does not."""
    living: set[str] = set()

    def network_of(name: str, of_range: str) -> PodNetwork:
        network = PodNetwork(name, tmp_path, lives=living.__contains__)
        network.use_ranges([of_range])
        return network

    def addresses() -> list[str]:
        shown = subprocess.check_output(["ip", "-4", "-o", "address"], text=True)
        found = [line.split()[3] for line in shown.splitlines()]
        return [each for each in found if not each.endswith("/32")]  # those are of pairs

    def work() -> None:
        # This thread's networks end with it: that of the node, and one for the pod.
        syscalls.unshare(syscalls.CLONE_NEWNET)
        node = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        network = network_of("a", "10.9.8.0/24")
        assert addresses() == []
        network.open()
        network.open()
        assert addresses() == ["10.9.8.1/24"]
        with Netlink() as outside:
            syscalls.unshare(syscalls.CLONE_NEWNET)
            pod = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            with Netlink() as inside:
                syscalls.setns(node, syscalls.CLONE_NEWNET)
                network.connect("one", pod, (), outside, inside)
        network.close()  # its pods outlive it
        assert addresses() == ["10.9.8.1/24"]
        network.disconnect("one")
        assert addresses() == ["10.9.8.1/24"]
        # It was killed, and begins anew with another range.
        network = network_of("a", "10.9.9.0/24")
        network.open()
        assert addresses() == ["10.9.9.1/24"]
        living.add(network.bridge)
        other = network_of("b", "10.9.0.0/16")
        with pytest.raises(StartError, match=f"in use on {network.bridge}"):
            other.open()
        living.clear()
        other.open()
        assert addresses() == ["10.9.0.1/16"]
        network.close()
        other.close()
        assert addresses() == []
        with Netlink() as outside:
            assert [each.name for each in outside.links()] == ["lo"]
        os.close(pod)
        os.close(node)

    asyncio.run(in_own_thread(work))


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


def test_the_first_range_of_each_family_is_used() -> None:
    network = PodNetwork("a")
    network.use_ranges([])
    assert network.networks == ()
    network.use_ranges(["10.9.8.0/24", "10.9.9.0/24"])
    assert network.networks == (IPv4Network("10.9.8.0/24"),)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_the_first_family_stays_the_first() -> None:
    network = PodNetwork("a")
    network.use_ranges(["fd00::/64", "10.9.8.0/24", "fd01::/64"])
    assert network.networks == (IPv6Network("fd00::/64"), IPv4Network("10.9.8.0/24"))


def test_a_family_that_the_machine_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_network, "has_ipv6", lambda: False)
    network = PodNetwork("a")
    network.use_ranges(["fd00::/64"])
    assert network.networks == ()
    network.use_ranges(["fd00::/64", "10.9.8.0/24"])
    assert network.networks == (IPv4Network("10.9.8.0/24"),)


def test_a_range_outside_of_the_cluster_is_refused() -> None:
    network = PodNetwork("a", cluster_ranges=[IPv4Network("10.9.0.0/16")])
    for each in ("0.0.0.0/0", "192.168.0.0/24", "10.8.0.0/24"):
        with pytest.raises(StartError, match=r"is not in that of the cluster, 10\.9\.0\.0/16"):
            network.use_ranges([each])
        assert network.networks == ()
    network.use_ranges(["10.9.8.0/24"])
    assert network.networks == (IPv4Network("10.9.8.0/24"),)


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
