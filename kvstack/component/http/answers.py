"""Parses answers of HTTP/1.1 from the bytes of a connection, without IO.

    reader = AnswerReader(bytes_max)
    reader.take(data)     True: the answer is complete  raises AnswerError
    reader.end()          the connection has ended; the same

    reader = AnswerReader(is_streamed=True)
    reader.take(data)     reader.answer.code: the head is there; True: so is the end of the body
    reader.body()         what has come of the body since the last call

A body ends by its length, with its last chunk, or with the connection. Answers of 100 to 199 are
skipped, except 101 to a request for an upgrade: what follows it is a body until the end of the
connection. An answer with two lengths, or one that is not digits, is refused.
"""

from typing import Final, NamedTuple

HEAD_BYTES_MAX: Final = 64 << 10
PASSED_MAX: Final = 5
"""Limit on answers of 100 to 199 before the final one, as in Go's client."""
ANY_SIZE: Final = 1 << 62
SWITCHING: Final = 101
_LINE_BYTES_MAX: Final = 4 << 10
_DIGITS_MAX: Final = 18
_HEAD_END: Final = b"\r\n\r\n"
_LINE_END: Final = b"\r\n"
BODILESS: Final = frozenset((204, 304))
_SPACE: Final = " \t"
_HEX: Final = frozenset("0123456789abcdefABCDEF")


class AnswerError(Exception):
    """The bytes are not a valid answer."""


class MalformedError(AnswerError):
    """The bytes are not HTTP."""


class TornError(AnswerError):
    """The connection ended within an answer."""


class TooLongError(AnswerError):
    """The body is above the caller's limit."""


class HttpAnswer(NamedTuple):
    """An answer of any status."""

    code: int
    headers: dict[str, str]
    """Headers by name in lower case; values of a repeated one joined by commas."""
    body: bytes
    lines: list[str]
    """The headers as they were sent, each checked."""

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The headers as they were sent, in their order."""
        parts = [line.partition(":") for line in self.lines]
        return [(name, value.strip(_SPACE)) for name, _, value in parts]

    def header(self, name: str) -> str:
        """Return a header by its name in lower case; empty: there is none."""
        return self.headers.get(name, "")


class AnswerReader:
    """Reads one answer."""

    __slots__ = (
        "_body", "_bytes_max", "_chunk", "_data", "_is_head", "_is_streamed", "_is_upgrade",
        "_left", "_next", "_passed", "answer", "is_last",
    )  # fmt: skip

    def __init__(
        self,
        bytes_max: int = ANY_SIZE,
        *,
        is_streamed: bool = False,
        is_head: bool = False,
        is_upgrade: bool = False,
    ) -> None:
        """Refuse bodies of more than bytes_max.

        is_streamed: the body is taken by `body` as it comes, however large it is.
        is_head: the request was HEAD: no body follows. is_upgrade: 101 is an answer.
        """
        self._bytes_max: Final = bytes_max
        self._is_streamed: Final = is_streamed
        self._is_head: Final = is_head
        self._is_upgrade: Final = is_upgrade
        self._data = b""  # bytes that are not parsed yet
        self._body = bytearray()
        self._left = 0  # of the body, in bytes; -1: it ends with the connection
        self._chunk = -1  # of the current chunk, in bytes; -1: its size has not arrived
        self._passed = 0  # informational heads so far
        self._next = self._head
        self.answer = HttpAnswer(0, {}, b"", [])
        """The answer; complete once `take` or `end` has returned True."""
        self.is_last = False
        """Whether the connection must be closed after this answer."""

    @property
    def has_begun(self) -> bool:
        """Whether any bytes have arrived."""
        return bool(self._data) or self.answer.code != 0

    @property
    def body_bytes(self) -> int:
        """The size of the received body that was not taken."""
        return len(self._body)

    def body(self) -> bytes:
        """Return the bytes of the body received since the last call."""
        found = bytes(self._body)
        self._body.clear()
        return found

    def take(self, data: bytes) -> bool:
        """Take received bytes; return whether the answer is complete. Raises AnswerError."""
        self._data = self._data + data if self._data else data
        if not self._next():
            return False
        # Bytes after an answer belong to no request.
        self.is_last = self.is_last or bool(self._data)
        return True

    def end(self) -> None:
        """Note the end of the connection; raises AnswerError if something is missing."""
        if self._next != self._until_end:
            raise TornError("unexpected EOF")
        self._complete()

    def _head(self) -> bool:
        while True:  # informational heads are skipped
            found = self._next_head()
            if found is not None:
                return found

    def _next_head(self) -> bool | None:
        """Read one head; return whether the answer is complete, None: the head is incomplete."""
        head, end, rest = self._data.partition(_HEAD_END)
        if not end:
            if len(head) > HEAD_BYTES_MAX:
                raise MalformedError(f"the head of the answer has more than {HEAD_BYTES_MAX} bytes")
            if not b"HTTP/1.".startswith(head[:7]):
                raise MalformedError("malformed HTTP response")
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest_of_line = first.partition(" ")
        code = rest_of_line[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdigit()):
            raise MalformedError("malformed HTTP response")
        self._data = rest
        if code[0] == "1" and not (self._is_upgrade and int(code) == SWITCHING):
            self._passed += 1
            if self._passed > PASSED_MAX:
                raise MalformedError("net/http: too many 1xx informational responses")
            return None
        headers = _headers(lines)
        self.answer = HttpAnswer(int(code), headers, b"", lines)
        kept = headers.get("connection", "").lower()
        self.is_last = kept != "keep-alive" if version == "HTTP/1.0" else "close" in kept
        return self._begin(headers)

    def _begin(self, headers: dict[str, str]) -> bool:
        """Determine how the body is delimited, and read its received part."""
        coding = headers.get("transfer-encoding")
        length = headers.get("content-length")
        code = self.answer.code
        if code == SWITCHING:
            self.is_last = True
            self._next = self._until_end
            return self._next()
        if code in BODILESS or self._is_head:
            return self._complete()
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise MalformedError("malformed HTTP response")
            self._next = self._chunks
        elif length is not None:
            if not (length.isascii() and length.isdigit() and len(length) <= _DIGITS_MAX):
                raise MalformedError("malformed HTTP response")
            self._left = int(length)
            if not self._is_streamed:
                self._check_size(self._left)
            self._next = self._counted
        else:
            self.is_last = True
            self._next = self._until_end
        return self._next()

    def _counted(self) -> bool:
        data = self._data
        # All at once, the usual case.
        if len(data) == self._left and not self._body and not self._is_streamed:
            self._data = b""
            self.answer = self.answer._replace(body=data)
            return True
        piece = data[: self._left]
        self._data = data[len(piece) :]
        self._add(piece)
        self._left -= len(piece)
        return not self._left and self._complete()

    def _until_end(self) -> bool:
        self._add(self._data)
        self._data = b""
        return False

    def _chunks(self) -> bool:
        while True:
            if self._chunk < 0:
                line, end, rest = self._data.partition(_LINE_END)
                if not end:
                    self._check_line(line)
                    return False
                self._chunk = _chunk_size(line)
                if not self._is_streamed:
                    self._check_size(len(self._body) + self._chunk)
                self._data = rest
                if not self._chunk:
                    self._next = self._trailer
                    return self._trailer()
            if self._chunk:  # only what has arrived: the size is the other side's claim
                piece = self._data[: self._chunk]
                self._add(piece)
                self._data = self._data[len(piece) :]
                self._chunk -= len(piece)
            if self._chunk or len(self._data) < len(_LINE_END):
                return False
            if not self._data.startswith(_LINE_END):
                raise MalformedError("malformed chunked encoding")
            self._data = self._data[len(_LINE_END) :]
            self._chunk = -1

    def _trailer(self) -> bool:
        while True:
            line, end, rest = self._data.partition(_LINE_END)
            if not end:
                self._check_line(line)
                return False
            self._data = rest
            if not line:
                return self._complete()

    def _add(self, piece: bytes) -> None:
        if not self._is_streamed:
            self._check_size(len(self._body) + len(piece))
        self._body += piece

    def _complete(self) -> bool:
        if self._is_streamed:
            return True
        self.answer = self.answer._replace(body=bytes(self._body))
        return True

    def _check_size(self, size: int) -> None:
        if size > self._bytes_max:
            raise TooLongError(f"the answer has more than {self._bytes_max} bytes")

    def _check_line(self, line: bytes) -> None:
        if len(line) > _LINE_BYTES_MAX:
            raise MalformedError("malformed chunked encoding")


def _headers(lines: list[str]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name[-1] in _SPACE or name[0] in _SPACE:
            raise MalformedError("malformed HTTP response")
        name, value = name.lower(), value.strip(_SPACE)
        if name not in joined:
            joined[name] = value
        elif name != "content-length" or joined[name] != value:
            joined[name] = f"{joined[name]}, {value}"
    return joined


def _chunk_size(line: bytes) -> int:
    text = line.partition(b";")[0].strip().decode("latin-1")
    if not text or len(text) > 15 or not _HEX.issuperset(text):
        raise MalformedError("malformed chunked encoding")
    return int(text, 16)
