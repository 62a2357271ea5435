"""Which keys come most often, in bounded memory: Space-Saving (Metwally et al., 2005).

    add(b"a", 3), add(b"b", 1), room for two, add(b"c", 1):   a 3, c 2 (at most 1 too many)

Who is not among the kept takes over the place and the count of the least of them. So a count is
never too small, and too great by no more than the total divided by the room: whoever has a larger
share than that is in the list.

The least is found through a heap of counts as they once were: counts only grow, so what stands at
its head is renewed until it is true. That is O(log room), spread over the calls.
"""

from heapq import heappush, heapreplace


class HeavyHitters:
    """Counts of the most frequent keys."""

    __slots__ = ("_counts", "_heap", "_room", "total")

    def __init__(self, room: int) -> None:
        """Keep up to room keys."""
        self._room = room
        self._counts: dict[bytes, int] = {}
        self._heap: list[tuple[int, bytes]] = []  # (at most its count, key) of each
        self.total = 0

    def add(self, key: bytes, weight: int) -> None:
        """Count a key, which takes over the least's place if there is no room."""
        counts = self._counts
        self.total += weight
        count = counts.get(key)
        if count is not None:
            counts[key] = count + weight
        elif len(counts) < self._room:
            counts[key] = weight
            heappush(self._heap, (weight, key))
        else:
            self._take_over(key, weight)

    def _take_over(self, key: bytes, weight: int) -> None:
        counts, heap = self._counts, self._heap
        known, least = heap[0]
        while (count := counts[least]) != known:
            heapreplace(heap, (count, least))
            known, least = heap[0]
        del counts[least]
        counts[key] = known + weight
        heapreplace(heap, (known + weight, key))

    def top(self, limit: int) -> list[tuple[bytes, int]]:
        """Return up to limit (key, count), the most frequent first."""
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return ranked[:limit]
