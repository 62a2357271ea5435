"""One request and its answer, on a connection that many share."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, Protocol

from kvstack.agents.client.http2.hpack import Field
from kvstack.agents.client.transport import UnreachableError

WINDOW_BYTES: Final = 1 << 20
"""How much of an answer a server may send before it is read."""


class NotProcessedError(UnreachableError):
    """The server has not processed the request: it may be sent again."""


class Connection(Protocol):
    """What a stream needs from its connection."""

    def allow(self, stream: "Stream", count: int) -> None:
        """Grow the stream's receive window."""
        ...

    def cancel(self, stream: "Stream") -> None:
        """Reset the stream: its answer is no longer needed."""
        ...


class Stream:
    """The client's side of a request."""

    __slots__ = (
        "_connection",
        "_error",
        "_fields",
        "_is_read_whole",
        "_pieces",
        "_unsaid_bytes",
        "_waiter",
        "is_over",
        "number",
        "send_window",
        "status",
        "unsent",
    )

    def __init__(self, connection: Connection, number: int, send_window: int) -> None:
        """Wait for an answer; send_window: bytes of the body that the server takes now."""
        self._connection = connection
        self.number: Final = number
        self.status = 0
        """0: the head of the answer has not arrived."""
        self.is_over = False
        self.send_window = send_window
        self.unsent = b""
        """The send window of the request's body."""
        self._fields: list[Field] = []
        self._pieces: deque[bytes] = deque()
        self._unsaid_bytes = 0  # received, without a WINDOW_UPDATE yet
        self._is_read_whole = False
        self._error: UnreachableError | None = None
        self._waiter: asyncio.Future[None] | None = None

    # The reader's side.

    def header(self, name: str) -> str:
        """Return the first value of a header; empty: there is none."""
        wanted = name.lower().encode()
        for field in self._fields:
            if field.name == wanted:
                return field.value.decode("utf-8", "replace")
        return ""

    async def headed(self) -> None:
        """Wait until the head of the answer is there; raises UnreachableError."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._wait()

    async def read(self) -> bytes:
        """Return the whole body; UnreachableError if it breaks off."""
        self._is_read_whole = True
        self._say()
        while not self.is_over:
            await self._wait()
        if self._error is not None:
            raise self._error
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        return body

    async def pieces(self) -> AsyncIterator[bytes]:
        """Give the body as it comes; UnreachableError if it breaks off."""
        while True:
            if self._pieces:
                piece = b"".join(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
                self._pieces.clear()
                self._say()
                yield piece
            elif self._error is not None:
                raise self._error
            elif self.is_over:
                return
            else:
                await self._wait()

    def close(self) -> None:
        """Abandon the answer."""
        if not self.is_over:
            self.is_over = True
            self._error = UnreachableError("the answer was closed")
            self._connection.cancel(self)

    # The connection's side.

    def take_head(self, status: int, fields: list[Field]) -> None:
        """Receive the head of the answer."""
        self.status, self._fields = status, fields
        self._wake()

    def take(self, data: bytes, size: int) -> None:
        """Receive a part of the body; size: its flow-control size, with padding."""
        if data:
            self._pieces.append(data)
        self._unsaid_bytes += size
        if self._is_read_whole:
            self._say()
        else:
            self._wake()

    def end(self) -> None:
        """The answer is whole."""
        self.is_over = True
        self._wake()

    def fail(self, error: UnreachableError) -> None:
        """The answer breaks off."""
        self.is_over = True
        self._error = error
        self._wake()

    def _say(self) -> None:
        """Send a WINDOW_UPDATE."""
        if self._unsaid_bytes >= WINDOW_BYTES // 2 and not self.is_over:
            self._connection.allow(self, self._unsaid_bytes)
            self._unsaid_bytes = 0

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
