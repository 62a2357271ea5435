"""Blocks of PEM as Go's encoding/pem finds them.

    list(blocks(b"-----BEGIN CERTIFICATE-----\\nMIIB…\\n-----END CERTIFICATE-----\\n"))
    → [Block("CERTIFICATE", {}, b"0\\x82…")]

Everything but blocks is skipped: text between blocks, ends without a beginning, base64 that is
none.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Final, NamedTuple

_BEGIN: Final = b"-----BEGIN "
_END: Final = b"\n-----END "
_DASHES: Final = b"-----"
_SPACES: Final = b" \t"


class Block(NamedTuple):
    """One block."""

    kind: str
    """`CERTIFICATE`, `PRIVATE KEY`, …"""
    headers: dict[str, str]
    content: bytes


def blocks(data: bytes) -> Iterator[Block]:
    """Yield the blocks, in order."""
    start = 0
    while (end := data.find(_END, start)) >= 0:
        block, start = _block(data, start, end)
        if block is not None:
            yield block


def _block(data: bytes, start: int, end: int) -> tuple[Block | None, int]:
    """Return the block that ends at `end`, if there is one, and from where on to look for more."""
    tail = end + len(_END)
    begin = data.rfind(_BEGIN, start, end)
    if begin < 0 or (begin > start and data[begin - 1 : begin] != b"\n"):
        return None, tail
    line, position = _line(data, begin + len(_BEGIN))
    if not line.endswith(_DASHES):
        return None, tail
    kind = line[: -len(_DASHES)]
    headers, position = _headers(data, position)
    if position > tail or position == len(data):
        # Headers that go on behind the end hide all that follows.
        return None, len(data)
    closing = kind + _DASHES
    rest, after = _line(data, tail + len(closing))
    if (headers and position > end) or not data.startswith(closing, tail) or rest:
        return None, tail
    content = _content(data[position:end]) if position < end else b""
    if content is None:
        return None, tail
    return Block(kind.decode("utf-8", "replace"), headers, content), after


def _headers(data: bytes, position: int) -> tuple[dict[str, str], int]:
    """Return the headers of a block, and where they end."""
    headers: dict[str, str] = {}
    while position < len(data):
        line, after = _line(data, position)
        name, colon, value = line.partition(b":")
        if not colon:
            break
        headers[_text(name)] = _text(value)
        position = after
    return headers, position


def _text(data: bytes) -> str:
    return data.strip().decode("utf-8", "replace")


def _content(data: bytes) -> bytes | None:
    digits = data.translate(None, b"\r\n \t")
    if len(digits) % 4:
        return None
    try:
        return base64.b64decode(digits, validate=True)
    except binascii.Error:
        return None


def _line(data: bytes, position: int) -> tuple[bytes, int]:
    """Return the line that begins at a position, and where the next one begins."""
    end = data.find(b"\n", position)
    if end < 0:
        return data[position:].rstrip(_SPACES), len(data)
    return data[position:end].removesuffix(b"\r").rstrip(_SPACES), end + 1
