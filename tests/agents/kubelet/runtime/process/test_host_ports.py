"""Ports of the node where no program writes rules: listeners of the node pass them on to pods."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.process.host_ports import HostPorts
from kvstack.agents.kubelet.runtime.runtime import (
    ContainerConfig,
    Port,
    Runtime,
    Sandbox,
    StartError,
)
from tests.agents.kubelet.runtime.conformance.runtimes import IMAGE, opened, own_uid
from tests.support.network.ports import free_ports
from tests.support.programs import path_of
from tests.support.waiting import answered, eventually

LOOPBACK, POD = "127.0.0.1", "127.0.0.2"
ANSWER = "while :; do echo pod | nc -l -p 8080; done"


@asynccontextmanager
async def ports() -> AsyncIterator[HostPorts]:
    made = HostPorts()
    try:
        yield made
    finally:
        made.close()


@asynccontextmanager
async def serving(host: str, port: int) -> AsyncIterator[None]:
    def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"pod\n")
        writer.close()

    server = await asyncio.start_server(answer, host, port)
    try:
        yield
    finally:
        server.close()


async def read_port(port: int, host: str = LOOPBACK) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return await reader.readline()
    finally:
        writer.close()


async def is_refused(port: int) -> bool:
    try:
        await read_port(port)
    except ConnectionError:
        return True
    return False


def test_a_port_leads_to_its_pod_until_it_is_dropped() -> None:
    async def story() -> None:
        host, target = free_ports(2)
        async with ports() as made, serving(POD, target):
            port = Port(target, host, host_ip=LOOPBACK)
            await made.serve("one", (POD, "::1"), [port])
            await made.serve("one", (POD, "::1"), [port])  # it listens already
            assert await read_port(host) == b"pod\n"
            with pytest.raises(StartError, match=f"hostPort {LOOPBACK}:{host}/TCP: .*in use"):
                await made.serve("two", (POD,), [port])
            made.drop("one")
            await eventually(lambda: _can_bind(host))
            await made.serve("two", (POD,), [port])
            assert await read_port(host) == b"pod\n"

    asyncio.run(story())


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def test_packets_are_passed_on() -> None:
    async def story() -> None:
        host, target = free_ports(2)
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as pod:
            pod.bind((POD, target))
            pod.setblocking(False)
            async with ports() as made:
                await made.serve("one", (POD,), [Port(target, host, "UDP", LOOPBACK)])
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                    client.setblocking(False)
                    await loop.sock_sendto(client, b"ask", (LOOPBACK, host))
                    data, relay = await loop.sock_recvfrom(pod, 100)
                    assert data == b"ask"
                    await loop.sock_sendto(pod, b"answer", relay)
                    assert await loop.sock_recv(client, 100) == b"answer"

    asyncio.run(story())


def test_what_cannot_be_passed_on_is_refused_and_leaves_no_listener() -> None:
    async def story() -> None:
        (host,) = free_ports(1)
        async with ports() as made:
            both = [Port(1, host, host_ip=LOOPBACK), Port(2, host, "SCTP")]
            with pytest.raises(StartError, match=f"hostPort {host}/SCTP needs the program nft"):
                await made.serve("one", (POD,), both)
            assert await is_refused(host)

    asyncio.run(story())


def test_a_pod_of_a_machine_without_these_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after its node was started again."""
    uid = own_uid("host-port")
    (host,) = free_ports(1)
    port = Port(8080, host, host_ip=LOOPBACK)
    (tmp_path / "pods" / uid).mkdir(parents=True)
    logs = str(tmp_path / "logs" / f"ns_web_{uid}")
    sandbox = Sandbox(uid, "web", "ns", "web", logs, ports=[port])

    async def answers() -> None:
        async def is_heard() -> bool:
            try:
                return await read_port(host) == b"pod\n"
            except OSError:
                return False

        await answered(is_heard)

    async def start(runtime: Runtime) -> None:
        await runtime.make_sandbox(sandbox)
        image = await runtime.find_image(IMAGE)
        command = ["sh", "-c", ANSWER]
        await runtime.start(ContainerConfig(sandbox, "c", 0, IMAGE, image.id, command=command))

    async def story() -> None:
        async with opened("process", tmp_path) as runtime:
            if not runtime.has_network:
                pytest.skip("networks cannot be made here")
            await start(runtime)
            await answers()
        async with opened("process", tmp_path) as runtime:
            await answers()
            for each in runtime.of_pod(uid):
                await runtime.stop(each.id, 0)
            await runtime.stop_sandbox(uid)
            assert await is_refused(host)
            await runtime.remove_pod(uid)

    needed = ("unshare", "busybox", "ldd", "bash", "cat")  # not nft, not iptables
    monkeypatch.setenv("PATH", path_of(tmp_path, *needed))
    asyncio.run(story())
