"""Forwards ports of a pod: pairs of streams over SPDY, or channels of a WebSocket.

SPDY        error and data of a connection have the same `requestid`; many pairs a connection
WebSocket   channels 2i (data) and 2i+1 (errors) of port i; each begins with the port's number
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from kvstack.agents.kubelet.runtime.runtime import ConnectError
from kvstack.agents.kubelet.runtime.runtime import Stream as Connection
from kvstack.component.http.serving.request import ClientGoneError
from kvstack.component.streams.spdy.session import Session, SessionOverError, Stream
from kvstack.component.streams.websocket import WebSocket

Connect: TypeAlias = Callable[[int], Awaitable[Connection]]
"""Connects with a port of the pod; ConnectError."""

_PIECE: Final = 64 << 10
_PAIR_S: Final = 30.0
_PORT_MAX: Final = 65535


class SpdyForwarder:
    """Serves one connection of SPDY."""

    def __init__(self, session: Session, pod: str, connect: Connect) -> None:
        """pod: as errors name it."""
        self._session = session
        self._pod = pod
        self._connect = connect
        self._pairs: dict[str, dict[str, Stream]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Forward until the client leaves."""
        try:
            while (stream := await self._session.accept()) is not None:
                self._opened(stream)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._session.close()

    def _opened(self, stream: Stream) -> None:
        kind = stream.headers.get("streamtype", "")
        number = stream.headers.get("requestid") or str(
            stream.id if kind == "error" else stream.id - 2
        )
        if kind not in ("error", "data"):
            self._begin(stream.reset())
            return
        pair = self._pairs.setdefault(number, {})
        pair[kind] = stream
        if len(pair) == 2:
            del self._pairs[number]
            self._begin(self._forward(pair["error"], pair["data"]))
        else:
            self._begin(self._expire(number, pair))

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(_quiet(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _expire(self, number: str, pair: dict[str, Stream]) -> None:
        await asyncio.sleep(_PAIR_S)
        if self._pairs.get(number) is pair:
            del self._pairs[number]
            for each in pair.values():
                await each.reset()

    async def _forward(self, errors: Stream, data: Stream) -> None:
        text = errors.headers.get("port", "")
        try:
            reader, writer = await self._connect(_port(text))
        except ConnectError as error:
            message = f"error forwarding port {text} to pod {self._pod}, uid : {error}"
            await errors.write(message.encode())
            await errors.finish()
            await data.reset()
            return
        await carry(data, reader, writer)
        await data.finish()
        await errors.finish()


def _port(text: str) -> int:
    if text.isdecimal() and 0 < int(text) <= _PORT_MAX:
        return int(text)
    raise ConnectError(f'unable to parse "{text}" as a port')


async def _quiet(work: Awaitable[None]) -> None:
    try:
        await work
    except SessionOverError:
        return  # the client has left


async def carry(data: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry both ways until both have ended."""

    async def inwards() -> None:
        try:
            while piece := await data.read():
                writer.write(piece)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            return  # the pod has stopped reading

    async def outwards() -> None:
        try:
            while piece := await reader.read(_PIECE):
                await data.write(piece)
        except ConnectionResetError:
            return  # the pod has broken it off, which ends the stream

    coming = asyncio.ensure_future(inwards())
    try:
        # The pod's direction decides: when it has ended, further input is never read.
        await outwards()
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        writer.close()


async def forward_channels(
    socket: WebSocket, ports: Sequence[int], pod: str, connect: Connect
) -> None:
    """Forward over channels of a WebSocket until the client leaves."""
    for number, port in enumerate(ports):
        port_bytes = struct.pack("<H", port)
        await socket.send(bytes((2 * number,)) + port_bytes)
        await socket.send(bytes((2 * number + 1,)) + port_bytes)
    writers: dict[int, asyncio.StreamWriter] = {}
    tasks: list[asyncio.Task[None]] = []

    async def outwards(number: int, reader: asyncio.StreamReader) -> None:
        try:
            while piece := await reader.read(_PIECE):
                await socket.send(bytes((2 * number,)) + piece)
        except OSError:
            return  # one of both has gone

    try:
        for number, port in enumerate(ports):
            try:
                reader, writers[number] = await connect(port)
            except ConnectError as error:
                text = f"error forwarding port {port} to pod {pod}, uid : {error}"
                await socket.send(bytes((2 * number + 1,)) + text.encode())
                continue
            tasks.append(asyncio.ensure_future(outwards(number, reader)))
        while (message := await socket.receive()) is not None:
            writer = writers.get(message[0] // 2) if message and message[0] % 2 == 0 else None
            if writer is not None:
                writer.write(message[1:])
                await writer.drain()
    except (ClientGoneError, ConnectionError):
        return
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers.values():
            writer.close()
        socket.drop()
