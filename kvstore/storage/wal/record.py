"""Frames and records of the write-ahead log, byte for byte as etcd writes them.

    | 8-byte LE word | record bytes (n) | zero padding to a multiple of 8 |
      word = n, or n | (0x80 | padding) << 56 where there is padding; 0 = end of the data

    record = 08 kind  10 crc  1a length body        (walpb.Record; a CRC record has no body)

Invariant: the crc of a record is CRC-32C over all bodies since the start of the log, continued from
record to record. A segment begins with a CRC record that repeats the last value of the segment
before, so a segment can be checked alone and as part of the chain. The crc does not cover type,
length and padding, therefore the reader accepts exactly the form above.

    SegmentReader(data, size, crc)  ──►  (offset, kind, body) …  then  offset, crc, fault

This module turns bytes into records and back. It opens no file, gives entries no meaning, and does
not decide whether a fault is a torn tail or corruption (see `repair`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from google_crc32c import extend

from kvstore.raft.model import ConfState, Entry
from kvstore.wire.raft_codec import decode_conf_state, encode_conf_state, encode_entry
from kvstore.wire.varint import (
    BYTES,
    FRONT,
    SMALL,
    SMALL_MAX,
    VARINT,
    WireError,
    read_field,
    varint,
)

METADATA: Final = 1
ENTRY: Final = 2
STATE: Final = 3
CRC: Final = 4
SNAPSHOT: Final = 5

WORD_BYTES: Final = 8
SIZE_MASK: Final = (1 << 56) - 1
TOP_BYTE: Final = (0, 0x87, 0x86, 0x85, 0x84, 0x83, 0x82, 0x81)  # of the word, by size % 8

_PADDING: Final = tuple(bytes(-n % 8) for n in range(8))
_WORDS: Final = tuple((n | TOP_BYTE[n & 7] << 56).to_bytes(8, "little") for n in range(1 << 12))
_WORDS_MAX: Final = len(_WORDS)
_CRC_MIDDLE: Final = FRONT
_CRC_LAST: Final = tuple(bytes((n, 0x1A)) for n in range(1 << 4))  # with the tag of the body
_CRC_FIVE_BYTES: Final = 1 << 28  # a checksum from here on is a varint of five bytes
_HEAD_BYTES: Final = 10  # of a record with a five-byte crc and a body below 128 bytes
_ONE_BYTE_MAX: Final = _HEAD_BYTES + 127
_TWO_BYTES_MAX: Final = _HEAD_BYTES + 1 + 16383
_HEADS: Final = tuple(bytes((0x08, kind, 0x10)) for kind in range(SNAPSHOT + 1))


class WalSnapshot(NamedTuple):
    """A snapshot that the log records; the initial one (index 0, term 0) has no configuration."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int
    conf_state: ConfState | None = None


INITIAL_SNAPSHOT: Final = WalSnapshot(0, 0)


def frame_word(record_bytes: int) -> bytes:
    """Return the 8 bytes in front of a record of record_bytes."""
    if record_bytes < _WORDS_MAX:
        return _WORDS[record_bytes]
    return (record_bytes | TOP_BYTE[record_bytes & 7] << 56).to_bytes(8, "little")


def encode_records(kind: int, bodies: Iterable[bytes], crc: int) -> tuple[bytes, int]:
    """Return (the frames of one record per body, the crc after the last); not for CRC records.

    On the path of every write: about 0.6 µs for a record of 300 bytes (bench/micro).
    """
    frames: list[bytes] = []
    add = frames.append
    start, middle, last, words = _HEADS[kind], _CRC_MIDDLE, _CRC_LAST, _WORDS
    for body in bodies:
        crc = extend(crc, body)
        n = len(body)
        size = SMALL[n] if n < SMALL_MAX else varint(n)
        if crc >= _CRC_FIVE_BYTES:
            head = b"%b%b%b%b%b" % (
                start, middle[crc & 16383], middle[crc >> 14 & 16383], last[crc >> 28], size,
            )  # fmt: skip
        else:
            head = b"%b%b\x1a%b" % (start, varint(crc), size)
        n += len(head)
        word = words[n] if n < _WORDS_MAX else frame_word(n)
        add(b"%b%b%b%b" % (word, head, body, _PADDING[n & 7]))
    return b"".join(frames), crc


def encode_entries(entries: Sequence[Entry], state: bytes, crc: int) -> tuple[bytes, int]:
    """Return (the frames of the records of entries and, unless empty, of a state, the last crc).

    The native crate has the same function (kvstore/native/src/wal.rs); tests compare the two.
    """
    frames, crc = encode_records(ENTRY, map(encode_entry, entries), crc)
    if state:
        frame, crc = encode_records(STATE, (state,), crc)
        frames += frame
    return frames, crc


def encode_crc(crc: int) -> bytes:
    """Return the frame of the CRC record that continues the chain from crc."""
    record = _HEADS[CRC] + varint(crc)
    return frame_word(len(record)) + record + _PADDING[len(record) & 7]


def encode_snapshot_body(snapshot: WalSnapshot) -> bytes:
    """Return the walpb.Snapshot bytes; ValueError for a later one without configuration."""
    head = b"\x08" + varint(snapshot.index) + b"\x10" + varint(snapshot.term)
    if snapshot.conf_state is None:
        if snapshot.index > 0:
            raise ValueError(f"snapshot at index {snapshot.index} has no configuration")
        return head
    conf_state = encode_conf_state(snapshot.conf_state)
    return head + b"\x1a" + varint(len(conf_state)) + conf_state


def decode_snapshot_body(body: bytes) -> WalSnapshot:
    """Return the WalSnapshot of walpb.Snapshot bytes, or raise WireError."""
    index = term = at = 0
    conf_state: ConfState | None = None
    while at < len(body):
        field, wire_type, value, at = read_field(body, at)
        if isinstance(value, bytes):
            if field == 3 and wire_type == BYTES:
                conf_state = decode_conf_state(value)
        elif field == 1 and wire_type == VARINT:
            index = value
        elif field == 2 and wire_type == VARINT:
            term = value
    return WalSnapshot(index, term, conf_state)


def read_head(data: bytes, at: int, record_bytes: int) -> tuple[int, int, int]:
    """Return (kind, crc, offset of the body) of the record at offset at.

    Raises WireError unless it is exactly one record of record_bytes in etcd's shape. The body may
    lie past the end of data, the head may not.
    """
    if len(data) < at + 3 or data[at] != 0x08 or data[at + 2] != 0x10:
        raise WireError("no record begins here")
    kind = data[at + 1]
    if not METADATA <= kind <= SNAPSHOT:
        raise WireError(f"record type {kind} is not known (1 to 5 are)")
    crc, body = read_varint32(data, at + 3)
    if kind == CRC:
        size = 0
    else:
        if data[body : body + 1] != b"\x1a":
            raise WireError("the record has no body")
        size, body = read_varint32(data, body + 1)
    if body + size != at + record_bytes:
        raise WireError(f"a frame of {record_bytes} bytes contains a record of {body + size - at}")
    return kind, crc, body


def read_varint32(data: bytes, at: int) -> tuple[int, int]:
    """Return (number, offset after it) of a varint below 2**32 at offset at, or raise WireError."""
    number = shift = 0
    for byte in data[at : at + 5]:
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number >> 32:
                break
            return number, at
        shift += 7
    raise WireError("a number is cut off or above 2**32 - 1")


def _usual_head(kind: int, crc: int, size: int) -> bytes:
    """Return the head of a record whose crc takes five bytes, as of 15 in 16; b"" for others."""
    if crc < _CRC_FIVE_BYTES or size >= SMALL_MAX or kind > SNAPSHOT or kind in (CRC, 0):
        return b""
    return b"%b%b%b%b%b" % (
        _HEADS[kind], _CRC_MIDDLE[crc & 16383], _CRC_MIDDLE[crc >> 14 & 16383],
        _CRC_LAST[crc >> 28], SMALL[size],
    )  # fmt: skip


class Fault(NamedTuple):
    """The position from which a segment is unreadable, and the reason."""

    offset: int  # of the frame, in bytes from the start of the segment
    text: str


class SegmentReader:
    """Reads the records of one segment; afterwards its attributes describe the end.

    Args of the constructor: data, the bytes of the segment, which may leave out zeros at its end;
    size_bytes, the length of the file; crc, the value to continue from (0: take the segment's).
    After the last record: offset is the end of the last good record, crc the running value there,
    fault None if nothing but zeros follows, opening_crc what the segment begins with.
    """

    __slots__ = ("_data", "_size_bytes", "crc", "fault", "offset", "opening_crc")

    def __init__(self, data: bytes, size_bytes: int, crc: int) -> None:
        self._data = data
        self._size_bytes = size_bytes
        self.crc = crc
        self.opening_crc = 0
        self.offset = 0
        self.fault: Fault | None = None

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (offset of the frame, kind, body); a CRC record yields an empty body."""
        data = self._data
        offset, crc = 0, self.crc
        while True:
            word = int.from_bytes(data[offset : offset + WORD_BYTES], "little")
            if word == 0:
                self._end(data, offset)
                return
            size = word & SIZE_MASK
            end = offset + WORD_BYTES + size + (-size & 7)
            if end > len(data) or word >> 56 != TOP_BYTE[size & 7]:
                if word >> 56 != TOP_BYTE[size & 7] or end > self._size_bytes:
                    self._stop(offset, _impossible_word(word, end, self._size_bytes))
                    return
                self._data = data = data.ljust(end, b"\0")
            start = offset + WORD_BYTES
            body_at = start + _HEAD_BYTES + (size > _ONE_BYTE_MAX) + (size > _TWO_BYTES_MAX)
            body = data[body_at : start + size]
            next_crc, kind = extend(crc, body), data[start + 1]
            if offset and data[start:body_at] == _usual_head(kind, next_crc, len(body)):
                crc = next_crc
            else:
                record = self._read_any(offset, size, crc)
                if isinstance(record, Fault):
                    self.fault = record
                    return
                kind, crc, body = record
            self.crc = crc
            self.offset = end
            yield offset, kind, body
            offset = end

    def _read_any(self, offset: int, size: int, crc: int) -> tuple[int, int, bytes] | Fault:
        """Return (kind, crc after it, body) of the record at offset, or the fault there."""
        data, start = self._data, offset + WORD_BYTES
        try:
            kind, stored, body_at = read_head(data, start, size)
        except WireError as error:
            return Fault(offset, str(error))
        if (kind == CRC) != (offset == 0):
            return Fault(offset, _misplaced(kind))
        if kind == CRC:
            if crc and crc != stored:
                text = f"the chain continues from {stored:08x}, the segment before ended"
                return Fault(offset, f"{text} with {crc:08x}")
            self.opening_crc = stored
            return kind, stored, b""
        body = data[body_at : start + size]
        computed = extend(crc, body)
        if computed != stored:
            text = f"crc mismatch: expected {stored:08x}, computed {computed:08x}"
            return Fault(offset, text)
        return kind, stored, body

    def _stop(self, offset: int, text: str) -> None:
        self.fault = Fault(offset, text)

    def _end(self, data: bytes, offset: int) -> None:
        if data[offset:].lstrip(b"\0"):
            self._stop(offset, "no record begins here, but bytes follow")


def _impossible_word(word: int, end: int, size_bytes: int) -> str:
    if end > size_bytes:
        return f"frame word {word:016x} ends at {end}, the segment at {size_bytes}"
    return f"frame word {word:016x} contradicts its own padding"


def _misplaced(kind: int) -> str:
    if kind == CRC:
        return "a CRC record within a segment"
    return f"a segment opens with a CRC record, not type {kind}"
