"""A small HTTP/1.1 server on the side loop, for the addresses that are not the client port's.

    accept ─► (TLS) ─► h11 ─► PageRequest, Responder ─► handler
                        ▲ reads on while the handler runs: the rest of the body, or the end

It serves --listen-metrics-urls and, beside grpcio, --listen-client-http-urls. A connection has one
request at a time. A handler is cancelled when its client goes away. Bytes that are read ahead,
unread or unsent are bounded, and so are connections, header bytes and the time for a header or a
handshake. h11 does the parsing. Nothing is known here of the meaning of paths, methods and bodies.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, SupportsIndex

import h11
from typing_extensions import override

from kvstack.component.logger import Logger
from kvstack.component.net.accepting import Activity, accept_connections, longest_idle
from kvstack.component.net.descriptors import is_silent
from kvstack.component.net.listening import peer_host
from kvstack.component.net.tls_errors import go_error_text
from kvstore.batch import HttpHeaders
from kvstore.http.exchange import PLAIN_TEXT, PageHandler, PageRequest

CONNECTIONS_MAX: Final = 1024
HEADER_BYTES_MAX: Final = 64 << 10
HEADER_S_MAX: Final = 300.0  # for the next request's header, also when idle
HANDSHAKE_S_MAX: Final = 10.0
_READ_BYTES: Final = 64 << 10
_PIECES_MAX: Final = 16  # pieces of a body that its handler has not read
_UNREAD_BYTES_MAX: Final = 256 << 10  # of a body the handler left, read so that the answer arrives
_LINGER_S: Final = 1.0

MakeContext = Callable[[], ssl.SSLContext]
Admit = Callable[[dict[str, object], str], str]  # (certificate, remote address) → its common name


class H1Server:
    """Listens on one address."""

    def __init__(
        self,
        listening: socket.socket,
        handler: PageHandler,
        logger: Logger,
        *,
        make_context: MakeContext | None = None,
        admit: Admit | None = None,
    ) -> None:
        """Serve a listening socket; make_context returns the TLS context of each connection.

        admit gets a client's verified certificate; it raises OSError to refuse it.
        """
        self._listening = listening
        self._handler = handler
        self._logger = logger
        self._make_context = make_context
        self._admit = admit
        self._tasks: set[asyncio.Task[None]] = set()
        # Those whose clients have sent nothing, the oldest first.
        self._silent: dict[asyncio.Task[None], tuple[socket.socket, _Reader]] = {}
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
            await asyncio.Event().wait()  # draining: connections go on until this is cancelled
        finally:
            tasks = [self._accepting, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def drain(self) -> None:
        """Accept no more connections, and close each one once its request is answered."""
        self._is_draining = True
        if self._accepting is not None:
            self._accepting.cancel()
        for connection in self._connections:
            connection.end_when_idle()

    @property
    def is_drained(self) -> bool:
        """Whether, since drain(), every request is answered or its answer is being streamed.

        From any thread.
        """
        return self._is_draining and not any(each.is_waiting for each in list(self._connections))

    async def _accept(self) -> None:
        await accept_connections(
            self._listening,
            self._begin,
            lambda: (len(self._tasks), CONNECTIONS_MAX),
            self._logger,
            self._close_one,
        )

    def _close_one(self) -> bool:
        """Close the oldest connection that has sent nothing, but not the newest one.

        Where there is none, close one that is idle; see longest_idle.
        """
        silent = (
            task
            for task, (raw, reader) in self._silent.items()
            if not reader.has_read and is_silent(raw)
        )
        oldest, newer = next(silent, None), next(silent, None)
        if oldest is None or newer is None:
            connection = longest_idle([(each, each.activity) for each in self._connections])
            if connection is not None:
                connection.abort()
            return connection is not None
        del self._silent[oldest]
        oldest.cancel()
        return True

    def _begin(self, raw: socket.socket) -> None:
        reader = _Reader(limit=_READ_BYTES)
        task = asyncio.create_task(self._serve(raw, reader), name="http connection")
        self._tasks.add(task)
        self._silent[task] = raw, reader
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._silent.pop(task, None)

    async def _serve(self, raw: socket.socket, reader: "_Reader") -> None:
        remote = _host_of(raw)
        try:
            writer, name = await self._open(raw, reader, remote)
        except (OSError, TimeoutError) as error:
            self._logger.warning(
                "rejected connection on client endpoint",
                remote_addr=remote,
                error=go_error_text(str(error)),
            )
            raw.close()
            return
        task = asyncio.current_task()
        if self._make_context is not None and task is not None:
            self._silent.pop(task, None)  # it has done the handshake
        connection = _Connection(raw, reader, writer)
        connection.remote_ip = remote
        connection.is_tls = self._make_context is not None
        connection.common_name = name
        self._connections.add(connection)
        if self._is_draining:
            connection.end_when_idle()
        try:
            await connection.serve(self._handler)
        except (OSError, TimeoutError):
            pass  # the connection broke or timed out: there is no client to answer
        except Exception as error:  # noqa: BLE001 - logged; other connections go on
            self._logger.error("an HTTP handler failed", remote_addr=remote, error=repr(error))
        finally:
            self._connections.discard(connection)
            writer.close()
            with suppress(OSError, TimeoutError):
                await writer.wait_closed()

    async def _open(
        self, raw: socket.socket, reader: "_Reader", remote: str
    ) -> tuple[asyncio.StreamWriter, str]:
        """Shake hands; return the writer and the client's common name."""
        loop = asyncio.get_running_loop()
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
                # In a thread, because it may look names up.
                name = await asyncio.to_thread(self._admit, certificate, remote)
            except OSError:
                transport.abort()
                raise
        return writer, name


class _Reader(asyncio.StreamReader):
    """What a client has sent; it knows when something arrived, before that is taken."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit)
        self.has_read = False
        self.active_s = time.monotonic()

    @override
    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        self.has_read = True
        self.active_s = time.monotonic()
        super().feed_data(data)


class _Connection:
    """One connection: its requests, one after another."""

    def __init__(
        self,
        raw: socket.socket,
        reader: _Reader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._raw = raw
        self.reader = reader
        self.writer = writer
        self.h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)
        self.remote_ip = ""
        self.is_tls = False
        self.common_name = ""
        self.is_upgraded = False
        self.is_waiting = False  # a request was received, and its answer has not begun
        self._is_closing = False  # after this request
        self._is_idle = True
        self._ended_s = 0.0  # when the last request ended
        self.reading: asyncio.Task[None] | None = None

    @property
    def activity(self) -> Activity:
        """What decides whether it is closed when descriptors run short."""
        active_s = max(self.reader.active_s, self._ended_s)
        return Activity(self.remote_ip, active_s, self._is_idle and is_silent(self._raw))

    def abort(self) -> None:
        """Close it at once."""
        self._is_idle = False  # it is not chosen once more
        self.writer.transport.abort()

    async def serve(self, handler: PageHandler) -> None:
        """Serve requests until either side ends the connection."""
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
            self.is_waiting = True
            try:
                await self._handle(head, handler)
            finally:
                self.is_waiting = False
            if self.is_upgraded or not await self._is_reusable() or self._is_closing:
                return
            self._is_idle = True
            self._ended_s = time.monotonic()
            self.h11.start_next_cycle()

    def end_when_idle(self) -> None:
        """Close after the request that is being served; at once if there is none."""
        self._is_closing = True
        if self._is_idle:
            self.writer.close()

    async def _next_head(self) -> h11.Request | None:
        while True:
            event = self.h11.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                return None
            data = await self.reader.read(_READ_BYTES)
            self.h11.receive_data(data)

    async def _handle(self, head: h11.Request, handler: PageHandler) -> None:
        body = _StreamedBody(self)
        respond = _Answer(self, body, is_head=head.method == b"HEAD")
        request = PageRequest(
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
            if handling.done() or self.is_upgraded:
                await handling
        except OSError:
            raise
        except Exception:
            if self.h11.our_state is h11.SEND_RESPONSE:
                await respond.whole(500, [PLAIN_TEXT], b"internal error\n")
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
        """Answer a malformed header as Go does."""
        if self.h11.our_state is not h11.IDLE and self.h11.our_state is not h11.SEND_RESPONSE:
            return
        status = HTTPStatus(error.error_status_hint)
        body = f"{status.value} {status.phrase}: {error}".encode()
        headers = [PLAIN_TEXT, ("Connection", "close")]
        await self.send(_head(status.value, [*headers, ("Content-Length", str(len(body)))]))
        await self.send(h11.Data(data=body))
        await self.send(h11.EndOfMessage())
        await self._linger()

    async def _linger(self) -> None:
        """Read what still arrives, for a while: a reset could make the client lose the answer."""
        if self.writer.can_write_eof():
            self.writer.write_eof()
        unread_bytes = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while unread_bytes <= _UNREAD_BYTES_MAX:
                    data = await self.reader.read(_READ_BYTES)
                    if not data:
                        return
                    unread_bytes += len(data)
                await asyncio.sleep(_LINGER_S)  # who sends more has as long to read the answer

    async def _is_reusable(self) -> bool:
        """Read the rest of the last body if it is short; return whether a request may follow."""
        unread_bytes = 0
        with suppress(h11.RemoteProtocolError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while self.h11.their_state is h11.SEND_BODY and unread_bytes <= _UNREAD_BYTES_MAX:
                    event = self.h11.next_event()
                    if event is h11.NEED_DATA:
                        if self.h11.they_are_waiting_for_100_continue:
                            return False
                        data = await self.reader.read(_READ_BYTES)
                        unread_bytes += len(data)
                        self.h11.receive_data(data)
        return self.h11.our_state is h11.DONE and self.h11.their_state is h11.DONE


class _StreamedBody:
    """A request's body as it arrives; its reader also notices when the client goes away."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_PIECES_MAX)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces; the handler is cancelled if the client goes away before the end."""
        connection = self._connection
        if connection.h11.they_are_waiting_for_100_continue:
            await connection.send(h11.InformationalResponse(status_code=100, headers=[]))
        while True:
            piece = await self._pieces.get()
            if piece is None:
                return
            yield piece

    async def read_on(self) -> None:
        """Read until the client goes away."""
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
        while not connection.is_upgraded:
            # This is the next request, which may wait, or the end of the connection.
            data = await connection.reader.read(_READ_BYTES)
            if not data:
                return
            connection.h11.receive_data(data)
            if len(connection.h11.trailing_data[0]) > HEADER_BYTES_MAX:
                await asyncio.Event().wait()


class _Answer:
    """Answers one request."""

    def __init__(self, connection: _Connection, body: _StreamedBody, *, is_head: bool) -> None:
        self._connection = connection
        self._body = body
        self._is_head = is_head

    async def whole(self, status: int, headers: HttpHeaders, body: bytes) -> None:
        await self._connection.send(_head(status, [*headers, ("Content-Length", str(len(body)))]))
        if body and not self._is_head:
            await self._connection.send(h11.Data(data=body))
        await self._connection.send(h11.EndOfMessage())

    async def start(self, status: int, headers: HttpHeaders) -> None:
        self._connection.is_waiting = False
        await self._connection.send(_head(status, [*headers, ("Transfer-Encoding", "chunked")]))

    async def write(self, data: bytes) -> None:
        if not self._is_head:
            await self._connection.send(h11.Data(data=data))

    async def finish(self) -> None:
        await self._connection.send(h11.EndOfMessage())

    async def upgrade(self, headers: HttpHeaders) -> "_RawConnection":
        connection = self._connection
        connection.is_upgraded = True
        connection.is_waiting = False
        if connection.reading is not None:
            connection.reading.cancel()
            await asyncio.gather(connection.reading, return_exceptions=True)
        event = h11.InformationalResponse(
            status_code=101, reason=b"Switching Protocols", headers=_encoded(headers)
        )
        await connection.send(event)
        return _RawConnection(connection)


class _RawConnection:
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


def _head(status: int, headers: HttpHeaders) -> h11.Response:
    dated = [*headers, ("Date", formatdate(usegmt=True))]
    return h11.Response(
        status_code=status, reason=_reason(status).encode(), headers=_encoded(dated)
    )


def _encoded(headers: HttpHeaders) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), _one_line(value)) for name, value in headers]


def _one_line(value: str) -> bytes:
    """Return a header's value as one line, which the text of an error may not be."""
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
    return peer_host(name) if isinstance(name, tuple) else ""
