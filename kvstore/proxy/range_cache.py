"""Answers to ranges, kept for serializable reads until a write through this proxy touches them.

    Range, linearizable or not ─► kept           Range, serializable ─► from here, if it is here
    Put, DeleteRange, Txn      ─► ranges that meet the written keys are forgotten
    Compact(r)                 ─► reads at a revision below r are refused as compacted

Writes that go past this proxy are not seen: a serializable read may be old by any amount, as with
etcd's proxy. A read that was under way while a write of its keys was is not kept, so that what is
kept is never older than a write that came this way. What one user read is given to nobody else: the
token is part of the key. The least recently used answers go first when there are too many or they
are too large.
"""

from collections import OrderedDict
from typing import Final

ENTRIES_MAX: Final = 2048
BYTES_MAX: Final = 256 << 20
_OPEN_END: Final = b"\0"

Key = tuple[str, bytes]  # token, request
_Span = tuple[bytes, bytes | None]  # end None: the one key; b"": no end


class Reading:
    """A read that is under way."""

    __slots__ = ("is_dirty", "key", "revision", "span")

    def __init__(self, key: Key, span: _Span, revision: int) -> None:
        self.key = key
        self.span = span
        self.revision = revision  # 0: it is of now, and may get old
        self.is_dirty = False


class RangeCache:
    """Answers by token and request."""

    def __init__(self, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._answers: OrderedDict[Key, tuple[bytes, Reading]] = OrderedDict()
        self._points: dict[bytes, set[Key]] = {}  # by the one key they are of
        self._spans: dict[_Span, set[Key]] = {}
        self._readings: set[Reading] = set()
        self._size_bytes = 0
        self.compacted = -1

    def __len__(self) -> int:
        """Return how many answers there are."""
        return len(self._answers)

    def get(self, key: Key) -> bytes | None:
        """Return an answer, if it is here."""
        found = self._answers.get(key)
        if found is None:
            return None
        self._answers.move_to_end(key)
        return found[0]

    def begin(self, key: Key, start: bytes, end: bytes, revision: int) -> Reading:
        """Note that start … end is being read; keep() or give_up() must follow."""
        reading = Reading(key, (start, _upper(end)), revision)
        self._readings.add(reading)
        return reading

    def give_up(self, reading: Reading) -> None:
        """Note that a read brought no answer."""
        self._readings.discard(reading)

    def keep(self, reading: Reading, answer: bytes) -> None:
        """Keep the answer of a read, unless it may be older than a write."""
        self._readings.discard(reading)
        key = reading.key
        if reading.is_dirty or 0 < reading.revision <= self.compacted:
            return
        if len(answer) > self._bytes_max:
            return
        self._drop(key)
        if not reading.revision:
            self._index(reading).add(key)
        self._answers[key] = (answer, reading)
        self._size_bytes += len(answer)
        while len(self._answers) > self._entries_max or self._size_bytes > self._bytes_max:
            self._drop(next(iter(self._answers)))

    def invalidate(self, start: bytes, end: bytes) -> None:
        """Forget every answer of now that meets the written range; also reads under way."""
        upper = _upper(end)
        for reading in self._readings:
            if not reading.revision and _meet(reading.span, start, upper):
                reading.is_dirty = True
        met = [keys for span, keys in self._spans.items() if _meet(span, start, upper)]
        if upper is None:
            met.append(self._points.get(start, set()))
        else:
            points = self._points.items()
            met += [keys for point, keys in points if _meet((point, None), start, upper)]
        for key in [key for keys in met for key in keys]:
            self._drop(key)

    def compact(self, revision: int) -> None:
        """Note a compaction."""
        self.compacted = max(self.compacted, revision)

    def _index(self, reading: Reading) -> set[Key]:
        start, upper = reading.span
        if upper is None:
            return self._points.setdefault(start, set())
        return self._spans.setdefault(reading.span, set())

    def _drop(self, key: Key) -> None:
        found = self._answers.pop(key, None)
        if found is None:
            return
        answer, reading = found
        self._size_bytes -= len(answer)
        if reading.revision:
            return
        keys = self._index(reading)
        keys.discard(key)
        if not keys and reading.span[1] is None:
            del self._points[reading.span[0]]
        elif not keys:
            del self._spans[reading.span]


def _upper(end: bytes) -> bytes | None:
    return None if not end else b"" if end == _OPEN_END else end


def _meet(span: _Span, start: bytes, upper: bytes | None) -> bool:
    """Tell whether two ranges share a key."""
    first, last = span
    return _is_before(first, start, upper) and _is_before(start, first, last)


def _is_before(key: bytes, start: bytes, upper: bytes | None) -> bool:
    """Tell whether key lies before the end of a range that begins at start."""
    if upper is None:
        return key <= start
    return not upper or key < upper
