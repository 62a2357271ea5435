"""Field 2 of a message, over and over: what a RangeResponse is made of.

    fields_of(values, head, tail)      head | 12 len value | 12 len value | … | tail

It needs neither protobuf nor anything else that takes time to load.
"""

from collections.abc import Iterable
from typing import Final

from kvstore.wire.varint import varint

_FRAME_MAX: Final = 4096
FRAMES: Final = tuple(b"\x12" + varint(size) for size in range(_FRAME_MAX))  # by a value's size


def frame(size: int) -> bytes:
    """Return the tag and the length of a field of size bytes."""
    return FRAMES[size] if size < _FRAME_MAX else b"\x12" + varint(size)


def fields_of(values: Iterable[bytes], head: bytes, tail: bytes) -> bytes:
    """Return head, each value as field 2, and tail."""
    parts = [head]
    for value in values:
        size = len(value)
        parts.append(FRAMES[size] if size < _FRAME_MAX else b"\x12" + varint(size))
        parts.append(value)
    parts.append(tail)
    return b"".join(parts)
