"""The encoding of protobuf: varints, tags, and fields with a length.

    tag(3, LENGTH) → b"\\x1a"         delimited(b"\\x1a", b"abc") → b"\\x1a\\x03abc"

Readers raise ProtobufError for bytes that are cut off or malformed, and nothing else.
"""

from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5

_VARINT_BYTES_MAX: Final = 10
_SMALL: Final = tuple(bytes((number,)) for number in range(128))


class ProtobufError(ValueError):
    """The bytes are not a valid message."""


def varint(number: int) -> bytes:
    """Return a number of 64 bits; negative ones take ten bytes."""
    if 0 <= number < 128:
        return _SMALL[number]
    number &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def tag(number: int, wire_type: int) -> bytes:
    """Return the tag of a field."""
    return varint(number << 3 | wire_type)


def delimited(tag_bytes: bytes, content: bytes) -> bytes:
    """Return a field with a length."""
    size = len(content)
    length = _SMALL[size] if size < 128 else varint(size)
    return b"%b%b%b" % (tag_bytes, length, content)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the unsigned number at a position, and where it ends."""
    number = shift = 0
    try:
        while shift < 7 * _VARINT_BYTES_MAX:
            byte = data[position]
            position += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number & 0xFFFFFFFFFFFFFFFF, position
            shift += 7
    except IndexError:
        raise ProtobufError("unexpected EOF") from None
    raise ProtobufError("proto: integer overflow")


def signed(number: int) -> int:
    """Return an unsigned number of 64 bits as a signed one."""
    return number - (1 << 64) if number >> 63 else number


def signed32(number: int) -> int:
    """Return the lower 32 bits of a number as a signed one."""
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def skip(data: bytes, position: int, wire_type: int, end: int) -> int:
    """Return the end of the value of an unknown field."""
    if wire_type == VARINT:
        position = read_varint(data, position)[1]
    elif wire_type == LENGTH:
        size, position = read_varint(data, position)
        position += size
    elif wire_type == FIXED64:
        position += 8
    elif wire_type == FIXED32:
        position += 4
    elif wire_type == GROUP:
        return _skip_group(data, position, end)
    else:
        raise ProtobufError(f"proto: illegal wireType {wire_type}")
    if position > end:
        raise ProtobufError("unexpected EOF")
    return position


def _skip_group(data: bytes, position: int, end: int) -> int:
    depth = 1
    while depth:
        key, position = read_varint(data, position)
        if key & 7 == END_GROUP:
            depth -= 1
        elif key & 7 == GROUP:
            depth += 1
        else:
            position = skip(data, position, key & 7, end)
        if position > end:
            raise ProtobufError("unexpected EOF")
    return position
