"""Watches over WebSocket: the handshake as Go's library has it, and frames of messages.

    GET … Upgrade: websocket, Origin: …  →  101, then one message an event, a close at the end

A client offers one subprotocol at most, which is taken as it is; one that is a token counts only if
the request has no Authorization. Its messages mean nothing; it is answered when it pings or closes.
"""

import base64
import hashlib
from collections.abc import Callable
from typing import Final

from kvstack.apiserver.http.answers import Header, Reply
from kvstack.apiserver.policy.authentication.requests import protocols_of, without_token
from kvstore.http.serving.answer import Upgraded
from kvstore.http.serving.request import Request

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_KEY_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_FIN: Final = 0x80
_MASKED: Final = 0x80
_NORMAL: Final = (1000).to_bytes(2, "big")
_CONTROL_BYTES_MAX: Final = 125
_MESSAGE_BYTES_MAX: Final = 1 << 20


def is_asked(request: Request) -> bool:
    """Tell whether a request asks to speak WebSocket."""
    return request.may_upgrade and request.header("upgrade").lower() == "websocket"


def accept(request: Request, reply: Reply) -> Upgraded | None:
    """Answer the handshake; None: it was refused."""
    key = request.header("sec-websocket-key")
    if not request.header("origin"):
        reply.refuse_upgrade(403)
        return None
    if request.header("sec-websocket-version") != "13":
        reply.refuse_upgrade(426, ("Sec-WebSocket-Version", "13"))
        return None
    offered = request.header_values("sec-websocket-protocol")
    is_known = bool(request.header("authorization"))  # so the token was not asked for
    protocols = protocols_of(offered) if is_known else without_token(offered)
    if not key or len(protocols) > 1:
        reply.refuse_upgrade(400)
        return None
    digest = hashlib.sha1(key.encode("latin-1") + _KEY_SUFFIX).digest()
    headers: list[Header] = [("Sec-WebSocket-Accept", base64.b64encode(digest).decode())]
    if protocols:
        headers.append(("Sec-WebSocket-Protocol", protocols[0]))
    return reply.upgrade("websocket", headers)


def frame(payload: bytes, opcode: int) -> bytes:
    """Return one message as a server sends it."""
    size = len(payload)
    if size < 126:
        head = bytes((_FIN | opcode, size))
    elif size < 1 << 16:
        head = bytes((_FIN | opcode, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((_FIN | opcode, 127)) + size.to_bytes(8, "big")
    return head + payload


def goodbye() -> bytes:
    """Return the frame that ends a connection in order."""
    return frame(_NORMAL, CLOSE)


class Frames:
    """What a client sends, frame by frame: only control frames mean anything."""

    def __init__(self, on_ping: Callable[[bytes], None]) -> None:
        """Take what answers pings."""
        self._on_ping = on_ping
        self._data = bytearray()
        self.is_closed = False
        """Whether the client has said goodbye, or what no client says."""

    def feed(self, data: bytes) -> None:
        """Take bytes as they arrive."""
        self._data += data
        while not self.is_closed and self._take_frame():
            pass

    def _take_frame(self) -> bool:
        data = self._data
        if len(data) < 2:
            return False
        opcode, size, at = data[0] & 0x0F, data[1] & 0x7F, 2
        if size == 126:
            size, at = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, at = int.from_bytes(data[2:10], "big"), 10
        is_control = opcode >= CLOSE
        if (
            not data[1] & _MASKED
            or size > _MESSAGE_BYTES_MAX
            or (is_control and size > _CONTROL_BYTES_MAX)
        ):
            self.is_closed = True
            return False
        if len(data) < at + 4 + size:
            return False
        mask = data[at : at + 4]
        payload = (
            bytes(byte ^ mask[place & 3] for place, byte in enumerate(data[at + 4 : at + 4 + size]))
            if is_control
            else b""
        )
        del data[: at + 4 + size]
        if opcode == CLOSE:
            self.is_closed = True
        elif opcode == PING:
            self._on_ping(payload)
        return True
