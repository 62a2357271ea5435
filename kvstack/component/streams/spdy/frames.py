"""Frames of SPDY/3.1, without IO.

    codec = Codec(is_client=False)
    for frame in codec.receive(data): …           raises SpdyError
    data = codec.syn_stream({"streamtype": "data"}); codec.reply(1); codec.data(1, b"…", fin=True)

Headers of a direction are one stream of zlib for the whole connection, so a codec is of one
connection, and frames with headers are sent in the order in which they are made. There is no flow
control: WINDOW_UPDATE and SETTINGS are taken and not sent, as Kubernetes' peers do.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_NAMES: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base content-encoding "
    "content-language content-length content-location content-md5 content-range content-type date "
    "etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified location max-forwards pragma proxy-authenticate "
    "proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url "
    "public set-cookie keep-alive origin"
)
_WORDS: Final = [each.replace("_", " ").encode() for each in _NAMES.split()]
_TEXT: Final = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    b"203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    b"401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    b"503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, "
    b"Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    b"application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,"
    b"sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = b"".join(struct.pack(">I", len(each)) + each for each in _WORDS) + _TEXT

SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = (
    *(1, 2, 3, 4, 6, 7),
    *(8, 9),
)
DATA: Final = 0
FIN: Final = 1
CANCEL: Final = 5
REFUSED: Final = 3

_VERSION: Final = 0x8003
_HEADERS_MAX: Final = 1000
_BLOCK_BYTES_MAX: Final = 1 << 20
_FRAME_BYTES_MAX: Final = 1 << 24
_DATA_BYTES_MAX: Final = 64 << 10
_ID: Final = 0x7FFFFFFF


class SpdyError(Exception):
    """The received bytes are not SPDY/3.1."""


class Frame(NamedTuple):
    """A frame that concerns a stream, or (id 0) the connection."""

    kind: int
    id: int
    data: bytes = b""
    headers: Mapping[str, str] = {}
    is_last: bool = False
    """Whether its sender closes its side of the stream."""
    status: int = 0


class Codec:
    """One connection."""

    def __init__(self, *, is_client: bool) -> None:
        """is_client: a client's streams have odd numbers."""
        self.is_client: Final = is_client
        self._next_id = 1 if is_client else 2
        self._received = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def receive(self, data: bytes) -> Iterator[Frame]:
        """Yield the complete frames; raises SpdyError."""
        received = self._received
        received += data
        while len(received) >= 8:
            length = int.from_bytes(received[5:8], "big")
            if len(received) < 8 + length:
                return
            head, flags = int.from_bytes(received[:4], "big"), received[4]
            payload = bytes(received[8 : 8 + length])
            del received[: 8 + length]
            if head >> 31:
                if (frame := self._control(head, flags, payload)) is not None:
                    yield frame
            else:
                yield Frame(DATA, head, payload, is_last=bool(flags & FIN))

    def _control(self, head: int, flags: int, payload: bytes) -> Frame | None:
        if head >> 16 != _VERSION:
            raise SpdyError(f"unsupported version {(head >> 16) & 0x7FFF}")
        kind = head & 0xFFFF
        if kind in (SETTINGS, WINDOW_UPDATE):
            return None
        if len(payload) < 4:
            raise SpdyError("a frame is too short")
        number = int.from_bytes(payload[:4], "big")
        if kind == PING:
            return Frame(PING, 0, status=number)
        stream = number & _ID
        if kind == RST_STREAM:
            return Frame(RST_STREAM, stream, status=int.from_bytes(payload[4:8], "big"))
        if kind == GOAWAY:
            return Frame(GOAWAY, 0, status=number)
        is_last = bool(flags & FIN)
        if kind == SYN_STREAM:
            return Frame(kind, stream, b"", self._headers(payload[10:]), is_last)
        if kind in (SYN_REPLY, HEADERS):
            return Frame(kind, stream, b"", self._headers(payload[4:]), is_last)
        return None  # unknown frames are skipped

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            data = self._inflate.decompress(block, _BLOCK_BYTES_MAX)
        except zlib.error as error:
            raise SpdyError(f"headers cannot be read: {error}") from error
        if self._inflate.unconsumed_tail:
            raise SpdyError("headers are too large")
        at = 4
        count = int.from_bytes(data[:4], "big")
        if count > _HEADERS_MAX:
            raise SpdyError("there are too many headers")
        headers = {}
        for _ in range(count):
            parts = []
            for _ in range(2):
                size = int.from_bytes(data[at : at + 4], "big")
                at += 4
                if at + size > len(data):
                    raise SpdyError("headers are truncated")
                parts.append(data[at : at + size].decode("utf-8", "replace"))
                at += size
            headers[parts[0].lower()] = parts[1].partition("\0")[0]
        return headers

    def syn_stream(self, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Open a stream; return its number and the frame to send."""
        stream = self._next_id
        self._next_id += 2
        payload = struct.pack(">IIBB", stream, 0, 0, 0) + self._block(headers)
        return stream, _control_frame(SYN_STREAM, 0, payload)

    def reply(self, stream: int, *, fin: bool = False) -> bytes:
        """Return the answer to a stream that was opened."""
        payload = struct.pack(">I", stream) + self._block({})
        return _control_frame(SYN_REPLY, FIN if fin else 0, payload)

    def data(self, stream: int, data: bytes, *, fin: bool = False) -> bytes:
        """Return data of a stream, in one frame or several."""
        out = bytearray()
        pieces = [data[at : at + _DATA_BYTES_MAX] for at in range(0, len(data), _DATA_BYTES_MAX)]
        for number, piece in enumerate(pieces or [b""], 1):
            flags = FIN if fin and number >= len(pieces) else 0
            out += struct.pack(">II", stream, (flags << 24) | len(piece)) + piece
        return bytes(out)

    def reset(self, stream: int, status: int = CANCEL) -> bytes:
        """Return the frame that resets a stream."""
        return _control_frame(RST_STREAM, 0, struct.pack(">II", stream, status))

    def ping(self, number: int) -> bytes:
        """Return a ping, or the answer to one."""
        return _control_frame(PING, 0, struct.pack(">I", number))

    def goaway(self, last_id: int) -> bytes:
        """Return the frame that announces the end of the connection (GOAWAY)."""
        return _control_frame(GOAWAY, 0, struct.pack(">II", last_id, 0))

    def _block(self, headers: Mapping[str, str]) -> bytes:
        raw = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for each in (name.lower().encode(), value.encode()):
                raw += struct.pack(">I", len(each)) + each
        return self._deflate.compress(raw) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def _control_frame(kind: int, flags: int, payload: bytes) -> bytes:
    assert len(payload) < _FRAME_BYTES_MAX, "headers are truncated"
    return struct.pack(">II", (_VERSION << 16) | kind, (flags << 24) | len(payload)) + payload
