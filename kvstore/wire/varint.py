"""Varints and fields: the parts of the protobuf encoding that the hand-written codecs share.

    300 == 0b10_0101100  →  ac 02        seven bits a byte, the lowest first, bit 7 = "more follows"
    int64 -1             →  nine ff, 01  two's complement, always ten bytes

Decoding follows etcd's (Go) decoder: up to ten bytes, unknown fields are skipped, groups are
errors. Invalid bytes raise WireError and no other exception.
"""

from struct import unpack
from typing import Final

from kvstore.errors import KvstoreError


def _pairs(high: int) -> tuple[bytes, ...]:
    """Return every pair of bytes (0 to 127 with bit 7, 0 to 127 with the bits of high).

    In C: made one by one, the pairs would cost every process 4 ms at its start.
    """
    pairs = bytearray(2 << 14)
    pairs[0::2] = bytes(range(128, 256)) * 128
    pairs[1::2] = b"".join(bytes((each | high,)) * 128 for each in range(128))
    return unpack("2s" * (1 << 14), pairs)


SMALL: Final[tuple[bytes, ...]] = (
    *unpack("1s" * 128, bytes(range(128))),
    *_pairs(0)[128:],
)  # every varint of one and two bytes
SMALL_MAX: Final = 1 << 14
FRONT: Final = _pairs(128)  # the first two bytes of a longer one
UINT64_MAX: Final = (1 << 64) - 1

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5


class WireError(KvstoreError, ValueError):
    """Bytes that are not a message of the expected kind."""


def varint(number: int) -> bytes:
    """Return the varint of number, 0 <= number < 2**64 (not checked: see int64 for negatives)."""
    if number < SMALL_MAX:
        return SMALL[number]
    out = FRONT[number & SMALL_MAX - 1]
    number >>= 14
    while number >= SMALL_MAX:
        out += FRONT[number & SMALL_MAX - 1]
        number >>= 14
    return out + SMALL[number]


def int64(number: int) -> bytes:
    """Return the varint of a signed number, -2**63 <= number < 2**63."""
    return varint(number) if number >= 0 else varint(number + (1 << 64))


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (number, offset after it) for the varint at offset at, number < 2**64."""
    shift = number = 0
    try:
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 63:
                raise WireError(f"varint of more than ten bytes before offset {at}")
    except IndexError:
        raise WireError(f"varint cut off at offset {at}") from None
    if number > UINT64_MAX:
        raise WireError(f"varint above 2**64 - 1 before offset {at}")
    return number, at


def read_field(data: bytes, at: int) -> tuple[int, int, int | bytes, int]:
    """Return (field number, wire type, value, offset after it) of the field at offset at.

    The value is a number for VARINT, FIXED32 and FIXED64, bytes for BYTES.
    """
    tag, at = read_varint(data, at)
    field, kind = tag >> 3, tag & 7
    if not 0 < field < 1 << 29:
        raise WireError(f"field number {field} before offset {at}, allowed are 1 to 2**29 - 1")
    if kind == VARINT:
        number, at = read_varint(data, at)
        return field, kind, number, at
    if kind == BYTES:
        size, at = read_varint(data, at)
    elif kind == FIXED64:
        size = 8
    elif kind == FIXED32:
        size = 4
    else:
        raise WireError(f"wire type {kind} of field {field} before offset {at} is not known")
    end = at + size
    if end > len(data):
        raise WireError(f"field {field} of {size} bytes at offset {at} ends after {len(data)}")
    value = data[at:end]
    return field, kind, value if kind == BYTES else int.from_bytes(value, "little"), end
