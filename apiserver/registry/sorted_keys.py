"""Sorted keys in chunks, so that an insertion moves few of them.

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
        """Take keys in any order, without duplicates."""
        ordered = sorted(keys)
        half = CHUNK_KEYS_MAX // 2
        self._chunks = [ordered[at : at + half] for at in range(0, len(ordered), half)]
        self._firsts = [chunk[0] for chunk in self._chunks]
        self._size = len(ordered)

    def __len__(self) -> int:
        """Return the number of keys."""
        return self._size

    def __iter__(self) -> Iterator[str]:
        """Iterate over all; the set must not change meanwhile."""
        for chunk in self._chunks:
            yield from chunk

    def add(self, key: str) -> None:
        """Add a key that is not contained."""
        self._size += 1
        if not self._chunks:
            self._chunks.append([key])
            self._firsts.append(key)
            return
        chunk_index = self._chunk_of(key)
        chunk = self._chunks[chunk_index]
        insort(chunk, key)
        self._firsts[chunk_index] = chunk[0]
        if len(chunk) > CHUNK_KEYS_MAX:
            half = len(chunk) // 2
            self._chunks.insert(chunk_index + 1, chunk[half:])
            self._firsts.insert(chunk_index + 1, chunk[half])
            del chunk[half:]

    def remove(self, key: str) -> None:
        """Remove a key; raises KeyError if it is not contained."""
        chunk_index = self._chunk_of(key)
        chunk = self._chunks[chunk_index] if self._chunks else []
        at = bisect_left(chunk, key)
        if at == len(chunk) or chunk[at] != key:
            raise KeyError(key)
        del chunk[at]
        self._size -= 1
        if chunk:
            self._firsts[chunk_index] = chunk[0]
        else:
            del self._chunks[chunk_index], self._firsts[chunk_index]

    def between(self, start: str, end: str | None) -> Iterator[str]:
        """Iterate over the keys in [start, end) (None: to the last)."""
        if not self._chunks:
            return
        chunk_index = self._chunk_of(start)
        at = bisect_left(self._chunks[chunk_index], start)
        while chunk_index < len(self._chunks):
            chunk = self._chunks[chunk_index]
            if end is not None and chunk[-1] >= end:
                yield from chunk[at : bisect_left(chunk, end)]
                return
            yield from chunk[at:] if at else chunk
            chunk_index, at = chunk_index + 1, 0

    def count(self, start: str, end: str | None) -> int:
        """Return the number of keys in [start, end)."""
        stop = self._size if end is None else self._rank(end)
        return max(stop - self._rank(start), 0)

    def _rank(self, key: str) -> int:
        """Return the number of keys before one."""
        if not self._chunks:
            return 0
        chunk_index = self._chunk_of(key)
        return sum(map(len, self._chunks[:chunk_index])) + bisect_left(
            self._chunks[chunk_index], key
        )

    def _chunk_of(self, key: str) -> int:
        """Return the index of the chunk of a key."""
        chunk_index = bisect_left(self._firsts, key)
        if chunk_index == len(self._firsts) or self._firsts[chunk_index] != key:
            chunk_index -= 1
        return max(chunk_index, 0)
