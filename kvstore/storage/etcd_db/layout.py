"""How rows are laid out on pages of etcd's database file.

    rows ──► leaves ──► branches, level by level

A leaf holds as many rows as fit a page. Large rows share a leaf of several pages instead, until
little of its last page is empty: with one row of 4 KiB per leaf, half of the file would be empty.
A page of branches has two children or more, which bbolt asserts on later deletes.

Values may be any buffer, and are not read here: a value in a memory map is copied only once.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from operator import add, lt
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from kvstore.storage.etcd_db.page import (
    BRANCH,
    ELEMENT_SIZE,
    HEADER_SIZE,
    KEY_SIZE_MAX,
    LEAF,
    PAGE_SIZE,
    VALUE_SIZE_MAX,
)

INLINE_SIZE_MAX: Final = PAGE_SIZE // 4  # of the leaf image, without the bucket header
LEAF_BYTES_MAX: Final = 64 << 10  # of a leaf with several rows
_LARGE_BYTES: Final = PAGE_SIZE // 4  # a row that may share a leaf of several pages
_EMPTY_SHARE_MAX: Final = 8  # a leaf is full if less than 1/8 of what it uses stays empty
_OVERFLOW_AT: Final = 12
_MEASURED_ROWS: Final = 1024  # measured at once
_ZEROS: Final = bytes(PAGE_SIZE)

AnyRow = tuple[bytes, bytes | memoryview]
RowView = tuple[bytes | memoryview, bytes | memoryview]
Child = tuple[bytes, int]  # first key, page id
Item = TypeVar("Item")


class RowRefusedError(ValueError):
    """A row is out of order or beyond bbolt's limits."""


class Leaf(NamedTuple):
    """The rows of a leaf; only the single leaf of an empty tree has none."""

    rows: Sequence[AnyRow]
    used: int  # bytes of its image

    @property
    def first_key(self) -> bytes:
        """The key under which its branch has it."""
        return self.rows[0][0] if self.rows else b""

    @property
    def pages(self) -> int:
        """How many pages it occupies."""
        return pages_of(self.used)


class LeafSize(NamedTuple):
    """The size of a leaf, without its rows."""

    first_key: bytes
    rows: int  # how many
    used: int  # bytes of its image


def leaf_sizes(rows: Iterable[RowView]) -> Iterator[LeafSize]:
    """Yield the sizes of the leaves that `leaves` makes of the same rows; values are not read.

    Rows are measured by passes in C over many of them, because a snapshot for a member begins with
    this (bench snapshot, catch-up). RowRefusedError as from `leaves`.
    """
    source = iter(rows)
    previous = b""
    keys: list[bytes] = []  # of rows that are in no leaf yet
    sizes: list[int] = []
    while batch := list(islice(source, _MEASURED_ROWS)):
        new_keys = [bytes(key) for key, _ in batch]
        new_sizes = [ELEMENT_SIZE + len(key) + len(value) for key, value in batch]
        if (
            new_keys[0] <= previous
            or not all(map(lt, new_keys, islice(new_keys, 1, None)))
            or max(map(len, new_keys)) > KEY_SIZE_MAX
            or max(new_sizes) > VALUE_SIZE_MAX
        ):
            _check_rows(previous, batch)
        previous = new_keys[-1]
        keys += new_keys
        sizes += new_sizes
        done = 0
        for first, stop, used in _whole_leaves(sizes):
            yield LeafSize(keys[first], stop - first, used)
            done = stop
        del keys[:done], sizes[:done]
    yield LeafSize(keys[0] if keys else b"", len(keys), HEADER_SIZE + sum(sizes))


def _whole_leaves(sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (first row, row after the last, bytes used) of the leaves that more rows follow."""
    ends = list(accumulate(sizes, initial=HEADER_SIZE))
    count = len(sizes)
    first = 0
    while True:
        base = ends[first] - HEADER_SIZE
        stop = max(bisect_right(ends, base + PAGE_SIZE, first) - 1, first + 1)
        while stop < count and not _is_full(ends[stop] - base, sizes[stop]):
            stop += 1
        if stop >= count:
            return
        yield first, stop, ends[stop] - base
        first = stop


def _check_rows(previous: bytes, rows: Iterable[RowView]) -> None:
    for view, value in rows:
        key = bytes(view)
        check_row(previous, key, value)
        previous = key


def leaves(rows: Iterable[AnyRow]) -> Iterator[Leaf]:
    """Yield the leaves of rows, at least one.

    RowRefusedError names a row that does not follow the one before, or is beyond bbolt's limits.
    """
    leaf: list[AnyRow] = []
    used = HEADER_SIZE
    previous = b""
    for row in rows:
        key, value = row
        size = ELEMENT_SIZE + len(key) + len(value)
        if key <= previous or len(key) > KEY_SIZE_MAX or size > VALUE_SIZE_MAX:
            check_row(previous, key, value)
        previous = key
        if used + size > PAGE_SIZE and leaf and _is_full(used, size):
            yield Leaf(leaf, used)
            leaf = []
            used = HEADER_SIZE
        leaf.append(row)
        used += size
    yield Leaf(leaf, used)


def _is_full(used: int, size: int) -> bool:
    """Return whether a row that makes the leaf exceed its page begins a new leaf."""
    if size < _LARGE_BYTES or used + size > LEAF_BYTES_MAX:
        return True
    return -used % PAGE_SIZE * _EMPTY_SHARE_MAX <= used


def check_row(previous: bytes, key: bytes, value: bytes | memoryview) -> None:
    """Raise RowRefusedError if a row cannot follow the key before it in a bucket."""
    if not 0 < len(key) <= KEY_SIZE_MAX:
        raise RowRefusedError(f"key of {len(key)} bytes, allowed are 1 to {KEY_SIZE_MAX}")
    if len(value) > VALUE_SIZE_MAX:
        raise RowRefusedError(f"value of {len(value)} bytes, the limit is {VALUE_SIZE_MAX}")
    if key <= previous:
        raise RowRefusedError(f"key {key.hex()} does not follow {previous.hex()}")


def families(
    children: Iterable[Item],
    key_of: Callable[[Item], bytes],
    size_of: Callable[[Item], int],
    size_max: int,
) -> Iterator[list[Item]]:
    """Yield the children of each page of branches: two or more, unless there is only one.

    A page also ends once its children have size_max bytes together. The last page but one is kept
    until the end, so that the last can take a child from it. Where two keys fill a page, a third
    may make it overflow, which is allowed.
    """
    previous: list[Item] = []
    family: list[Item] = []
    used, size = HEADER_SIZE, 0
    for child in children:
        element = ELEMENT_SIZE + len(key_of(child))
        if len(family) > 1 and (used + element > PAGE_SIZE or size >= size_max):
            if previous:
                yield previous
            previous, family = family, []
            used, size = HEADER_SIZE, 0
        family.append(child)
        used += element
        size += size_of(child)
    if previous and len(family) == 1:
        if len(previous) > 2:
            family.insert(0, previous.pop())
        else:
            previous += family
            family = []
    if previous:
        yield previous
    if family:
        yield family


def pages_of(used: int) -> int:
    """Return how many pages an image of used bytes occupies."""
    return -(-used // PAGE_SIZE)


def branch_size(keys: Iterable[bytes]) -> int:
    """Return the bytes of the image of a page of branches."""
    return HEADER_SIZE + sum(ELEMENT_SIZE + len(key) for key in keys)


def whole_pages(image: bytes) -> bytes:
    """Return an image padded to whole pages, with its overflow in its header."""
    pages = pages_of(len(image))
    if pages > 1:
        overflow = (pages - 1).to_bytes(4, "little")
        image = image[:_OVERFLOW_AT] + overflow + image[HEADER_SIZE:]
    rest = len(image) % PAGE_SIZE
    return image + _ZEROS[rest:] if rest else image


def leaf_image(page_id: int, rows: Sequence[RowView], flag: int, overflow: int = 0) -> bytes:
    """Return the bytes of a leaf page, without padding; flag is that of every element."""
    parts = list(chain.from_iterable(rows))
    return b"".join((leaf_head_of(page_id, list(map(len, parts)), flag, overflow), *parts))


def leaf_head_of(page_id: int, sizes: Sequence[int], flag: int, overflow: int) -> bytes:
    """Return the header and the elements of a leaf page; sizes: key, value, key, value ….

    An element contains the distance from itself to its key.
    """
    count = len(sizes) // 2
    head = [flag] * (4 + 4 * count)
    head[:4] = page_id, LEAF, count, overflow
    tables = range(ELEMENT_SIZE * count, 0, -ELEMENT_SIZE)
    head[5::4] = map(add, tables, islice(accumulate(sizes, initial=0), 0, 2 * count, 2))
    head[6::4] = sizes[::2]
    head[7::4] = sizes[1::2]
    return _leaf_head_struct(count).pack(*head)


def branch_image(page_id: int, children: list[Child]) -> bytes:
    """Return the bytes of a branch page, without padding and with overflow 0."""
    count = len(children)
    pos = ELEMENT_SIZE * count
    head = [page_id, BRANCH, count, 0]
    for key, child in children:
        head += (pos, len(key), child)
        pos += len(key) - ELEMENT_SIZE
    return Struct("<QHHI" + "IIQ" * count).pack(*head) + b"".join(key for key, _ in children)


def _leaf_head_struct(count: int) -> Struct:
    """Return the layout of a page header with count leaf elements."""
    head = _LEAF_HEADS.get(count)
    if head is None:
        head = _LEAF_HEADS[count] = Struct(f"<QHHI{4 * count}I")
    return head


_LEAF_HEADS: Final[dict[int, Struct]] = {}  # by count: few, as most rows have similar sizes
