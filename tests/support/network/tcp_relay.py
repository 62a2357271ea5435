"""A TCP relay on loopback that can be cut, stalled and let go on, for clients under test.

async with TcpRelay(server_port) as relay:
    connect to 127.0.0.1:relay.port; relay.cut(); relay.refuse(); relay.accept()
"""

import asyncio
from typing import Self

from tests.support.network.tcp_listener import TcpListener


class TcpRelay:
    """Relays connections to one port."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = TcpListener(self._serve)
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def endpoint(self) -> str:
        return self._listener.endpoint

    @property
    def accepted(self) -> int:
        """How many connections there have been."""
        return self._listener.connections

    async def accept(self) -> None:
        """Take connections, on the port as before."""
        self._listener.open()

    async def refuse(self) -> None:
        """Cut what there is and take nothing new."""
        await self._listener.close()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    def stall(self) -> None:
        """Let nothing through, and keep the connections."""
        self._flows.clear()

    def flow(self) -> None:
        """Let everything through again."""
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other = await asyncio.open_connection("127.0.0.1", self._target_port)
        both = {writer, other}
        self._writers |= both
        try:
            await asyncio.gather(self._copy(reader, other), self._copy(other_reader, writer))
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
