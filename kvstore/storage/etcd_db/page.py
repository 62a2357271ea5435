"""The layout of etcd's database file (bbolt), shared by its reader and its writer.

    page 0  meta   ┐ the valid one with the higher transaction id is used
    page 1  meta   ┘
    page 2…        branch, leaf and freelist pages in any order, up to the high-water mark

    page    : id u64 | flags u16 | count u16 | overflow u32 | elements | keys and values, packed
    branch  : element = pos u32 | key size u32 | child page u64
    leaf    : element = flags u32 | pos u32 | key size u32 | value size u32
    meta    : magic u32 | version u32 | page size u32 | flags u32 | root page u64 | sequence u64
              | freelist page u64 | high-water mark u64 | transaction id u64 | FNV-1a-64 of all that

All little-endian. `pos` counts from the start of its own element. A page with overflow n extends
over the n pages after it. The root tree holds the buckets: elements with flag 1 whose value is
`root page u64 | sequence u64`, followed, if the root page is 0, by a whole leaf page image (an
*inline* bucket).

This module has the constants and the meta page. Trees are read in `reader` and built in `writer`
(rows that are read once) and `stream` (rows that can be read twice).
"""

import struct
from typing import Final, NamedTuple

PAGE_SIZE: Final = 4096  # what the writer uses; a reader takes the size from the meta page
PAGE_SIZE_MIN: Final = 1024
PAGE_SIZE_MAX: Final = 16 * 1024 * 1024
KEY_SIZE_MAX: Final = 32768
VALUE_SIZE_MAX: Final = (1 << 31) - 2

BRANCH: Final = 0x01
LEAF: Final = 0x02
META: Final = 0x04
FREELIST: Final = 0x10
BUCKET: Final = 0x01  # flag of a leaf element

MAGIC: Final = 0xED0CDAED
VERSION: Final = 2
NO_FREELIST: Final = (1 << 64) - 1  # free pages are not listed; bbolt finds them in the trees

PAGE_HEADER: Final = struct.Struct("<QHHI")  # id, flags, count, overflow
LEAF_ELEMENT: Final = struct.Struct("<IIII")  # flags, pos, key size, value size
BRANCH_ELEMENT: Final = struct.Struct("<IIQ")  # pos, key size, child page
BUCKET_HEADER: Final = struct.Struct("<QQ")  # root page, sequence
ELEMENT_SIZE: Final = 16
HEADER_SIZE: Final = 16

_META_BODY: Final = struct.Struct("<IIIIQQQQQ")
_CHECKSUM: Final = struct.Struct("<Q")
META_SIZE: Final = HEADER_SIZE + _META_BODY.size + _CHECKSUM.size


class Meta(NamedTuple):
    """The fields of a meta page; sizes in bytes, pages as page ids."""

    page_size: int
    root: int
    freelist: int
    high_water: int  # the first page never used
    txid: int


def fnv1a_64(data: bytes) -> int:
    """Return the FNV-1a hash (64 bits) of a few bytes."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def encode_meta(page_id: int, meta: Meta) -> bytes:
    """Return a whole meta page of meta.page_size bytes."""
    body = _META_BODY.pack(
        MAGIC,
        VERSION,
        meta.page_size,
        0,
        meta.root,
        0,
        meta.freelist,
        meta.high_water,
        meta.txid,
    )
    page = PAGE_HEADER.pack(page_id, META, 0, 0) + body + _CHECKSUM.pack(fnv1a_64(body))
    return page.ljust(meta.page_size, b"\0")


def decode_meta(page: bytes) -> Meta | str:
    """Return the fields in the first META_SIZE bytes of a meta page, or why they are invalid."""
    if len(page) < META_SIZE:
        return f"{len(page)} bytes, a meta page has at least {META_SIZE}"
    body = page[HEADER_SIZE : HEADER_SIZE + _META_BODY.size]
    magic, version, page_size, _, root, _, freelist, high_water, txid = _META_BODY.unpack(body)
    (checksum,) = _CHECKSUM.unpack_from(page, HEADER_SIZE + _META_BODY.size)
    if magic != MAGIC:
        return f"magic {magic:#010x} is not {MAGIC:#010x}"
    if version != VERSION:
        return f"version {version} is not {VERSION}"
    if checksum != fnv1a_64(body):
        return f"checksum {checksum:#018x} does not fit its content"
    if page_size & (page_size - 1) or not PAGE_SIZE_MIN <= page_size <= PAGE_SIZE_MAX:
        limits = f"{PAGE_SIZE_MIN} to {PAGE_SIZE_MAX}"
        return f"page size {page_size} is not a power of two of {limits}"
    return Meta(page_size, root, freelist, high_water, txid)
