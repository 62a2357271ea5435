"""Parses untrusted queries, without an object for each name.

    id flags 1 0 0 n │ name type class │ n other records, of which OPT counts

`read` gives a `Query`, or None for what is not answered at all: what is shorter than a header, and
answers, which two servers could send to each other for ever. A query with a `problem` is answered
with that code alone.
"""

from struct import Struct
from typing import Final, NamedTuple

HEADER_BYTES: Final = 12
PLAIN_BYTES: Final = 512
"""The size that every client accepts over UDP (RFC 1035)."""
OPT: Final = 41
IN: Final = 1
AXFR, IXFR = 252, 251
_NAME_BYTES_MAX: Final = 255
_LABEL_BYTES_MAX: Final = 63
_POINTER: Final = 0xC0
_OTHERS_MAX: Final = 8
"""Records beside the question."""

FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 1, 2, 3, 4, 5, 16

_HEADER: Final = Struct("!2sHHHHH")
_KIND: Final = Struct("!HH")
_RECORD: Final = Struct("!HHIH")
_IS_ANSWER, _OPCODE, _RD, _CD = 0x8000, 0x7800, 0x0100, 0x0010
_DO: Final = 0x8000


class Query(NamedTuple):
    """One question, and how it is to be answered."""

    id: bytes
    flags: int
    """The flags of the header."""
    question: bytes = b""
    """Name, type and class as received; empty: they cannot be parsed."""
    name: bytes = b"\0"
    """In lower case, in wire format."""
    kind: int = 0
    """The type."""
    size: int = 0
    """The size that the client accepts over UDP, by its OPT record; 0: it has none."""
    wants_dnssec: bool = False
    problem: int = 0
    """The code that it is answered with; 0: none."""

    @property
    def is_recursive(self) -> bool:
        """Whether the client requests recursion."""
        return bool(self.flags & _RD)

    @property
    def checking_disabled(self) -> bool:
        """Whether the client checks signatures itself."""
        return bool(self.flags & _CD)

    @property
    def has_options(self) -> bool:
        """Whether the answer has an OPT record."""
        return self.size > 0


class _BadQueryError(Exception):
    """Bytes are not a valid query."""


def read(data: bytes) -> Query | None:
    """Return a query; None: it is not answered."""
    if len(data) < HEADER_BYTES:
        return None
    ident, flags, questions, answers, authorities, others = _HEADER.unpack_from(data)
    if flags & _IS_ANSWER:
        return None
    query = Query(ident, flags)
    if flags & _OPCODE:
        return query._replace(problem=NOTIMP)
    if questions != 1 or answers:
        return query._replace(problem=FORMERR)
    try:
        end = _name_end(data, HEADER_BYTES)
        kind, group = _kind(data, end)
        query = query._replace(
            question=data[HEADER_BYTES : end + _KIND.size],
            name=data[HEADER_BYTES:end].lower(),
            kind=kind,
        )
        if kind in (AXFR, IXFR) or group != IN:
            return query._replace(problem=REFUSED)
        if authorities or others > _OTHERS_MAX:
            return query._replace(problem=FORMERR)
        return _with_options(query, data, end + _KIND.size, others)
    except _BadQueryError:
        return query._replace(problem=FORMERR)


def _with_options(query: Query, data: bytes, at: int, others: int) -> Query:
    """Return a query with what its OPT record says; what else is there is passed over."""
    is_known = False
    for _ in range(others):
        end = _name_end(data, at)
        if len(data) < end + _RECORD.size:
            raise _BadQueryError
        kind, group, value, length = _RECORD.unpack_from(data, end)
        next_at = end + _RECORD.size + length
        if len(data) < next_at:
            raise _BadQueryError
        if kind == OPT:
            if is_known or end != at + 1:
                raise _BadQueryError
            is_known = True
            version = value >> 16 & 0xFF
            query = query._replace(
                size=max(group, PLAIN_BYTES),
                wants_dnssec=bool(value & _DO),
                problem=BADVERS if version else 0,
            )
        at = next_at
    if at != len(data):
        raise _BadQueryError
    return query


def _kind(data: bytes, at: int) -> tuple[int, int]:
    if len(data) < at + _KIND.size:
        raise _BadQueryError
    kind, group = _KIND.unpack_from(data, at)
    return kind, group


def _name_end(data: bytes, at: int) -> int:
    """Return where a name ends; nothing stands before it that it could point to."""
    start = at
    while True:
        if at >= len(data):
            raise _BadQueryError
        length = data[at]
        if length > _LABEL_BYTES_MAX:
            raise _BadQueryError
        at += 1 + length
        if at - start > _NAME_BYTES_MAX:
            raise _BadQueryError
        if not length:
            return at


def labels_of(name: bytes) -> tuple[bytes, ...]:
    """Return the labels of a name of the wire that `read` has checked, the root's left out."""
    found = []
    at = 0
    while length := name[at]:
        found.append(name[at + 1 : at + 1 + length])
        at += 1 + length
    return tuple(found)


def name_of(labels: tuple[bytes, ...]) -> bytes:
    """Return labels as a name of the wire."""
    return b"".join(bytes((len(each),)) + each for each in labels) + b"\0"


def wire_name(text: str) -> bytes:
    """Return a name of the wire in lower case; ValueError for an invalid name."""
    labels = tuple(each.encode("ascii").lower() for each in text.removesuffix(".").split("."))
    if text in ("", "."):
        labels = ()
    if any(not 0 < len(each) <= _LABEL_BYTES_MAX for each in labels):
        raise ValueError(f"invalid name {text!r}: labels have 1 to {_LABEL_BYTES_MAX} characters")
    found = name_of(labels)
    if len(found) > _NAME_BYTES_MAX:
        raise ValueError(f"invalid name {text!r}: it is longer than {_NAME_BYTES_MAX} bytes")
    return found
