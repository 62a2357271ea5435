"""Rebuilds the index and the leases of keys from the records at start.

One scan in revision order. Most records of most stores are the only one of their key, written by
the put that created it. Such a record is recognized by its bytes, without being parsed:

    0a n | key | 10 | create | 18 | mod | 20 01 2a len | value     create = mod, version 1, no lease

Records of one size, key size and width of main have all these at the same offsets; a Shape cuts
them out in one call. In a long history most records change a key that is live already; of these
only the key matters, and that nothing (no lease) follows the value:

    0a n | key | 10 | create | 18 | mod | 20 | version | 2a | len | value to the end

All other records are parsed (`_restore_record`).
"""

import re
from array import array
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from kvstore.backend import Row
from kvstore.errors import CorruptionError
from kvstore.mvcc.key_index import SUB_BITS, SUB_LIMIT, SUB_MASK, KeyIndex
from kvstore.mvcc.records import PAGE_ROWS_MAX, Records
from kvstore.mvcc.revision import KEY_BYTES, SEPARATOR, parse_revision_key, unpack
from kvstore.types import LeaseId
from kvstore.wire.gen.kv_pb2 import KeyValue
from kvstore.wire.varint import varint

Leases = dict[bytes, LeaseId]
_VERSION_1: Final = b"\x20\x01"
_NUMBER: Final = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_AFTER_KEY: Final = re.compile(
    rb"\x10%b\x18%b\x20%b\x2a(%b)" % (_NUMBER, _NUMBER, _NUMBER, _NUMBER)
)  # one group: the size of the value


def rebuild(records: Records) -> tuple[KeyIndex, Leases, int]:
    """Return (index, lease of each live key that has one, greatest main or 0 without records)."""
    pager = records.pager(b"", None)
    return rebuild_from(iter(lambda: pager.page(PAGE_ROWS_MAX), []))


def rebuild_from(pages: Iterable[list[Row]]) -> tuple[KeyIndex, Leases, int]:
    """Return the same as rebuild(), from the rows of table key in pages, none of them empty."""
    index = KeyIndex()
    leases: Leases = {}
    main = 0
    for rows in pages:
        try:
            _restore_page(index, leases, rows)
        except OverflowError as error:
            first, last = rows[0][0].hex(), rows[-1][0].hex()
            text = f"a revision from {first} to {last} in table key is out of range"
            raise CorruptionError(text) from error
        main = parse_revision_key(rows[-1][0])[0]
    index.restored()
    return index, leases, main


class Shape(NamedTuple):
    """The offsets of the fields in records of one size, and the bytes that are always the same."""

    cut: Callable[[bytes], tuple[bytes, ...]] | None  # → head, key, "10", create, "18", mod, tail
    head: bytes
    tail: bytes


NO_SHAPE: Final = Shape(None, b"", b"")


def make_shape(size: int, key_bytes: int, main_width: int) -> Shape:
    """Return the shape of records of size bytes; NO_SHAPE if they must be parsed.

    key_bytes is the byte with the size of the key, main_width the size of the varint of main.
    """
    rest = size - (2 + key_bytes + 1 + main_width + 1 + main_width + len(_VERSION_1))
    if key_bytes > 127 or main_width > 9 or rest < 0:
        return NO_SHAPE
    tail = _VERSION_1
    if rest:
        heads = (b"\x2a" + varint(max(0, rest - 1 - width)) for width in range(1, 5))
        fitting = [head for width, head in enumerate(heads, 1) if len(head) == width + 1]
        if rest < 3 or not fitting:
            return NO_SHAPE
        tail += fitting[0]
    layout = Struct(f"2s{key_bytes}sc{main_width}sc{main_width}s{len(tail)}s")
    return Shape(layout.unpack_from, bytes((0x0A, key_bytes)), tail)


def _restore_page(index: KeyIndex, leases: Leases, rows: list[Row]) -> None:
    """Restore records in revision order.

    Inlined by hand: this loop decides how fast a large store starts (bench/micro/test_mvcc.py).
    """
    live, dead = index.live, index.dead
    after_key = _AFTER_KEY.match
    shapes: dict[tuple[int, int, int], Shape] = {}
    size = key_bytes = width = main_end = 0  # of the shape, valid for main < main_end
    version_at = 0
    cut, want_head, want_tail = NO_SHAPE
    for revkey, kv in rows:
        if len(revkey) == KEY_BYTES and len(kv) > 1:
            main, separator, sub = unpack(revkey)
            if len(kv) != size or kv[1] != key_bytes or main >= main_end:
                size, key_bytes = len(kv), kv[1]
                width = (main.bit_length() + 6) // 7 or 1
                main_end = 1 << 7 * width
                what = (size, key_bytes, width)
                if what not in shapes:
                    shapes[what] = make_shape(size, key_bytes, width)
                cut, want_head, want_tail = shapes[what]
                version_at = 2 + key_bytes + 2 * (1 + width) + 1
            if cut is not None and kv[version_at] == 1:
                head, key, tag_2, create, tag_3, mod, tail = cut(kv)
                if (
                    create == mod
                    and tail == want_tail
                    and head == want_head
                    and tag_2 == b"\x10"
                    and tag_3 == b"\x18"
                    and sub < SUB_LIMIT
                    and separator == SEPARATOR
                    and key not in live
                    and key not in dead
                ):
                    live[key] = main << SUB_BITS | sub
                    continue
            key = kv[2 : key_bytes + 2]
            entry = live.get(key)
            if entry is not None and kv[0] == 0x0A and key_bytes < 128 and separator == SEPARATOR:
                found = after_key(kv, key_bytes + 2)
                if found is not None and found[1] == varint(size - found.end()):
                    if key in leases:
                        del leases[key]
                    if isinstance(entry, int):
                        first, mark = entry >> SUB_BITS, (entry & SUB_MASK) << 1
                        live[key] = array("q", (first, 2, first, mark, main, sub << 1))
                    else:
                        entry[1] += 1
                        entry.append(main)
                        entry.append(sub << 1)
                    continue
        _restore_record(index, leases, revkey, kv)


def _restore_record(index: KeyIndex, leases: Leases, revkey: bytes, kv: bytes) -> None:
    main, sub, tombstone = parse_revision_key(revkey)
    try:
        message = KeyValue.FromString(kv)
    except DecodeError as error:
        raise CorruptionError(f"record {revkey.hex()} in table key: {error}") from error
    key = message.key
    if tombstone:
        leases.pop(key, None)
        index.restore(key, 0, 0, main, sub << 1 | 1)
        return
    lease = message.lease
    if lease:
        leases[key] = lease
    elif key in leases:
        del leases[key]
    index.restore(key, message.create_revision, message.version, main, sub << 1)
