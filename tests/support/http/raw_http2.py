"""HTTP/2 by hand, for clients that do not speak well: frames as bytes, answers as frames.

Everything a test sends is its own doing; nothing here acknowledges, waits for windows or checks.
"""

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple, Self, cast
from urllib.parse import unquote

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 3, 4, 6, 7, 8, 9,
)  # fmt: skip
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4


class Frame(NamedTuple):
    """One frame received."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def message(body: bytes, flag: int = 0) -> bytes:
    """Frame one gRPC message."""
    return struct.pack(">BI", flag, len(body)) + body


def request_headers(path: str, **extra: str) -> dict[str, str]:
    """Headers of a call; extra ones with _ for -, and an empty one leaves a header out."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "test",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    headers.update({name.replace("_", "-"): value for name, value in extra.items()})
    return {name: value for name, value in headers.items() if value}


class RawConnection:
    """A socket that has said the preface; the caller says the rest."""

    def __init__(self, target: str, *, timeout_s: float = 10.0, preface: bool = True) -> None:
        host, port = target.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()
        self._decoder.max_header_list_size = 1 << 24
        self._unread = b""
        if preface:
            self.send(PREFACE + frame(SETTINGS, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def headers(self, stream: int, headers: dict[str, str], flags: int = END_HEADERS) -> bytes:
        return frame(HEADERS, flags, stream, self._encoder.encode(list(headers.items())))

    def call(self, stream: int, path: str, body: bytes, *, end: bool = True, **extra: str) -> None:
        """Open a call with raw body bytes."""
        opening = self.headers(stream, request_headers(path, **extra))
        self.send(opening + frame(DATA, END_STREAM if end else 0, stream, body))

    def frames(self) -> Iterator[Frame]:
        """Yield frames until the server closes; a reset by it counts as that."""
        while True:
            while len(self._unread) < 9 or len(self._unread) < 9 + self._payload_bytes():
                with contextlib.suppress(ConnectionError):
                    data = self.socket.recv(65536)
                    if data:
                        self._unread += data
                        continue
                return
            end = 9 + self._payload_bytes()
            head, payload = self._unread[:9], self._unread[9:end]
            self._unread = self._unread[end:]
            yield Frame(head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, payload)

    def _payload_bytes(self) -> int:
        return int.from_bytes(self._unread[:3], "big")

    def _headers(self, frame: Frame) -> dict[str, str]:
        # Without raw=True, hpack returns texts.
        return dict(cast("list[tuple[str, str]]", self._decoder.decode(frame.payload)))

    def answer(self, stream: int) -> tuple[dict[str, str], bytes]:
        """Read until a stream ends; return all its headers and its data."""
        seen: dict[str, str] = {}
        data = b""
        for each in self.frames():
            if each.kind == HEADERS:
                headers = self._headers(each)
                if each.stream == stream:
                    seen.update(headers)
            if each.stream != stream:
                continue
            if each.kind == DATA:
                data += each.payload
            if each.kind == RST_STREAM:
                seen["reset"] = str(int.from_bytes(each.payload, "big"))
                return seen, data
            if each.kind in {DATA, HEADERS} and each.flags & END_STREAM:
                return seen, data
        raise EOFError(f"the connection ended before stream {stream}")

    def status(self, stream: int) -> tuple[int, str]:
        """Read until a call ends; return its gRPC code and text."""
        headers, _ = self.answer(stream)
        return int(headers["grpc-status"]), unquote(headers.get("grpc-message", ""))

    def trailers(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the headers that end a call, with its stream, as calls end."""
        for each in self.frames():
            if each.kind == HEADERS:
                headers = self._headers(each)
                if each.flags & END_STREAM:
                    yield each.stream, headers

    def wait_closed(self) -> list[Frame]:
        """Read until the server closes; TimeoutError if it does not."""
        return list(self.frames())
