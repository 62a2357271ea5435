"""Revision keys: the keys of the records, which sort in the order of the changes.

    main 5, sub 2               00 00 00 00 00 00 00 05  5f  00 00 00 00 00 00 00 02
    main 5, sub 2, tombstone    the same 17 bytes, then 74

Compaction marks in the meta table use the 17-byte form with sub 0. Main revisions count changes of
the store, sub revisions the records within one change; neither is ever negative in a key.
"""

from struct import Struct
from typing import Final

from kvstore.errors import CorruptionError

_LAYOUT: Final = Struct(">QcQ")
KEY_BYTES: Final = 17
TOMBSTONE_BYTES: Final = 18
MARK: Final = b"t"

SEPARATOR: Final = b"_"

# Unchecked, for hot loops: pack(main, SEPARATOR, sub) makes the 17 bytes, unpack undoes it.
pack = _LAYOUT.pack
unpack = _LAYOUT.unpack


def revision_key(main: int, sub: int = 0, *, tombstone: bool = False) -> bytes:
    """Return the key of a record."""
    key = pack(main, SEPARATOR, sub)
    return key + MARK if tombstone else key


def parse_revision_key(key: bytes) -> tuple[int, int, bool]:
    """Return (main, sub, is a tombstone); CorruptionError if key is not a revision key."""
    size = len(key)
    tombstone = size == TOMBSTONE_BYTES and key[-1:] == MARK
    if size != KEY_BYTES and not tombstone:
        raise CorruptionError(
            f"revision key {key.hex()} has {size} bytes, not 17, or 18 ending in t"
        )
    main, separator, sub = _LAYOUT.unpack_from(key)
    if separator != SEPARATOR or main >> 63 or sub >> 63:
        raise CorruptionError(f"revision key {key.hex()} is not main _ sub of 63 bits each")
    return main, sub, tombstone
