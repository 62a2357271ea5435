"""Clients of HTTP/1.1 and HTTP/2 on asyncio, for tests: the same few verbs for both.

async with connect(url, "h2") as client:
    reply = await client.ask("GET", "/x")
    stream = await client.open("POST", "/y"); await stream.send(b"..."); await stream.end()
    await stream.head(); async for piece in stream.pieces(): ...
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h11
from typing_extensions import override

Headers = Sequence[tuple[str, str]]
WAIT_S = 60.0


class TornError(Exception):
    """The answer ended before it was whole, or never came."""


class Reply(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


class Stream:
    """One request and its answer."""

    async def send(self, data: bytes) -> None:
        raise NotImplementedError

    async def end(self) -> None:
        raise NotImplementedError

    async def head(self) -> tuple[int, list[tuple[str, str]]]:
        raise NotImplementedError

    async def read(self) -> bytes:
        """Return what comes next of the body; empty at its end, TornError if it is torn off."""
        raise NotImplementedError

    async def pieces(self) -> AsyncIterator[bytes]:
        while piece := await self.read():
            yield piece

    async def reply(self) -> Reply:
        status, headers = await self.head()
        return Reply(status, headers, b"".join([piece async for piece in self.pieces()]))

    async def leave(self) -> None:
        """Go away."""
        raise NotImplementedError


class Client:
    host = "test"
    is_lazy = False  # does not read unless it is asked to

    async def open(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        *,
        has_body: bool = False,
        **_: object,
    ) -> Stream:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def ask(
        self, method: str, target: str, headers: Headers = (), body: bytes | None = None
    ) -> Reply:
        if body is not None:
            headers = [*headers, ("content-length", str(len(body)))]
        stream = await self.open(method, target, headers, has_body=bool(body))
        if body:
            await stream.send(body)
            await stream.end()
        return await stream.reply()


class H1Client(Client, Stream):
    """One connection of HTTP/1.1, which is its own stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.h11 = h11.Connection(h11.CLIENT)

    @override
    async def open(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        *,
        has_body: bool = False,
        **_: object,
    ) -> Stream:
        if self.h11.our_state is h11.DONE:
            self.h11.start_next_cycle()
        names = {name.lower() for name, _ in headers}
        own = [(n.encode(), v.encode()) for n, v in (("host", self.host), *headers)]
        if has_body and not names & {"content-length", "transfer-encoding"}:
            own.append((b"transfer-encoding", b"chunked"))
        await self._send(h11.Request(method=method, target=target, headers=own))
        if not has_body:
            await self._send(h11.EndOfMessage())
        return self

    async def _send(self, event: h11.Event) -> None:
        self.writer.write(self.h11.send(event) or b"")
        await self.writer.drain()

    @override
    async def send(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    @override
    async def end(self) -> None:
        await self._send(h11.EndOfMessage())

    async def _event(self) -> h11.Event | type[h11.PAUSED | h11.NEED_DATA]:
        while True:
            try:
                event = self.h11.next_event()
            except h11.RemoteProtocolError as error:
                raise TornError(str(error)) from None
            if event is not h11.NEED_DATA:
                return event
            try:
                self.h11.receive_data(await self.reader.read(65536))
            except ConnectionError as error:
                raise TornError(str(error)) from None

    @override
    async def head(self) -> tuple[int, list[tuple[str, str]]]:
        async with asyncio.timeout(WAIT_S):
            event = await self._event()
        if not isinstance(event, h11.Response | h11.InformationalResponse):
            raise TornError(f"no answer: {event}")
        headers = [(n.decode(), v.decode("utf-8", "surrogateescape")) for n, v in event.headers]
        return event.status_code, headers

    @override
    async def read(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            event = await self._event()
        if isinstance(event, h11.Response):
            return await self.read()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        assert isinstance(event, h11.EndOfMessage), event
        return b""

    async def raw(self) -> bytes:
        """Return bytes that follow a 101; empty at the end."""
        if rest := self.h11.trailing_data[0]:
            self.h11 = h11.Connection(h11.CLIENT)
            return bytes(rest)
        async with asyncio.timeout(WAIT_S):
            return await self.reader.read(65536)

    @override
    async def leave(self) -> None:
        await self.close()

    @override
    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await self.writer.wait_closed()


class H2Client(Client):
    """A connection of HTTP/2 with its streams."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        auto_credit: bool = True,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.auto_credit = auto_credit  # give back what was received, so that more comes
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        self.streams: dict[int, _H2Stream] = {}
        self.goaway: h2.events.ConnectionTerminated | None = None
        self.is_over = False
        self.begun = b""
        self.changed = asyncio.Condition()
        self.task = asyncio.create_task(self._run())

    async def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())
        await self.writer.drain()

    async def _run(self) -> None:
        try:
            await self.flush()
            while data := await self.reader.read(65536):
                for frame in self._frames(data):
                    for event in self.h2.receive_data(frame):
                        self._take(event)
                await self.flush()
                async with self.changed:
                    self.changed.notify_all()
        except (OSError, h2.exceptions.ProtocolError):
            pass
        finally:
            self.is_over = True
            for stream in self.streams.values():
                stream.is_over = True
            async with self.changed:
                self.changed.notify_all()

    def _frames(self, data: bytes) -> Iterator[bytes]:
        """Yield whole frames: h2 refuses those that come with a GOAWAY, after it."""
        self.begun += data
        while len(self.begun) >= 9:
            end = 9 + int.from_bytes(self.begun[:3], "big")
            if len(self.begun) < end:
                return
            frame, self.begun = self.begun[:end], self.begun[end:]
            yield frame

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = event
            # For h2 all is over then; but what was asked before is still answered.
            self.h2.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN
            return
        number = getattr(event, "stream_id", None)
        stream = self.streams.get(number) if number else None
        if stream is None:
            return
        if isinstance(event, h2.events.ResponseReceived):
            stream.headers = [(str(name), str(value)) for name, value in event.headers or ()]
        elif isinstance(event, h2.events.DataReceived):
            stream.data += event.data or b""
            if self.auto_credit:
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, stream.number)
        elif isinstance(event, h2.events.StreamEnded):
            stream.is_ended = stream.is_over = True
        elif isinstance(event, h2.events.StreamReset):
            stream.is_over = True
            stream.reset = event.error_code

    async def until(self, condition: object) -> None:
        async with asyncio.timeout(WAIT_S), self.changed:
            await self.changed.wait_for(condition)  # type: ignore[arg-type]

    @override
    async def open(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        *,
        has_body: bool = False,
        **_: object,
    ) -> "Stream":
        number = self.h2.get_next_available_stream_id()
        stream = self.streams[number] = _H2Stream(self, number)
        own = [
            (":method", method),
            (":scheme", "http"),
            (":authority", self.host),
            (":path", target),
            *headers,
        ]
        self.h2.send_headers(number, own, end_stream=not has_body)
        await self.flush()
        return stream

    @override
    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await self.writer.wait_closed()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class _H2Stream(Stream):
    def __init__(self, client: H2Client, number: int) -> None:
        self.client = client
        self.number = number
        self.headers: list[tuple[str, str]] = []
        self.data = b""
        self.is_ended = False
        self.is_over = False
        self.reset: int | None = None

    @override
    async def send(self, data: bytes) -> None:
        client = self.client
        while data:
            await client.until(
                lambda: self.is_over or client.h2.local_flow_control_window(self.number) > 0
            )
            if self.is_over:
                raise TornError(f"reset {self.reset}")
            size = min(client.h2.local_flow_control_window(self.number), 16_384, len(data))
            client.h2.send_data(self.number, data[:size])
            data = data[size:]
            await client.flush()

    @override
    async def end(self) -> None:
        if not self.is_over:
            self.client.h2.end_stream(self.number)
            await self.client.flush()

    @override
    async def head(self) -> tuple[int, list[tuple[str, str]]]:
        await self.client.until(lambda: self.headers or self.is_over)
        if not self.headers:
            raise TornError(f"no answer, reset {self.reset}")
        status, *rest = self.headers
        return int(status[1]), rest

    @override
    async def read(self) -> bytes:
        await self.client.until(lambda: self.data or self.is_over)
        data, self.data = self.data, b""
        if not data and not self.is_ended:
            raise TornError(f"reset {self.reset}")
        return data

    @override
    async def leave(self) -> None:
        self.client.h2.reset_stream(self.number, h2.errors.ErrorCodes.CANCEL)
        await self.client.flush()


@contextlib.asynccontextmanager
async def connect(
    url: str,
    protocol: str = "h1",
    context: ssl.SSLContext | None = None,
    *,
    server_name: str = "localhost",
    auto_credit: bool = True,
    read_limit: int = 1 << 16,
) -> AsyncIterator[Client]:
    """Connect with "h1" or "h2"; a context is told what to offer."""
    parts = urlsplit(url)
    if context is not None:
        context.set_alpn_protocols(["h2"] if protocol == "h2" else ["http/1.1"])
    name = server_name if context is not None else None
    async with asyncio.timeout(WAIT_S):
        if parts.scheme.startswith("unix"):
            reader, writer = await asyncio.open_unix_connection(
                parts.netloc + parts.path, ssl=context, server_hostname=name, limit=read_limit
            )
        else:
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port, ssl=context, server_hostname=name, limit=read_limit
            )
    client: Client
    if protocol == "h2":
        client = H2Client(reader, writer, auto_credit=auto_credit)
    else:
        client = H1Client(reader, writer)
    try:
        yield client
    finally:
        await client.close()
