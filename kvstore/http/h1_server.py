"""A small HTTP/1.1 server on the side loop: for the addresses that are no client port.

    accept ─► (TLS) ─► h11 ─► Request, Responder ─► handler
                        ▲ bytes read on while the handler runs: the rest of the body, or the end

It serves --listen-metrics-urls and --listen-client-http-urls. A connection has one request at a
time; a client that goes away cancels its handler. What is read ahead, unread and unsent is bounded,
and so are connections, header bytes and the time for a header or a handshake. Parsing is h11's;
paths, methods and bodies mean nothing here.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import h11

from kvstore.http.exchange import Headers, Request, Responder
from kvstore.logger import Logger
from kvstore.transport.tls_errors import in_go_words

CONNECTIONS_MAX: Final = 1024
HEADER_BYTES_MAX: Final = 64 << 10
HEADER_S_MAX: Final = 300.0  # for the next request's header, also when idle
HANDSHAKE_S_MAX: Final = 10.0
_READ_BYTES: Final = 64 << 10
_PIECES_MAX: Final = 16  # of a body that its handler has not taken
_LEFT_OVER_MAX: Final = 256 << 10  # of a body nobody wanted, read so that the answer arrives
_LINGER_S: Final = 1.0
_ACCEPT_AGAIN_S: Final = 0.2
_PLAIN: Final = ("Content-Type", "text/plain; charset=utf-8")

Handler = Callable[[Request, Responder], Awaitable[None]]
MakeContext = Callable[[], ssl.SSLContext]
Admit = Callable[[dict[str, object], str], str]  # (certificate, remote address) → its common name


class H1Server:
    """Listens on one address."""

    def __init__(
        self,
        listening: socket.socket,
        handler: Handler,
        logger: Logger,
        *,
        make_context: MakeContext | None = None,
        admit: Admit | None = None,
    ) -> None:
        """Take a listening socket; with make_context, TLS with what it returns for each connection.

        admit is given a client's verified certificate and raises ssl.SSLError if it is not
        welcome.
        """
        self._listening = listening
        self._handler = handler
        self._logger = logger
        self._make_context = make_context
        self._admit = admit
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: set[_Connection] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._is_draining = False

    async def run(self) -> None:
        """Accept and serve until cancelled."""
        self._accepting = asyncio.create_task(self._accept(), name="http accept")
        try:
            await asyncio.wait([self._accepting])
            if not self._accepting.cancelled():
                self._accepting.result()
            await asyncio.Event().wait()  # drained: connections go on until this is cancelled
        finally:
            tasks = [self._accepting, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def drain(self) -> None:
        """Accept nothing more and close each connection once its request is answered."""
        self._is_draining = True
        if self._accepting is not None:
            self._accepting.cancel()
        for connection in self._connections:
            connection.end_when_idle()

    @property
    def is_drained(self) -> bool:
        """Whether, since drain(), every request is answered, or its answer streams; any thread."""
        return self._is_draining and not any(each.is_asked for each in list(self._connections))

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        try:
            while True:
                try:
                    raw, _ = await loop.sock_accept(self._listening)
                except OSError as error:  # out of files, say: those that are open end some time
                    self._logger.warning("cannot accept a connection", error=str(error))
                    await asyncio.sleep(_ACCEPT_AGAIN_S)
                    continue
                if len(self._tasks) >= CONNECTIONS_MAX:
                    self._logger.warning(
                        "closed a connection: too many are open", limit=CONNECTIONS_MAX
                    )
                    raw.close()
                    continue
                task = loop.create_task(self._serve(raw), name="http connection")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            self._listening.close()

    async def _serve(self, raw: socket.socket) -> None:
        remote = _host_of(raw)
        try:
            reader, writer, name = await self._open(raw, remote)
        except (OSError, TimeoutError) as error:
            self._logger.warning(
                "rejected connection on client endpoint",
                remote_addr=remote,
                error=in_go_words(str(error)),
            )
            raw.close()
            return
        connection = _Connection(reader, writer)
        connection.remote_ip = remote
        connection.is_tls = self._make_context is not None
        connection.common_name = name
        self._connections.add(connection)
        if self._is_draining:
            connection.end_when_idle()
        try:
            await connection.serve(self._handler)
        except (OSError, TimeoutError):
            pass  # the client's affair: there is nobody to tell
        except Exception as error:
            self._logger.error("an HTTP handler failed", remote_addr=remote, error=repr(error))
        finally:
            self._connections.discard(connection)
            writer.close()
            with suppress(OSError, TimeoutError):
                await writer.wait_closed()

    async def _open(
        self, raw: socket.socket, remote: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
        """Shake hands; return the streams and the client's common name."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_READ_BYTES)
        context = None if self._make_context is None else self._make_context()
        transport, protocol = await loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader),
            raw,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_S_MAX,
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        certificate = transport.get_extra_info("peercert")
        name = ""
        if certificate and self._admit is not None:
            try:
                # It may look names up, which waits.
                name = await asyncio.to_thread(self._admit, certificate, remote)
            except OSError:
                transport.abort()
                raise
        return reader, writer, name


class _Connection:
    """One connection: its requests, one after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)
        self.remote_ip = ""
        self.is_tls = False
        self.common_name = ""
        self.is_given_over = False
        self.is_asked = False  # a request came that no answer has begun to
        self._is_last = False  # after this request
        self._is_idle = True
        self.reading: asyncio.Task[None] | None = None

    async def serve(self, handler: Handler) -> None:
        """Serve requests until either side has had enough."""
        while True:
            try:
                async with asyncio.timeout(HEADER_S_MAX):
                    head = await self._next_head()
            except h11.RemoteProtocolError as error:
                await self._refuse(error)
                return
            if head is None:
                return
            self._is_idle = False
            self.is_asked = True
            try:
                await self._handle(head, handler)
            finally:
                self.is_asked = False
            if self.is_given_over or not await self._is_reusable() or self._is_last:
                return
            self._is_idle = True
            self.h11.start_next_cycle()

    def end_when_idle(self) -> None:
        """Serve no request after the one that is being served; close at once if there is none."""
        self._is_last = True
        if self._is_idle:
            self.writer.close()

    async def _next_head(self) -> h11.Request | None:
        while True:
            event = self.h11.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                return None
            self.h11.receive_data(await self.reader.read(_READ_BYTES))

    async def _handle(self, head: h11.Request, handler: Handler) -> None:
        body = _StreamedBody(self)
        respond = _Answer(self, body, is_head=head.method == b"HEAD")
        request = Request(
            method=head.method.decode("ascii"),
            target=head.target.decode("ascii"),
            headers=[
                (name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers
            ],
            body=body,
            remote_ip=self.remote_ip,
            is_tls=self.is_tls,
            common_name=self.common_name,
        )
        self.reading = asyncio.create_task(body.read_on(), name="http body")
        handling = asyncio.ensure_future(handler(request, respond))
        both = (handling, self.reading)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if handling.done() or self.is_given_over:
                await handling
        except OSError:
            raise
        except Exception:
            if self.h11.our_state is h11.SEND_RESPONSE:
                await respond.whole(500, [_PLAIN], b"internal error\n")
            raise
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def send(self, event: h11.Event) -> None:
        """Send an event; waits while the client does not read."""
        data = self.h11.send(event)
        if data:
            self.writer.write(data)
            await self.writer.drain()

    async def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """Say what is wrong with a header, as Go does."""
        if self.h11.our_state is not h11.IDLE and self.h11.our_state is not h11.SEND_RESPONSE:
            return
        status = HTTPStatus(error.error_status_hint)
        body = f"{status.value} {status.phrase}: {error}".encode()
        headers = [_PLAIN, ("Connection", "close")]
        await self.send(_head(status.value, [*headers, ("Content-Length", str(len(body)))]))
        await self.send(h11.Data(data=body))
        await self.send(h11.EndOfMessage())
        await self._linger()

    async def _linger(self) -> None:
        """Read what still comes, for a while: closing at once could take the answer away."""
        if self.writer.can_write_eof():
            self.writer.write_eof()
        left = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while left <= _LEFT_OVER_MAX and (data := await self.reader.read(_READ_BYTES)):
                    left += len(data)

    async def _is_reusable(self) -> bool:
        """Tell whether another request may follow; reads what little is left of the last body."""
        left = 0
        with suppress(h11.RemoteProtocolError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while self.h11.their_state is h11.SEND_BODY and left <= _LEFT_OVER_MAX:
                    event = self.h11.next_event()
                    if event is h11.NEED_DATA:
                        if self.h11.they_are_waiting_for_100_continue:
                            return False
                        data = await self.reader.read(_READ_BYTES)
                        left += len(data)
                        self.h11.receive_data(data)
        return self.h11.our_state is h11.DONE and self.h11.their_state is h11.DONE


class _StreamedBody:
    """A request's body as it arrives, and the watch for the client's end."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_PIECES_MAX)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Give the pieces; the handler is cancelled if the client ends before the body does."""
        connection = self._connection
        if connection.h11.they_are_waiting_for_100_continue:
            await connection.send(h11.InformationalResponse(status_code=100, headers=[]))
        while True:
            piece = await self._pieces.get()
            if piece is None:
                return
            yield piece

    async def read_on(self) -> None:
        """Read until the client is gone."""
        connection = self._connection
        while connection.h11.their_state is h11.SEND_BODY:
            try:
                event = connection.h11.next_event()
            except h11.RemoteProtocolError:
                return
            if event is h11.NEED_DATA:
                connection.h11.receive_data(await connection.reader.read(_READ_BYTES))
            elif isinstance(event, h11.Data):
                await self._pieces.put(bytes(event.data))
        await self._pieces.put(None)
        while not connection.is_given_over:
            # What comes now is the next request, which may wait, or the end.
            data = await connection.reader.read(_READ_BYTES)
            if not data:
                return
            connection.h11.receive_data(data)
            if len(connection.h11.trailing_data[0]) > HEADER_BYTES_MAX:
                await asyncio.Event().wait()


class _Answer:
    """The way to answer one request."""

    def __init__(self, connection: _Connection, body: _StreamedBody, *, is_head: bool) -> None:
        self._connection = connection
        self._body = body
        self._is_head = is_head

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        await self._connection.send(_head(status, [*headers, ("Content-Length", str(len(body)))]))
        if body and not self._is_head:
            await self._connection.send(h11.Data(data=body))
        await self._connection.send(h11.EndOfMessage())

    async def start(self, status: int, headers: Headers) -> None:
        self._connection.is_asked = False
        await self._connection.send(_head(status, [*headers, ("Transfer-Encoding", "chunked")]))

    async def write(self, data: bytes) -> None:
        if not self._is_head:
            await self._connection.send(h11.Data(data=data))

    async def finish(self) -> None:
        await self._connection.send(h11.EndOfMessage())

    async def upgrade(self, headers: Headers) -> "_RawSocket":
        connection = self._connection
        connection.is_given_over = True
        connection.is_asked = False
        if connection.reading is not None:
            connection.reading.cancel()
            await asyncio.gather(connection.reading, return_exceptions=True)
        event = h11.InformationalResponse(
            status_code=101, reason=b"Switching Protocols", headers=_encoded(headers)
        )
        await connection.send(event)
        return _RawSocket(connection)


class _RawSocket:
    """The connection after 101."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._ahead: bytes = connection.h11.trailing_data[0]

    async def read(self) -> bytes:
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            return ahead
        return await self._connection.reader.read(_READ_BYTES)

    async def write(self, data: bytes) -> None:
        self._connection.writer.write(data)
        await self._connection.writer.drain()


def _head(status: int, headers: Headers) -> h11.Response:
    dated = [*headers, ("Date", formatdate(usegmt=True))]
    return h11.Response(
        status_code=status, reason=_reason(status).encode(), headers=_encoded(dated)
    )


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), _one_line(value)) for name, value in headers]


def _one_line(value: str) -> bytes:
    """A header's value must be one line; an error's text may not be."""
    return value.replace("\r", " ").replace("\n", " ").strip().encode("utf-8", "replace")


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"status code {status}"


def _host_of(raw: socket.socket) -> str:
    try:
        name = raw.getpeername()
    except OSError:
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""
