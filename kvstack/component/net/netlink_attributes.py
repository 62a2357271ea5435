"""Netlink messages, and their attributes: a length, a type and data, padded to four bytes.

    attribute(1, b"bridge")     b"\\x0a\\x00\\x01\\x00bridge\\x00\\x00"
    dict(attributes(payload))   {1: b"bridge"}
    message(16, 5, 1, body)     a message of type 16, with flags and a sequence number
    for kind, number, payload in messages(received): …

Only the encoding is here; callers exchange messages with the kernel.
"""

import struct
from collections.abc import Iterator
from typing import Final

REQUEST: Final = 1
"""The flag of all messages to the kernel."""
NESTED: Final = 0x8000
_TYPE: Final = 0x3FFF
_HEAD: Final = struct.Struct("=HH")
_MESSAGE_HEAD: Final = struct.Struct("=IHHII")
_ALIGNMENT: Final = 4


def message(kind: int, flags: int, number: int, body: bytes) -> bytes:
    """Return a request; flags: besides that it is one."""
    length = _MESSAGE_HEAD.size + len(body)
    return _MESSAGE_HEAD.pack(length, kind, REQUEST | flags, number, 0) + body


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the type, the sequence number and the payload of each message."""
    at = 0
    while at + _MESSAGE_HEAD.size <= len(data):
        length, kind, _, number, _ = _MESSAGE_HEAD.unpack_from(data, at)
        if length < _MESSAGE_HEAD.size:
            return
        yield kind, number, data[at + _MESSAGE_HEAD.size : at + length]
        at += aligned(length)


def error_code(payload: bytes) -> int:
    """Return the errno of an error message; 0: it acknowledges a request."""
    (code,) = struct.unpack_from("=i", payload)
    return -int(code)


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
