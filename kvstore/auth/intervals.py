"""Which keys a user may access: key intervals merged into disjoint ones, found by binary search.

    granted   [a, c)  [c, e)  "k"  [x, ∞)        "k" alone is [k, k\\0), the interval of one key
    kept      [a, e)  [k, k\\0)  [x, ∞)          touching intervals become one

    covers("b", "")  yes      covers("b", "d")  yes, across the merge      covers("d", "f")  no

A range end is written as in requests: empty for the single key, one zero byte for every key from
the first on. If the requested range or one of the granted ranges contains no key at all, the answer
is that of etcd's own tree: see `interval_tree`.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from kvstore.auth.interval_tree import IntervalTree

OPEN_END: Final = b"\0"  # as a range end: no end


class Intervals:
    """A union of key intervals."""

    __slots__ = ("_ends", "_granted", "_is_odd", "_starts", "_tree")

    def __init__(self, granted: Iterable[tuple[bytes, bytes]]) -> None:
        """Take (key, range end) pairs in the order they were granted; O(n log n)."""
        self._starts: list[bytes] = []
        self._ends: list[bytes | None] = []  # exclusive; None: no end
        self._granted = [(key, _end_of(key, range_end)) for key, range_end in granted]
        self._tree: IntervalTree | None = None
        spans = [(key, end) for key, end in self._granted if key and (end is None or end > key)]
        self._is_odd = len(spans) < len(self._granted)  # some contain no key
        for start, end in sorted(spans, key=lambda span: span[0]):
            self._add(start, end)

    def _add(self, start: bytes, end: bytes | None) -> None:
        """Add an interval that does not start before the last one."""
        ends = self._ends
        if not ends:
            self._starts.append(start)
            ends.append(end)
            return
        last = ends[-1]
        if last is None:
            return
        if start <= last:
            ends[-1] = None if end is None else max(last, end)
        else:
            self._starts.append(start)
            ends.append(end)

    def covers(self, key: bytes, range_end: bytes) -> bool:
        """Return whether the union contains every key of a request's range."""
        if self._is_odd or (range_end and range_end <= key and range_end != OPEN_END):
            return self._covers_as_etcd(key, range_end)
        at = bisect_right(self._starts, key) - 1
        if at < 0:
            return False
        have = self._ends[at]
        if have is None:
            return True
        if not range_end:
            return key < have
        if range_end == OPEN_END:
            return False
        return range_end <= have

    def _covers_as_etcd(self, key: bytes, range_end: bytes) -> bool:
        if self._tree is None:
            self._tree = IntervalTree((start, end or b"") for start, end in self._granted)
        if not range_end:
            return self._tree.intersects(key, key + b"\0")
        return self._tree.contains(key, b"" if range_end == OPEN_END else range_end)

    def spans(self) -> list[tuple[bytes, bytes | None]]:
        """Return the disjoint intervals in order, end exclusive, None for none."""
        return list(zip(self._starts, self._ends, strict=True))


def _end_of(key: bytes, range_end: bytes) -> bytes | None:
    if not range_end:
        return key + b"\0"
    return None if range_end == OPEN_END else range_end
