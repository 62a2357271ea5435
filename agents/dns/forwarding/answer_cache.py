"""A cache of other resolvers' answers: those with records, and those without."""

from typing import Final, Generic, NamedTuple, TypeVar

from dns.message import Message
from dns.rcode import NOERROR, NXDOMAIN
from dns.rdatatype import SOA

from kvstack.agents.dns.prepared import PreparedAnswer

ENTRIES_MAX: Final = 9984
BYTES_MAX: Final = 8 << 20
"""The maximum size of all answers of one kind."""
TTL_S_MIN: Final = 5
"""So long everything is kept, what failed too."""

K = TypeVar("K")


class CachedAnswer(NamedTuple):
    """An answer, and since and until when it is kept, by a monotonic clock."""

    prepared: PreparedAnswer
    since_s: float
    until_s: float


class Limits(NamedTuple):
    """The maximum ages of answers."""

    found_s: int = 3600
    missing_s: int = 1800


def lifetime_s(message: Message, limits: Limits) -> int:
    """Return how long an answer of others may be kept."""
    if message.rcode() not in (NOERROR, NXDOMAIN):
        return TTL_S_MIN
    if message.answer and message.rcode() == NOERROR:
        times = [each.ttl for each in (*message.answer, *message.authority, *message.additional)]
        return max(TTL_S_MIN, min(limits.found_s, *times))
    denied = [
        min(each.ttl, each[0].minimum) for each in message.authority if each.rdtype == SOA and each
    ]
    return max(TTL_S_MIN, min(limits.missing_s, *denied)) if denied else TTL_S_MIN


class _Shelf(Generic[K]):
    """Entries up to a number and a size; the oldest make room."""

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries_max, self._bytes_max = entries_max, bytes_max
        self.entries: dict[K, CachedAnswer] = {}
        self._bytes = 0
        self.evictions = 0
        """Entries that made room for others."""

    def put(self, key: K, kept: CachedAnswer) -> None:
        self.drop(key)
        self.entries[key] = kept
        self._bytes += len(kept.prepared.body)
        while len(self.entries) > self._entries_max or self._bytes > self._bytes_max:
            self.drop(next(iter(self.entries)))
            self.evictions += 1

    def drop(self, key: K) -> None:
        old = self.entries.pop(key, None)
        if old is not None:
            self._bytes -= len(old.prepared.body)


class AnswerCache(Generic[K]):
    """The answers."""

    def __init__(self, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        """The limits apply to answers with records, and again to the others."""
        self._found = _Shelf[K](entries_max, bytes_max)
        self._missing = _Shelf[K](entries_max, bytes_max)
        self.hits = {"success": 0, "denial": 0}
        self.misses = 0

    @property
    def sizes(self) -> dict[str, int]:
        """Return how many are kept of each kind."""
        return {"success": len(self._found.entries), "denial": len(self._missing.entries)}

    @property
    def evictions(self) -> dict[str, int]:
        """Return how many of each kind made room for others."""
        return {"success": self._found.evictions, "denial": self._missing.evictions}

    def get(self, key: K, now_s: float) -> CachedAnswer | None:
        """Return an answer that still holds."""
        for kind, shelf in (("success", self._found), ("denial", self._missing)):
            kept = shelf.entries.get(key)
            if kept is None:
                continue
            if now_s < kept.until_s:
                self.hits[kind] += 1
                return kept
            shelf.drop(key)
        self.misses += 1
        return None

    def put(self, key: K, kept: CachedAnswer) -> None:
        """Keep an answer."""
        prepared = kept.prepared
        has_records = prepared.code == NOERROR and prepared.counts[0] > 0
        shelf, other = (self._found, self._missing) if has_records else (self._missing, self._found)
        other.drop(key)
        shelf.put(key, kept)
