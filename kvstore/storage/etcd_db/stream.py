"""Writes etcd's database file (bbolt) from its first byte to its last, to be sent meanwhile.

    plan = plan_db([(b"key", scan_key), …])     every bucket is read once, for its sizes alone
    for piece in plan.pieces(): …               and once more, for its rows

    meta | meta | root leaf | bucket: upper branches | branch, its leaves | branch, its leaves | …

Parents come before children, and leaves in the order of their keys, so the receiver can read the
file while it arrives (see EtcdDbReader). Page ids are sums of sizes and known before anything is
written. The plan keeps one key for each page of branches and four bytes for each leaf, so that the
second pass need not compute the leaves again.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import Final, NamedTuple

from kvstore.errors import CorruptionError
from kvstore.storage.etcd_db.layout import (
    INLINE_SIZE_MAX,
    AnyRow,
    LeafSize,
    RowRefusedError,
    RowView,
    branch_image,
    branch_size,
    families,
    leaf_head_of,
    leaf_image,
    leaf_sizes,
    pages_of,
    whole_pages,
)
from kvstore.storage.etcd_db.page import (
    BUCKET,
    BUCKET_HEADER,
    ELEMENT_SIZE,
    HEADER_SIZE,
    NO_FREELIST,
    PAGE_SIZE,
    Meta,
    encode_meta,
)

FAMILY_BYTES: Final = 1 << 20  # of leaves below one page of branches: together they are one piece
_ROOT_PAGE: Final = 2
_ZEROS: Final = bytes(PAGE_SIZE)

Scan = Callable[[], Iterable[RowView]]  # the rows of a bucket, keys ascending; the same each time


def plan_db(buckets: Sequence[tuple[bytes, Scan]]) -> "DbPlan":
    """Read all rows for their sizes; buckets are (name, scan), names ascending.

    Raises CorruptionError if rows are not in order or beyond bbolt's limits.
    """
    return DbPlan([_plan_bucket(name, scan) for name, scan in buckets])


class DbPlan:
    """A file whose page ids are all known."""

    def __init__(self, buckets: "Sequence[_Bucket]") -> None:
        self._buckets = buckets
        root_bytes = HEADER_SIZE + sum(
            ELEMENT_SIZE + len(each.name) + BUCKET_HEADER.size + len(each.inline)
            for each in buckets
        )
        sizes = [pages_of(root_bytes), *(each.pages for each in buckets)]
        self._starts = list(accumulate(sizes, initial=_ROOT_PAGE))[1:]
        self.size_bytes = self._starts[-1] * PAGE_SIZE

    def pieces(self) -> Iterator[bytes]:
        """Yield the file; CorruptionError if the rows have changed since they were planned."""
        yield self._head()
        for bucket, start in zip(self._buckets, self._starts[:-1], strict=True):
            if not bucket.inline:
                yield from bucket.pieces(start)

    def _head(self) -> bytes:
        """Return the meta pages and the root leaf."""
        metas = [
            encode_meta(page_id, Meta(PAGE_SIZE, _ROOT_PAGE, NO_FREELIST, self._starts[-1], txid))
            for page_id, txid in ((0, 2), (1, 1))
        ]
        rows: list[AnyRow] = [
            (each.name, BUCKET_HEADER.pack(0 if each.inline else start, 0) + each.inline)
            for each, start in zip(self._buckets, self._starts[:-1], strict=True)
        ]
        return b"".join((*metas, whole_pages(leaf_image(_ROOT_PAGE, rows, BUCKET))))


class _Family(NamedTuple):
    """A page of branches with the leaves below it, or the only leaf of a bucket."""

    first_key: bytes
    pages: int
    rows: "array[int]"  # how many each leaf has


class _Bucket:
    """The plan of one bucket: inline in the root leaf, or on pages of its own."""

    def __init__(
        self, name: bytes, scan: Scan, *, inline: bytes = b"", below: Sequence[_Family] = ()
    ) -> None:
        self.name = name
        self.inline = inline  # image of the leaf
        self._scan = scan
        self._below = below
        self._levels = _upper_levels([family.first_key for family in below])
        upper = sum(pages_of(branch_size(keys)) for level in self._levels for keys in level)
        self._upper_pages = upper
        self.pages = upper + sum(family.pages for family in below)

    def pieces(self, start: int) -> Iterator[bytes]:
        """Yield its pages, the root first."""
        yield from self._upper(start)
        page_id = start + self._upper_pages
        rows = iter(self._scan())
        for family in self._below:
            leaves = [list(islice(rows, count)) for count in family.rows]
            if not all(leaves) or bytes(leaves[0][0][0]) != family.first_key:
                raise CorruptionError(f"bucket {self.name!r} changed while it was written")
            piece = b"".join(_family_pages(page_id, leaves))
            if len(piece) != family.pages * PAGE_SIZE:
                raise CorruptionError(f"bucket {self.name!r} changed while it was written")
            yield piece
            page_id += family.pages
        if next(rows, None) is not None:
            raise CorruptionError(f"bucket {self.name!r} grew while it was written")

    def _upper(self, start: int) -> Iterator[bytes]:
        """Yield the levels of branches above the lowest, the root first."""
        ids = list(
            accumulate((each.pages for each in self._below), initial=start + self._upper_pages)
        )
        first_free = start + self._upper_pages
        images: list[bytes] = []
        for level in self._levels:  # upwards: a page contains the ids of those below it
            sizes = [pages_of(branch_size(keys)) for keys in level]
            first_free -= sum(sizes)
            own_ids = list(accumulate(sizes, initial=first_free))
            below = iter(ids)
            images.append(
                b"".join(
                    whole_pages(branch_image(page_id, [(key, next(below)) for key in keys]))
                    for page_id, keys in zip(own_ids, level, strict=False)
                )
            )
            ids = own_ids
        yield from reversed(images)


def _upper_levels(keys: list[bytes]) -> list[list[list[bytes]]]:
    """Return the levels of branches above pages with these first keys, from the lowest up."""
    levels: list[list[list[bytes]]] = []
    while len(keys) > 1:
        level = list(families(keys, lambda key: key, lambda _: 0, 1))
        levels.append(level)
        keys = [page[0] for page in level]
    return levels


def _plan_bucket(name: bytes, scan: Scan) -> _Bucket:
    below: list[_Family] = []
    try:
        for family in families(
            leaf_sizes(scan()), lambda leaf: leaf.first_key, lambda leaf: leaf.used, FAMILY_BYTES
        ):
            if not below and len(family) == 1 and family[0].used <= INLINE_SIZE_MAX:
                return _Bucket(name, scan, inline=leaf_image(0, list(scan()), 0))
            below.append(_plan_family(family))
    except RowRefusedError as error:
        raise CorruptionError(f"bucket {name!r} cannot be written: {error}") from None
    return _Bucket(name, scan, below=below)


def _plan_family(family: list[LeafSize]) -> _Family:
    pages = sum(pages_of(leaf.used) for leaf in family)
    if len(family) > 1:
        pages += pages_of(branch_size(leaf.first_key for leaf in family))
    return _Family(family[0].first_key, pages, array("I", (leaf.rows for leaf in family)))


def _family_pages(page_id: int, leaves: list[list[RowView]]) -> Iterator[bytes | memoryview]:
    """Yield the parts of the pages of a family, the branches first."""
    parts = [list(chain.from_iterable(rows)) for rows in leaves]
    sizes = [list(map(len, each)) for each in parts]
    used = [HEADER_SIZE + ELEMENT_SIZE // 2 * len(each) + sum(each) for each in sizes]
    pages = list(map(pages_of, used))
    if len(leaves) > 1:
        keys = [bytes(rows[0][0]) for rows in leaves]
        branch_id, page_id = page_id, page_id + pages_of(branch_size(keys))
        ids = accumulate(pages, initial=page_id)
        yield whole_pages(branch_image(branch_id, list(zip(keys, ids, strict=False))))
    for index, row_parts in enumerate(parts):
        yield leaf_head_of(page_id, sizes[index], 0, pages[index] - 1)
        yield from row_parts
        yield _ZEROS[: -used[index] % PAGE_SIZE]
        page_id += pages[index]
