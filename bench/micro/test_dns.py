"""What a query of the cluster DNS costs: its answer alone, and over a socket of the loopback.

`pytest bench/micro/test_dns.py` prints the table; inside the whole test run each body runs once.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from ipaddress import ip_network

import pytest
from dns.message import make_query
from pytest_benchmark.fixture import BenchmarkFixture

from kvstack.agents.dns.clients import Clients
from kvstack.agents.dns.cluster import Cluster
from kvstack.agents.dns.faults import Faults
from kvstack.agents.dns.responder import Responder
from kvstack.agents.dns.sockets import open_pair
from kvstack.agents.dns.traffic import Traffic
from kvstack.agents.dns.udp_port import UdpPort
from kvstack.component.clock import SystemClock
from tests.support.list_log import ListLog

SERVICES, QUERIES, AHEAD = 10_000, 2000, 32


def responder() -> Responder:
    """Return one that knows very many Services."""
    cluster = Cluster()
    cluster.put_namespace("default")
    for number in range(SERVICES):
        ip = f"10.{96 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        spec = {"clusterIP": ip, "ports": [{"name": "http", "port": 80}]}
        meta = {"namespace": "default", "name": f"web-{number}"}
        cluster.put_service({"metadata": meta, "spec": spec}, 1)
    found = Responder(cluster, None)
    found.is_synced = True
    return found


def query(number: int) -> bytes:
    name = f"web-{number % SERVICES}.default.svc.cluster.local"
    return make_query(name, "A", use_edns=0).to_wire()


def test_an_answer_that_was_given_before(benchmark: BenchmarkFixture) -> None:
    own, wires = responder(), [query(number) for number in range(QUERIES)]

    def answer_all() -> int:
        return sum(isinstance(own.at_once(wire), bytes) for wire in wires)

    assert answer_all() == QUERIES
    assert benchmark(answer_all) == QUERIES


def test_an_answer_that_was_not(benchmark: BenchmarkFixture) -> None:
    own, wires = responder(), [query(number) for number in range(QUERIES)]

    def answer_all() -> int:
        for number in range(QUERIES):
            own.changed(("default", f"web-{number}"))
        return sum(isinstance(own.at_once(wire), bytes) for wire in wires)

    assert benchmark(answer_all) == QUERIES


@pytest.fixture
def port() -> Iterator[int]:
    """Give the port of a server in a thread."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    datagrams, streams = open_pair("127.0.0.1", 0)
    streams.close()
    number = datagrams.getsockname()[1]
    clients = Clients([ip_network("127.0.0.0/8")], per_second=10_000_000)
    clock = SystemClock()
    faults = Faults(clock, ListLog())
    own = UdpPort(datagrams, responder(), clients, Traffic(), faults, clock)

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(own.start)
        loop.call_soon(started.set)
        loop.run_forever()
        loop.run_until_complete(own.stop())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait(10)
    yield number
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def test_datagrams(benchmark: BenchmarkFixture, port: int) -> None:
    """The client, in this process too, takes part of the time."""
    wires = [query(number) for number in range(QUERIES)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(10)
        asking.connect(("127.0.0.1", port))

        def ask_all() -> int:
            return _ask(asking, wires)

        assert ask_all() == QUERIES
        assert benchmark(ask_all) == QUERIES


def _ask(asking: socket.socket, wires: list[bytes]) -> int:
    """Ask, so many ahead of the answers; return how many came."""
    send: Callable[[bytes], int] = asking.send
    for wire in wires[:AHEAD]:
        send(wire)
    count = 0
    for wire in (*wires[AHEAD:], *([b""] * AHEAD)):
        asking.recv(2000)
        count += 1
        if wire:
            send(wire)
    return count
