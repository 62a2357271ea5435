"""Attributes of netlink messages: a length, a type and data, padded to four bytes.

    attribute(1, b"bridge")     b"\\x0a\\x00\\x01\\x00bridge\\x00\\x00"
    dict(attributes(payload))   {1: b"bridge"}

Only the encoding is here; callers exchange messages with the kernel.
"""

import struct
from collections.abc import Iterator
from typing import Final

NESTED: Final = 0x8000
_TYPE: Final = 0x3FFF
_HEAD: Final = struct.Struct("=HH")
_ALIGNMENT: Final = 4


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield types and data, up to the first attribute that is not whole."""
    at = 0
    while at + _HEAD.size <= len(data):
        length, kind = _HEAD.unpack_from(data, at)
        if length < _HEAD.size or at + length > len(data):
            return
        yield kind & _TYPE, data[at + _HEAD.size : at + length]
        at += aligned(length)


def attribute(kind: int, data: bytes) -> bytes:
    """Return an attribute with its padding."""
    length = _HEAD.size + len(data)
    return _HEAD.pack(length, kind) + data + bytes(aligned(length) - length)


def text_attribute(kind: int, text: str) -> bytes:
    """Return an attribute whose data are a text, with the byte that ends it."""
    return attribute(kind, text.encode() + b"\0")


def aligned(length: int) -> int:
    """Return the offset of the next attribute or message."""
    return -(-length // _ALIGNMENT) * _ALIGNMENT
