"""An HTTP/2 server that answers calls as a script says, rightly or not.

async def script(call):            call.path, call.message
    call.head(); call.send(message(b"...")); call.end()

async with ScriptedServer(script) as server: ...   server.endpoint
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Self

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

from tests.support.network.tcp_listener import TcpListener


def message(body: bytes, flag: int = 0) -> bytes:
    """Frame one gRPC message."""
    return struct.pack(">BI", flag, len(body)) + body


class Call:
    """One request that has come whole, or a stream whose messages come."""

    def __init__(self, connection: "_Connection", stream: int, headers: dict[str, str]) -> None:
        self._connection = connection
        self.stream = stream
        self.headers = headers
        self.body = b""

    @property
    def path(self) -> str:
        return self.headers[":path"]

    @property
    def messages(self) -> list[bytes]:
        found, at = [], 0
        while at + 5 <= len(self.body):
            size = struct.unpack(">I", self.body[at + 1 : at + 5])[0]
            found.append(self.body[at + 5 : at + 5 + size])
            at += 5 + size
        return found

    def head(self, status: int = 200, kind: str = "application/grpc", **more: str) -> None:
        self._head(status, kind, more, is_all=False)

    def refuse(self, status: str, text: str) -> None:
        """Answer with a head alone."""
        more = {"grpc_status": status, "grpc_message": text}
        self._head(200, "application/grpc", more, is_all=True)

    def _head(self, status: int, kind: str, more: dict[str, str], *, is_all: bool) -> None:
        headers = [(":status", str(status)), ("content-type", kind)]
        headers += [(name.replace("_", "-"), value) for name, value in more.items()]
        self._connection.h2.send_headers(self.stream, headers, end_stream=is_all)
        self._connection.flush()

    async def first_message(self) -> bytes:
        """Return the first message of a stream, once it is there."""
        while not self.messages:
            await self._connection.heard()
        return self.messages[0]

    async def send_all(self, data: bytes) -> None:
        """Send as the windows allow."""
        protocol = self._connection.h2
        while data:
            room = min(
                protocol.local_flow_control_window(self.stream), protocol.max_outbound_frame_size
            )
            if room <= 0:
                await self._connection.heard()
                continue
            self.send(data[:room])
            data = data[room:]

    def send(self, data: bytes, *, is_last: bool = False) -> None:
        self._connection.h2.send_data(self.stream, data, end_stream=is_last)
        self._connection.flush()

    def end(self, status: str | None = "0", text: str = "", **more: str) -> None:
        headers = [("grpc-status", status)] if status is not None else [("x", "y")]
        headers += [("grpc-message", text)] if text else []
        headers += [(name.replace("_", "-"), value) for name, value in more.items()]
        self._connection.h2.send_headers(self.stream, headers, end_stream=True)
        self._connection.flush()

    def answer(self, body: bytes) -> None:
        """Answer as a server should."""
        self.head()
        self.send(message(body))
        self.end()

    def reset(self, code: h2.errors.ErrorCodes) -> None:
        self._connection.h2.reset_stream(self.stream, code)
        self._connection.flush()

    def go_away(self, last: int, code: int = 0) -> None:
        self._connection.h2.close_connection(code, last_stream_id=last)
        self._connection.flush()

    def raw(self, data: bytes) -> None:
        self._connection.writer.write(data)

    def hang_up(self) -> None:
        self._connection.writer.transport.abort()


Script = Callable[[Call], Awaitable[None]]


class _Connection:
    def __init__(self, script: Script, writer: asyncio.StreamWriter) -> None:
        config = h2.config.H2Configuration(
            client_side=False, header_encoding="utf-8", validate_outbound_headers=False
        )
        self.h2 = h2.connection.H2Connection(config)
        self.writer = writer
        self._script = script
        self._calls: dict[int, Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    async def heard(self) -> None:
        """Wait until the client has said something more."""
        self._news.clear()
        await self._news.wait()

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    async def serve(self, reader: asyncio.StreamReader) -> None:
        self.h2.initiate_connection()
        self.flush()
        try:
            while data := await reader.read(1 << 16):
                for event in self.h2.receive_data(data):
                    self._take(event)
                self.flush()
                self._news.set()
        except (OSError, h2.exceptions.ProtocolError):
            pass
        finally:
            for task in self._tasks:
                task.cancel()
            self.writer.transport.abort()

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            headers = {str(name): str(value) for name, value in event.headers}
            call = self._calls[event.stream_id] = Call(self, event.stream_id, headers)
            if call.path.endswith(("/Watch", "/LeaseKeepAlive")):
                self._begin(call)
        elif isinstance(event, h2.events.DataReceived):
            self._calls[event.stream_id].body += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self._begin(self._calls[event.stream_id])

    def _begin(self, call: Call) -> None:
        async def play() -> None:
            try:
                await self._script(call)
            except (h2.exceptions.ProtocolError, KeyError, OSError):
                return  # the client has left the stream

        task = asyncio.create_task(play())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class ScriptedServer:
    """Serves a script on loopback."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = TcpListener(self._serve)

    @property
    def endpoint(self) -> str:
        return self._listener.endpoint

    @property
    def connections(self) -> int:
        """How many there have been."""
        return self._listener.connections

    async def __aenter__(self) -> Self:
        self._listener.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _Connection(self._script, writer).serve(reader)
