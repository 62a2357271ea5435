"""Frames of HTTP/2 (RFC 9113, sections 4 and 6): their numbers, and what several of them share."""

import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD: Final = struct.Struct(">HBBBL")  # length in 16 and 8 bits, type, flags, stream
NUMBER: Final = struct.Struct(">L")
SETTING: Final = struct.Struct(">HL")

DATA: Final = 0
HEADERS: Final = 1
RESET: Final = 3
SETTINGS: Final = 4
PUSH: Final = 5
PING: Final = 6
GO_AWAY: Final = 7
WINDOW: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 1
ACK: Final = 1
END_HEADERS: Final = 4
PADDED: Final = 8
PRIORITY: Final = 32
PRIORITY_BYTES: Final = 5

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
STREAMS_MAX: Final = 3
INITIAL_WINDOW: Final = 4
FRAME_MAX: Final = 5

NO_ERROR: Final = 0
REFUSED: Final = 7
CANCEL: Final = 8

WINDOW_MAX: Final = (1 << 31) - 1


class ProtocolError(Exception):
    """The server sent what makes no sense."""


def numbers_of(payload: bytes, count: int) -> tuple[int, ...]:
    """Return the numbers a frame begins with; the first one without its reserved bit."""
    if len(payload) < count * NUMBER.size:
        raise ProtocolError("a frame that is too short")
    found = struct.unpack_from(f">{count}L", payload)
    return (found[0] & WINDOW_MAX, *found[1:])


def unpadded(payload: bytes) -> bytes:
    """Return what a padded frame holds."""
    if not payload or payload[0] >= len(payload):
        raise ProtocolError("more padding than there is")
    return payload[1 : len(payload) - payload[0]]
