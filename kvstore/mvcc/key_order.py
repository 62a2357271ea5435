"""A set of keys in bytewise order, optimized for many additions and few reads.

Keys lie in chunks of at most CHUNK_KEYS; the head of a chunk bounds its keys from below:

    heads    b""            b"h"              b"q"
    chunks   [a, c, b]      [h, k, m]         [q, z]
    clean    False          True              True

An addition finds its chunk by the heads and appends the key to it, which may leave the chunk
unsorted (not "clean"). A chunk is sorted when it splits, or when a read or removal needs its order.
So an addition costs a binary search, at most the sort of one chunk, and counting a range reads only
the two chunks at its ends.

The caller must add only absent keys and remove only present ones.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

CHUNK_KEYS: Final = 512


class KeyOrder:
    """Keys in order; see the module's text."""

    __slots__ = ("_chunks", "_clean", "_heads")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        """Take distinct keys in any order."""
        ascending = sorted(keys)
        step = CHUNK_KEYS // 2
        self._chunks = [ascending[at : at + step] for at in range(0, len(ascending), step)] or [[]]
        self._heads = [b"", *(chunk[0] for chunk in self._chunks[1:])]
        self._clean = [True] * len(self._chunks)

    def __len__(self) -> int:
        """Return the number of keys."""
        return sum(map(len, self._chunks))

    def add(self, key: bytes) -> None:
        """Add a key that is absent."""
        at = bisect_right(self._heads, key) - 1
        chunk = self._chunks[at]
        if chunk and key < chunk[-1]:
            self._clean[at] = False
        chunk.append(key)
        if len(chunk) > CHUNK_KEYS:
            self._split(at)

    def remove(self, key: bytes) -> None:
        """Remove a key that is present; KeyError if it is not."""
        at = bisect_right(self._heads, key) - 1
        chunk = self._sorted_chunk(at)
        position = bisect_left(chunk, key)
        if position == len(chunk) or chunk[position] != key:
            raise KeyError(key)
        del chunk[position]
        if not chunk and len(self._chunks) > 1:
            self._drop(at)

    def count(self, start: bytes, end: bytes | None) -> int:
        """Return how many keys k have start <= k < end (None: no bound)."""
        first, position = self._seek(start)
        last, end_position = self._seek_end(end)
        if (last, end_position) <= (first, position):
            return 0
        return sum(map(len, self._chunks[first:last])) - position + end_position

    def keys(self, start: bytes, end: bytes | None, limit: int = 0) -> list[bytes]:
        """Return keys with start <= k < end (None: no bound), ascending (limit 0: all)."""
        found: list[bytes] = []
        for part in self._parts(start, end):
            found += part
            if 0 < limit <= len(found):
                del found[limit:]
                break
        return found

    def sample(self, count: int, offset: int) -> list[bytes]:
        """Return up to count keys, evenly spaced; offset moves them all. O(chunks)."""
        total = len(self)
        step = max(-(-total // count), 1)
        wanted = range(offset % step, total, step)
        keys: list[bytes] = []
        chunks = iter(self._chunks)
        chunk, begin = next(chunks), 0
        for position in wanted:
            while position >= begin + len(chunk):
                begin += len(chunk)
                chunk = next(chunks)
            keys.append(chunk[position - begin])
        return keys

    def walk(self, start: bytes, end: bytes | None) -> Iterator[bytes]:
        """Yield the keys of a range ascending; keys must not be added or removed meanwhile."""
        for part in self._parts(start, end):
            yield from part

    def _parts(self, start: bytes, end: bytes | None) -> Iterator[list[bytes]]:
        at, position = self._seek(start)
        last, end_position = self._seek_end(end)
        while at < last:
            yield self._sorted_chunk(at)[position:]
            at, position = at + 1, 0
        if at == last and position < end_position:
            yield self._chunks[at][position:end_position]

    def _seek(self, key: bytes) -> tuple[int, int]:
        """Return (chunk, position in it) of the first key >= key; it may be the chunk's end."""
        at = bisect_right(self._heads, key) - 1
        return at, bisect_left(self._sorted_chunk(at), key)

    def _seek_end(self, end: bytes | None) -> tuple[int, int]:
        if end is not None:
            return self._seek(end)
        last = len(self._chunks) - 1
        return last, len(self._sorted_chunk(last))

    def _sorted_chunk(self, at: int) -> list[bytes]:
        chunk = self._chunks[at]
        if not self._clean[at]:
            chunk.sort()
            self._clean[at] = True
        return chunk

    def _split(self, at: int) -> None:
        chunk = self._sorted_chunk(at)
        upper = chunk[len(chunk) // 2 :]
        del chunk[len(chunk) // 2 :]
        self._chunks.insert(at + 1, upper)
        self._heads.insert(at + 1, upper[0])
        self._clean.insert(at + 1, True)

    def _drop(self, at: int) -> None:
        del self._chunks[at], self._heads[at], self._clean[at]
        self._heads[0] = b""  # the first chunk has everything below the second head
