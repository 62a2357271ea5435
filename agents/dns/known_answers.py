"""A cache of whole answers by the bytes of the query.

    header 12 │ name │ type class │ (OPT)      by name in lower case, type and class

This is the path of nearly every query, so it looks at nothing twice and builds no objects; what is
not of the usual form is left to `query.read`. Answers about one Service are forgotten when that
changes, all others with every change.
"""

from typing import Final

from kvstack.agents.dns.prepared import MESSAGE_BYTES_MAX, OPTIONS, SIZE_MAX, PreparedAnswer
from kvstack.agents.dns.query import HEADER_BYTES, PLAIN_BYTES, Query
from kvstack.agents.dns.services import Key

KEPT_MAX: Final = 16_384
OTHERS_MAX: Final = 4096
"""The maximum number of answers that depend on several Services, or none."""

_ONE_QUESTION: Final = b"\0\1\0\0\0\0"
_NO_OTHERS, _ONE_OTHER = b"\0\0", b"\0\1"
_OPT: Final = b"\0\0\x29"
_OPT_BYTES: Final = 11
_UNUSUAL: Final = 0xFA
"""An answer, another operation, a part of something longer: in the first byte of flags."""
_USUAL_SECOND: Final = (0x00, 0x20)
"""No flags, or AD."""


class _KnownAnswer:
    """An answer, and its begins: without and with OPT, each without and with RD."""

    __slots__ = ("heads", "prepared")

    def __init__(self, prepared: PreparedAnswer, *, is_recursing: bool) -> None:
        self.prepared = prepared
        self.heads = tuple(
            prepared.answer(
                Query(b"\0\0", flags, size=size), MESSAGE_BYTES_MAX, is_recursing=is_recursing
            )[2:HEADER_BYTES]
            for size in (0, PLAIN_BYTES)
            for flags in (0, 0x0100)
        )


class KnownAnswers:
    """A cache of answers about the cluster, until it changes."""

    def __init__(self, *, is_recursing: bool) -> None:
        """is_recursing: whether names of others are resolved, as every answer indicates."""
        self._is_recursing = is_recursing
        self._of_services: dict[bytes, _KnownAnswer] = {}
        self._others: dict[bytes, _KnownAnswer] = {}
        self._keys: dict[Key, set[bytes]] = {}
        self._turn = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._of_services) + len(self._others)

    def answer(self, data: bytes, limit: int = 0) -> bytes | None:
        """Return the answer of a query that came as these bytes; None: it takes a closer look.

        limit: bytes of an answer over TCP; 0: it goes over UDP, where the client says it.
        """
        end = data.find(0, HEADER_BYTES) + 5
        key = data[HEADER_BYTES : end - 4].lower() + data[end - 4 : end]
        answers = self._of_services.get(key) or self._others.get(key)
        if answers is None or data[4:10] != _ONE_QUESTION:
            return None
        first = data[2]
        if first & _UNUSUAL or data[3] not in _USUAL_SECOND:
            return None
        has_options = len(data) != end
        options = b""
        room = limit or PLAIN_BYTES
        if not has_options:
            if data[10:HEADER_BYTES] != _NO_OTHERS:
                return None
        else:
            # The size is the class of OPT; then come the high bits of the code, the version, flags.
            if data[10:HEADER_BYTES] != _ONE_OTHER or data[end : end + 3] != _OPT:
                return None
            if len(data) < end + _OPT_BYTES or data[end + 6]:
                return None
            length = data[end + 9] << 8 | data[end + 10]
            if len(data) != end + _OPT_BYTES + length:
                return None
            options = OPTIONS[data[end + 7] >> 7]
            if not limit:
                size = data[end + 3] << 8 | data[end + 4]
                room = min(max(size, PLAIN_BYTES), SIZE_MAX)
        prepared = answers.prepared
        body = prepared.body
        if end + len(body) + len(options) > room:
            return None
        rotated, total = prepared.rotated
        if rotated:
            self._turn += rotated
            at = self._turn % total
            body = body[at:total] + body[:at] + body[total:]
        head = answers.heads[(first & 1) + (2 if has_options else 0)]
        return data[:2] + head + data[HEADER_BYTES:end] + body + options

    def keep(self, query: Query, prepared: PreparedAnswer, service: Key | None) -> None:
        """Store the answer of a query; service: the only one that it depends on."""
        key = query.name + query.question[-4:]
        answer = _KnownAnswer(prepared, is_recursing=self._is_recursing)
        if service is None:
            if len(self._others) >= OTHERS_MAX:
                self._others.clear()
            self._others[key] = answer
            return
        if len(self._of_services) >= KEPT_MAX:
            self._of_services.clear()
            self._keys.clear()
        self._of_services[key] = answer
        self._keys.setdefault(service, set()).add(key)

    def forget(self, service: Key | None) -> None:
        """Forget what may be wrong after a change of a Service, or (None) of something else."""
        self._others.clear()
        if service is not None:
            for key in self._keys.pop(service, ()):
                self._of_services.pop(key, None)
