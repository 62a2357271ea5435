"""The server on real sockets of the loopback: datagrams, connections, and who gets answers."""

import asyncio
import os
import random
import socket
from ipaddress import ip_network
from typing import Any

import pytest
from dns.message import from_wire, make_query
from dns.rcode import to_text
from typing_extensions import override

from kvstack.agents.client.built_in import ENDPOINT_SLICES, NODES, PODS, SERVICES
from kvstack.agents.dns import tcp_port
from kvstack.agents.dns.clients import KNOWN_MAX, Clients
from kvstack.agents.dns.cluster import VERIFIED, Options
from kvstack.agents.dns.pages import DnsPages
from kvstack.agents.dns.server import ADDRESSES_MAX, DnsServer, DnsSettings, networks_of
from kvstack.agents.dns.sockets import is_own, open_pair
from kvstack.agents.dns.tcp_port import OF_CLIENT_MAX, TcpPort
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from tests.agents.dns.given import (
    LOOPBACK,
    SERVICES_GIVEN,
    GivenInformers,
    endpoint,
    meta,
    over_tcp,
    over_udp,
    piece,
    service,
    serving,
)
from tests.support.http.pages import get
from tests.support.waiting import eventually

SVC = "default.svc.cluster.local"
WEB = make_query(f"web.{SVC}", "A").to_wire()


def address_in(wire: bytes) -> str:
    found = from_wire(wire)
    return found.answer[0][0].to_text() if found.answer else to_text(found.rcode())


def test_datagrams_and_connections() -> None:
    async def body() -> None:
        async with serving() as (server, port):
            await eventually(lambda: server.is_synced)
            assert address_in(await over_udp(port, WEB)) == "10.96.0.7"
            other = make_query(f"both.{SVC}", "A").to_wire()
            found = await over_tcp(port, WEB, other, WEB)
            assert [address_in(each) for each in found] == ["10.96.0.7", "10.96.0.8", "10.96.0.7"]

    asyncio.run(body())


def test_many_at_once_get_their_own_answers() -> None:
    async def body() -> None:
        async with serving() as (server, port):
            await eventually(lambda: server.is_synced)
            names = [("web", "10.96.0.7"), ("both", "10.96.0.8"), ("nothing", "NXDOMAIN")] * 100
            found = await asyncio.gather(
                *(over_udp(port, make_query(f"{name}.{SVC}", "A").to_wire()) for name, _ in names)
            )
            assert [address_in(each) for each in found] == [wanted for _, wanted in names]

    asyncio.run(body())


def test_before_all_is_known_there_is_no_denial() -> None:
    async def body() -> None:
        informers = GivenInformers()
        async with serving(informers=informers) as (server, port):
            assert address_in(await over_udp(port, WEB)) == "SERVFAIL"
            informers.give_all()
            await eventually(lambda: server.is_synced)
            assert address_in(await over_udp(port, WEB)) == "10.96.0.7"

    asyncio.run(body())


def test_changes_are_answered_at_once() -> None:
    async def body() -> None:
        informers = GivenInformers()
        informers.give_all()
        async with serving(informers=informers) as (server, port):
            await eventually(lambda: server.is_synced)
            late = make_query(f"late.{SVC}", "A").to_wire()
            assert address_in(await over_udp(port, late)) == "NXDOMAIN"
            made = service("late", ["None"])
            informers.give(SERVICES, [*SERVICES_GIVEN, made])
            of_late = piece("late", endpoint("10.244.7.7"))
            informers.give(ENDPOINT_SLICES, [of_late])
            assert address_in(await over_udp(port, late)) == "10.244.7.7"
            moved = piece("other", endpoint("10.244.7.7"), name="late-ipv4")
            moved["metadata"]["resourceVersion"] = "2"
            informers.give(ENDPOINT_SLICES, [{**moved, "metadata": {
                **moved["metadata"], "uid": of_late["metadata"]["uid"]}}])  # fmt: skip
            assert address_in(await over_udp(port, late)) == "NXDOMAIN"
            informers.give(SERVICES, [])
            assert address_in(await over_udp(port, WEB)) == "NXDOMAIN"

    asyncio.run(body())


def test_names_of_pods_that_are_there() -> None:
    async def body() -> None:
        informers = GivenInformers()
        informers.give_all()

        def pod(phase: str, version: str) -> dict[str, Any]:
            own = {**meta("p"), "resourceVersion": version}
            return {"metadata": own, "status": {"phase": phase, "podIPs": [{"ip": "10.244.0.77"}]}}

        settings = DnsSettings(Options(pods=VERIFIED), clients=LOOPBACK)
        async with serving(settings, informers) as (server, port):
            await eventually(lambda: server.is_synced)
            wire = make_query("10-244-0-77.default.pod.cluster.local", "A").to_wire()
            assert address_in(await over_udp(port, wire)) == "NXDOMAIN"
            informers.give(PODS, [pod("Running", "1")])
            assert address_in(await over_udp(port, wire)) == "10.244.0.77"
            informers.give(PODS, [pod("Succeeded", "2")])
            assert address_in(await over_udp(port, wire)) == "NXDOMAIN"

    asyncio.run(body())


def test_who_is_not_of_the_cluster_gets_no_answer() -> None:
    async def body() -> None:
        settings = DnsSettings(clients=[ip_network("10.244.0.0/16")])
        async with serving(settings) as (server, port):
            await eventually(lambda: server.is_synced)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
                asking.setblocking(False)
                asking.connect(("127.0.0.1", port))
                asking.send(WEB)
                await eventually(lambda: server.clients.refused == 1)
                with pytest.raises(BlockingIOError):
                    asking.recv(1)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await over_tcp(port, WEB)

    asyncio.run(body())


def test_nodes_and_their_pods_may_ask() -> None:
    async def body() -> None:
        informers = GivenInformers()
        informers.give_all()
        settings = DnsSettings(nodes_may_ask=True)
        async with serving(settings, informers) as (server, _port):
            assert not server.clients.allows("127.0.0.1")
            node = {
                "metadata": {"name": "n", "resourceVersion": "1"},
                "spec": {"podCIDRs": ["127.0.0.0/24", "fd00::/64"]},
                "status": {"addresses": [{"address": "192.0.2.1"}, {"address": "a-name"}]},
            }
            informers.give(NODES, [node])
            allowed = ("127.0.0.1", "192.0.2.1", "fd00::7", "127.0.1.1", "192.0.2.2", "fe80::1%lo")
            found = [server.clients.allows(each) for each in allowed]
            assert found == [True, True, True, False, False, False]
            informers.give(NODES, [])
            assert not server.clients.allows("192.0.2.1")

    asyncio.run(body())
    assert networks_of({}) == ()


def test_a_node_that_claims_the_world_lets_nobody_ask() -> None:
    """What a node says of itself is neither checked by the API nor believed here."""
    hostile = ["0.0.0.0/0", "10.0.0.0/8", "::/0", "fd00::/8", "nonsense", "10.244.1.0/24"]
    addresses = [{"type": "InternalIP"}, {"address": "nonsense"}, {"address": "fe80::1%a}"}]
    addresses += [{"address": f"192.0.2.{each}"} for each in range(200)]
    node = {"spec": {"podCIDRs": hostile}, "status": {"addresses": addresses}}
    found = networks_of(node)
    assert found[0] == ip_network("10.244.1.0/24")
    assert len(found) <= 1 + ADDRESSES_MAX
    assert all(each.prefixlen >= 24 for each in found)


def test_forged_addresses_take_nobodys_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvstack.agents.dns.clients.KNOWN_MAX", 100)
    clients = Clients([ip_network("10.0.0.0/24")], per_second=3)
    clients.begin(10.0)
    for each in range(300):
        assert not clients.admits(f"192.0.{each // 250}.{each % 250}")
    assert clients.refused == 300
    assert clients.admits("10.0.0.7")


def test_one_client_does_not_take_the_turns_of_another() -> None:
    clients = Clients(LOOPBACK, per_second=3)
    clients.begin(10.0)
    assert [clients.admits("127.0.0.1") for _ in range(5)] == [True] * 3 + [False] * 2
    assert clients.admits("127.0.0.2")
    clients.begin(10.5)
    assert not clients.admits("127.0.0.1")
    clients.begin(11.0)
    assert clients.admits("127.0.0.1")


def test_clients_are_counted_up_to_a_number() -> None:
    clients = Clients([ip_network("10.0.0.0/8")], per_second=3)
    clients.begin(0.0)
    for number in range(KNOWN_MAX):
        assert clients.admits(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert not clients.admits("10.9.9.9")


def test_hostile_datagrams_do_not_stop_the_server() -> None:
    async def body() -> None:
        chance = random.Random(7)
        async with serving() as (server, port):
            await eventually(lambda: server.is_synced)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
                asking.connect(("127.0.0.1", port))
                for size in (0, 1, 11, 12, 13, 17, 512, 4096, 9000, 65_000) * 5:
                    asking.send(chance.randbytes(size))
                    await asyncio.sleep(0)
            assert address_in(await over_udp(port, WEB)) == "10.96.0.7"

    asyncio.run(body())


async def ended(*sent: bytes) -> tuple[bytes, float]:
    """Send bytes over TCP, no more; return what came until the end, and after how long it came."""
    loop = asyncio.get_running_loop()
    informers = GivenInformers()
    informers.give_all()
    async with serving(informers=informers) as (server, _):
        await eventually(lambda: server.is_synced)
        datagrams, streams = open_pair("127.0.0.1", 0)
        datagrams.close()
        shared = (server.responder, server.clients, server.traffic, server.faults, SystemClock())
        short = TcpPort(streams, *shared, informers.log, idle_s=0.3, read_s=0.3)
        short.start()
        try:
            host, port = streams.getsockname()
            reader, writer = await asyncio.open_connection(host, port)
            began_s = loop.time()
            for each in sent:
                writer.write(each)
                await writer.drain()
            try:
                async with asyncio.timeout(20):
                    found = await reader.read()
            except ConnectionResetError:
                found = b""
            writer.close()
            return found, loop.time() - began_s
        finally:
            await short.stop()


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [b"\0"],
        [b"\xff\xff" + b"x" * 100],
        [b"\0\x0b" + b"x" * 11],
        [b"\0\0"],
        [len(WEB).to_bytes(2, "big") + WEB[:-1]],
        [b"\0\x0c" + b"\x80" * 12],
    ],
    ids=["nothing", "half a length", "giant", "short", "empty", "unfinished", "an answer"],
)
def test_a_connection_that_does_not_go_on_is_ended(sent: list[bytes]) -> None:
    found, _ = asyncio.run(ended(*sent))
    assert found == b""


def test_a_connection_may_be_idle_between_queries_for_a_while_only() -> None:
    found, spent_s = asyncio.run(ended(len(WEB).to_bytes(2, "big") + WEB))
    assert address_in(found[2:]) == "10.96.0.7"
    assert spent_s >= 0.3


def test_a_client_has_so_many_connections() -> None:
    async def body() -> None:
        async with serving() as (server, port):
            await eventually(lambda: server.is_synced)
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(OF_CLIENT_MAX)]
            _, streams = server._ports
            assert isinstance(streams, TcpPort)
            await eventually(lambda: streams._open["127.0.0.1"] == OF_CLIENT_MAX)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await over_tcp(port, WEB)
            assert address_in(await over_udp(port, WEB)) == "10.96.0.7"
            for _, writer in held:
                writer.close()
            await eventually(lambda: not streams._open)
            assert [address_in(each) for each in await over_tcp(port, WEB)] == ["10.96.0.7"]

    assert OF_CLIENT_MAX < tcp_port.CONNECTIONS_MAX
    asyncio.run(body())


def test_addresses_that_are_not_there_yet_or_are_none() -> None:
    async def body() -> None:
        async with serving() as (server, port):
            assert await server.listen("192.0.2.53", port) == port  # not of this machine
            for host in ("0.0.0.0", "::", "localhost", ""):
                with pytest.raises(ConfigError, match="cannot answer DNS on"):
                    await server.listen(host, 0)
            with pytest.raises(ConfigError, match=f"127.0.0.1 port {port}: Address already in use"):
                await server.listen("127.0.0.1", port)

    asyncio.run(body())


def test_nothing_is_left_open() -> None:
    async def body() -> None:
        async with serving() as (_server, port):
            await over_udp(port, WEB)

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(body())
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_machine_asks_from_any_of_its_addresses() -> None:
    looked: list[str] = []

    def is_of_machine(host: str) -> bool:
        looked.append(host)
        return host == "198.18.0.7"

    clients = Clients((ip_network("10.0.0.0/8"),), is_own=is_of_machine)
    for _ in range(2):
        assert clients.allows("198.18.0.7")
        assert not clients.allows("198.18.0.8")
        assert clients.allows("10.1.1.1")
    assert looked == ["198.18.0.7", "198.18.0.8"]
    assert not Clients(()).allows("198.18.0.7")


def test_an_address_that_the_machine_may_not_have_yet() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("198.51.100.7")
    for each in open_pair("198.51.100.7", 0):  # queries are received once it has it
        each.close()


def test_the_pages() -> None:
    class GivenClock(SystemClock):
        seconds = 0.0

        @override
        def monotonic_s(self) -> float:
            return self.seconds

    async def body(server: DnsServer, port: int, informers: GivenInformers) -> None:
        allowed = {"127.0.0.1"}
        places = {"/health": "127.0.0.1:0", "/ready": "127.0.0.1:0", "/metrics": "127.0.0.1:0"}
        clock = GivenClock()
        pages = DnsPages(server, "dns://:53", places, clock, lambda host: host in allowed)
        await pages.start()
        try:
            (url,) = pages.urls
            allowed.clear()
            assert (await get(f"{url}/metrics"))[0] == 403
            allowed.add("127.0.0.1")
            assert await get(f"{url}/health") == (200, b"OK")
            assert await get(f"{url}/ready") == (503, b"kubernetes")
            informers.give_all()
            await eventually(lambda: server.is_synced)
            assert await get(f"{url}/ready") == (200, b"OK")
            assert (await get(f"{url}/nothing"))[0] == 404
            await over_udp(port, WEB)
            await over_udp(port, make_query(f"x.{SVC}", "TYPE4711").to_wire())
            await over_tcp(port, WEB)
            text = (await get(f"{url}/metrics"))[1].decode()
            for line in (
                'coredns_dns_requests_total{family="1",proto="udp",server="dns://:53",type="A",'
                'view="",zone="."} 1',
                'coredns_dns_requests_total{family="1",proto="udp",server="dns://:53",type="other",'
                'view="",zone="."} 1',
                'coredns_dns_requests_total{family="1",proto="tcp",server="dns://:53",type="A",'
                'view="",zone="."} 1',
                'rcode="NXDOMAIN",server="dns://:53",view="",zone="."} 1',
                'coredns_dns_request_duration_seconds_count{server="dns://:53",view="",zone="."} 3',
            ):
                assert line in text, text
            # Another page is made a second later, not at each request.
            await over_tcp(port, WEB)
            assert (await get(f"{url}/metrics"))[1].decode() == text
            clock.seconds += 1
            later = (await get(f"{url}/metrics"))[1].decode()
            assert 'seconds_count{server="dns://:53",view="",zone="."} 4' in later
        finally:
            await pages.stop()

    async def run() -> None:
        informers = GivenInformers()
        async with serving(informers=informers) as (server, port):
            await body(server, port, informers)

    asyncio.run(run())
