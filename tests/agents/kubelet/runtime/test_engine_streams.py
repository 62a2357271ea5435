"""Streams of a container engine: what its streaming server says over SPDY/3.1."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kvstack.agents.kubelet.runtime.cri.streams import open_command, open_port
from kvstack.agents.kubelet.runtime.runtime import ConnectError, StartError
from kvstack.component.streams.spdy.session import Session
from tests.support.network.tcp_listener import TcpListener

FAILED = (
    b'{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"7"}]},'
    b'"reason":"NonZeroExitCode"}'
)


class ServerPipe:
    """The engine's side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        return await self._reader.read(65_536)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


def run(
    answer: Callable[[Session], Awaitable[None]],
    main: Callable[[str], Awaitable[None]],
    head: bytes = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n\r\n",
) -> str:
    """Return the request that an engine got, which answers so."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(head)
        if b" 101 " in head:
            session = Session(ServerPipe(reader, writer), is_client=False)
            try:
                await answer(session)
            finally:
                session.drop()

    async def body() -> None:
        async with TcpListener(serve) as server, asyncio.timeout(30):
            await main(f"http://127.0.0.1:{server.port}/exec/t?a=b")

    asyncio.run(body())
    return seen[0].decode()


async def nothing(_session: Session) -> None:
    return


def test_a_command() -> None:
    async def answer(session: Session) -> None:
        streams = {}
        for _ in range(4):
            stream = await session.accept()
            assert stream is not None
            streams[stream.headers["streamtype"]] = stream
        await streams["stdout"].write(b"got " + await streams["stdin"].read())
        await streams["error"].write(FAILED)
        for name in ("stdout", "stderr", "error"):
            await streams[name].finish()
        await asyncio.Event().wait()  # until the client has gone

    async def main(url: str) -> None:
        command = await open_command(url, tty=False)
        await command.write(b"hello")
        command.close_input()
        assert await command.read() == (1, b"got hello")
        assert await command.read() == (0, b"")
        assert await command.wait() == 7
        command.close()

    request = run(answer, main)
    assert request.startswith("POST /exec/t?a=b HTTP/1.1\r\nHost: 127.0.0.1:")
    for line in ("Connection: Upgrade", "Upgrade: SPDY/3.1", "Content-Length: 0"):
        assert f"\r\n{line}\r\n" in request


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "answers 404"),
        (b"nonsense\r\n\r\n", "malformed HTTP response"),
        (b"", "EOF"),
    ],
)
def test_an_engine_that_refuses(head: bytes, why: str) -> None:
    async def main(url: str) -> None:
        with pytest.raises(StartError, match=why):
            await open_command(url, tty=False)

    run(nothing, main, head)


def test_urls_that_lead_nowhere() -> None:
    async def main() -> None:
        for url in ("unix:///run/x", "http://127.0.0.1:1/"):
            with pytest.raises(ConnectError):
                await open_port(url, 80)

    asyncio.run(main())
