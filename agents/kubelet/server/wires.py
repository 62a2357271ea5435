"""The streams of a command over a connection: channels of a WebSocket, streams of SPDY.

async for kind, data in wire.events(): …      what the client sends
await wire.send(1, b"…")                      output; 2: errors
await wire.end(status)                        how it ended; then the connection is closed

The channels of a WebSocket are in `kvstack/component/streams/channels`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final, Protocol

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.streams.channels import END, ERRORS, INPUT, OUTPUT, SIZE, Wants
from kvstack.component.streams.spdy.session import Session, SessionOverError, Stream

_WAIT_S: Final = 30.0
_TYPES: Final = {"stdin": INPUT, "stdout": OUTPUT, "stderr": ERRORS, "error": END, "resize": SIZE}


class WireError(Exception):
    """A client does not open the streams that it announced."""


class Wire(Protocol):
    """A connection that carries the streams of a command."""

    def events(self) -> AsyncIterator[tuple[int, bytes | None]]:
        """Give what the client sends: input (None: it is over) and sizes; ends when it leaves."""
        ...

    async def send(self, stream: int, data: bytes) -> None:
        """Send output or errors; raises OSError when the client has gone."""
        ...

    async def end(self, status: Object) -> None:
        """Send the exit status of the command, and close the connection; raises OSError."""
        ...

    async def drop(self) -> None:
        """Close the connection."""
        ...


class SpdyWire:
    """Streams of a SPDY connection."""

    def __init__(self, session: Session, streams: Mapping[int, Stream], protocol: str) -> None:
        """streams: by the numbers of channels."""
        self._session = session
        self._streams = streams
        self._has_status = protocol.startswith("v4")

    async def events(self) -> AsyncIterator[tuple[int, bytes | None]]:
        """Give what the client sends."""
        queue: asyncio.Queue[tuple[int, bytes | None] | None] = asyncio.Queue(8)
        loop = asyncio.get_running_loop()

        async def read(kind: int) -> None:
            while data := await self._streams[kind].read():
                await queue.put((kind, data))
            if kind == INPUT:
                await queue.put((INPUT, None))

        async def watch() -> None:
            # Only the end of the connection is still expected.
            while (extra := await self._session.accept()) is not None:
                await extra.reset()
            await queue.put(None)

        kinds = [kind for kind in (INPUT, SIZE) if kind in self._streams]
        tasks = [*(loop.create_task(read(kind)) for kind in kinds), loop.create_task(watch())]
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, stream: int, data: bytes) -> None:
        """Send output or errors."""
        if stream in self._streams:
            await self._streams[stream].write(data)

    async def end(self, status: Object) -> None:
        """Send the exit status of the command."""
        if self._has_status:
            await self._streams[END].write(orjson.dumps(status))
        elif status["status"] != "Success":
            await self._streams[END].write(status["message"].encode())
        for each in self._streams.values():
            await each.finish()
        await self._session.close()

    async def drop(self) -> None:
        """Close the connection."""
        await self._session.close()


async def spdy_wire(session: Session, wants: Wants, protocol: str) -> SpdyWire:
    """Wait for the streams that a client wants; raises WireError."""
    wanted = {END}
    wanted |= {INPUT} if wants.input else set()
    wanted |= {OUTPUT} if wants.output else set()
    wanted |= {ERRORS} if wants.errors and not wants.tty else set()
    wanted |= {SIZE} if wants.tty and protocol.startswith(("v3", "v4")) else set()
    streams: dict[int, Stream] = {}
    try:
        async with asyncio.timeout(_WAIT_S):
            while wanted - streams.keys():
                stream = await session.accept()
                if stream is None:
                    raise WireError("the client has gone")
                kind = _TYPES.get(stream.headers.get("streamtype", ""))
                if kind is None:
                    await stream.reset()
                else:
                    streams[kind] = stream
    except (TimeoutError, SessionOverError) as error:
        raise WireError("timed out waiting for client to create streams") from error
    return SpdyWire(session, streams, protocol)
