"""etcd's red-black interval tree of permissions, for ranges that contain no key.

    a range whose end is not after its start contains no key: may it be read?
    a permission on such a range (3.5 let it be granted): what does it allow?

The answer concerns no key; but a transaction with such an operation in it is applied or refused as
a whole, and all members must decide alike, including members that are etcd's. etcd's answer is the
result of a search that is not made for empty ranges, so it depends on the shape of the tree: the
same insertions must give the same tree. It is the textbook's (Cormen et al., chapters 13 and 14.3),
ordered by start, then end.

For ranges and permissions that do contain keys the answer is that of `intervals`, which is faster.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Point: TypeAlias = tuple[bool, bytes]
"""A key as an end of an interval: (is it the one above all keys, key)."""

LEFT: Final = 0
RIGHT: Final = 1


def point(key: bytes) -> Point:
    """Return a key's position in the order; the empty key is above all others."""
    return (not key, key)


class _Node:
    __slots__ = ("begin", "children", "end", "highest", "is_red", "parent")

    def __init__(self, begin: Point, end: Point, parent: "_Node | None") -> None:
        self.begin = begin
        self.end = end
        self.parent = parent
        self.children: list[_Node | None] = [None, None]
        self.is_red = True
        self.highest = end  # greatest end in this subtree, once the tree is complete


class IntervalTree:
    """Intervals [begin, end), not merged."""

    def __init__(self, spans: Iterable[tuple[bytes, bytes]]) -> None:
        """Insert (begin, end) in this order; an empty end is above all keys."""
        self._root: _Node | None = None
        for begin, end in spans:
            self._insert(point(begin), point(end))
        _set_highest(self._root)

    def intersects(self, begin: bytes, end: bytes) -> bool:
        """Return whether a search for an interval that overlaps finds one."""
        first, last = point(begin), point(end)
        node = self._root
        while node is not None and _side(first, last, node.begin, node.end) != 0:
            left = node.children[LEFT]
            goes_left = left is not None and left.highest > first
            node = node.children[LEFT if goes_left else RIGHT]
        return node is not None

    def contains(self, begin: bytes, end: bytes) -> bool:
        """Return whether the intervals a search finds reach, without a gap, from begin to end."""
        first, last = point(begin), point(end)
        found = _overlapping(self._root, first, last)
        start = next(found, None)
        if start is None:
            return False
        reached = start.end
        for node in found:
            if reached < node.begin:
                return False
            reached = max(reached, node.end)
        return reached >= last and start.begin <= first

    def _insert(self, begin: Point, end: Point) -> None:
        parent, side, node = None, LEFT, self._root
        while node is not None:
            parent, side = node, LEFT if (begin, end) < (node.begin, node.end) else RIGHT
            node = node.children[side]
        added = _Node(begin, end, parent)
        if parent is None:
            self._root = added
        else:
            parent.children[side] = added
        self._balance(added)

    def _balance(self, node: _Node) -> None:
        """Restore the rule that no red node has a red parent."""
        while (parent := node.parent) is not None and parent.is_red:
            grand = parent.parent
            assert grand is not None, "the root is black"
            side = LEFT if grand.children[LEFT] is parent else RIGHT
            uncle = grand.children[1 - side]
            grand.is_red = True
            if uncle is not None and uncle.is_red:
                parent.is_red = uncle.is_red = False
                node = grand
                continue
            if parent.children[1 - side] is node:
                self._rotate(parent, side)
                node, parent = parent, node
            parent.is_red = False
            self._rotate(grand, 1 - side)
        assert self._root is not None
        self._root.is_red = False

    def _rotate(self, node: _Node, side: int) -> None:
        """Move a node down to one side; its child of the other side takes its place."""
        child = node.children[1 - side]
        assert child is not None
        inner = child.children[side]
        node.children[1 - side] = inner
        if inner is not None:
            inner.parent = node
        above = child.parent = node.parent
        if above is None:
            self._root = child
        else:
            above.children[LEFT if above.children[LEFT] is node else RIGHT] = child
        child.children[side] = node
        node.parent = child


def _set_highest(node: _Node | None) -> None:
    if node is None:
        return
    for child in node.children:
        _set_highest(child)
        if child is not None:
            node.highest = max(node.highest, child.highest)


def _side(begin: Point, end: Point, other_begin: Point, other_end: Point) -> int:
    """Tell where an interval lies: -1 left of the other, 1 right of it, 0 neither."""
    if begin < other_begin and end <= other_begin:
        return -1
    return 1 if begin >= other_end else 0


def _overlapping(node: _Node | None, begin: Point, end: Point) -> Iterator[_Node]:
    if node is None:
        return
    left, right = node.children
    side = _side(begin, end, node.begin, node.end)
    if side < 0:
        yield from _overlapping(left, begin, end)
    elif side == 0:
        yield from _overlapping(left, begin, end)
        yield node
        yield from _overlapping(right, begin, end)
    elif _side(node.begin, node.highest, begin, end) == 0:
        yield from _overlapping(left, begin, end)
        yield from _overlapping(right, begin, end)
