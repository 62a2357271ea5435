"""The answer to one request, for its handler.

    answer.send(200, headers, body)                                          whole
    answer.start(200, headers); await answer.write(...); answer.finish()     streamed
    peer = answer.upgrade("SPDY/3.1"); await peer.write(await peer.read())   101, then bytes

A handler answers in one of these three ways, once. An answer that is open when the handler returns
is ended; when the handler fails, the answer is aborted, so that the client sees that it is not
complete.

`write` waits while the client does not read. `Answer.write_now` and `HttpServer.write_all` do not:
they are for sending the same bytes to many clients, and return how far each client is behind.

Bytes are unsent until the socket has taken them. `room(0)` waits for that, and `when_written` calls
back, also after the handler has returned.

The handler is cancelled when its client disconnects. An **endless** answer, such as a watch, is one
that no drain waits for: `await answer.closing()` returns when the server stops, then return.
"""

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from kvstack.component.http.serving.request import ClientGoneError, Pieces
from kvstack.component.http.serving.transport import Headers, HttpTransport

PIECE_BYTES = 64 << 10  # approximate size of pieces that are made as they are read
UNSENT_BYTES_MAX = 1 << 20  # of one answer; above it, write waits
_UNSENT_BYTES_LOW = UNSENT_BYTES_MAX // 4  # until at most this is unsent


class Waiting(Protocol):
    """Runs the rest of a handler that has waited."""

    @property
    def task(self) -> "asyncio.Task[None]":
        """The handler's task."""
        ...


class State(IntEnum):
    """The state of an answer."""

    NONE = 0
    STARTED = 1
    UPGRADED = 2
    OVER = 3


class Answer:
    """The answer to one request."""

    __slots__ = (
        "_closing",
        "_is_head",
        "_pieces",
        "_transport",
        "_waiters",
        "call",
        "is_disconnected",
        "is_ending",
        "is_endless",
        "on_written",
        "state",
        "waiting",
    )

    def __init__(
        self, transport: HttpTransport, call: int, pieces: Pieces | None, *, is_head: bool
    ) -> None:
        self._transport = transport
        self.call = call  # the transport's number for it
        self._pieces = pieces
        self._is_head = is_head
        self._waiters: list[asyncio.Future[None]] = []  # of room()
        self._closing: asyncio.Future[None] | None = None
        self.state = State.NONE
        self.is_endless = False
        self.is_disconnected = False  # the client is
        self.is_ending = False
        self.on_written: Callable[[], None] | None = None  # see when_written
        self.waiting: Waiting | None = None  # runs the rest of the handler, once it has waited

    @property
    def task(self) -> "asyncio.Task[None] | None":
        """The task of its handler, once the handler has waited; made if it has none yet."""
        return None if self.waiting is None else self.waiting.task

    @property
    def is_over(self) -> bool:
        """Whether it was sent or ended; bytes of it may be unsent."""
        return self.state is State.OVER

    @property
    def transport(self) -> HttpTransport:
        """The transport that carries it."""
        return self._transport

    def send(self, status: int, headers: Headers = (), body: bytes = b"", *rest: bytes) -> None:
        """Send a complete answer; rest: further parts of the body, which are not joined.

        ValueError for an invalid header. HEAD gets no body.
        """
        self._begin()
        self._transport.respond(self.call, status, headers, body, *rest)
        self.state = State.OVER

    def start(self, status: int, headers: Headers = (), *, endless: bool = False) -> None:
        """Begin an answer of unknown length; endless: it lasts until one side ends it."""
        self._begin()
        self._transport.respond(self.call, status, headers, None)
        self.state = State.STARTED
        self.is_endless = endless

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while too many are unsent, and for its end if the client is gone."""
        unsent = self._write(data)
        if unsent is None:
            await self._disconnected()
        elif unsent > UNSENT_BYTES_MAX:
            await self.room()

    async def write_piece(self, data: bytes) -> None:
        """Send a piece that was made as needed; waits while two of PIECE_BYTES are unsent."""
        unsent = self._write(data)
        if unsent is None:
            await self._disconnected()
        elif unsent > 2 * PIECE_BYTES:
            await self.room(PIECE_BYTES)

    def write_now(self, data: bytes) -> int:
        """Send bytes without waiting; return how many are unsent now."""
        return self._write(data) or 0

    def _write(self, data: bytes) -> int | None:
        if self.state not in (State.STARTED, State.UPGRADED):
            raise RuntimeError("the answer is not open")
        if self._is_head or not data:
            return 0
        return self._transport.write(self.call, data)

    async def _disconnected(self) -> None:
        """Wait for the notification of a disconnection that the transport has already seen."""
        if self.is_disconnected:
            raise ClientGoneError
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def room(self, unsent_bytes_max: int = _UNSENT_BYTES_LOW) -> None:
        """Wait until at most so many bytes are unsent."""
        if self.is_disconnected:
            raise ClientGoneError
        if not self._transport.notify_writable(self.call, unsent_bytes_max):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def when_written(self, callback: Callable[[], None]) -> bool:
        """Call back once no byte is unsent, or the client has disconnected.

        False, without a call, if that is so now. `room` is not called meanwhile.
        """
        if self._is_head or self._transport.notify_writable(self.call, 0):
            return False
        self.on_written = callback
        return True

    def cut(self) -> None:
        """End the answer at once, without its unsent bytes, as if its client had disconnected."""
        self._transport.cut(self.call)

    def finish(self) -> None:
        """End the answer that was started."""
        if self.state is State.OVER:
            return
        if self.state is State.NONE:
            raise RuntimeError("the answer is not started")
        self.state = State.OVER
        self._transport.end(self.call, is_whole=True)

    def abort(self) -> None:
        """End the answer so that the client sees that it is not complete."""
        if self.state is not State.OVER:
            self.state = State.OVER
            self._transport.end(self.call, is_whole=False)

    def upgrade(self, protocol: str, headers: Headers = ()) -> "Upgraded":
        """Answer 101 and take over the connection; only if `Request.may_upgrade`."""
        if self._pieces is None:
            raise RuntimeError("the request asks for no other protocol")
        self._begin()
        own = [("Connection", "Upgrade"), ("Upgrade", protocol)]
        self._transport.respond(self.call, 101, [*own, *headers], None)
        self.state = State.UPGRADED
        self.is_endless = True
        return Upgraded(self._transport, self, self._pieces)

    async def closing(self) -> None:
        """Wait until the server ends its endless answers; cancelled if the client disconnects."""
        if not self.is_ending:
            self._closing = asyncio.get_running_loop().create_future()
            try:
                await self._closing
            finally:
                self._closing = None

    def _begin(self) -> None:
        if self.state is not State.NONE:
            raise RuntimeError("the request is answered already")

    # The server's side.

    def on_body(self, piece: bytes) -> None:
        """Add a piece of the request's body."""
        if self._pieces is not None:
            self._pieces.add(piece)

    def on_body_end(self) -> None:
        """End the request's body."""
        if self._pieces is not None:
            self._pieces.end()

    def on_writable(self) -> None:
        """Wake room(): few bytes are unsent."""
        self._note_written()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def on_disconnect(self) -> None:
        """Cancel the handler, because its client has disconnected."""
        self.is_disconnected = True
        self._note_written()
        if self.state is State.OVER:
            return  # the handler may finish its other work
        if self._pieces is not None:
            self._pieces.break_off()
        if self.waiting is not None:
            self.waiting.task.cancel()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(ClientGoneError())

    def _note_written(self) -> None:
        callback, self.on_written = self.on_written, None
        if callback is not None:
            callback()

    def close(self) -> None:
        """Ask the handler to end an endless answer."""
        self.is_ending = True
        if self._closing is not None:
            if not self._closing.done():
                self._closing.set_result(None)
        elif self.waiting is not None:
            self.waiting.task.cancel()


class Upgraded:
    """A connection that speaks another protocol now."""

    __slots__ = ("_answer", "_pieces", "_transport")

    def __init__(self, transport: HttpTransport, answer: Answer, pieces: Pieces) -> None:
        self._transport = transport
        self._answer = answer
        self._pieces = pieces

    async def read(self) -> bytes:
        """Return the next bytes; empty when the client sends no more."""
        return await self._pieces.next()

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while too many are unsent."""
        if self._answer.state is not State.UPGRADED:
            raise ClientGoneError
        unsent = self._transport.write(self._answer.call, data) if data else 0
        if unsent is None:
            raise ClientGoneError
        if unsent > UNSENT_BYTES_MAX:
            await self._answer.room()

    def close(self) -> None:
        """Close the connection after the bytes written."""
        self._answer.finish()
