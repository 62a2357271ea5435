"""Keys in order: a sorted list in chunks, so that adding one moves few of many.

    keys = SortedKeys(["a/x", "a/y", "b/x"])
    keys.add("a/z"); keys.remove("b/x")
    list(keys.between("a/y", None))       → ["a/y", "a/z"]
    keys.count("a/", "a0")                → 3

Keys are compared as texts, which is the order of their bytes in UTF-8.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Final

CHUNK_KEYS_MAX: Final = 2048


class SortedKeys:
    """A set of keys, in order."""

    __slots__ = ("_chunks", "_firsts", "_size")

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """Take keys in any order, each once."""
        ordered = sorted(keys)
        half = CHUNK_KEYS_MAX // 2
        self._chunks = [ordered[at : at + half] for at in range(0, len(ordered), half)]
        self._firsts = [chunk[0] for chunk in self._chunks]
        self._size = len(ordered)

    def __len__(self) -> int:
        """Return how many there are."""
        return self._size

    def __iter__(self) -> Iterator[str]:
        """Iterate over all; they may not change meanwhile."""
        for chunk in self._chunks:
            yield from chunk

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        self._size += 1
        if not self._chunks:
            self._chunks.append([key])
            self._firsts.append(key)
            return
        place = self._chunk_of(key)
        chunk = self._chunks[place]
        insort(chunk, key)
        self._firsts[place] = chunk[0]
        if len(chunk) > CHUNK_KEYS_MAX:
            half = len(chunk) // 2
            self._chunks.insert(place + 1, chunk[half:])
            self._firsts.insert(place + 1, chunk[half])
            del chunk[half:]

    def remove(self, key: str) -> None:
        """Remove a key; KeyError: it is not there."""
        place = self._chunk_of(key)
        chunk = self._chunks[place] if self._chunks else []
        at = bisect_left(chunk, key)
        if at == len(chunk) or chunk[at] != key:
            raise KeyError(key)
        del chunk[at]
        self._size -= 1
        if chunk:
            self._firsts[place] = chunk[0]
        else:
            del self._chunks[place], self._firsts[place]

    def between(self, start: str, end: str | None) -> Iterator[str]:
        """Iterate over the keys from start on and before end (None: to the last)."""
        if not self._chunks:
            return
        place = self._chunk_of(start)
        at = bisect_left(self._chunks[place], start)
        while place < len(self._chunks):
            chunk = self._chunks[place]
            if end is not None and chunk[-1] >= end:
                yield from chunk[at : bisect_left(chunk, end)]
                return
            yield from chunk[at:] if at else chunk
            place, at = place + 1, 0

    def count(self, start: str, end: str | None) -> int:
        """Return how many keys there are from start on and before end."""
        stop = self._size if end is None else self._rank(end)
        return max(stop - self._rank(start), 0)

    def _rank(self, key: str) -> int:
        """Return how many keys stand before one."""
        if not self._chunks:
            return 0
        place = self._chunk_of(key)
        return sum(map(len, self._chunks[:place])) + bisect_left(self._chunks[place], key)

    def _chunk_of(self, key: str) -> int:
        """Return the number of the chunk that a key belongs to."""
        place = bisect_left(self._firsts, key)
        if place == len(self._firsts) or self._firsts[place] != key:
            place -= 1
        return max(place, 0)
