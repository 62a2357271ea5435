"""Routes and the tunnel, in a network namespace that the test made."""

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from kvstack.agents.kubelet.routes import guard
from kvstack.agents.kubelet.routes.kernel import PORT, TUNNELS, Kernel
from kvstack.agents.kubelet.routes.plan import Connected, Network, Plan, Way, tunnel_hardware
from kvstack.agents.kubelet.runtime.process.sandboxes import in_own_thread
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.component.net import nft
from kvstack.component.net.hosts import has_ipv6
from tests.agents.support.namespaces import has_namespaces

pytestmark = pytest.mark.skipif(not has_namespaces(), reason="interfaces need root and namespaces")
OWN = ip_network("10.244.0.0/24")
OWN_6 = ip_network("fd00:7::/64")
ADDRESS = ip_address("192.168.0.1")
ADDRESS_6 = ip_address("2001:db8::1")
WHOLE = (ip_network("10.244.0.0/16"), ip_network("fd00:7::/48"))
TUNNEL = TUNNELS[4]
IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def ip(*arguments: str) -> str:
    return subprocess.check_output(["ip", *arguments], text=True, timeout=30)


def on_a_machine(work: Callable[[Kernel], None], *, has_both: bool = False) -> None:
    """Call a function in a namespace with an interface `lan`, which ends with it.

    has_both: it has an address of IPv6, too.
    """

    def inside() -> None:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        ip("link", "add", "lan", "mtu", "1400", "type", "veth", "peer", "cable")
        ip("link", "set", "cable", "up")
        ip("address", "add", f"{ADDRESS}/24", "dev", "lan")
        if has_both:
            ip("address", "add", f"{ADDRESS_6}/64", "dev", "lan", "nodad")
        ip("link", "set", "lan", "up")
        ip("route", "add", "10.250.0.0/16", "via", "192.168.0.9")
        ip("route", "add", "default", "via", "192.168.0.254")
        with Kernel() as kernel:
            work(kernel)

    asyncio.run(in_own_thread(inside))


def planned(*rows: tuple[str, str, int], ip: str = str(ADDRESS)) -> Plan:
    """Return a plan of a node of IPv4; ip: its address."""
    return Plan({4: OWN}, {4: ip_address(ip)}, ways(*rows))


def planned_both(*rows: tuple[str, str, int]) -> Plan:
    """Return a plan of a node of both families."""
    return Plan({4: OWN, 6: OWN_6}, {4: ADDRESS, 6: ADDRESS_6}, ways(*rows))


def ways(*rows: tuple[str, str, int]) -> dict[Network, Way]:
    every = [Way(ip_network(range_), ip_address(via), link) for range_, via, link in rows]
    return {each.network: each for each in every}


def test_what_the_machine_has() -> None:
    def work(kernel: Kernel) -> None:
        found = kernel.machine()
        assert {each for each in found.addresses if each.version == 4} == {ADDRESS}
        lan = kernel.index("lan")
        connected = [each for each in found.connected if each.network.version == 4]
        assert connected == [Connected(ip_network("192.168.0.0/24"), lan)]
        assert found.routed == [ip_network("10.250.0.0/16")]
        kernel.bring(planned(("10.244.1.0/24", "192.168.0.2", lan)))
        kernel.bring(planned(("10.244.2.0/24", "203.0.113.7", 0)))
        assert kernel.machine() == found

    on_a_machine(work)


def test_only_differences_are_written() -> None:
    def work(kernel: Kernel) -> None:
        lan = kernel.index("lan")
        one = ("10.244.1.0/24", "192.168.0.2", lan)
        two = ("10.244.2.0/24", "192.168.0.3", lan)
        assert kernel.bring(planned(one, two)) == ["+10.244.1.0/24", "+10.244.2.0/24"]
        assert kernel.bring(planned(one, two)) == []
        moved = ("10.244.2.0/24", "192.168.0.4", lan)
        assert kernel.bring(planned(one, moved)) == ["-10.244.2.0/24", "+10.244.2.0/24"]
        shown = ip("route", "show")
        assert "10.244.2.0/24 via 192.168.0.4 dev lan proto 75" in shown
        assert kernel.bring(planned(moved)) == ["-10.244.1.0/24"]
        ip("route", "del", "10.244.2.0/24")  # somebody else
        assert kernel.bring(planned(moved)) == ["+10.244.2.0/24"]
        before = "10.250.0.0/16 via 192.168.0.9 dev lan"
        assert kernel.clear() == ["-10.244.2.0/24"]
        assert "10.244." not in ip("route", "show")
        assert before in ip("route", "show")

    on_a_machine(work)


def test_a_route_of_somebody_else_is_not_replaced() -> None:
    def work(kernel: Kernel) -> None:
        ip("route", "add", "10.244.1.0/24", "via", "192.168.0.9")
        with pytest.raises(FileExistsError):
            kernel.bring(planned(("10.244.1.0/24", "192.168.0.2", kernel.index("lan"))))
        kernel.clear()
        assert "10.244.1.0/24 via 192.168.0.9" in ip("route", "show")

    on_a_machine(work)


def test_the_tunnel() -> None:
    def work(kernel: Kernel) -> None:
        one, two = ("10.244.1.0/24", "203.0.113.7", 0), ("10.244.2.0/24", "203.0.113.8", 0)
        kernel.bring(planned(one, two))
        assert kernel.bring(planned(one, two)) == []
        device = ip("-details", "link", "show", TUNNEL)
        assert "vxlan id 1 local 192.168.0.1" in device
        assert "dstport 8472 nolearning" in device
        assert "mtu 1350" in device
        assert "0a:58:c0:a8:00:01" in device
        assert "inet 10.244.0.0/32" in ip("address", "show", TUNNEL)
        assert f"10.244.1.0/24 via 10.244.1.0 dev {TUNNEL}" in ip("route", "show")
        ends = subprocess.check_output(["bridge", "fdb", "show", "dev", TUNNEL], text=True)
        assert "0a:58:cb:00:71:07 dst 203.0.113.7 self permanent" in ends
        number = kernel.index(TUNNEL)

        moved = ("10.244.2.0/24", "203.0.113.9", 0)
        changes = kernel.bring(planned(one, moved))
        assert {"-203.0.113.8", "+203.0.113.9"} <= set(changes)
        assert "+10.244.2.0" in changes  # its end has another hardware address
        assert kernel.index(TUNNEL) == number

        kernel.bring(planned(one, moved, ip="192.168.0.77"))  # the node moved
        assert "local 192.168.0.77" in ip("-details", "link", "show", TUNNEL)

        kernel.clear()
        assert TUNNEL not in ip("link", "show")
        assert kernel.clear() == []

    on_a_machine(work)


@pytest.mark.skipif(not nft.is_installed(), reason="the program nft is not installed")
def test_the_guard_can_be_added_and_removed() -> None:
    def work(_kernel: Kernel) -> None:
        text = guard.rules({4: OWN}, WHOLE, {4: [ip_address("203.0.113.7")]}, guard.families())
        for _ in range(2):
            guard.apply(text)
        listed = subprocess.check_output(["nft", "list", "table", "ip", guard.TABLE], text=True)
        assert "203.0.113.7" in listed
        for _ in range(2):
            guard.remove()
        assert not subprocess.check_output(["nft", "list", "tables"], text=True)

    on_a_machine(work)


@pytest.mark.skipif(not nft.is_installed(), reason="the program nft is not installed")
def test_only_nodes_send_to_the_tunnel() -> None:
    """The first packet is from nobody who is known, the second from a node: the second arrives."""

    def work(_kernel: Kernel) -> None:
        ip("link", "set", "lo", "up")
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            end.bind((str(ADDRESS), PORT))
            end.settimeout(30)
            for node in ("203.0.113.7", str(ADDRESS)):
                guard.apply(guard.rules({4: OWN}, WHOLE, {4: [ip_address(node)]}, (4,)))
                with contextlib.suppress(PermissionError):
                    sender.sendto(node.encode(), (str(ADDRESS), PORT))
            assert end.recv(100) == str(ADDRESS).encode()

    on_a_machine(work)


@IPV6
def test_routes_of_ipv6_are_written_by_differences() -> None:
    def work(kernel: Kernel) -> None:
        before = kernel.machine()
        lan = kernel.index("lan")
        assert Connected(ip_network("2001:db8::/64"), lan) in before.connected
        assert ADDRESS_6 in before.addresses
        one = ("fd00:7:0:1::/64", "2001:db8::2", lan)
        two = ("10.244.1.0/24", "192.168.0.2", lan)
        assert kernel.bring(planned_both(one, two)) == ["+fd00:7:0:1::/64", "+10.244.1.0/24"]
        assert kernel.bring(planned_both(one, two)) == []
        shown = ip("-6", "route", "show", "proto", "75")
        assert "fd00:7:0:1::/64 via 2001:db8::2 dev lan" in shown
        moved = ("fd00:7:0:1::/64", "2001:db8::3", lan)
        changes = kernel.bring(planned_both(moved, two))
        assert changes == ["-fd00:7:0:1::/64", "+fd00:7:0:1::/64"]
        ip("-6", "route", "add", "fd00:7:0:2::/64", "via", "2001:db8::9")
        with pytest.raises(FileExistsError):
            kernel.bring(planned_both(moved, two, ("fd00:7:0:2::/64", "2001:db8::4", lan)))
        ip("-6", "route", "del", "fd00:7:0:2::/64")
        kernel.clear()
        assert kernel.machine() == before

    on_a_machine(work, has_both=True)


@IPV6
def test_a_tunnel_of_each_family_carries_both() -> None:
    def work(kernel: Kernel) -> None:
        before = kernel.machine()
        plan = planned_both(
            ("10.244.1.0/24", "203.0.113.7", 0),
            ("fd00:7:0:1::/64", "203.0.113.7", 0),  # a node without an address of IPv6
            ("fd00:7:0:2::/64", "2001:db8:7::8", 0),
        )
        kernel.bring(plan)
        assert kernel.bring(plan) == []
        assert kernel.machine() == before
        assert "mtu 1350" in ip("link", "show", TUNNELS[4])
        device = ip("-details", "link", "show", TUNNELS[6])
        assert "vxlan id 1 local 2001:db8::1" in device
        assert "mtu 1330" in device
        shown = ip("-6", "route", "show", "proto", "75")
        assert f"fd00:7:0:1::/64 via fd00:7:0:1:: dev {TUNNELS[4]}" in shown
        assert f"fd00:7:0:2::/64 via fd00:7:0:2:: dev {TUNNELS[6]}" in shown
        known = ip("-6", "neighbour", "show", "nud", "permanent")
        assert f"fd00:7:0:1:: dev {TUNNELS[4]} lladdr 0a:58:cb:00:71:07" in known
        ends = subprocess.check_output(["bridge", "fdb", "show", "dev", TUNNELS[6]], text=True)
        hardware = tunnel_hardware(ip_address("2001:db8:7::8")).hex(":")
        assert f"{hardware} dst 2001:db8:7::8 self permanent" in ends
        assert "fe80" not in ip("-6", "address", "show", TUNNELS[6])
        own = ip(
            "-6", "route", "show", "root", "fd00:7::/64"
        )  # the bridge of pods is to be made there
        assert own == ""
        assert "inet6 fd00:7::/128" in ip("-6", "address", "show", TUNNELS[6])

        changes = kernel.bring(planned_both(("10.244.1.0/24", "203.0.113.7", 0)))
        assert "-kvxlan6" in changes
        assert "fd00:7:0:1::" not in ip("-6", "neighbour", "show", "nud", "permanent")
        kernel.clear()
        assert kernel.machine() == before

    on_a_machine(work, has_both=True)


@IPV6
def test_a_tunnel_of_pods_of_ipv4_has_no_ipv6() -> None:
    def work(kernel: Kernel) -> None:
        kernel.bring(planned(("10.244.1.0/24", "203.0.113.7", 0)))
        setting = Path(f"/proc/sys/net/ipv6/conf/{TUNNEL}/disable_ipv6")
        assert setting.read_text() == "1\n"

    on_a_machine(work)


@IPV6
def test_an_interface_that_is_too_small_for_ipv6_is_named() -> None:
    def work(kernel: Kernel) -> None:
        ip("link", "set", "lan", "mtu", "1320")
        with pytest.raises(OSError, match=r"IPv6 needs 1280: .* 192\.168\.0\.1 .*MTU 1320"):
            kernel.bring(planned_both(("fd00:7:0:1::/64", "203.0.113.7", 0)))

    on_a_machine(work, has_both=True)


def test_the_guard_takes_nothing_of_a_family_that_pods_do_not_have() -> None:
    text = guard.rules({4: OWN}, WHOLE[:1], {4: [ip_address("203.0.113.7")]})
    of_4, of_6 = text.split("table ip6 kvstack-tunnel\n", 1)
    arrived = 'iifname { "kvxlan1", "kvxlan6" }'
    assert f"{arrived} ip saddr != 10.244.0.0/16 drop" in of_4
    assert f"{arrived} drop" in of_6
    assert "@nodes" not in of_6
    both = guard.rules(
        {4: OWN, 6: OWN_6}, WHOLE, {6: [ip_address("2001:db8::2"), ip_address("2001:db8::2")]}
    )
    assert "@nodes" not in both.partition("table ip6")[0]
    assert "elements = { 2001:db8::2 }" in both
    assert f"{arrived} ip6 saddr != fd00:7::/48 drop" in both
    assert f"{arrived} ip6 daddr != fd00:7::/64 drop" in both
    assert "ip6 saddr fd00:7::/48 udp dport 8472 ip6 daddr @nodes drop" in both
