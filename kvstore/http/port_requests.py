"""Requests that came by the client port: the transport's columns as exchanges, and back.

    side loop's request ──► Request, Responder ──► handler
    frames, half-closed ──► the body                respond, deliver, end ──► the transport

A streamed answer waits when more than BACKLOG_BYTES_MAX of it are unsent. What the transport has
not sent is known once a turn, so a writer that far ahead asks for turns until there is room.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Final

from kvstore.batch import Request as PortRequest
from kvstore.errors import Code
from kvstore.http.exchange import Body, Headers, Request, Responder, Socket, WholeBody
from kvstore.runtime.side_loop import SideLoop

BACKLOG_BYTES_MAX: Final = 1 << 20
_TURNS_UNTIL_SEEN: Final = 2  # a delivery is flushed by the next turn and told by the one after it
_TURN_S: Final = 0.005
_UNREAD_BYTES_MAX: Final = 64 << 20  # of one body: more than any request may have

Handler = Callable[[Request, Responder], Awaitable[None]]


class PortRequests:
    """Feeds the requests of the client port to a handler."""

    def __init__(self, side: SideLoop, handler: Handler) -> None:
        """Serve what side is given with handler."""
        self._side = side
        self._handler = handler
        self._bodies: dict[int, _FramedBody] = {}

    def attach(self) -> None:
        """Let the side loop give its requests here."""
        self._side.on_request = self.serve
        self._side.on_frames = self.take_frames

    def serve(self, arrived: PortRequest) -> Coroutine[None, None, None]:
        """Return what answers one request; its frames are taken from now on."""
        framed = None
        if arrived[4] is None:
            framed = self._bodies[arrived[0]] = _FramedBody()
        return self._serve(arrived, framed)

    async def _serve(self, arrived: PortRequest, framed: "_FramedBody | None") -> None:
        request_id, method, target, headers, data = arrived
        body: Body = WholeBody(data or b"") if framed is None else framed
        request = Request(method=method, target=target, headers=headers, body=body)
        request.is_tls = request.header(":scheme") == "https"
        request.common_name = request.header("tls-common-name")
        request.remote_ip = _host_of(request.header(":peer"))
        answer = _PortAnswer(self._side, request_id, framed, method)
        try:
            await self._handler(request, answer)
        except Exception:
            answer.tear_off()
            raise
        finally:
            self._bodies.pop(request_id, None)
            answer.close()

    def take_frames(
        self, frames: list[tuple[int, bytes]], half_closed: list[int], gone: list[int]
    ) -> None:
        """Take what arrived for requests that are being served."""
        for request_id, data in frames:
            if (body := self._bodies.get(request_id)) is not None:
                body.add(data)
        for request_id in (*half_closed, *gone):
            if (body := self._bodies.get(request_id)) is not None:
                body.end()


class _FramedBody:
    """A body in pieces; also what comes in after an upgrade."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._is_over = False
        self._unread_bytes = 0

    def add(self, data: bytes) -> None:
        self._unread_bytes += len(data)
        if self._unread_bytes > _UNREAD_BYTES_MAX:
            self._is_over = True  # nobody reads it: the rest is not worth keeping
        if not self._is_over:
            self._pieces.append(data)
        self._changed.set()

    def end(self) -> None:
        self._is_over = True
        self._changed.set()

    async def read(self) -> bytes:
        """Return the next piece; empty at the end."""
        while not self._pieces:
            if self._is_over:
                return b""
            self._changed.clear()
            await self._changed.wait()
        piece = self._pieces.popleft()
        self._unread_bytes -= len(piece)
        return piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self.read():
            yield piece


class _PortAnswer:
    """The way to answer one request of the port."""

    def __init__(
        self, side: SideLoop, request_id: int, body: _FramedBody | None, method: str
    ) -> None:
        self._side = side
        self._id = request_id
        self._body = body
        self._is_head = method == "HEAD"
        self._ahead_bytes = 0  # sent since the backlog was looked at
        self._is_streaming = False
        self._is_upgraded = False

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        self._side.respond((self._id, status, _lower(headers), body))

    async def start(self, status: int, headers: Headers) -> None:
        self._is_streaming = True
        self._side.respond((self._id, status, _lower(headers), None))

    async def write(self, data: bytes) -> None:
        if self._is_head:
            return
        self._side.deliver(self._id, data)
        self._ahead_bytes += len(data)
        if self._ahead_bytes >= BACKLOG_BYTES_MAX:
            await self._room()

    async def finish(self) -> None:
        self._is_streaming = False
        self._side.end(self._id, Code.OK)

    def tear_off(self) -> None:
        """End an answer that cannot be finished, so that the client sees it."""
        if self._is_streaming:
            self._is_streaming = False
            self._side.end(self._id, Code.INTERNAL, "internal error")

    def close(self) -> None:
        """End what is open still: a connection that was taken over, an answer that broke off.

        Whoever keeps account of answers under way hears of the end even if the client is gone.
        """
        if self._is_upgraded:
            self._side.end(self._id, Code.OK)
        self.tear_off()

    async def upgrade(self, headers: Headers) -> Socket:
        self._side.respond((self._id, 101, _lower(headers), None))
        assert self._body is not None, "the transport gives such a request no body"
        self._is_upgraded = True
        return _PortSocket(self, self._body)

    async def _room(self) -> None:
        """Wait until little enough is unsent."""
        self._ahead_bytes = 0
        turns = 0
        while turns < _TURNS_UNTIL_SEEN or self._unsent_bytes() > BACKLOG_BYTES_MAX:
            before = self._side.backlog
            self._side.ask_turn()
            await asyncio.sleep(_TURN_S)
            turns += self._side.backlog is not before

    def _unsent_bytes(self) -> int:
        return self._side.backlog.get(self._id, 0)


class _PortSocket:
    """A connection of the port after 101."""

    def __init__(self, answer: _PortAnswer, body: _FramedBody) -> None:
        self._answer = answer
        self.read = body.read
        self.write = answer.write


def _lower(headers: Headers) -> Headers:
    return [(name.lower(), value.replace("\n", " ").strip()) for name, value in headers]


def _host_of(peer: str) -> str:
    """Return the address without its port; empty for a unix socket."""
    if not peer or peer.startswith("/") or ":" not in peer:
        return ""
    return peer.rpartition(":")[0].strip("[]")
