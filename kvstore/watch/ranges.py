"""Finds the watchers that match a key without testing all of them.

    exact    {key: watchers}                           one lookup
    from     [start, …]  ascending, no end             every start <= key: a slice
    ranges   blocks of (start, end, watchers), ascending by (start, end)

        block 0  [a, c) [a, z) [b, d)   first (a, c)   greatest end z
        block 1  [f, g) [f, h) [k, l)   first (f, g)   greatest end l
        match(g): block 0 ends after g, block 1 begins before g and ends after it

A block is scanned only if it begins at or before the key and one of its ranges ends after the key;
then all but at most one scanned block contain a match. So a match costs a scan over the blocks and
one over each scanned block. Watchers of the same range share one entry.

A single watcher of a key is in `exact` without a dict around it, since a hundred thousand keys with
one watcher each are common.
"""

from bisect import bisect_left, bisect_right, insort
from typing import Final, Generic, TypeVar

W = TypeVar("W")


class Group(dict[W, None]):
    """The watchers of one range, in the order of their addition."""

    __slots__ = ("derived",)

    derived: object  # a value that its user computed from the watchers; None after any change

    def __init__(self, *watchers: W) -> None:
        super().__init__(dict.fromkeys(watchers))
        self.derived = None

    def add(self, watcher: W) -> None:
        """Add a watcher."""
        self[watcher] = None
        self.derived = None

    def drop(self, watcher: W) -> None:
        """Remove a watcher; KeyError if it does not exist."""
        del self[watcher]
        self.derived = None


_BLOCK_MAX: Final = 96


class Ranges(Generic[W]):
    """Watchers (anything hashable but a Group) by key or range.

    An end is None for the single key, b"" for every key >= start, else exclusive and > start.
    """

    __slots__ = ("_blocks", "_exact", "_firsts", "_from_groups", "_from_starts", "_greatest_ends")

    def __init__(self) -> None:
        self._exact: dict[bytes, W | Group[W]] = {}
        self._from_starts: list[bytes] = []
        self._from_groups: dict[bytes, Group[W]] = {}
        self._blocks: list[list[tuple[bytes, bytes, Group[W]]]] = []
        self._firsts: list[tuple[bytes, bytes]] = []  # (start, end) of each block's first
        self._greatest_ends: list[bytes] = []  # of each block

    def add(self, start: bytes, end: bytes | None, watcher: W) -> None:
        """Add a watcher."""
        if end is None:
            self._add_exact(start, watcher)
        elif not end:
            group = self._from_groups.get(start)
            if group is None:
                insort(self._from_starts, start)
                group = self._from_groups[start] = Group()
            group.add(watcher)
        else:
            self._add_range(start, end, watcher)

    def remove(self, start: bytes, end: bytes | None, watcher: W) -> None:
        """Remove a watcher; KeyError if it does not exist."""
        if end is None:
            self._remove_exact(start, watcher)
        elif not end:
            group = self._from_groups[start]
            group.drop(watcher)
            if not group:
                del self._from_groups[start]
                del self._from_starts[bisect_left(self._from_starts, start)]
        else:
            self._remove_range(start, end, watcher)

    def match(self, key: bytes) -> list[W | Group[W]]:
        """Return the watchers of key: each item is one watcher or a group, none of them twice."""
        found: list[W | Group[W]] = []
        exact = self._exact.get(key)
        if exact is not None:
            found.append(exact)
        if self._from_starts:
            starts = self._from_starts
            found += [self._from_groups[start] for start in starts[: bisect_right(starts, key)]]
        if self._blocks:
            begun = bisect_right(self._firsts, key, key=_start_of)
            for block, end_max in zip(self._blocks[:begun], self._greatest_ends, strict=False):
                if end_max > key:
                    found += [group for start, end, group in block if start <= key < end]
        return found

    def _add_exact(self, key: bytes, watcher: W) -> None:
        present = self._exact.get(key)
        if present is None:
            self._exact[key] = watcher
        elif isinstance(present, Group):
            present.add(watcher)
        else:
            self._exact[key] = Group(present, watcher)

    def _remove_exact(self, key: bytes, watcher: W) -> None:
        known = self._exact[key]
        if isinstance(known, Group):
            known.drop(watcher)
            if known:
                return
        elif known != watcher:
            raise KeyError(watcher)
        del self._exact[key]

    def _block_of(self, start: bytes, end: bytes) -> int:
        """Return the only block that may contain (start, end)."""
        return max(bisect_right(self._firsts, (start, end)) - 1, 0)

    def _add_range(self, start: bytes, end: bytes, watcher: W) -> None:
        if not self._blocks:
            self._blocks.append([])
            self._firsts.append((start, end))
            self._greatest_ends.append(end)
        at = self._block_of(start, end)
        block = self._blocks[at]
        position = bisect_left(block, (start, end), key=_bounds_of)
        if position < len(block) and _bounds_of(block[position]) == (start, end):
            block[position][2].add(watcher)
            return
        block.insert(position, (start, end, Group(watcher)))
        if len(block) > _BLOCK_MAX:
            half = len(block) // 2
            self._blocks.insert(at + 1, block[half:])
            self._firsts.insert(at + 1, (start, end))
            self._greatest_ends.insert(at + 1, end)
            del block[half:]
            self._summarize(at + 1)
        self._summarize(at)

    def _remove_range(self, start: bytes, end: bytes, watcher: W) -> None:
        at = self._block_of(start, end)
        block = self._blocks[at] if self._blocks else []
        position = bisect_left(block, (start, end), key=_bounds_of)
        if position == len(block) or _bounds_of(block[position]) != (start, end):
            raise KeyError((start, end))
        group = block[position][2]
        group.drop(watcher)
        if group:
            return
        del block[position]
        if block:
            self._summarize(at)
        else:
            del self._blocks[at], self._firsts[at], self._greatest_ends[at]

    def _summarize(self, at: int) -> None:
        block = self._blocks[at]
        self._firsts[at] = _bounds_of(block[0])
        self._greatest_ends[at] = max(end for _, end, _ in block)


def _start_of(bounds: tuple[bytes, bytes]) -> bytes:
    return bounds[0]


def _bounds_of(entry: tuple[bytes, bytes, Group[W]]) -> tuple[bytes, bytes]:
    return entry[:2]
