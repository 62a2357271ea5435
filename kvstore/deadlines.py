"""A queue of ids by deadline; an id has at most one deadline.

A heap of (at_ns, id), and a map from each id to its current deadline. Moving or dropping a deadline
changes only the map; the outdated heap entry is removed when it reaches the top, or by a sweep when
outdated entries outnumber the current ones. So every operation is O(log n) amortized, and the heap
has at most about twice as many entries as there are deadlines.

It reads no clock. If a deadline moves to later, its owner may leave it, and set it again when it is
due: this makes renewing a lease O(1).
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

_SWEEP_SLACK: Final = 1024  # outdated entries that are always tolerated


class Deadlines:
    """A queue of ids by deadline; an id has at most one."""

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, item: int) -> bool:
        return item in self._at

    def set(self, item: int, at_ns: int) -> None:
        """Give item the deadline at_ns instead of any it had."""
        self._at[item] = at_ns
        heappush(self._heap, (at_ns, item))
        if len(self._heap) > 2 * len(self._at) + _SWEEP_SLACK:
            self._sweep()

    def drop(self, item: int) -> None:
        """Remove item's deadline, if it has one."""
        self._at.pop(item, None)

    def replace(self, deadlines: Iterable[tuple[int, int]]) -> None:
        """Replace everything by these (item, at_ns); O(n)."""
        self._at = dict(deadlines)
        self._sweep()

    def pop_due(self, now_ns: int) -> int | None:
        """Remove and return the item due longest, or None if none is due at now_ns."""
        next_ns = self.next_ns()
        if next_ns is None or next_ns > now_ns:
            return None
        _, item = heappop(self._heap)
        del self._at[item]
        return item

    def next_ns(self) -> int | None:
        """Return the earliest deadline, or None."""
        heap, at = self._heap, self._at
        while heap and at.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def _sweep(self) -> None:
        self._heap = [(at_ns, item) for item, at_ns in self._at.items()]
        heapify(self._heap)
