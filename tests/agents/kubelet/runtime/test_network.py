"""The network of pods that are processes, as far as it is decided without the kernel."""

import asyncio
import contextlib
import os
import socket
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.process.network import cluster_range, translation
from kvstack.agents.kubelet.runtime.process.network.netlink import Link, Netlink, Route
from kvstack.agents.kubelet.runtime.process.network.pod_network import (
    PodNetwork,
    in_the_way,
    pair_name,
)
from kvstack.agents.kubelet.runtime.process.sandboxes import in_own_thread
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.agents.kubelet.runtime.runtime import Port, StartError
from kvstack.component.errors import ConfigError
from tests.agents.support.namespaces import has_namespaces

RANGE = IPv4Network("10.244.0.0/24")


def test_what_is_translated() -> None:
    shown = {
        "10.244.0.2": [Port(80, 8080), Port(53, 5353, "UDP", "192.0.2.1")],
        "10.244.0.3": translation.host_ports([Port(443, 0), Port(443, 8443, "TCP", "0.0.0.0")]),
    }
    cluster = IPv4Network("10.244.0.0/16")
    text = translation.rules("kv-1", "kvpod", RANGE, shown, cluster)
    lines = [each.strip() for each in text.splitlines()]
    assert lines[:2] == ["table ip kv-1", "delete table ip kv-1"]
    assert [each for each in lines if "dnat to" in each] == 2 * [
        "fib daddr type local tcp dport 8080 dnat to 10.244.0.2:80",
        "ip daddr 192.0.2.1 udp dport 5353 dnat to 10.244.0.2:53",
        "fib daddr type local tcp dport 8443 dnat to 10.244.0.3:443",
    ]
    to_others = 'ip saddr 10.244.0.0/24 ip daddr != 10.244.0.0/16 oifname != "kvpod*" masquerade'
    assert to_others in lines


@pytest.mark.skipif(not has_namespaces(), reason="interfaces need root and namespaces")
def test_an_address_that_is_used_again_has_the_hardware_address_of_before(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    def work() -> None:
        # This thread's networks end with it: that of the node, and one for each pod.
        syscalls.unshare(syscalls.CLONE_NEWNET)
        node = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        network = PodNetwork("a", tmp_path, IPv4Network("10.9.0.0/16"))
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
                    seen.append((address, text.split()[2]))
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


@pytest.mark.skipif(not has_namespaces(), reason="interfaces need root and namespaces")
@pytest.mark.skipif(not translation.is_available(), reason="addresses are translated by nft")
def test_pods_reach_other_nodes_from_their_own_address_and_the_world_from_the_nodes(
    tmp_path: Path,
) -> None:
    seen: list[str] = []

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    def network_of() -> int:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    def source(pod: int, far: int, address: str) -> str:
        """Return from where a connection of a pod comes at an address of the other side."""
        syscalls.setns(far, syscalls.CLONE_NEWNET)
        with socket.create_server((address, 0)) as server:
            server.settimeout(10)
            syscalls.setns(pod, syscalls.CLONE_NEWNET)
            with socket.create_connection(server.getsockname(), 10):
                accepted, peer = server.accept()
                accepted.close()
        found: str = peer[0]
        return found

    def work() -> None:
        # This thread's networks end with it: of the other side, of the pod, and of the node.
        far = network_of()
        pod = network_of()
        with Netlink() as inside:
            node = network_of()
            ip("link", "add", "near", "type", "veth", "peer", "name", "far")
            ip("address", "add", "192.0.2.1/24", "dev", "near")
            ip("link", "set", "near", "up")
            ip("link", "set", "far", "netns", f"/proc/{os.getpid()}/fd/{far}")
            ip("route", "add", "10.9.9.0/24", "via", "192.0.2.2")
            network = PodNetwork("a", tmp_path, IPv4Network("10.9.0.0/16"))
            network.use_ranges(["10.9.8.0/24"])
            with Netlink() as outside:
                network.connect("one", pod, (), outside, inside)
        syscalls.setns(far, syscalls.CLONE_NEWNET)
        ip("address", "add", "192.0.2.2/24", "dev", "far")
        ip("address", "add", "10.9.9.1/32", "dev", "far")  # of a pod of the other node
        ip("link", "set", "far", "up")
        ip("route", "add", "10.9.8.0/24", "via", "192.0.2.1")
        seen.extend(source(pod, far, address) for address in ("10.9.9.1", "192.0.2.2"))
        for each in (far, pod, node):
            os.close(each)

    asyncio.run(in_own_thread(work))
    assert seen == ["10.9.8.2", "192.0.2.1"]


@pytest.mark.skipif(not has_namespaces(), reason="interfaces need root and namespaces")
@pytest.mark.skipif(not translation.is_available(), reason="addresses are translated by nft")
def test_what_pods_send_each_other_is_routed_and_comes_from_their_own_address(
    tmp_path: Path,
) -> None:
    """Rules of the node see it (a rule that is not there for bridges), whatever its bridges do."""
    seen: list[object] = []

    def new_network() -> int:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    def received(source: int, own: str, target: int, address: str, port: int, tries: int) -> str:
        """Return from where packets come that a pod sends from an address; empty: they do not."""
        syscalls.setns(target, syscalls.CLONE_NEWNET)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.bind((address, port))
            server.settimeout(0.1)
            syscalls.setns(source, syscalls.CLONE_NEWNET)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.bind((own, port))
                for _ in range(tries):
                    client.sendto(b"it is me", (address, port))
                    with contextlib.suppress(TimeoutError):
                        return str(server.recvfrom(100)[1][0])
        return ""

    def work() -> None:
        # This thread's networks end with it: of two pods, and of the node.
        pods, inside = {}, {}
        for name in ("one", "two"):
            pods[name] = new_network()
            inside[name] = stack.enter_context(Netlink())
        node = new_network()
        network = PodNetwork("a", tmp_path, IPv4Network("10.9.0.0/16"))
        network.use_ranges(["10.9.8.0/24"])
        with Netlink() as outside:
            one, two = (
                network.connect(name, pods[name], (), outside, inside[name]) for name in pods
            )
        seen.append(received(pods["one"], one, pods["two"], two, 9, 200))
        ip = ["ip", "address", "add", "10.9.8.77/24", "dev", "eth0"]
        subprocess.run(ip, check=True)  # in the namespace of the first: it is root of its own
        seen.append(received(pods["one"], "10.9.8.77", pods["two"], two, 10, 5))
        syscalls.setns(node, syscalls.CLONE_NEWNET)
        ipv6 = Path(f"/proc/sys/net/ipv6/conf/{pair_name('one')}/disable_ipv6")
        seen.append(not ipv6.exists() or ipv6.read_text().strip() == "1")
        translation.apply(
            "add table inet test\n"
            "add chain inet test forward { type filter hook forward priority 0 ; }\n"
            f"add rule inet test forward iifname {pair_name('one')} ip daddr {two} drop\n"
        )
        seen.append(received(pods["one"], one, pods["two"], two, 11, 5))
        for descriptor in (*pods.values(), node):
            os.close(descriptor)

    with contextlib.ExitStack() as stack:
        asyncio.run(in_own_thread(work))
    assert seen == ["10.9.8.2", "", True, ""]


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


def test_a_range_outside_of_the_cluster_is_refused() -> None:
    network = PodNetwork("a", cluster_range=IPv4Network("10.9.0.0/16"))
    for each in ("0.0.0.0/0", "192.168.0.0/24", "10.8.0.0/24"):
        with pytest.raises(StartError, match=r"is not in that of the cluster, 10\.9\.0\.0/16"):
            network.use_ranges([each])
        assert network.network is None
    network.use_ranges(["10.9.8.0/24"])
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
