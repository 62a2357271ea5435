"""The streams of one SPDY connection.

    session = Session(pipe, is_client=True)
    stream = await session.open({"streamtype": "stdin"})       client
    stream = await session.accept()                            server; None at the end
    await stream.write(b"…"); stream.finish(); await stream.read()

A stream that is not read blocks the whole connection once much has arrived for it, as in TCP.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from kvstack.component.streams.spdy import frames
from kvstack.component.streams.spdy.frames import Codec, Frame, SpdyError
from kvstack.component.streams.spdy.pipes import Pipe

_PIECES_MAX: Final = 256
_REPLY_S: Final = 30.0
_STREAMS_MAX: Final = 1000


class SessionOverError(ConnectionError):
    """The connection has ended."""


class Stream:
    """One stream of bytes, both ways."""

    def __init__(self, session: "Session", number: int, headers: Mapping[str, str]) -> None:
        """Created by its session."""
        self.id: Final = number
        self.headers: Final = headers
        self._session = session
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(_PIECES_MAX)
        self._is_over = False
        self._is_finished = False
        self._replied = asyncio.Event()

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end."""
        if self._is_over and self._pieces.empty():
            return b""
        piece = await self._pieces.get()
        if not piece:
            self._is_over = True
        return piece

    async def write(self, data: bytes) -> None:
        """Send bytes; raises SessionOverError."""
        if data and not self._is_finished:
            await self._session.send(self._session.codec.data(self.id, data))

    async def finish(self) -> None:
        """End the sending side."""
        if not self._is_finished:
            self._is_finished = True
            await self._session.send(self._session.codec.data(self.id, b"", fin=True))

    async def reset(self) -> None:
        """Reset the stream."""
        self._is_finished = True
        await self._session.send(self._session.codec.reset(self.id))
        self._session.forget(self.id)
        self.end()

    async def add(self, data: bytes) -> None:
        """Take received bytes."""
        if data:
            await self._pieces.put(data)

    def end(self) -> None:
        """Note that nothing more will be received."""
        self._is_over = True
        self._replied.set()
        if self._pieces.empty():
            self._pieces.put_nowait(b"")

    def reply(self) -> None:
        """Note that the other side has accepted the stream."""
        self._replied.set()

    async def replied(self) -> None:
        """Wait until the other side has accepted the stream."""
        await self._replied.wait()


class Session:
    """One connection; use it on one loop."""

    def __init__(self, pipe: Pipe, *, is_client: bool) -> None:
        """Start reading immediately."""
        self.codec: Final = Codec(is_client=is_client)
        self._pipe = pipe
        self._streams: dict[int, Stream] = {}
        self._waiting: asyncio.Queue[Stream | None] = asyncio.Queue(_STREAMS_MAX)
        self._writing = asyncio.Lock()
        self._is_over = False
        loop = asyncio.get_running_loop()
        self._reader = loop.create_task(self._read(), name="SPDY connection")

    async def open(self, headers: Mapping[str, str]) -> Stream:
        """Open a stream, and wait until the other side has accepted it; SessionOverError."""
        number, data = self.codec.syn_stream(headers)
        stream = self._streams[number] = Stream(self, number, headers)
        await self.send(data)
        try:
            async with asyncio.timeout(_REPLY_S):
                await stream.replied()
        except TimeoutError as error:
            raise SessionOverError("the other side refused the stream") from error
        return stream

    async def accept(self) -> Stream | None:
        """Return the next stream that the other side opened; None: the connection has ended."""
        return await self._waiting.get()

    async def send(self, data: bytes) -> None:
        """Send frames; raises SessionOverError."""
        if self._is_over:
            raise SessionOverError("the connection has ended")
        async with self._writing:
            try:
                await self._pipe.write(data)
            except OSError as error:
                raise SessionOverError(str(error)) from error

    def forget(self, number: int) -> None:
        """Forget a stream."""
        self._streams.pop(number, None)

    async def close(self) -> None:
        """End the connection."""
        self._is_over = True
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._pipe.close()

    def drop(self) -> None:
        """Abort the connection."""
        self._is_over = True
        self._reader.cancel()
        self._pipe.close()

    async def _read(self) -> None:
        try:
            while data := await self._pipe.read():
                for frame in self.codec.receive(data):
                    await self._take(frame)
        except (SpdyError, OSError):
            self._pipe.close()  # invalid bytes end the connection with all its streams
        finally:
            self._is_over = True
            for each in list(self._streams.values()):
                each.end()
            if not self._waiting.full():
                self._waiting.put_nowait(None)

    async def _take(self, frame: Frame) -> None:
        if frame.kind == frames.PING:
            if frame.status % 2 != self._own_parity():
                await self.send(self.codec.ping(frame.status))
            return
        if frame.kind == frames.SYN_STREAM:
            await self._opened(frame)
            return
        stream = self._streams.get(frame.id)
        if stream is None:
            return
        if frame.kind == frames.DATA:
            await stream.add(frame.data)
        elif frame.kind == frames.SYN_REPLY:
            stream.reply()
        if frame.is_last or frame.kind == frames.RST_STREAM:
            stream.end()
        if frame.kind == frames.RST_STREAM:
            self.forget(frame.id)

    async def _opened(self, frame: Frame) -> None:
        if len(self._streams) >= _STREAMS_MAX or frame.id in self._streams:
            await self.send(self.codec.reset(frame.id, frames.REFUSED))
            return
        stream = self._streams[frame.id] = Stream(self, frame.id, frame.headers)
        if frame.is_last:
            stream.end()
        await self.send(self.codec.reply(frame.id))
        await self._waiting.put(stream)

    def _own_parity(self) -> int:
        return 1 if self.codec.is_client else 0
