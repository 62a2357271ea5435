"""Headers of HTTP/2 (RFC 7541): requests are written, answers are read.

    encoder.block("GET", "/api", [("Accept", "application/json")])   → bytes of a HEADERS frame
    decoder.fields(block)                                            → [Field], decoded when asked

Headers that come again and again are put into the server's table once and named by their index
then; the table is never filled beyond its size, so that nothing is ever dropped from it. Of answers
only the requested headers are decoded: most are of no interest to an agent.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from kvstack.agents.client.http2.huffman import HuffmanError, decoded

_STATIC: Final[tuple[tuple[bytes, bytes], ...]] = tuple(
    (name, value)
    for line in b"""\
:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip,_deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate""".splitlines()
    for name, _, value in (line.replace(b"_", b" ").partition(b" "),)
)
_NAMES: Final = {name: index for index, (name, _) in reversed([*enumerate(_STATIC, 1)])}
_WHOLE: Final = {field: index for index, field in enumerate(_STATIC, 1)}
_ENTRY_BYTES: Final = 32
"""The overhead of a table entry besides its name and value."""
TABLE_BYTES: Final = 4096
"""The default size of tables."""
_ENTRIES_MAX: Final = TABLE_BYTES // _ENTRY_BYTES
_CHANGING: Final = frozenset((":path", "content-length"))


class HeadersError(ValueError):
    """A block of headers that cannot be decoded; the connection cannot be used further."""


class Field:
    """A header of an answer, as it came."""

    __slots__ = ("_name", "_name_coded", "_value", "_value_coded")

    def __init__(
        self, name: bytes, value: bytes, *, name_coded: bool = False, value_coded: bool = False
    ) -> None:
        """coded: it is in Huffman's code."""
        self._name = name
        self._value = value
        self._name_coded = name_coded
        self._value_coded = value_coded

    @property
    def name(self) -> bytes:
        """Its name."""
        return _text(self._name) if self._name_coded else self._name

    @property
    def value(self) -> bytes:
        """Its value."""
        return _text(self._value) if self._value_coded else self._value

    def with_value(self, value: bytes, *, value_coded: bool) -> "Field":
        """Return a field of the same name."""
        return Field(self._name, value, name_coded=self._name_coded, value_coded=value_coded)


def _text(data: bytes) -> bytes:
    try:
        return decoded(data)
    except HuffmanError as error:
        raise HeadersError(str(error)) from error


_STATIC_FIELDS: Final = tuple(Field(name, value) for name, value in _STATIC)


class Decoder:
    """Reads the headers of one connection's answers."""

    def __init__(self) -> None:
        # A server names no entry that its table dropped, so it does not matter when that was.
        self._table: deque[Field] = deque(maxlen=_ENTRIES_MAX)

    def fields(self, block: bytes) -> list[Field]:
        """Return the headers of a block; raises HeadersError."""
        headers: list[Field] = []
        position, end = 0, len(block)
        while position < end:
            first = block[position]
            if first & 0x80:
                index, position = _number(block, position, 0x7F)
                headers.append(self._at(index))
            elif first & 0x40:
                field, position = self._literal(block, position, 0x3F)
                self._table.appendleft(field)
                headers.append(field)
            elif first & 0x20:
                size, position = _number(block, position, 0x1F)
                if size > TABLE_BYTES:
                    raise HeadersError(f"a table of {size} bytes, {TABLE_BYTES} are allowed")
            else:
                field, position = self._literal(block, position, 0x0F)
                headers.append(field)
        return headers

    def _literal(self, block: bytes, position: int, mask: int) -> tuple[Field, int]:
        index, position = _number(block, position, mask)
        if index:
            like = self._at(index)
        else:
            name, is_coded, position = _string(block, position)
            like = Field(name, b"", name_coded=is_coded)
        value, is_coded, position = _string(block, position)
        return like.with_value(value, value_coded=is_coded), position

    def _at(self, index: int) -> Field:
        if not index:
            raise HeadersError("a header of index 0")
        if index <= len(_STATIC_FIELDS):
            return _STATIC_FIELDS[index - 1]
        try:
            return self._table[index - len(_STATIC_FIELDS) - 1]
        except IndexError:
            raise HeadersError(f"a header of index {index} was never sent") from None


def _number(block: bytes, position: int, mask: int) -> tuple[int, int]:
    """Return a number, and the place after it."""
    try:
        value = block[position] & mask
        position += 1
        if value < mask:
            return value, position
        for shift in range(0, 28, 7):
            byte = block[position]
            position += 1
            value += (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
    except IndexError:
        raise HeadersError("a block that ends within a number") from None
    raise HeadersError("a number that is too large")


def _string(block: bytes, position: int) -> tuple[bytes, bool, int]:
    """Return a string as it came, whether it is in Huffman's code, and the place after it."""
    try:
        is_coded = block[position] >= 0x80
    except IndexError:
        raise HeadersError("a block that ends before a string") from None
    length, position = _number(block, position, 0x7F)
    end = position + length
    if end > len(block):
        raise HeadersError("a block that ends within a string")
    return block[position:end], is_coded, end


class Encoder:
    """Writes the headers of one connection's requests."""

    def __init__(self, authority: str) -> None:
        """Do not use the server's dynamic table before the first request."""
        self._authority = authority
        self._numbers: dict[tuple[str, str], int] = {}
        self._written: dict[tuple[str, str], bytes] = {}
        self._table_bytes = TABLE_BYTES
        self._used_bytes = 0
        self._is_known = False
        self._change = b""

    def use_table(self, size: int | None) -> bool:
        """Use a server's table of so many bytes; return False if it is smaller than what is in it.

        To be called with the server's settings; None: they do not say.
        """
        self._is_known = True
        if size is not None and min(size, TABLE_BYTES) != self._table_bytes:
            self._table_bytes = min(size, TABLE_BYTES)
            self._change = _numbered(self._table_bytes, 0x1F, 0x20)
        return self._used_bytes <= self._table_bytes

    def block(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body_bytes: int
    ) -> bytes:
        """Return the headers of a request; body_bytes: the length of its body."""
        change, self._change = self._change, b""
        parts = [
            change,
            self._field(":method", method),
            self._field(":scheme", "https"),
            self._field(":authority", self._authority),
            self._field(":path", target),
        ]
        parts += [self._field(name, value) for name, value in headers]
        if body_bytes:
            parts.append(self._field("content-length", str(body_bytes)))
        return b"".join(parts)

    def _field(self, name: str, value: str) -> bytes:
        field = (name, value)
        written = self._written.get(field)
        if written is not None:
            return written
        name = name.lower()
        raw = value.encode()
        whole = _WHOLE.get((name.encode(), raw))
        if whole is not None:
            written = self._written[field] = _numbered(whole, 0x7F, 0x80)
            return written
        if name in _CHANGING:
            return _literal(name, raw, 0x0F, 0x00)
        number = self._numbers.get(field)
        if number is not None:
            index = len(_STATIC) + len(self._numbers) - number
            written = self._written[field] = _numbered(index, 0x7F, 0x80)
            return written
        used_bytes = self._used_bytes + len(name) + len(raw) + _ENTRY_BYTES
        if not self._is_known or used_bytes > self._table_bytes:
            return _literal(name, raw, 0x0F, 0x00)
        self._used_bytes = used_bytes
        self._numbers[field] = len(self._numbers)
        self._written.clear()  # the indexes of all others are one higher now
        return _literal(name, raw, 0x3F, 0x40)


def _literal(name: str, value: bytes, mask: int, bits: int) -> bytes:
    raw = name.encode()
    index = _NAMES.get(raw, 0)
    written = _numbered(index, mask, bits)
    if not index:
        written += _numbered(len(raw), 0x7F, 0) + raw
    return written + _numbered(len(value), 0x7F, 0) + value


def _numbered(number: int, mask: int, bits: int) -> bytes:
    if number < mask:
        return bytes((bits | number,))
    found = bytearray((bits | mask,))
    number -= mask
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
