"""Routes and the tunnel, in a network namespace that the test made."""

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network

import pytest

from kvstack.agents.kubelet.routes import guard
from kvstack.agents.kubelet.routes.kernel import PORT, TUNNEL, Kernel
from kvstack.agents.kubelet.routes.plan import Connected, Plan, Way
from kvstack.agents.kubelet.runtime.process.sandboxes import in_own_thread
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.component.net import nft
from tests.agents.support.namespaces import has_namespaces

pytestmark = pytest.mark.skipif(not has_namespaces(), reason="interfaces need root and namespaces")
OWN = IPv4Network("10.244.0.0/24")
ADDRESS = IPv4Address("192.168.0.1")


def ip(*arguments: str) -> str:
    return subprocess.check_output(["ip", *arguments], text=True, timeout=30)


def on_a_machine(work: Callable[[Kernel], None]) -> None:
    """Call a function in a namespace with an interface `lan`, which ends with it."""

    def inside() -> None:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        ip("link", "add", "lan", "mtu", "1400", "type", "veth", "peer", "cable")
        ip("link", "set", "cable", "up")
        ip("address", "add", f"{ADDRESS}/24", "dev", "lan")
        ip("link", "set", "lan", "up")
        ip("route", "add", "10.250.0.0/16", "via", "192.168.0.9")
        ip("route", "add", "default", "via", "192.168.0.254")
        with Kernel() as kernel:
            work(kernel)

    asyncio.run(in_own_thread(inside))


def planned(*rows: tuple[str, str, int]) -> Plan:
    ways = [Way(IPv4Network(range_), IPv4Address(via), link) for range_, via, link in rows]
    return Plan(OWN, {each.network: each for each in ways})


def test_what_the_machine_has() -> None:
    def work(kernel: Kernel) -> None:
        found = kernel.machine()
        assert found.addresses == {ADDRESS}
        lan = kernel.index("lan")
        assert found.connected == [Connected(IPv4Network("192.168.0.0/24"), lan)]
        assert found.routed == [IPv4Network("10.250.0.0/16")]
        kernel.bring(planned(("10.244.1.0/24", "192.168.0.2", lan)), ADDRESS)
        kernel.bring(planned(("10.244.2.0/24", "203.0.113.7", 0)), ADDRESS)
        assert kernel.machine() == found

    on_a_machine(work)


def test_only_differences_are_written() -> None:
    def work(kernel: Kernel) -> None:
        lan = kernel.index("lan")
        one = ("10.244.1.0/24", "192.168.0.2", lan)
        two = ("10.244.2.0/24", "192.168.0.3", lan)
        assert kernel.bring(planned(one, two), ADDRESS) == ["+10.244.1.0/24", "+10.244.2.0/24"]
        assert kernel.bring(planned(one, two), ADDRESS) == []
        moved = ("10.244.2.0/24", "192.168.0.4", lan)
        assert kernel.bring(planned(one, moved), ADDRESS) == ["-10.244.2.0/24", "+10.244.2.0/24"]
        shown = ip("route", "show")
        assert "10.244.2.0/24 via 192.168.0.4 dev lan proto 75" in shown
        assert kernel.bring(planned(moved), ADDRESS) == ["-10.244.1.0/24"]
        ip("route", "del", "10.244.2.0/24")  # somebody else
        assert kernel.bring(planned(moved), ADDRESS) == ["+10.244.2.0/24"]
        before = "10.250.0.0/16 via 192.168.0.9 dev lan"
        assert kernel.clear() == ["-10.244.2.0/24"]
        assert "10.244." not in ip("route", "show")
        assert before in ip("route", "show")

    on_a_machine(work)


def test_a_route_of_somebody_else_is_not_replaced() -> None:
    def work(kernel: Kernel) -> None:
        ip("route", "add", "10.244.1.0/24", "via", "192.168.0.9")
        with pytest.raises(FileExistsError):
            kernel.bring(planned(("10.244.1.0/24", "192.168.0.2", kernel.index("lan"))), ADDRESS)
        kernel.clear()
        assert "10.244.1.0/24 via 192.168.0.9" in ip("route", "show")

    on_a_machine(work)


def test_the_tunnel() -> None:
    def work(kernel: Kernel) -> None:
        one, two = ("10.244.1.0/24", "203.0.113.7", 0), ("10.244.2.0/24", "203.0.113.8", 0)
        kernel.bring(planned(one, two), ADDRESS)
        assert kernel.bring(planned(one, two), ADDRESS) == []
        device = ip("-details", "link", "show", TUNNEL)
        assert "vxlan id 1 local 192.168.0.1" in device
        assert "dstport 8472 nolearning" in device
        assert "mtu 1350" in device
        assert "0a:58:0a:f4:00:00" in device
        assert "inet 10.244.0.0/32" in ip("address", "show", TUNNEL)
        assert f"10.244.1.0/24 via 10.244.1.0 dev {TUNNEL}" in ip("route", "show")
        ends = subprocess.check_output(["bridge", "fdb", "show", "dev", TUNNEL], text=True)
        assert "0a:58:0a:f4:01:00 dst 203.0.113.7 self permanent" in ends
        number = kernel.index(TUNNEL)

        moved = ("10.244.2.0/24", "203.0.113.9", 0)
        changes = kernel.bring(planned(one, moved), ADDRESS)
        assert changes == ["-203.0.113.8", "+203.0.113.9"]
        assert kernel.index(TUNNEL) == number

        kernel.bring(planned(one, moved), IPv4Address("192.168.0.77"))  # the node moved
        assert "local 192.168.0.77" in ip("-details", "link", "show", TUNNEL)

        kernel.clear()
        assert TUNNEL not in ip("link", "show")
        assert kernel.clear() == []

    on_a_machine(work)


@pytest.mark.skipif(not nft.is_installed(), reason="the program nft is not installed")
def test_the_guard_can_be_added_and_removed() -> None:
    def work(_kernel: Kernel) -> None:
        text = guard.rules(OWN, IPv4Network("10.244.0.0/16"), [IPv4Address("203.0.113.7")])
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
        whole = IPv4Network("10.244.0.0/16")
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            end.bind((str(ADDRESS), PORT))
            end.settimeout(30)
            for node in ("203.0.113.7", str(ADDRESS)):
                guard.apply(guard.rules(OWN, whole, [IPv4Address(node)]))
                with contextlib.suppress(PermissionError):
                    sender.sendto(node.encode(), (str(ADDRESS), PORT))
            assert end.recv(100) == str(ADDRESS).encode()

    on_a_machine(work)
