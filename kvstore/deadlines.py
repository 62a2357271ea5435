"""Who is next: one deadline an id, cheap to leave alone.

A heap of (at_ns, id) and, beside it, the one entry of each id that counts. Moving or dropping a
deadline only touches the map; the outdated heap entry is thrown away when it comes up, or by a
sweep once outdated entries outnumber the live ones. So every operation is O(log n) spread over
the calls, and the heap never holds more than about twice what lives.

It does not know what a deadline is for, nor any clock. Its owner may leave a deadline standing
that has moved further away, and set it anew when it comes up: that is what makes renewing a lease
O(1).
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

_SWEEP_SLACK: Final = 1024  # outdated entries tolerated however few live


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
        """Take away item's deadline, if it has one."""
        self._at.pop(item, None)

    def replace(self, deadlines: Iterable[tuple[int, int]]) -> None:
        """Forget everything and take these (item, at_ns) instead; O(n)."""
        self._at = dict(deadlines)
        self._sweep()

    def pop_due(self, now_ns: int) -> int | None:
        """Take out and return the item due longest, or None if none is due at now_ns."""
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
