"""Encoded answers, to which only parts that depend on the query are added.

    id │ flags │ counts │ the question as received │ body │ OPT, if the query has one

The body begins after the question. Names in it point back to the question, whose length is the same
however its letters are written, so one body serves all spellings. What is too long for a client is
cut between two records: first those that only help, then with the flag TC.
"""

from struct import Struct
from typing import Final

import dns.flags
from dns.message import Message

from kvstack.agents.dns.query import HEADER_BYTES, PLAIN_BYTES, Query

SIZE_MAX: Final = 1232
"""The maximum size of an answer over UDP: it is not fragmented."""
MESSAGE_BYTES_MAX: Final = 65535
_RD, _CD = 0x0100, 0x0010
_IS_ANSWER, _AA, _TC, _RA, _AD = 0x8000, 0x0400, 0x0200, 0x0080, 0x0020
_ROTATED: Final = {1: 16, 28: 28}
"""Bytes of a record of A or AAAA whose name points to the question."""
_HEADER: Final = Struct("!2sHHHHH")
_TTL: Final = Struct("!I")
_RECORD: Final = Struct("!HHIH")
_OPT: Final = Struct("!BHHBBHH")
OPTIONS: Final = tuple(_OPT.pack(0, 41, SIZE_MAX, 0, 0, flags, 0) for flags in (0, 0x8000))
"""The OPT record of an answer, without and with DO."""


class PreparedAnswer:
    """One answer, without id and question."""

    __slots__ = ("body", "code", "counts", "ends", "flags", "rotated", "ttls")

    def __init__(self, message: Message) -> None:
        """Parse a message, which has the question that is answered."""
        message.use_edns(False)
        wire = message.to_wire(max_size=MESSAGE_BYTES_MAX, prefer_truncation=True)
        start = _question_end(wire)
        _, flags, _, answers, authorities, others = _HEADER.unpack_from(wire)
        self.body = wire[start:]
        self.flags = flags & (_AA | _AD) | _IS_ANSWER
        self.code: int = message.rcode()
        self.counts = (answers, authorities, others)
        found = list(_records(wire, start, answers + authorities + others))
        self.ends = tuple(end - start for _, _, end in found)
        """The offset of each record in the body."""
        self.ttls = tuple(at - start for _, at, _ in found)
        """The offset of each record's TTL."""
        self.rotated = _rotated(found[:answers], start)

    @property
    def ttl_s(self) -> int:
        """The TTL of the answer: the lowest of its records."""
        times = [_TTL.unpack_from(self.body, at)[0] for at in self.ttls]
        return min(times, default=0)

    def answer(
        self, query: Query, limit: int, *, is_recursing: bool, age_s: int = 0, turn: int = 0
    ) -> bytes:
        """Return the answer of a query.

        limit: bytes; is_recursing: whether names of others are resolved here; age_s: how long it
        was kept; turn: by how much addresses are rotated.
        """
        flags = self.flags | query.flags & (_RD | _CD) | (_RA if is_recursing else 0) | self.code
        body = self.body
        if self.rotated[0] and turn:
            size, total = self.rotated
            at = turn * size % total
            body = body[at:total] + body[:at] + body[total:]
        if age_s:
            body = self._aged(body, age_s)
        options = options_of(query)
        start = HEADER_BYTES + len(query.question)
        counts = self.counts
        if start + len(body) + len(options) > limit:
            keeps, counts = self._fitting(limit - start - len(options))
            body = body[:keeps]
            if counts[:2] != self.counts[:2]:
                flags |= _TC
        answers, authorities, others = counts
        others += 1 if options else 0
        head = _HEADER.pack(query.id, flags, 1, answers, authorities, others)
        return head + query.question + body + options

    def _fitting(self, room: int) -> tuple[int, tuple[int, int, int]]:
        """Return how many bytes of the body are kept, and how many records that are."""
        answers, authorities, _ = self.counts
        count = 0
        while count < len(self.ends) and self.ends[count] <= room:
            count += 1
        if count >= answers + authorities:
            count = answers + authorities  # half of what only helps is of no use
            counts = (answers, authorities, 0)
        else:
            count = min(count, answers)
            counts = (count, 0, 0)
        return (self.ends[count - 1] if count else 0), counts

    def _aged(self, body: bytes, age_s: int) -> bytes:
        changed = bytearray(body)
        for at in self.ttls:
            _TTL.pack_into(changed, at, max(0, _TTL.unpack_from(changed, at)[0] - age_s))
        return bytes(changed)


def options_of(query: Query) -> bytes:
    """Return the OPT record of an answer; empty: the query had none."""
    if not query.has_options:
        return b""
    return OPTIONS[query.wants_dnssec]


def problem(query: Query, code: int, *, is_recursing: bool) -> bytes:
    """Return an answer that is a code alone."""
    flags = query.flags & (0x7800 | _RD | _CD) | _IS_ANSWER | code & 0xF
    flags |= _RA if is_recursing else 0
    options = options_of(query)
    if code > 0xF and options:
        options = options[:5] + bytes((code >> 4,)) + options[6:]
    has_question = 1 if query.question else 0
    head = _HEADER.pack(query.id, flags, has_question, 0, 0, 1 if options else 0)
    return head + query.question + options


def limit_of(query: Query) -> int:
    """Return how long an answer over UDP may be."""
    return min(query.size, SIZE_MAX) if query.size else PLAIN_BYTES


def authoritative() -> Message:
    """Return the begin of an answer about names of the cluster."""
    found = Message(id=0)
    found.flags = dns.flags.QR | dns.flags.AA
    return found


def _question_end(wire: bytes) -> int:
    at = HEADER_BYTES
    while length := wire[at]:
        at += 1 + length
    return at + 5


def _records(wire: bytes, at: int, count: int) -> list[tuple[int, int, int]]:
    """Return type, place of the time to live and end of each record that dnspython wrote."""
    records = []
    for _ in range(count):
        while (length := wire[at]) and length < 0xC0:
            at += 1 + length
        at += 2 if length else 1
        kind, _, _, size = _RECORD.unpack_from(wire, at)
        end = at + _RECORD.size + size
        records.append((kind, at + 4, end))
        at = end
    return records


def _rotated(answers: list[tuple[int, int, int]], start: int) -> tuple[int, int]:
    """Return the size of each and of all answers, if they are addresses alone; else zeros."""
    if len(answers) < 2 or len({kind for kind, _, _ in answers}) > 1:
        return 0, 0
    size = _ROTATED.get(answers[0][0], 0)
    total = answers[-1][2] - start
    return (size, total) if size and total == size * len(answers) else (0, 0)
