"""One connection that is kept alive: requests and answers, one after another.

    connection = Connection(loop, socket, on_end)
    answer = await connection.exchange(request, AnswerReader(bytes_max))     one body each way
    connection.is_usable                                                     for the next

    connection.begin(head, AnswerReader(is_streamed=True))                   bodies in pieces
    await connection.send(piece)
    answer = await connection.head();  piece = await connection.read()

The socket does not block, and TLS is OpenSSL's own on that socket: a request is one call, and so is
an answer. A streaming protocol of asyncio passes every byte through two more buffers. Of a body
that is streamed no more is read than a window while nobody takes it.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from kvstack.component.http.answers import SWITCHING, AnswerError, AnswerReader, HttpAnswer

_PIECE_BYTES: Final = 64 << 10
_WINDOW_BYTES: Final = 256 << 10
_NOT_YET: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ClosedError(OSError):
    """The other side closed the connection before it answered."""


class Connection:
    """A connection; belongs to one event loop."""

    __slots__ = (
        "_error", "_is_complete", "_is_open", "_is_paused", "_is_streamed", "_loop", "_on_end",
        "_reader", "_send_error", "_sender", "_socket", "_unsent", "_waiter", "uses",
    )  # fmt: skip

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
        self._waiter: asyncio.Future[None] | None = None  # waiter for received bytes
        self._sender: asyncio.Future[None] | None = None  # waiter until all is sent
        self._unsent = memoryview(b"")
        self._error: Exception | None = None  # of a streamed exchange: nothing more arrives
        self._send_error: OSError | None = (
            None  # the other side accepts no more; it may still answer
        )
        self._is_streamed = False
        self._is_complete = False  # the answer of a streamed exchange
        self._is_paused = False
        self._is_open = True
        self.uses = 0
        """The number of answers received."""
        loop.add_reader(sock, self._on_readable)

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent."""
        return self._is_open and self._waiter is None and self._reader is None

    def is_alive(self) -> bool:
        """Return whether another request may be sent, after a look at the socket."""
        if self.is_usable:
            self._on_readable()  # an end that has arrived and was not seen yet
        return self.is_usable

    async def exchange(self, request: bytes, reader: AnswerReader) -> HttpAnswer:
        """Send a request and return its answer; raises AnswerError, ClosedError and OSError."""
        assert self._reader is None, "one request at a time"
        if not self._is_open:
            raise ClosedError("the connection is closed")
        self._reader = reader
        self._waiter = self._loop.create_future()
        self._unsent = memoryview(request)
        is_done = False
        try:
            self._send()
            await self._waiter
            is_done = True
        finally:
            self._waiter = self._reader = None
            # The rest of a cancelled exchange may still arrive.
            if not is_done or reader.is_last or self._unsent:
                self.close()
        self.uses += 1
        return reader.answer

    def close(self) -> None:
        """Close the connection, unless it is closed; the waiter for an answer gets ClosedError."""
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._on_end(self)
        error = ClosedError("the connection was closed")
        self._unsent, self._send_error = memoryview(b""), error
        self._wake_sender()
        self._fail(error)

    # Bodies in pieces.

    def begin(self, head: bytes, reader: AnswerReader) -> None:
        """Send the head of a request, and the first part of its body, for a streamed reader."""
        assert self._reader is None, "one request at a time"
        if not self._is_open:
            raise ClosedError("the connection is closed")
        self._reader = reader
        self._is_streamed = True
        self._unsent = memoryview(head)
        self._send()

    async def send(self, piece: bytes) -> None:
        """Send more of the body; return once the socket has taken it. Raises OSError."""
        if not self._is_open:
            raise ClosedError("the connection is closed")
        if self._send_error is not None:
            raise self._send_error
        self._unsent = memoryview(bytes(self._unsent) + piece)
        self._send()
        if self._unsent:
            if self._sender is None:
                self._sender = self._loop.create_future()
            await asyncio.shield(self._sender)  # shared by all senders
        if self._send_error is not None:
            raise self._send_error

    async def head(self) -> HttpAnswer:
        """Wait for the head of the answer; raises AnswerError and OSError."""
        reader = self._reader
        assert reader is not None
        while not reader.answer.code:
            await self._more()
        return reader.answer

    async def read(self) -> bytes:
        """Return the next bytes of the body; empty at its end. Raises AnswerError and OSError."""
        reader = self._reader
        if reader is None:
            return b""
        while not reader.body_bytes:
            if self._is_complete:
                self._end()
                return b""
            await self._more()
        piece = reader.body()
        if self._is_paused:
            self._is_paused = False
            self._loop.add_reader(self._socket, self._on_readable)
            self._loop.call_soon(self._on_readable)  # TLS may hold bytes that the socket does not
        return piece

    def finish(self) -> None:
        """Note that the reader has stopped."""
        if self._is_complete and self._reader is not None and not self._reader.body_bytes:
            self._end()

    def break_off(self, error: Exception) -> None:
        """Handle a failure to send the rest of the request: the reader gets this error.

        An error of the connection itself lets an answer that has come already be read.
        """
        if error is self._send_error:
            return
        self._fail(error)
        self.close()

    def _end(self) -> None:
        """Note that a streamed answer was read to its end."""
        reader, self._reader = self._reader, None
        is_last = reader is None or reader.is_last
        self._is_streamed = self._is_complete = False
        self.uses += 1
        if is_last or self._unsent or self._send_error is not None:
            self.close()

    async def _more(self) -> None:
        """Wait until more has arrived; raises the error of the connection."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # The socket.

    def _send(self) -> None:
        """Send the unsent bytes, and continue when the socket accepts more."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except _NOT_YET:
            self._loop.add_writer(self._socket, self._on_writable)
        except OSError as error:
            if not self._is_streamed:
                self._fail(error)
                return
            self._unsent, self._send_error = memoryview(b""), error
        if not self._unsent:
            self._wake_sender()

    def _wake_sender(self) -> None:
        if self._sender is not None:
            sender, self._sender = self._sender, None
            sender.set_result(None)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._socket)
        if self._reader is not None:
            self._send()

    def _on_readable(self) -> None:
        while self._is_open and not self._is_paused:
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
        """Return whether TLS holds unread bytes, which the socket does not report."""
        sock = self._socket
        return self._is_open and isinstance(sock, ssl.SSLSocket) and sock.pending() > 0

    def _take(self, data: bytes) -> bool:
        """Take what was read; return whether to read on."""
        reader = self._reader
        if reader is None or self._is_complete:  # without a request: the end, or unexpected bytes
            self._on_unasked()
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
        if self._is_streamed:
            return self._take_streamed(reader, is_complete=is_complete)
        if is_complete:
            self._reader = None
            self._wake()
        return not is_complete

    def _take_streamed(self, reader: AnswerReader, *, is_complete: bool) -> bool:
        self._is_complete = is_complete
        if reader.answer.code:
            self._wake()
        if reader.body_bytes > _WINDOW_BYTES and not is_complete:
            self._is_paused = True
            self._loop.remove_reader(self._socket)
        return not is_complete

    def _on_unasked(self) -> None:
        """Handle the end of the connection, or bytes without a request."""
        if self._reader is not None and self._reader.answer.code == SWITCHING:
            self._loop.remove_reader(self._socket)  # the close must still be answered
        else:
            self.close()  # the received part of an answer can still be read

    def _fail(self, error: Exception) -> None:
        if self._reader is None and self._waiter is None:
            self.close()
            return
        if self._is_streamed:
            self._error = self._error or error
            if self._is_open:
                self._loop.remove_reader(self._socket)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
