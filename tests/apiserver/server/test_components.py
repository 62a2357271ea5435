"""How components are asked for their health."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kvstack.apiserver.server.components import ComponentStatuses, Health, ask_page, ask_store
from kvstore.client.errors import UnavailableError
from tests.apiserver.support.memory_store import MemoryStore
from tests.support.certificates import Authority
from tests.support.network.tcp_listener import TcpListener

REFUSED = "dial tcp 127.0.0.1:{port}: connect: connection refused"


@asynccontextmanager
async def _component(directory: Path, answer: bytes) -> AsyncIterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(directory).issue("component"))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /healthz HTTP/1.1\r\n")
        writer.write(answer)

    async with TcpListener(serve, tls=context) as server:
        yield server.port


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (b"HTTP/1.0 200 OK\r\nA: b\r\n\r\nok", Health("True", "ok")),
        (
            b"HTTP/1.1 500 Oh\r\n\r\nno",
            Health("False", "HTTP probe failed with statuscode: 500"),
        ),
    ],
)
def test_a_component_that_answers(tmp_path: Path, answer: bytes, health: Health) -> None:
    async def main() -> None:
        async with _component(tmp_path, answer) as port:
            assert await ask_page(port) == health

    asyncio.run(main())


def test_what_answers_no_http(tmp_path: Path) -> None:
    async def main() -> None:
        async with _component(tmp_path, b"hello") as port:
            assert (await ask_page(port)).status == "False"

    asyncio.run(main())


def test_nobody_is_there() -> None:
    """The text is Go's."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        port = held.getsockname()[1]
        found = asyncio.run(ask_page(port))
    expected = f'Get "https://127.0.0.1:{port}/healthz": {REFUSED.format(port=port)}'
    assert found == Health("False", expected)


def test_the_store() -> None:
    async def main() -> None:
        async with MemoryStore() as store:
            made = ComponentStatuses.of(store, "/registry/")
            assert made.names == ("controller-manager", "etcd-0", "scheduler")
            assert (await made.make("etcd-0"))["conditions"][0]["status"] == "True"
            store.failing = UnavailableError("no leader")
            assert await ask_store(store, b"k") == Health("False", error="no leader")

    asyncio.run(main())
