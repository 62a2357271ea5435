"""HTTP requests of the client port: the transport's columns as requests for handlers, and back.

    side loop's request ──► PageRequest, Responder ──► handler
    frames, half-closed ──► the body                respond, deliver, end ──► the transport

A streamed answer waits while too much of it is unsent (`runtime.send_window`).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from typing import Final

from kvstore.batch import HttpHeaders, PortRequest
from kvstore.errors import Code
from kvstore.http.exchange import (
    Body,
    PageHandler,
    PageRequest,
    UpgradedConnection,
    WholeBody,
)
from kvstore.runtime.send_window import SendWindow
from kvstore.runtime.side_loop import SideLoop

_UNREAD_BYTES_MAX: Final = 64 << 20  # of one body; no valid request is larger


class PortRequests:
    """Passes the requests of the client port to a handler."""

    def __init__(self, side: SideLoop, handler: PageHandler) -> None:
        """Serve the requests of side with handler."""
        self._side = side
        self._handler = handler
        self._bodies: dict[int, _FramedBody] = {}

    def attach(self) -> None:
        """Serve the side loop's requests from now on."""
        self._side.on_request = self.serve
        self._side.on_frames = self.add_frames

    def serve(self, arrived: PortRequest) -> Coroutine[None, None, None]:
        """Return the coroutine that answers one request; its frames are accepted from now on."""
        framed = None
        if arrived[4] is None:
            framed = self._bodies[arrived[0]] = _FramedBody()
        return self._serve(arrived, framed)

    async def _serve(self, arrived: PortRequest, framed: "_FramedBody | None") -> None:
        request_id, method, target, headers, data = arrived
        body: Body = WholeBody(data or b"") if framed is None else framed
        request = PageRequest(method=method, target=target, headers=headers, body=body)
        request.is_tls = request.header(":scheme") == "https"
        request.common_name = request.header("tls-common-name")
        request.remote_ip = _host_of(request.header(":peer"))
        answer = _PortAnswer(self._side, request_id, framed, method)
        try:
            await self._handler(request, answer)
        except Exception:
            answer.abort()
            raise
        finally:
            self._bodies.pop(request_id, None)
            answer.close()

    def add_frames(
        self, frames: list[tuple[int, bytes]], half_closed: list[int], gone: list[int]
    ) -> None:
        """Add frames and ends to the bodies of the requests that are being served."""
        for request_id, data in frames:
            if (body := self._bodies.get(request_id)) is not None:
                body.add(data)
        for request_id in (*half_closed, *gone):
            if (body := self._bodies.get(request_id)) is not None:
                body.end()


class _FramedBody:
    """A body in pieces; also the bytes that arrive after an upgrade."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._is_over = False
        self._unread_bytes = 0

    def add(self, data: bytes) -> None:
        self._unread_bytes += len(data)
        if self._unread_bytes > _UNREAD_BYTES_MAX:
            self._is_over = True  # the handler does not read it: drop the rest
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
    """Answers one request of the port."""

    def __init__(
        self, side: SideLoop, request_id: int, body: _FramedBody | None, method: str
    ) -> None:
        self._side = side
        self._id = request_id
        self._body = body
        self._is_head = method == "HEAD"
        self._window = SendWindow(side, request_id)
        self._is_streaming = False
        self._is_upgraded = False

    async def whole(self, status: int, headers: HttpHeaders, body: bytes) -> None:
        self._side.respond((self._id, status, _lower(headers), body))

    async def start(self, status: int, headers: HttpHeaders) -> None:
        self._is_streaming = True
        self._side.respond((self._id, status, _lower(headers), None))

    async def write(self, data: bytes) -> None:
        if self._is_head:
            return
        self._side.deliver(self._id, data)
        await self._window.sent(len(data))

    async def finish(self) -> None:
        self._is_streaming = False
        self._side.end(self._id, Code.OK)

    def abort(self) -> None:
        """End an answer that cannot be finished, so that the client sees that it is incomplete."""
        if self._is_streaming:
            self._is_streaming = False
            self._side.end(self._id, Code.INTERNAL, "internal error")

    def close(self) -> None:
        """End an upgraded connection, and an answer that was not finished.

        The end is sent even if the client is gone, because metrics count open answers by it.
        """
        if self._is_upgraded:
            self._side.end(self._id, Code.OK)
        self.abort()

    async def upgrade(self, headers: HttpHeaders) -> UpgradedConnection:
        self._side.respond((self._id, 101, _lower(headers), None))
        assert self._body is not None, "a request for an upgrade has body None"
        self._is_upgraded = True
        return _PortConnection(self, self._body)


class _PortConnection:
    """A connection of the port after 101."""

    def __init__(self, answer: _PortAnswer, body: _FramedBody) -> None:
        self._answer = answer
        self.read = body.read
        self.write = answer.write


def _lower(headers: HttpHeaders) -> HttpHeaders:
    return [(name.lower(), value.replace("\n", " ").strip()) for name, value in headers]


def _host_of(peer: str) -> str:
    """Return the address without its port; empty for a unix socket."""
    if not peer or peer.startswith("/") or ":" not in peer:
        return ""
    return peer.rpartition(":")[0].strip("[]")
