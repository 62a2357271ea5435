"""An answer whose body comes in pieces, and the connection after an upgrade.

async for piece in answer.pieces(): …        to its end; raises AnswerError, OSError
await answer.write(b"…")                     after 101
answer.close()                               a connection that was read to its end is used again
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Self

from kvstack.component.http.answers import (
    BODILESS,
    SWITCHING,
    AnswerReader,
    HttpAnswer,
    TooLongError,
)
from kvstack.component.http.connection import Connection
from kvstack.component.http.request_head import Body


class StreamedAnswer:
    """An answer of any status."""

    __slots__ = (
        "_connection", "_is_over", "_is_sent", "_on_end", "_sending", "code", "fields", "head",
    )  # fmt: skip

    def __init__(self, connection: Connection, on_end: Callable[[], None]) -> None:
        """Use a connection; on_end is called once, when it is no longer used."""
        self._connection: Final = connection
        self._on_end: Final = on_end
        self._sending: asyncio.Task[None] | None = None
        self._is_sent = True
        self._is_over = False
        self.head = HttpAnswer(0, {}, b"", [])
        self.code = 0
        self.fields: list[tuple[str, str]] = []
        """The headers as they were sent, in their order."""

    async def begin(
        self, head: bytes, body: Body, reader: AnswerReader, *, is_chunked: bool
    ) -> None:
        """Send a request; return once the head of the answer is there."""
        if isinstance(body, bytes | None):
            self._connection.begin(head + (body or b""), reader)
        else:
            self._connection.begin(head, reader)
            self._is_sent = False
            sending = self._send(body, is_chunked=is_chunked)
            self._sending = asyncio.create_task(sending, name="body of a request")
        self.head = await self._connection.head()
        self.code, self.fields = self.head.code, self.head.fields

    async def _send(self, body: AsyncIterator[bytes], *, is_chunked: bool) -> None:
        """Send a body; if it fails, the exchange fails: the body must not look complete."""
        try:
            async for piece in body:
                if piece:
                    chunk = b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece
                    await self._connection.send(chunk)
            if is_chunked:
                await self._connection.send(b"0\r\n\r\n")
            self._is_sent = True
        except Exception as error:  # noqa: BLE001 - the reader gets it
            self._connection.break_off(error)

    @property
    def is_upgraded(self) -> bool:
        """Whether bytes go both ways from now on."""
        return self.code == SWITCHING

    @property
    def length(self) -> int | None:
        """The length of the body in bytes, from the head; None: unknown until its end."""
        if self.code in BODILESS:
            return 0
        text = self.head.headers.get("content-length", "")
        if "transfer-encoding" in self.head.headers or not text:
            return None
        return int(text)

    def header(self, name: str) -> str:
        """Return a header by its name in lower case; empty: there is none."""
        return self.head.header(name)

    async def read(self) -> bytes:
        """Return the next piece of the body; empty at its end. Raises AnswerError, OSError."""
        return await self._connection.read()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; raises AnswerError, OSError."""
        while piece := await self._connection.read():
            yield piece

    async def body(self, bytes_max: int) -> bytes:
        """Return the whole body; raises AnswerError, OSError."""
        found = bytearray()
        while piece := await self._connection.read():
            found += piece
            if len(found) > bytes_max:
                raise TooLongError(f"the answer has more than {bytes_max} bytes")
        return bytes(found)

    async def write(self, data: bytes) -> None:
        """Send bytes after an upgrade; waits until the socket has taken them. OSError."""
        await self._connection.send(data)

    def close(self) -> None:
        """Release the connection: it is kept if the answer was read to its end."""
        if self._is_over:
            return
        self._is_over = True
        if self._sending is not None and not self._is_sent:
            self._sending.cancel()
            self._connection.close()
        self._connection.finish()
        self._on_end()

    async def end_sending(self) -> None:
        """Stop sending the body; return when it has stopped."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait((self._sending,))

    async def __aenter__(self) -> Self:
        """Return the answer."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the connection."""
        await self.end_sending()
        self.close()
