"""The streams of a command as channels of a WebSocket.

    wire = WebSocketWire(socket, "v5.channel.k8s.io")
    async for kind, data in wire.events(): …      what the client sends
    await wire.send(OUTPUT, b"…"); await wire.end(status)

A message is channel + data: 0 input, 1 output, 2 errors, 3 end, 4 size of the terminal.
FF 00 from the client ends its input (v5).
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.streams.websocket import WebSocket

INPUT, OUTPUT, ERRORS, END, SIZE = 0, 1, 2, 3, 4
_CLOSE: Final = 255
_GOODBYE_S: Final = 5.0


class Wants(NamedTuple):
    """The streams that a client requests."""

    input: bool
    output: bool
    errors: bool
    tty: bool


class WebSocketWire:
    """Channels of a WebSocket."""

    def __init__(self, socket: WebSocket, protocol: str) -> None:
        """protocol: the negotiated one."""
        self._socket = socket
        self._is_base64 = "base64" in protocol
        self._has_status = protocol.startswith(("v4", "v5"))
        self._has_close = protocol.startswith("v5")

    async def begin(self, wants: Wants) -> None:
        """Notify the client that the streams are open."""
        await self.send(OUTPUT if wants.output else ERRORS if wants.errors else END, b"")

    async def events(self) -> AsyncIterator[tuple[int, bytes | None]]:
        """Yield the client's messages."""
        while (message := await self._socket.receive()) is not None:
            if not message:
                continue
            channel, data = message[0], message[1:]
            if self._is_base64:
                channel -= ord("0")
                data = base64.b64decode(data)
            if channel in (INPUT, SIZE) and data:
                yield channel, data
            elif channel == _CLOSE and self._has_close and data == b"\x00":
                yield INPUT, None

    async def send(self, stream: int, data: bytes) -> None:
        """Send output or errors."""
        if self._is_base64:
            message = str(stream).encode() + base64.b64encode(data)
            await self._socket.send(message, is_text=True)
        else:
            await self._socket.send(bytes((stream,)) + data)

    async def end(self, status: Object) -> None:
        """Send the result of the command."""
        if self._has_status:
            await self.send(END, orjson.dumps(status))
        elif status["status"] != "Success":
            await self.send(END, status["message"].encode())
        await self._socket.close()

    async def part(self) -> None:
        """Wait, after `end`, for the client's close frame; nothing else may read meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                while await self._socket.receive() is not None:
                    continue

    async def drop(self) -> None:
        """Close the connection."""
        self._socket.drop()


def failed_status(text: str) -> Object:
    """Return the Status of a command that could not be run."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {text}",
        "reason": "InternalError",
        "details": {"causes": [{"message": text}]},
        "code": 500,
    }
