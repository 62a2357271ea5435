"""One connection that is kept: requests go out and answers come in, one after another.

    connection = Connection(loop, socket, on_end)
    answer = await connection.exchange(request, bytes_max)      raises AnswerError, OSError
    connection.is_usable                                        for the next

The socket does not block, and TLS is OpenSSL's own on that socket: a request is one call, and so is
an answer. A streaming protocol of asyncio passes every byte through two more buffers.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from kvstack.apiserver.webhooks.http.answers import AnswerError, AnswerReader, HttpAnswer

_PIECE_BYTES: Final = 64 << 10
_NOT_YET: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ClosedError(OSError):
    """The other side closed the connection before it answered."""


class Connection:
    """A connection; belongs to one event loop."""

    __slots__ = ("_is_open", "_loop", "_on_end", "_reader", "_socket", "_unsent", "_waiter", "uses")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_end: Callable[["Connection"], None],
    ) -> None:
        """Take over a connected socket that does not block; on_end: called when it is closed."""
        self._loop: Final = loop
        self._socket: Final = sock
        self._on_end: Final = on_end
        self._reader: AnswerReader | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._unsent = memoryview(b"")
        self._is_open = True
        self.uses = 0
        """How many answers have come."""
        loop.add_reader(sock, self._on_readable)

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent."""
        return self._is_open and self._waiter is None

    async def exchange(self, request: bytes, bytes_max: int) -> HttpAnswer:
        """Send a request and return its answer; raises AnswerError, ClosedError and OSError."""
        assert self._waiter is None, "one request at a time"
        if not self._is_open:
            raise ClosedError("the connection is closed")
        reader = self._reader = AnswerReader(bytes_max)
        self._waiter = self._loop.create_future()
        self._unsent = memoryview(request)
        is_done = False
        try:
            self._send()
            await self._waiter
            is_done = True
        finally:
            self._waiter = self._reader = None
            # Whatever was cut short may still come, or still be read.
            if not is_done or reader.is_last or self._unsent:
                self.close()
        self.uses += 1
        return reader.answer

    def close(self) -> None:
        """Close the connection, unless it is closed; who waits for an answer gets ClosedError."""
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._on_end(self)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ClosedError("the connection was closed"))

    def _send(self) -> None:
        """Send what there is, and go on when more can be sent."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except _NOT_YET:
            self._loop.add_writer(self._socket, self._on_writable)
        except OSError as error:
            self._fail(error)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._socket)
        if self._waiter is not None:
            self._send()

    def _on_readable(self) -> None:
        while True:
            try:
                data = self._socket.recv(_PIECE_BYTES)
            except _NOT_YET:
                return
            except OSError as error:
                self._fail(error)
                return
            if not self._take(data) or not self._has_more():
                return

    def _has_more(self) -> bool:
        """Tell whether bytes wait in TLS, of which the socket tells nothing."""
        sock = self._socket
        return self._is_open and isinstance(sock, ssl.SSLSocket) and sock.pending() > 0

    def _take(self, data: bytes) -> bool:
        """Take what was read; return whether to read on."""
        reader = self._reader
        if reader is None:  # nothing was asked: the end, or what answers nothing
            self.close()
            return False
        if not data and not reader.has_begun:
            self._fail(ClosedError("EOF"))
            return False
        try:
            if data:
                is_complete = reader.take(data)
            else:
                reader.end()
                reader.is_last = is_complete = True
        except AnswerError as error:
            self._fail(error)
            return False
        if is_complete:
            self._reader = None
            self._wake()
        return not is_complete

    def _fail(self, error: Exception) -> None:
        if self._waiter is None:
            self.close()
        elif not self._waiter.done():
            self._waiter.set_exception(error)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
