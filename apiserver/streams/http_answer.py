"""The answer of an HTTP/1.1 server on a connection that is used once: its head, then its body."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

_HEADERS_MAX: Final = 200
_PIECE: Final = 64 << 10
_BODILESS: Final = frozenset((204, 304))
_SWITCHING: Final = 101


class AnswerError(Exception):
    """What came is no answer."""


class HttpAnswer:
    """An answer whose body is still to be read."""

    __slots__ = ("_reader", "code", "has_body", "headers")

    def __init__(
        self, reader: asyncio.StreamReader, code: int, headers: list[tuple[str, str]]
    ) -> None:
        self._reader = reader
        self.code = code
        self.headers = headers
        self.has_body = code not in _BODILESS
        """Set to False where the request was for the head alone."""

    def header(self, name: str) -> str:
        """Return the first value of a header by its lower-case name; empty: there is none."""
        return next((value for each, value in self.headers if each.lower() == name), "")

    @property
    def is_chunked(self) -> bool:
        """Whether the body says itself where it ends."""
        return self.header("transfer-encoding").lower() == "chunked"

    @property
    def length(self) -> int | None:
        """Of the body in bytes, as the head tells it; None: it ends with the connection."""
        text = self.header("content-length")
        if self.is_chunked or not text.isdigit():
            return None if self.code not in _BODILESS else 0
        return int(text)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Give the body as it comes; raises AnswerError if it breaks off."""
        if not self.has_body:
            return
        reader, length = self._reader, self.length
        try:
            if self.is_chunked:
                while size := int((await reader.readline()).partition(b";")[0], 16):
                    yield await reader.readexactly(size)
                    await reader.readexactly(2)
                return
            while length is None or length > 0:
                piece = await reader.read(_PIECE if length is None else min(_PIECE, length))
                if not piece:
                    break
                if length is not None:
                    length -= len(piece)
                yield piece
        except (asyncio.IncompleteReadError, ValueError, OSError) as error:
            raise AnswerError(f"the answer broke off: {error}") from error
        if length:
            raise AnswerError(f"the answer broke off: {length} bytes are missing")

    async def text(self) -> str:
        """Return the body as text; raises AnswerError."""
        return b"".join([piece async for piece in self.pieces()]).decode("utf-8", "replace")


async def read_head(reader: asyncio.StreamReader) -> HttpAnswer:
    """Return an answer once its head is there; raises AnswerError."""
    while True:
        found = await _read_head(reader)
        if found.code >= 200 or found.code == _SWITCHING:
            return found


async def _read_head(reader: asyncio.StreamReader) -> HttpAnswer:
    try:
        version, _, rest = (await reader.readline()).decode("latin-1").strip().partition(" ")
        if not version.startswith("HTTP/1."):
            raise AnswerError(f"this is no answer: {version[:50]!r}" if version else "EOF")
        headers: list[tuple[str, str]] = []
        while line := (await reader.readline()).decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers.append((name, value.strip()))
            if len(headers) > _HEADERS_MAX:
                raise AnswerError("the answer has too many headers")
        return HttpAnswer(reader, int(rest[:3]), headers)
    except (ValueError, OSError) as error:
        raise AnswerError(f"the answer cannot be read: {error}") from error
