"""What carries the bytes of a connection both ways."""

import asyncio
from typing import Final, Protocol

_PIECE: Final = 64 << 10


class Pipe(Protocol):
    """Bytes, both ways."""

    async def read(self) -> bytes:
        """Return the next bytes; empty when the other side sends no more."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while too many are unsent. OSError."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class SocketPipe:
    """A socket that this side opened."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry what comes after an upgrade."""
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """Return the next bytes."""
        return await self._reader.read(_PIECE)

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        """End the connection."""
        self._writer.close()
