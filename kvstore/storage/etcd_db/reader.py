"""Reads etcd's database file (bbolt): its buckets, and the rows of each in key order.

    with EtcdDbReader(path) as db:
        for name in db.buckets():
            for key, value in db.scan(name): ...

Everything is checked before it is used. A page must carry its own id, its elements must be packed
after the element table and inside the page, keys must ascend and stay between the keys of the
branch above, and no page may be visited twice. So a damaged file ends in a CorruptionError that
names file, page and offset, never in wrong order, a loop, or another error. Values have no checksum
in this format: a flipped bit inside one goes unnoticed here.

The file is locked shared, as bbolt does, so a running etcd (which locks it exclusively) is noticed
at once. Pages are read with pread rather than mapped: if the file is truncated meanwhile, the
result is an error and not a signal. Where pages are read in sequence, AHEAD_BYTES are read at once.
Memory is two bytes per page of the file, one page and what was read ahead. A reader does not need
the freelist and does not read it.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from io import FileIO
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from kvstore.backend import Row
from kvstore.errors import CorruptionError, DataDirError
from kvstore.storage.etcd_db.page import (
    BRANCH,
    BRANCH_ELEMENT,
    BUCKET,
    BUCKET_HEADER,
    ELEMENT_SIZE,
    FREELIST,
    HEADER_SIZE,
    KEY_SIZE_MAX,
    LEAF,
    LEAF_ELEMENT,
    META_SIZE,
    NO_FREELIST,
    PAGE_HEADER,
    PAGE_SIZE_MAX,
    PAGE_SIZE_MIN,
    Meta,
    decode_meta,
)

AHEAD_BYTES: Final = 128 << 10
BUCKETS_MAX: Final = 250  # etcd has ten; each has a one-byte mark in the map of pages

_Bounds = tuple[bytes, bytes | None]  # low <= key < high
_ROOT_OWNER: Final = 255
_SHARED_OWNER: Final = 254  # meta and freelist pages
_ANY: Final[_Bounds] = (b"", None)


class Arrival(Protocol):
    """The progress of a file that is still being written, from front to end."""

    def wait(self, size_bytes: int) -> int:
        """Return how many bytes are written, once that is size_bytes or the file is complete.

        KvstoreError or OSError if the rest will not be written.
        """
        ...


class EtcdDbReader:
    """One open database file; for one thread. Several scans may run at the same time."""

    def __init__(
        self, path: Path, *, exclusive: bool = False, arrival: Arrival | None = None
    ) -> None:
        """Open and lock path; exclusive keeps other readers out too.

        With an arrival the file may still be growing: every read waits for the bytes it needs, and
        check_size() finds out whether all have arrived. The size in the file's header is accepted
        as long as the disk could hold it.

        Raises DataDirError if another process has locked the file, CorruptionError if it is not a
        sound database file, OSError if it cannot be opened.
        """
        self._path = path
        self._arrival = arrival
        self._arrived_bytes = 0
        self._ahead = b""  # the last bytes read, from _ahead_at on
        self._ahead_at = 0
        self._read_end = 0
        self._file = FileIO(path, "rb")
        try:
            self._lock(fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            self._meta = self._newest_meta()
            self._owner = bytearray(self._meta.high_water)
            self._owner[0] = self._owner[1] = _SHARED_OWNER
            self._check_freelist()
            self._buckets = self._read_buckets()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release its lock."""
        self._file.close()

    @property
    def path(self) -> Path:
        """The path it was opened by."""
        return self._path

    @property
    def meta(self) -> Meta:
        """The valid meta page with the higher transaction id."""
        return self._meta

    @property
    def size_bytes(self) -> int:
        """The logical size: pages ever used times page size; the file itself may be longer."""
        return self._meta.high_water * self._meta.page_size

    def buckets(self) -> list[bytes]:
        """Return the names of the buckets, ascending."""
        return list(self._buckets)

    def scan(self, bucket: bytes) -> Iterator[Row]:
        """Yield (key, value) of a bucket, keys ascending; KeyError if there is no such bucket."""
        number, page_id, value = self._buckets[bucket]
        root, _ = BUCKET_HEADER.unpack_from(value)
        if root:
            return chain.from_iterable(rows for _, rows in self._leaves(root, number))
        return iter(self._inline_rows(bucket, page_id, value))

    def _lock(self, kind: int) -> None:
        try:
            fcntl.flock(self._file.fileno(), kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataDirError(
                f"{self._path} is in use by another process: stop the etcd that runs on it first"
            ) from None

    def check_size(self) -> None:
        """Wait for the whole file; raise CorruptionError if it is shorter than its header says."""
        self._check_size_is(self._meta, self._size_from(self.size_bytes))

    def _newest_meta(self) -> Meta:
        first = decode_meta(self._read(0, 0, min(META_SIZE, self._size_from(META_SIZE))))
        known_bytes = first.page_size + META_SIZE if isinstance(first, Meta) else sys.maxsize
        second = self._second_meta(first, self._size_from(known_bytes))
        metas = [meta for meta in (first, second) if isinstance(meta, Meta)]
        if not metas:
            raise self._corrupt(0, 0, f"neither meta page can be used: 0: {first}; 1: {second}")
        newest = max(metas, key=lambda meta: meta.txid)
        if self._arrival is None:
            self._check_size_is(newest, os.fstat(self._file.fileno()).st_size)
        else:
            disk = os.statvfs(self._path)
            self._check_size_is(newest, disk.f_blocks * disk.f_frsize)
        if not 1 < newest.root < newest.high_water:
            raise self._corrupt(0, 0, f"root page {newest.root} of {newest.high_water}")
        return newest

    def _size_from(self, size_bytes: int) -> int:
        """Return the size of the file; a growing one must reach size_bytes or its end before."""
        if self._arrival is not None:
            return self._arrival.wait(size_bytes)
        return os.fstat(self._file.fileno()).st_size

    def _check_size_is(self, meta: Meta, has_bytes: int) -> None:
        need = meta.high_water * meta.page_size
        if need > has_bytes:
            raise self._corrupt(0, has_bytes, f"file of {has_bytes} bytes, {need} are in use")

    def _second_meta(self, first: Meta | str, file_bytes: int) -> Meta | str:
        """Read meta page 1; without a sound page 0 all page sizes are tried to find it."""
        if isinstance(first, Meta):
            sizes = [first.page_size]
        else:
            sizes = []
            size = PAGE_SIZE_MIN
            while size <= PAGE_SIZE_MAX:
                sizes.append(size)
                size *= 2
        second: Meta | str = "not found"
        for size in sizes:
            if size + META_SIZE > file_bytes:
                break
            second = decode_meta(self._read(1, size, META_SIZE))
            if isinstance(second, Meta) and second.page_size == size:
                return second
        return (
            second if isinstance(second, str) else f"page size {second.page_size} at another offset"
        )

    def _check_freelist(self) -> None:
        page_id = self._meta.freelist
        if page_id == NO_FREELIST:
            return
        if not 1 < page_id < self._meta.high_water:
            raise self._corrupt(0, 0, f"freelist page {page_id} of {self._meta.high_water}")
        at = page_id * self._meta.page_size
        _, flags, _, overflow = PAGE_HEADER.unpack(self._read(page_id, at, HEADER_SIZE))
        end = page_id + overflow + 1
        if flags != FREELIST or end > self._meta.high_water:
            raise self._corrupt(page_id, at, f"flags {flags:#x}, overflow {overflow} of a freelist")
        self._owner[page_id:end] = bytes((_SHARED_OWNER,)) * (overflow + 1)

    def _read_buckets(self) -> dict[bytes, tuple[int, int, bytes]]:
        """Return name → (number, page of its element, bucket value) from the root tree."""
        buckets: dict[bytes, tuple[int, int, bytes]] = {}
        for page_id, rows in self._leaves(self._meta.root, _ROOT_OWNER):
            at = page_id * self._meta.page_size
            for name, value in rows:
                if len(buckets) == BUCKETS_MAX:
                    text = f"more than {BUCKETS_MAX} buckets, etcd has ten"
                    raise self._corrupt(page_id, at, text)
                if len(value) < BUCKET_HEADER.size:
                    text = f"bucket {name!r} of {len(value)} bytes, the least is 16"
                    raise self._corrupt(page_id, at, text)
                buckets[name] = (len(buckets) + 1, page_id, value)
        return buckets

    def _leaves(self, root: int, owner: int) -> Iterator[tuple[int, list[Row]]]:
        """Yield (page id, rows) of the leaves of the tree at page root, left to right."""
        want = BUCKET if owner == _ROOT_OWNER else 0
        seen = bytearray(self._meta.high_water)
        page_size = self._meta.page_size
        stack: list[tuple[int, bytes, bytes | None]] = [(root, *_ANY)]
        while stack:
            page_id, low, high = stack.pop()
            page, flags, count = self._load(page_id, owner, seen)
            if flags == LEAF:
                where = (page_id, page_id * page_size)
                yield page_id, self._leaf_rows(page, count, (low, high), want, where)
            else:
                stack.extend(reversed(self._children(page, count, (low, high), page_id)))

    def _leaf_rows(
        self, page: bytes, count: int, bounds: _Bounds, want: int, where: tuple[int, int]
    ) -> list[Row]:
        """Return the rows of a leaf page image; where is its page id and file offset."""
        low, high = bounds
        rows: list[Row] = []
        append = rows.append
        at = HEADER_SIZE
        begin = HEADER_SIZE + ELEMENT_SIZE * count
        page_end = len(page)
        previous = b""
        for flags, pos, key_size, value_size in LEAF_ELEMENT.iter_unpack(page[HEADER_SIZE:begin]):
            middle = begin + key_size
            end = middle + value_size
            if (
                flags != want
                or at + pos != begin
                or end > page_end
                or not 0 < key_size <= KEY_SIZE_MAX
            ):
                text = f"flags {flags:#x}, pos {pos}, key size {key_size}, value size {value_size}"
                raise self._corrupt(where[0], where[1] + at, f"leaf element of {text}")
            key = page[begin:middle]
            if key <= previous:
                raise self._corrupt(where[0], where[1] + at, _order(key, previous))
            append((key, page[middle:end]))
            previous = key
            begin = end
            at += ELEMENT_SIZE
        if rows and rows[0][0] < low:
            raise self._corrupt(*where, f"key {rows[0][0].hex()} is below its branch {low.hex()}")
        if high is not None and previous >= high:
            raise self._corrupt(
                *where, f"key {previous.hex()} reaches the next branch {high.hex()}"
            )
        return rows

    def _children(
        self, page: bytes, count: int, bounds: _Bounds, page_id: int
    ) -> list[tuple[int, bytes, bytes | None]]:
        """Return (page id, low, high) of the children of a branch page."""
        low, high = bounds
        base = page_id * self._meta.page_size
        if not count:
            raise self._corrupt(page_id, base, "branch page without children")
        ids: list[int] = []
        keys: list[bytes] = []
        at = HEADER_SIZE
        begin = HEADER_SIZE + ELEMENT_SIZE * count
        for pos, key_size, child in BRANCH_ELEMENT.iter_unpack(page[HEADER_SIZE:begin]):
            end = begin + key_size
            if at + pos != begin or end > len(page) or not 0 < key_size <= KEY_SIZE_MAX:
                text = f"branch element of pos {pos}, key size {key_size}"
                raise self._corrupt(page_id, base + at, text)
            key = page[begin:end]
            if keys and key <= keys[-1]:
                raise self._corrupt(page_id, base + at, _order(key, keys[-1]))
            ids.append(child)
            keys.append(key)
            begin = end
            at += ELEMENT_SIZE
        if keys[0] < low or (high is not None and keys[-1] >= high):
            raise self._corrupt(page_id, base, "keys outside the bounds of the branch above")
        return list(zip(ids, keys, [*keys[1:], high], strict=True))

    def _load(self, page_id: int, owner: int, seen: bytearray) -> tuple[bytes, int, int]:
        """Return (used bytes, flags, count) of a branch or leaf page; mark it as owner's."""
        page_size = self._meta.page_size
        at = page_id * page_size
        if not 1 < page_id < self._meta.high_water:
            raise self._corrupt(page_id, at, f"page beyond the {self._meta.high_water} in use")
        page = self._read(page_id, at, page_size)
        own_id, flags, count, overflow = PAGE_HEADER.unpack_from(page)
        end = page_id + overflow + 1
        if own_id != page_id or flags not in (BRANCH, LEAF) or end > self._meta.high_water:
            text = f"page of id {own_id}, flags {flags:#x}, overflow {overflow}"
            raise self._corrupt(page_id, at, text)
        for claimed in range(page_id, end):
            if seen[claimed] or self._owner[claimed] not in (0, owner):
                raise self._corrupt(claimed, claimed * page_size, "page is reached twice")
            seen[claimed] = 1
            self._owner[claimed] = owner
        table_end = HEADER_SIZE + ELEMENT_SIZE * count
        if table_end > page_size * (overflow + 1):
            raise self._corrupt(page_id, at, f"count {count} beyond the page")
        if overflow:
            page = self._read_long(page_id, flags, table_end, page_size * (overflow + 1))
        return page, flags, count

    def _read_long(self, page_id: int, flags: int, table_end: int, size: int) -> bytes:
        """Return the used part of a page with overflow: a wrong overflow costs no memory."""
        at = page_id * self._meta.page_size
        if table_end == HEADER_SIZE:
            return self._read(page_id, at, HEADER_SIZE)
        last = table_end - ELEMENT_SIZE
        element = self._read(page_id, at + last, ELEMENT_SIZE)
        if flags == LEAF:
            _, pos, key_size, value_size = LEAF_ELEMENT.unpack(element)
            used = last + pos + key_size + value_size
        else:
            pos, key_size, _ = BRANCH_ELEMENT.unpack(element)
            used = last + pos + key_size
        if not table_end <= used <= size:
            raise self._corrupt(page_id, at + last, f"element ends at {used} of {size} bytes")
        return self._read(page_id, at, used)

    def _inline_rows(self, bucket: bytes, page_id: int, value: bytes) -> list[Row]:
        """Return the rows of a bucket that is stored inside its element, on page page_id."""
        image = value[BUCKET_HEADER.size :]
        where = (page_id, page_id * self._meta.page_size)
        if len(image) < HEADER_SIZE:
            raise self._corrupt(*where, f"inline bucket {bucket!r} of {len(image)} bytes")
        own_id, flags, count, overflow = PAGE_HEADER.unpack_from(image)
        if own_id or flags != LEAF or overflow or HEADER_SIZE + ELEMENT_SIZE * count > len(image):
            text = f"id {own_id}, flags {flags:#x}, count {count}, overflow {overflow}"
            raise self._corrupt(*where, f"inline bucket {bucket!r} of {text}")
        return self._leaf_rows(image, count, _ANY, 0, where)

    def _read(self, page_id: int, at: int, size: int) -> bytes:
        begin = at - self._ahead_at
        if 0 <= begin <= len(self._ahead) - size:
            data = self._ahead[begin : begin + size]
        else:
            if self._arrival is not None and at + size > self._arrived_bytes:
                self._arrived_bytes = self._arrival.wait(at + size)
            data = self._read_ahead(page_id, at, size)
        self._read_end = at + size
        return data

    def _read_ahead(self, page_id: int, at: int, size: int) -> bytes:
        """Read from the file; more than requested, if it follows the last read."""
        read_bytes = size
        if 0 <= at - self._read_end < PAGE_SIZE_MIN:
            available = AHEAD_BYTES if self._arrival is None else self._arrived_bytes - at
            read_bytes = max(size, min(AHEAD_BYTES, available))
        try:
            data = os.pread(self._file.fileno(), read_bytes, at)
            while 0 < len(data) < size:  # the kernel returns at most 2 GiB at once
                more = os.pread(self._file.fileno(), size - len(data), at + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self._corrupt(page_id, at, f"cannot be read: {error}") from error
        if len(data) < size:
            raise self._corrupt(page_id, at, f"file ends after {len(data)} of {size} bytes")
        if len(data) == size:
            return data
        self._ahead, self._ahead_at = data, at
        return data[:size]

    def _corrupt(self, page_id: int, at: int, text: str) -> CorruptionError:
        return CorruptionError(f"{self._path}: page {page_id} at offset {at}: {text}")


def _order(key: bytes, previous: bytes) -> str:
    return f"key {key.hex()} does not follow {previous.hex()}"
