"""The most frequent keys in bounded memory: Space-Saving (Metwally et al., 2005).

    add(b"a", 3), add(b"b", 1), capacity 2, add(b"c", 1):   a 3, c 2 (at most 1 too many)

A new key replaces the key with the least count and takes over its count. So a count is never too
small, and too large by at most total / capacity: every key with a larger share is in the list.

The least count is found by a heap of older counts: counts only grow, so the head is updated until
it is current. That is O(log capacity), amortized.
"""

from heapq import heappush, heapreplace


class HeavyHitters:
    """Counts of the most frequent keys."""

    __slots__ = ("_capacity", "_counts", "_heap", "total")

    def __init__(self, capacity: int) -> None:
        """Keep up to this many keys."""
        self._capacity = capacity
        self._counts: dict[bytes, int] = {}
        self._heap: list[tuple[int, bytes]] = []  # (at most its count, key) of each
        self.total = 0

    def add(self, key: bytes, weight: int) -> None:
        """Count a key, which replaces the least frequent one if the list is full."""
        counts = self._counts
        self.total += weight
        count = counts.get(key)
        if count is not None:
            counts[key] = count + weight
        elif len(counts) < self._capacity:
            counts[key] = weight
            heappush(self._heap, (weight, key))
        else:
            self._replace_least(key, weight)

    def _replace_least(self, key: bytes, weight: int) -> None:
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
