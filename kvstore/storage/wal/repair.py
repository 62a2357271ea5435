"""Decides whether a fault in the last segment is a torn tail, to be cut off, or corruption.

A power cut may lose any 512-byte sector written since the last sync, and nothing older. So a fault
is a *torn tail* only if both of these hold. It may be cut off, because it was never acknowledged.

1. The bad frame looks like a lost write: a sector of it is all zero, or it runs past the end of the
   file. A frame word is 8-byte aligned and therefore never half written; one that contradicts the
   record after it was changed, not torn.
2. Everything from there on may be unsynced. Entries and snapshots are synced by the save that wrote
   them, before the next save begins; only a state record alone may stay unsynced:

       … synced | state* ( entry+ state? | snapshot )? | end

   If more than that follows a bad record, the record was once durable. Cutting it off would
   silently drop acknowledged entries from the middle of the log.

etcd checks only the first half of rule 1 and would cut in more cases. Every tear that a power cut
can make and etcd can repair is repaired here as well. This module changes no file.
"""

import re
from typing import Final

from kvstore.storage.wal.record import (
    SIZE_MASK,
    TOP_BYTE,
    WORD_BYTES,
    frame_word,
    read_head,
)
from kvstore.wire.varint import WireError

SECTOR_BYTES: Final = 512
HEAD_BYTES_MAX: Final = 3 + 5 + 1 + 5  # type, crc, tag and length of the body

_UNSYNCED: Final = re.compile(rb"3*(?:2+3?|5)?")  # kinds of records, a byte each
_CANDIDATE: Final = re.compile(rb"\x08[\x01-\x05]\x10")


def is_torn_tail(data: bytes, size_bytes: int, offset: int) -> bool:
    """Return whether the last segment may be cut at the bad frame at offset.

    Args: data, the bytes of the segment, which may leave out zeros at its end; size_bytes, the
    length of the file; offset, of the frame, a multiple of 8.
    """
    if offset == 0:
        return False  # the head of a segment was synced before the segment got its name
    looks_lost = _is_lost_frame(data, size_bytes, offset)
    return looks_lost and _UNSYNCED.fullmatch(kinds_after(data, offset)) is not None


def kinds_after(data: bytes, offset: int) -> bytes:
    """Return the kinds (digits, one byte each) of all well-shaped frames from offset on."""
    kinds = bytearray()
    for match in _CANDIDATE.finditer(data, offset + WORD_BYTES):
        frame = match.start() - WORD_BYTES
        if frame < offset or frame % 8:
            continue
        size = int.from_bytes(data[frame : frame + WORD_BYTES], "little") & SIZE_MASK
        end = frame + WORD_BYTES + size
        if end > len(data) or frame_word(size) != data[frame : frame + WORD_BYTES]:
            continue
        try:
            kind, _, _ = read_head(data, frame + WORD_BYTES, size)
        except WireError:
            continue
        kinds += b"%d" % kind
        offset = end
    return bytes(kinds)


def _is_lost_frame(data: bytes, size_bytes: int, offset: int) -> bool:
    if size_bytes - offset < WORD_BYTES:
        return True  # the file ends within the word
    word = int.from_bytes(data[offset : offset + WORD_BYTES], "little")
    if word == 0:
        return not data[offset : _sector_end(offset)].strip(b"\0")
    size = word & SIZE_MASK
    if word >> 56 != TOP_BYTE[size & 7]:
        return False
    start, end = offset + WORD_BYTES, offset + WORD_BYTES + size + (-size & 7)
    if end <= size_bytes and not _has_zero_sector(data, start, end):
        return False
    return _head_agrees(data, size_bytes, start, size)


def _head_agrees(data: bytes, size_bytes: int, start: int, size: int) -> bool:
    """Return whether the record's length fits the frame's, as far as its head was written."""
    head_end = start + min(size, HEAD_BYTES_MAX)
    if head_end > size_bytes or _has_zero_sector(data, start, head_end):
        return True
    head = data[start:head_end].ljust(head_end - start, b"\0")
    try:
        read_head(head, 0, size)
    except WireError:
        return False
    return True


def _has_zero_sector(data: bytes, start: int, end: int) -> bool:
    while start < end:
        stop = min(_sector_end(start), end)
        if not data[start:stop].strip(b"\0"):
            return True
        start = stop
    return False


def _sector_end(offset: int) -> int:
    return offset - offset % SECTOR_BYTES + SECTOR_BYTES
