"""The chunked coding of a stream's bytes, for both ends of a connection after the head.

    5\\r\\nhello\\r\\n   3\\r\\nyou\\r\\n   …   0\\r\\n\\r\\n

A sender makes one chunk of each write. The borders of chunks are not those of messages.
"""

from typing import Final

from kvstore.wire.varint import WireError

_LINE_BYTES_MAX: Final = 256
_SIZE_DIGITS_MAX: Final = 15


def chunk(data: bytes) -> bytes:
    """Return data, which must not be empty, as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Dechunker:
    """Decodes chunks that may be cut anywhere."""

    __slots__ = ("_left", "_line", "_tail", "is_over")

    def __init__(self) -> None:
        self._line = b""  # an incomplete chunk head
        self._left = 0  # bytes of the current chunk not yet received
        self._tail = 0  # bytes of the line end after it not yet received
        self.is_over = False

    def feed(self, data: bytes) -> bytes:
        """Return the content in data; WireError if it is not chunked."""
        pieces: list[bytes] = []
        at, end = 0, len(data)
        while at < end and not self.is_over:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._tail = 0 if self._left else 2
            elif self._tail:
                if data[at : at + 1] != (b"\r" if self._tail == 2 else b"\n"):
                    raise WireError("chunk of a stream without its end of line")
                at += 1
                self._tail -= 1
            else:
                at = self._feed_line(data, at)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _feed_line(self, data: bytes, at: int) -> int:
        """Read a chunk head, or the part received so far; return the offset after it."""
        stop = data.find(b"\n", at, at + _LINE_BYTES_MAX)
        self._line += data[at : stop if stop >= 0 else None][:_LINE_BYTES_MAX]
        if stop < 0:
            if len(self._line) >= _LINE_BYTES_MAX:
                raise WireError(f"head of a chunk longer than {_LINE_BYTES_MAX} bytes")
            return len(data)
        digits = self._line.partition(b";")[0].strip()
        self._line = b""
        if not 0 < len(digits) <= _SIZE_DIGITS_MAX or not digits.isalnum():
            raise WireError(f"chunk of size {digits[:20]!r}")
        try:
            self._left = int(digits, 16)
        except ValueError:
            raise WireError(f"chunk of size {digits[:20]!r}") from None
        self.is_over = self._left == 0
        return stop + 1
