"""The transport without the crate: HTTP/1.1 and TLS on asyncio, h11 and ssl.

    accept ─► (TLS) ─► H1Connection ─► one batch per loop iteration ─► the server

It serves the same as the native one except HTTP/2, at about ten times the cost. Differences: see
`portable_tls`; a client that half-closes its connection counts as disconnected.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from functools import partial
from typing import Final

from typing_extensions import override

from kvstack.component.errors import ConfigError
from kvstack.component.http.serving.listeners import Listener
from kvstack.component.http.serving.portable_connection import H1Connection
from kvstack.component.http.serving.portable_tls import ServerContexts
from kvstack.component.http.serving.transport import (
    Arrival,
    Connection,
    Headers,
    HttpTransport,
    Sink,
)
from kvstack.component.net import addresses
from kvstack.component.net.accepting import longest_idle, until_descriptors_are_left
from kvstack.component.net.descriptors import Descriptors, is_silent
from kvstack.component.net.listening import listen_tcp, peer_text
from kvstack.component.net.tls_errors import go_error_text

_BACKLOG: Final = 4096
_ACCEPT_RETRY_S: Final = 0.1
_SLICE: Final = 64  # requests handled in one iteration


class PortableTransport(HttpTransport):
    """See `kvstack.component.http.serving.transport`."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners
        self._sink: Sink | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._connections: dict[H1Connection, socket.socket] = {}  # the oldest first
        self._calls: dict[int, H1Connection] = {}
        self._unwritten: dict[int, H1Connection] = {}  # answers that have ended
        self._last_call = 0
        self._arrivals: list[Arrival] = []
        self._pieces: list[tuple[int, bytes]] = []
        self._ended: list[int] = []
        self._disconnected: list[int] = []
        self._writable: list[int] = []
        self._is_due = False
        self._next_closed: asyncio.Future[None] | None = None
        self.is_draining = False
        self._paths: list[str] = []  # of unix sockets

    @override
    async def start(self, sink: Sink) -> list[str]:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        bound_listeners: list[tuple[Listener, socket.socket, ServerContexts | None]] = []
        try:
            for listener in self._listeners:
                contexts = None if listener.tls is None else ServerContexts(listener.tls)
                bound_listeners.append((listener, self._bind(listener), contexts))
        except BaseException:
            for _, listening, _ in bound_listeners:
                listening.close()
            raise
        urls = []
        self._listening = [listening for _, listening, _ in bound_listeners]
        for listener, listening, contexts in bound_listeners:
            listening.setblocking(False)
            accepting = self._accept(listener, listening, contexts)
            self._accepting.append(self._loop.create_task(accepting, name="http accept"))
            if listening.family is socket.AF_UNIX:
                urls.append(listener.url)
            else:
                urls.append(addresses.bound_url(listener.url, listening.getsockname()[1]))
        return urls

    def _bind(self, listener: Listener) -> socket.socket:
        address = addresses.parse(listener.url, with_tls=listener.tls is not None)
        try:
            if isinstance(address, addresses.UnixAddress):
                addresses.remove_stale(address.path)
                listening = _listen_unix(address.path)
                self._paths.append(address.path)
                return listening
            return listen_tcp(address.host, address.port, _BACKLOG)
        except OSError as error:
            text = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            if isinstance(address, addresses.UnixAddress):
                text = addresses.unix_error(address.path)
            raise ConfigError(f"cannot listen on {listener.url}: {text}") from error

    # Connections.

    async def _accept(
        self, listener: Listener, listening: socket.socket, contexts: ServerContexts | None
    ) -> None:
        loop = asyncio.get_running_loop()
        descriptors = Descriptors()
        open_now: set[H1Connection] = set()
        limit = listener.limits.connections_max
        while True:
            try:
                raw, _ = await loop.sock_accept(listening)
            except OSError as error:
                self.on_notice(f"cannot accept connections: {error}")
                await asyncio.sleep(_ACCEPT_RETRY_S)
                await until_descriptors_are_left(descriptors, self.on_notice, self._close_silent)
                continue
            is_short = descriptors.are_short_with(raw.fileno())
            open_now &= self._connections.keys()
            if len(open_now) >= limit:
                self.on_notice(f"connection refused: limit {limit}: {_peer_of(raw)}")
                raw.close()
                continue
            peer = _peer_of(raw)
            connection = H1Connection(
                self,
                listener.limits,
                partial(self._make_connection, listener, contexts, peer),
                peer.rpartition(":")[0],
            )
            open_now.add(connection)
            self._connections[connection] = raw
            task = loop.create_task(self._open(listener, raw, contexts, connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)
            if is_short:
                await until_descriptors_are_left(descriptors, self.on_notice, self._close_silent)

    def _close_silent(self) -> bool:
        """Close the oldest connection that has sent nothing, but not the newest one.

        Where there is none, close the one that is idle for longest: of the host with idle ones that
        has most connections.
        """
        silent = (
            connection
            for connection, raw in self._connections.items()
            if connection.is_silent and is_silent(raw)
        )
        oldest, newer = next(silent, None), next(silent, None)
        if oldest is None or newer is None:
            return self._close_idle()
        oldest.abort()
        return True

    def _close_idle(self) -> bool:
        activities = [(each, each.activity(raw)) for each, raw in self._connections.items()]
        connection = longest_idle(activities)
        if connection is not None:
            connection.abort()
        return connection is not None

    async def _open(
        self,
        listener: Listener,
        raw: socket.socket,
        contexts: ServerContexts | None,
        connection: H1Connection,
    ) -> None:
        """Do the handshake; everything after it is the connection's."""
        peer = _peer_of(raw)
        handshake_s = listener.limits.handshake_timeout_s
        context = None
        if contexts is not None:
            context, notice = contexts.context()
            if notice:
                self.on_notice(notice)
        try:
            if raw.family is not socket.AF_UNIX:
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                raw,
                ssl=context,
                ssl_handshake_timeout=handshake_s if context is not None else None,
            )
        except (OSError, TimeoutError) as error:
            self.on_notice(
                f"connection closed: handshake: TLS: {go_error_text(str(error))}: {peer}"
            )
            raw.close()
            self.on_closed(connection)
        except asyncio.CancelledError:
            raw.close()
            self.on_closed(connection)
            raise

    def _make_connection(
        self,
        listener: Listener,
        contexts: ServerContexts | None,
        peer: str,
        transport: asyncio.Transport,
    ) -> Connection:
        secure = transport.get_extra_info("ssl_object")
        if contexts is None or secure is None:
            return Connection(listener.name or listener.url, peer, listener.limits)
        identity = contexts.identify(secure)
        return Connection(
            listener.name or listener.url,
            peer,
            listener.limits,
            is_tls=True,
            protocol=identity.protocol,
            server_name=identity.server_name,
            certificates=identity.certificates,
            verified_by=identity.verified_by,
        )

    # Events of connections: gathered, and delivered once per iteration.

    def next_call(self, connection: H1Connection) -> int:
        """Return the number of a new request."""
        self._last_call += 1
        self._calls[self._last_call] = connection
        return self._last_call

    def on_answered(self, call: int) -> None:
        """Forget a request whose answer has ended."""
        self._calls.pop(call, None)

    def on_unwritten(self, call: int, connection: H1Connection) -> None:
        """Note that bytes of an answer that has ended are unsent."""
        self._unwritten[call] = connection

    def on_written(self, call: int, *, is_requested: bool) -> None:
        """Forget an answer that has ended: its bytes are sent; is_requested: add an event."""
        self._unwritten.pop(call, None)
        if is_requested:
            self.on_writable(call)

    def on_request(self, arrival: Arrival) -> None:
        """Add a request."""
        self._arrivals.append(arrival)
        self._deliver_soon()

    def on_body(self, call: int, data: bytes) -> None:
        """Add a piece of a body."""
        self._pieces.append((call, data))
        self._deliver_soon()

    def on_body_end(self, call: int) -> None:
        """Add the end of a body."""
        self._ended.append(call)
        self._deliver_soon()

    def on_disconnect(self, call: int) -> None:
        """Add a disconnection before the end of the answer."""
        self._calls.pop(call, None)
        self._disconnected.append(call)
        self._deliver_soon()

    def on_writable(self, call: int) -> None:
        """Add an answer that can be written again."""
        self._writable.append(call)
        self._deliver_soon()

    def on_closed(self, connection: H1Connection) -> None:
        """Forget a closed connection."""
        self._connections.pop(connection, None)
        if self._next_closed is not None and not self._next_closed.done():
            self._next_closed.set_result(None)
        self._deliver_soon()

    def on_notice(self, notice: str) -> None:
        """Pass on a line for the log."""
        if self._sink is not None:
            self._sink.on_notice(notice)

    def _deliver_soon(self) -> None:
        if not self._is_due and self._loop is not None:
            self._is_due = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_due = False
        if self._sink is None:
            return
        arrivals, self._arrivals = self._arrivals[:_SLICE], self._arrivals[_SLICE:]
        if arrivals:
            self._sink.on_requests(arrivals)
        if self._arrivals:
            self._deliver_soon()  # the other events belong to these requests or come after them
            return
        events = self._pieces, self._ended, self._disconnected, self._writable
        self._pieces, self._ended, self._disconnected, self._writable = [], [], [], []
        self._sink.on_progress(*events)

    # Answers.

    @override
    def respond(
        self, call: int, status: int, headers: Headers, body: bytes | None, *rest: bytes
    ) -> None:
        if (connection := self._calls.get(call)) is not None:
            whole = b"".join((body, *rest)) if body is not None and rest else body
            connection.respond(status, headers, whole)

    @override
    def write(self, call: int, data: bytes) -> int | None:
        connection = self._calls.get(call)
        return None if connection is None else connection.write(data)

    @override
    def write_all(self, calls: list[int], data: bytes, unsent_bytes_max: int) -> list[int]:
        return [call for call in calls if (self.write(call, data) or 0) > unsent_bytes_max]

    @override
    def end(self, call: int, *, is_whole: bool) -> None:
        if (connection := self._calls.get(call)) is not None:
            connection.end(is_whole=is_whole)

    @override
    def take(self, call: int, size: int) -> None:
        if (connection := self._calls.get(call)) is not None:
            connection.take(size)

    @override
    def notify_writable(self, call: int, unsent_bytes_max: int) -> bool:
        connection = self._calls.get(call)
        if connection is not None:
            return connection.notify_writable(unsent_bytes_max)
        connection = self._unwritten.get(call)
        return connection is None or connection.notify_written()

    @override
    def unsent(self, calls: list[int]) -> list[int]:
        found = ((self._calls.get(each) or self._unwritten.get(each)) for each in calls)
        return [0 if each is None else each.unsent_bytes for each in found]

    @override
    def cut(self, call: int) -> None:
        connection = self._calls.get(call) or self._unwritten.get(call)
        if connection is not None:
            connection.abort()

    @override
    def stalled(self, limit_s: float) -> list[int]:
        return []  # a connection has one answer, and ends by itself

    @property
    @override
    def shares_bytes(self) -> bool:
        return False

    # The end.

    @override
    def drain(self) -> None:
        if not self.is_draining:
            self.is_draining = True
            for task in (*self._accepting, *self._handshakes):
                task.cancel()
            for listening in self._listening:
                if self._loop is not None:
                    self._loop.remove_reader(listening)  # a cancelled task still waits on it
                listening.close()
            for connection in list(self._connections):
                connection.drain()

    @property
    @override
    def is_drained(self) -> bool:
        return self.is_draining and not any(each.is_answering for each in self._connections)

    @override
    async def stop(self, grace_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        self.drain()
        await asyncio.gather(*self._accepting, *self._handshakes, return_exceptions=True)
        for path in self._paths:
            addresses.remove_stale(path)
        for connection in list(self._connections):
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._all_closed()
        for connection in list(self._connections):
            connection.abort()
        await self._all_closed()

    async def _all_closed(self) -> None:
        """Wait until no connection is open."""
        while self._connections:
            self._next_closed = asyncio.get_running_loop().create_future()
            await self._next_closed


def _listen_unix(path: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(path)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _peer_of(raw: socket.socket) -> str:
    try:
        name = raw.getpeername()
        own = raw.getsockname()
    except OSError:
        return ""
    return peer_text(name) or str(own)
