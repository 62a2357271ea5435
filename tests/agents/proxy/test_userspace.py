"""Node ports without any rights: connections and packets that this process passes on."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import Any

import pytest

from kvstack.agents.proxy.choice import Here
from kvstack.agents.proxy.cluster_view import ClusterView
from kvstack.agents.proxy.endpoints import Endpoint
from kvstack.agents.proxy.userspace.backend import UserspaceBackend
from kvstack.agents.proxy.userspace.balancer import CLIENTS_MAX, Balancer
from kvstack.agents.proxy.userspace.local_ranges import LocalRanges, remove_local_ranges
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.net.netlink import Netlink
from tests.agents.proxy.objects import balanced, endpoint, endpoint_slice, service
from tests.support.network.ports import free_ports
from tests.support.network.routed import routed

LOOPBACK = "127.0.0.1"
ENDS = ("127.0.0.2", "127.0.0.3")


class Node:
    """A backend, and the objects that it serves."""

    def __init__(self, ranges: LocalRanges | None = None) -> None:
        self.view = ClusterView(4, Here("here"))
        self.backend = UserspaceBackend((LOOPBACK,), ranges, LineLogger([], "fatal"))
        self._known: dict[str, dict[str, Any]] = {}

    async def serve(self, *objects: dict[str, Any]) -> None:
        for new in objects:
            old = self._known.get(new["metadata"]["name"])
            self._known[new["metadata"]["name"]] = new
            take = self.view.set_service if new["kind"] == "Service" else self.view.set_slice
            take(old, new)
        await self.backend.write(self.view.take_changes(), self.view)


@asynccontextmanager
async def answering(*hosts: str, port: int) -> AsyncIterator[None]:
    """Answer with the own address."""

    def answer(host: str) -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await reader.read()  # until the client has said all
            writer.write(host.encode() + b" " + asked)
            writer.close()

        return serve

    servers = [await asyncio.start_server(answer(host), host, port) for host in hosts]
    try:
        yield
    finally:
        for server in servers:
            server.close()


async def ask(port: int, host: str = LOOPBACK) -> str:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"who?")
        writer.write_eof()
        return (await reader.read()).decode()
    finally:
        writer.close()


def node_port(port: int, **more: Any) -> dict[str, Any]:
    given = service(type="NodePort", **more)
    given["spec"]["ports"][0]["nodePort"] = port
    return given


def ends(port: int, *hosts: str) -> dict[str, Any]:
    return endpoint_slice(*(endpoint(each) for each in hosts), port=port)


def test_a_node_port_goes_to_each_endpoint_in_turn() -> None:
    async def story() -> None:
        port, end = free_ports(2)
        node = Node()
        async with answering(*ENDS, port=end):
            await node.serve(node_port(port), ends(end, *ENDS))
            assert {await ask(port) for _ in range(4)} == {f"{each} who?" for each in ENDS}
            await node.serve(ends(end, ENDS[1]))
            assert {await ask(port) for _ in range(4)} == {f"{ENDS[1]} who?"}
            await node.serve(ends(end))
            with pytest.raises(ConnectionRefusedError):
                await ask(port)
        await node.backend.close()

    asyncio.run(story())


def test_an_endpoint_that_is_gone_is_passed_over() -> None:
    async def story() -> None:
        port, end = free_ports(2)
        node = Node()
        async with answering(ENDS[1], port=end):
            await node.serve(node_port(port), ends(end, *ENDS))
            assert {await ask(port) for _ in range(4)} == {f"{ENDS[1]} who?"}
        with pytest.raises(ConnectionResetError):
            await ask(port)
        await node.backend.close()

    asyncio.run(story())


def test_a_client_stays_with_its_endpoint() -> None:
    async def story() -> None:
        port, end = free_ports(2)
        node = Node()
        async with answering(*ENDS, port=end):
            await node.serve(node_port(port, sessionAffinity="ClientIP"), ends(end, *ENDS))
            assert len({await ask(port) for _ in range(6)}) == 1
        await node.backend.close()

    asyncio.run(story())


def test_addresses_of_this_machine_and_who_may_reach_them() -> None:
    async def story() -> None:
        port, end = free_ports(2)
        node = Node()
        async with answering(ENDS[0], port=end):
            given = balanced(LOOPBACK, "203.0.113.5")
            given["spec"]["ports"][0]["port"] = port
            await node.serve(given, ends(end, ENDS[0]))
            assert await ask(port) == f"{ENDS[0]} who?"
            given = balanced(LOOPBACK, loadBalancerSourceRanges=["192.0.2.0/24"])
            given["spec"]["ports"][0]["port"] = port
            await node.serve(given)
            with pytest.raises(ConnectionResetError):
                await ask(port)
        await node.backend.close()

    asyncio.run(story())


def test_packets() -> None:
    async def story() -> None:
        port, end = free_ports(2)
        node = Node()
        given = node_port(port)
        given["spec"]["ports"][0]["protocol"] = "UDP"
        loop = asyncio.get_running_loop()
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
        ):
            for each in (server, client):
                each.setblocking(False)
            server.bind((ENDS[0], end))
            client.bind((LOOPBACK, 0))
            client.connect((LOOPBACK, port))
            slice_ = endpoint_slice(endpoint(ENDS[0]), port=end, protocol="UDP")
            await node.serve(given, slice_)
            for text in (b"one", b"two"):
                await loop.sock_sendall(client, text)
                async with asyncio.timeout(10):
                    data, sender = await loop.sock_recvfrom(server, 100)
                    assert data == text
                    await loop.sock_sendto(server, b"so " + data, sender)
                    assert await loop.sock_recv(client, 100) == b"so " + text
        await node.backend.close()

    asyncio.run(story())


def test_a_port_that_is_taken_keeps_no_other_from_being_served() -> None:
    async def story() -> None:
        port, other, end = free_ports(3)
        node = Node()
        with socket.socket() as holder:
            holder.bind((LOOPBACK, port))
            holder.listen()
            given = node_port(port)
            given["spec"]["ports"].append(
                {"name": "b", "port": 81, "nodePort": other, "protocol": "TCP"}
            )
            given["spec"]["ports"][0]["name"] = ""
            slice_ = ends(end, ENDS[0])
            slice_["ports"].append({"name": "b", "port": end, "protocol": "TCP"})
            async with answering(ENDS[0], port=end):
                await node.serve(given, slice_)
                assert await ask(other) == f"{ENDS[0]} who?"
        await node.backend.close()

    asyncio.run(story())


def test_clients_are_remembered_up_to_a_limit_and_for_a_time() -> None:
    balancer = Balancer()
    one, two = (Endpoint(each, 80) for each in ENDS)
    balancer.use((one, two), 10)
    balancer.took("client", two, 0.0)
    assert balancer.next("client", 5.0)[0] == two
    assert [balancer.next("client", 11.0)[0] for _ in range(2)] == [one, two]
    balancer.took("client", two, 20.0)
    balancer.use((one,), 10)
    assert balancer.next("client", 21.0) == [one]
    balancer.took("client", one, 30.0)
    for at in range(CLIENTS_MAX):
        balancer.took(f"c{at}", one, 30.0)
    balancer.use((one, two), 10)
    assert [balancer.next("client", 31.0)[0] for _ in range(2)] == [one, two]


def test_cluster_ips_are_served_while_their_range_is_a_local_route() -> None:
    async def story() -> None:
        (end,) = free_ports(1)
        silent = LineLogger([], "fatal")
        node = Node(LocalRanges(4, silent))
        async with answering(ENDS[0], port=end):
            await node.serve(service(), ends(end, ENDS[0]))
            assert node.backend.use_service_ranges(("10.96.0.0/12", "fd00::/112"))
            assert not node.backend.use_service_ranges(("10.96.0.0/12", "fd00::/112"))
            await node.backend.write_all(node.view)
            assert await ask(80, "10.96.0.10") == f"{ENDS[0]} who?"
            with pytest.raises(ConnectionRefusedError):
                await ask(80, "10.96.200.200")

            # One that was killed leaves its range; the next takes it over.
            after = Node(LocalRanges(4, silent))
            assert after.backend.use_service_ranges(("10.96.0.0/16",))
            assert local_ranges() == ["10.96.0.0/16"]
            await after.backend.close()
            assert local_ranges() == []
        await node.backend.close()
        connected = f"{network.address('other')}/24"
        for taken in ("0.0.0.0/0", "127.0.0.0/8", str(ip_network(connected, strict=False))):
            assert not LocalRanges(4, silent).use((taken,))
        with Netlink() as links:
            links.add_local_range(ip_network("10.96.0.0/12"))
        remove_local_ranges()
        assert local_ranges() == []

    with routed(("other",)) as network:
        network.run("", lambda: asyncio.run(story()))


def test_cluster_ips_go_to_endpoints_of_this_node_if_the_policy_says_so() -> None:
    async def story() -> None:
        (end,) = free_ports(1)
        node = Node(LocalRanges(4, LineLogger([], "fatal")))
        node.backend.use_service_ranges(("10.96.0.0/12",))
        elsewhere = endpoint_slice(endpoint(ENDS[1], nodeName="there"), port=end)
        own = endpoint_slice(
            endpoint(ENDS[1], nodeName="there"), endpoint(ENDS[0], nodeName="here"), port=end
        )
        given = service(type="NodePort", internalTrafficPolicy="Local")
        given["spec"]["ports"][0]["nodePort"] = 30080
        async with answering(*ENDS, port=end):
            await node.serve(given, elsewhere)
            with pytest.raises(ConnectionRefusedError):
                await ask(80, "10.96.0.10")
            assert await ask(30080) == f"{ENDS[1]} who?"
            await node.serve(own)
            assert {await ask(80, "10.96.0.10") for _ in range(4)} == {f"{ENDS[0]} who?"}
            assert {await ask(30080) for _ in range(4)} == {f"{each} who?" for each in ENDS}
        await node.backend.close()

    with routed(("other",)) as network:
        network.run("", lambda: asyncio.run(story()))


def local_ranges() -> list[str]:
    with Netlink() as links:
        return list(map(str, links.local_ranges()))
