"""A request, and its body.

    body = await request.read()                 the whole body; BodyTooLargeError above the limit
    async for piece in request.pieces(): ...    streamed, no faster than it is read

A body is read once. A small one of a known length is there from the beginning (`request.body`), and
reading it does not wait. If the client disconnects within the body, the handler is cancelled; any
other task that reads it gets ClientGoneError.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from kvstack.component.http.serving.transport import Connection, Head, HttpTransport


class BodyTooLargeError(Exception):
    """A body is above its limit. If the handler does not catch it, the answer is a 413."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the request body is above the limit of {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class ClientGoneError(ConnectionResetError):
    """The client disconnected before its request was answered."""

    def __init__(self) -> None:
        super().__init__("the client has gone")


class Pieces:
    """The bytes of one body, or those after a 101, queued for their reader."""

    __slots__ = ("_call", "_is_begun", "_is_broken", "_is_over", "_pieces", "_transport", "_waiter")

    def __init__(self, transport: HttpTransport, call: int) -> None:
        self._transport = transport
        self._call = call
        self._pieces: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_begun = False
        self._is_over = False
        self._is_broken = False

    async def next(self) -> bytes:
        """Return the next piece; empty at the end."""
        if not self._is_begun:
            self._is_begun = True
            self._transport.take(self._call, 0)
        while not self._pieces:
            if self._is_broken:
                raise ClientGoneError
            if self._is_over:
                return b""
            if self._waiter is not None:
                raise RuntimeError("another task is reading the body")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        piece = self._pieces.popleft()
        self._transport.take(self._call, len(piece))
        return piece

    # The server's side.

    def add(self, piece: bytes) -> None:
        """Add bytes that arrived."""
        self._pieces.append(piece)
        self._wake()

    def end(self) -> None:
        """End the bytes."""
        self._is_over = True
        self._wake()

    def break_off(self) -> None:
        """Fail the reader, because the client has disconnected."""
        self._is_broken = not self._is_over
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Request:
    """A request."""

    __slots__ = (
        "_head",
        "_pieces",
        "body",
        "connection",
        "may_upgrade",
        "method",
        "target",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        method: str,
        target: str,
        version: str,
        head: Head,
        body: bytes | None,
        pieces: Pieces | None,
        *,
        may_upgrade: bool,
    ) -> None:
        self.connection = connection
        self.method = method
        self.target = target  # path and query, as sent
        self.version = version  # "HTTP/1.0", "HTTP/1.1" or "HTTP/2.0"
        self.body = body  # None: use read() or pieces()
        self.may_upgrade = may_upgrade  # see header("upgrade")
        self._head = head
        self._pieces = pieces

    def header(self, name: str, default: str = "") -> str:
        """Return the first value of a header. `host` is set in HTTP/2, too."""
        value = self._head.get(name)
        return default if value is None else value

    def header_values(self, name: str) -> list[str]:
        """Return all values of a header, in order."""
        return self._head.get_all(name)

    @property
    def headers(self) -> list[tuple[str, str]]:
        """All headers, names in lower case, those of one name in order."""
        return self._head.items()

    def all_headers(self) -> list[tuple[str, str]]:
        """Return `headers`, for later use."""
        return self._head.items()

    def has_header_prefix(self, prefix: str) -> bool:
        """Return whether there is a header whose name begins so; prefix: in lower case."""
        return self._head.has_prefix(prefix)

    async def read(self, bytes_max: int | None = None) -> bytes:
        """Return the whole body; BodyTooLargeError above bytes_max (None: the listener's limit)."""
        limit = self.connection.limits.body_bytes_max if bytes_max is None else bytes_max
        if self.body is not None:
            if len(self.body) > limit:
                raise BodyTooLargeError(limit)
            return self.body
        self._check_length(limit)
        read: list[bytes] = []
        size = 0
        async for piece in self.pieces():
            size += len(piece)
            if size > limit:
                raise BodyTooLargeError(limit)
            read.append(piece)
        self.body = b"".join(read)
        return self.body

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        if self.body is not None:
            if self.body:
                yield self.body
            return
        if self.may_upgrade or self._pieces is None:
            return  # such a request has no body; what follows belongs to the other protocol
        while piece := await self._pieces.next():
            yield piece

    def _check_length(self, limit: int) -> None:
        """Refuse a body by its length, before a 100 (Continue) is sent."""
        length = self.header("content-length")
        if length.isdecimal() and int(length) > limit:
            raise BodyTooLargeError(limit)
