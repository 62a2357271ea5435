"""Writes etcd's database file (bbolt) from sorted rows, in one pass, front to back.

    with EtcdDbWriter(path) as db:
        db.write_bucket(b"key", rows)      # buckets ascending, rows of each ascending
    # the file is complete here, or an exception has removed it

    rows ──► leaf, leaf, leaf, branch, leaf, … ──► root leaf (the buckets) ──► both meta pages

Leaves are laid out as in `layout` and never changed again. Of each level of branches above them,
two pages' worth of (first key, page) is kept, so memory does not grow with the file. The second of
the two lets the last page of a level end with two children or more, which bbolt asserts on later
deletes. A bucket that fits a quarter page is stored inline in the root leaf, as etcd does. There is
no freelist page: etcd writes none either, and nothing is free in a new file.

The meta pages are written last, after a sync, so a file interrupted by a crash is not a database.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from io import BufferedWriter, FileIO
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kvstore.backend import Row
from kvstore.errors import CorruptionError
from kvstore.storage.etcd_db.layout import (
    INLINE_SIZE_MAX,
    Child,
    RowRefusedError,
    branch_image,
    check_row,
    leaf_image,
    leaves,
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

FILE_MODE: Final = 0o600

_BUFFER_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(PAGE_SIZE)
_FIRST_PAGE: Final = 2


class EtcdDbWriter:
    """A file being written; finish() or the end of the with block makes it a database."""

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        """Create path (0600), or empty it; without sync the file may not survive a power cut.

        Every method raises OSError if the disk fails.
        """
        self._path = path
        self._sync = sync
        self._next_page = _FIRST_PAGE
        self._buckets: list[Row] = []
        self._raw = FileIO(path, "wb", opener=_open_private)
        self._file = BufferedWriter(self._raw, _BUFFER_BYTES)
        self._file.write(_ZEROS * _FIRST_PAGE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.abandon()
        elif not self._file.closed:
            self.finish()

    @property
    def size_bytes(self) -> int:
        """The size of the file so far; of the whole file after finish()."""
        return self._next_page * PAGE_SIZE

    def write_bucket(self, name: bytes, rows: Iterable[Row]) -> None:
        """Write a bucket; its name must be greater than the one before, keys likewise.

        Raises CorruptionError if they are not, or if a key or value is beyond bbolt's limits.
        """
        if self._buckets and name <= self._buckets[-1][0]:
            raise self._refused(name, "bucket does not follow the one before")
        rows = iter(rows)
        small, used = self._take_small(name, rows)
        if used <= INLINE_SIZE_MAX:
            value = BUCKET_HEADER.pack(0, 0) + leaf_image(0, small, 0)
        else:
            value = BUCKET_HEADER.pack(self._write_tree(name, chain(small, rows), 0), 0)
        self._buckets.append((name, value))

    def finish(self) -> int:
        """Write the root and the meta pages and close; return the size of the file in bytes."""
        try:
            root = self._write_tree(b"(root)", self._buckets, BUCKET)
            self._file.flush()
            if self._sync:
                os.fsync(self._file.fileno())
            self._write_metas(root)
            self._file.close()
        except BaseException:
            self.abandon()
            raise
        if self._sync:
            _sync_directory(self._path.parent)
        return self.size_bytes

    def abandon(self) -> None:
        """Close and remove the file."""
        try:
            self._raw.close()  # not through the buffer: a full disk would raise once more
        finally:
            self._path.unlink(missing_ok=True)

    def _write_metas(self, root: int) -> None:
        self._file.seek(0)
        for page_id, txid in ((0, 2), (1, 1)):
            meta = Meta(PAGE_SIZE, root, NO_FREELIST, self._next_page, txid)
            self._file.write(encode_meta(page_id, meta))
        self._file.flush()
        if self._sync:
            os.fsync(self._file.fileno())

    def _take_small(self, name: bytes, rows: Iterator[Row]) -> tuple[list[Row], int]:
        """Read rows until they are too large for an inline bucket; return them and their size."""
        small: list[Row] = []
        used = HEADER_SIZE
        previous = b""
        for row in rows:
            key, value = row
            self._check(name, previous, key, value)
            previous = key
            small.append(row)
            used += ELEMENT_SIZE + len(key) + len(value)
            if used > INLINE_SIZE_MAX:
                break
        return small, used

    def _write_tree(self, name: bytes, rows: Iterable[Row], flag: int) -> int:
        """Write rows as a tree and return its root page; flag is that of every leaf element."""
        branches = _Branches(self._write_branch)
        try:
            for leaf in leaves(rows):
                image = leaf_image(self._next_page, leaf.rows, flag)
                branches.add(leaf.first_key, self._write_page(image))
        except RowRefusedError as error:
            raise self._refused(name, str(error)) from None
        return branches.close()

    def _write_branch(self, children: list[Child]) -> int:
        return self._write_page(branch_image(self._next_page, children))

    def _write_page(self, image: bytes) -> int:
        """Write a page image of any length, which carries self._next_page; return that id."""
        page_id = self._next_page
        self._file.write(whole_pages(image))
        self._next_page = page_id + pages_of(len(image))
        return page_id

    def _check(self, name: bytes, previous: bytes, key: bytes, value: bytes) -> None:
        try:
            check_row(previous, key, value)
        except RowRefusedError as error:
            raise self._refused(name, str(error)) from None

    def _refused(self, name: bytes, text: str) -> CorruptionError:
        return CorruptionError(f"{self._path} cannot be written: bucket {name!r}: {text}")


class _Branches:
    """The levels above the leaves of one tree, bottom-up; each keeps its last two pages."""

    def __init__(self, write: Callable[[list[Child]], int]) -> None:
        self._write = write
        self._full: list[list[Child]] = []  # by level: a full page not yet written, or empty
        self._open: list[list[Child]] = []  # by level: the page being filled
        self._used: list[int] = []  # by level: bytes of the open page

    def add(self, key: bytes, page_id: int, level: int = 0) -> None:
        """Add the next page of the level below."""
        if level == len(self._open):
            self._full.append([])
            self._open.append([])
            self._used.append(HEADER_SIZE)
        size = ELEMENT_SIZE + len(key)
        children = self._open[level]
        if len(children) > 1 and self._used[level] + size > PAGE_SIZE:
            if self._full[level]:
                self._write_to(level, self._full[level])
            self._full[level] = children
            self._open[level] = children = []
            self._used[level] = HEADER_SIZE
        children.append((key, page_id))
        self._used[level] += size

    def close(self) -> int:
        """Write the pages left and return the root: the only page of the topmost level."""
        level = 0
        while self._full[level] or len(self._open[level]) > 1:
            full, children = self._full[level], self._open[level]
            if full and len(children) == 1:
                if len(full) > 2:
                    children.insert(0, full.pop())
                else:  # two keys that fill a page: a third means overflow, which is allowed
                    full.extend(children)
                    children = []
            for page in (full, children):
                if page:
                    self._write_to(level, page)
            level += 1
        return self._open[level][0][1]

    def _write_to(self, level: int, children: list[Child]) -> None:
        """Write a page of a level and add it to the level above."""
        self.add(children[0][0], self._write(children), level + 1)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
