"""The server side of WebSockets without IO: the handshake's token, and frames.

    frames = Frames(message_bytes_max)
    for message in frames.receive(data): …        data empty: the client has gone
    send(frames.replies())                        to pings, and to a goodbye
    send(frames.message(b"…"));  send(frames.goodbye())

wsproto implements the protocol. After a protocol error or a longer message of a client, `fault` has
the code to close with. `frame` is one message for any number of clients.
"""

from typing import Final

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Message, Ping, TextMessage
from wsproto.frame_protocol import CloseReason, Opcode
from wsproto.utilities import LocalProtocolError, RemoteProtocolError, generate_accept_token

NORMAL: Final = int(CloseReason.NORMAL_CLOSURE)
PROTOCOL_ERROR: Final = int(CloseReason.PROTOCOL_ERROR)
TOO_BIG: Final = int(CloseReason.MESSAGE_TOO_BIG)
TEXT: Final = int(Opcode.TEXT)
BINARY: Final = int(Opcode.BINARY)
_FIN: Final = 0x80
GOODBYE: Final = bytes((_FIN | Opcode.CLOSE, 2)) + NORMAL.to_bytes(2, "big")
"""The close frame of a connection on which `Frames` has sent none."""


class GoodbyeError(Exception):
    """The connection was closed: nothing more can be sent."""


class Frames:
    """The frames of one connection."""

    __slots__ = ("_begun", "_connection", "_message_bytes_max", "_replies", "fault", "is_over")

    def __init__(self, message_bytes_max: int) -> None:
        """Start after the handshake; longer messages are a fault."""
        self._connection: Final = Connection(ConnectionType.SERVER)
        self._message_bytes_max: Final = message_bytes_max
        self._begun = bytearray()  # of an incomplete message
        self._replies = bytearray()
        self.is_over = False
        """Whether the client sends no more messages."""
        self.fault = 0
        """The code to close the connection with; 0: no error."""

    def receive(self, data: bytes) -> list[bytes]:
        """Take received bytes, empty at the end; return the messages that they complete."""
        messages: list[bytes] = []
        try:
            self._connection.receive_data(data or None)
            for event in self._connection.events():
                self._take(event, messages)
        except RemoteProtocolError:
            self._fail(PROTOCOL_ERROR)
        self.is_over = self.is_over or not data
        return messages

    def _take(self, event: Event, messages: list[bytes]) -> None:
        if self.is_over:
            return
        if isinstance(event, Message):
            piece = event.data
            self._begun += piece.encode() if isinstance(piece, str) else piece
            if len(self._begun) > self._message_bytes_max:
                self._begun.clear()
                self._fail(TOO_BIG)
            elif event.message_finished:
                messages.append(bytes(self._begun))
                self._begun.clear()
        elif isinstance(event, Ping):
            self._replies += self._connection.send(event.response())
        elif isinstance(event, CloseConnection):
            self.is_over = True
            if self._connection.state is ConnectionState.REMOTE_CLOSING:
                self._replies += self._connection.send(event.response())
            elif self._connection.state is ConnectionState.OPEN:  # detected by wsproto, not a frame
                self._fail(int(event.code))

    def _fail(self, code: int) -> None:
        self.is_over = True
        self.fault = self.fault or code

    def replies(self) -> bytes:
        """Return the frames to send in reply to received ones."""
        found = bytes(self._replies)
        self._replies.clear()
        return found

    def message(self, data: bytes, *, is_text: bool = False) -> bytes:
        """Return the frame of a message; raises GoodbyeError."""
        event = TextMessage(data.decode()) if is_text else BytesMessage(data)
        try:
            return self._connection.send(event)
        except LocalProtocolError as error:
            raise GoodbyeError from error

    def goodbye(self, code: int = NORMAL) -> bytes:
        """Return the close frame; empty: it was sent already."""
        try:
            return self._connection.send(CloseConnection(code))
        except LocalProtocolError:
            return b""


def frame(payload: bytes, opcode: int) -> bytes:
    """Return one frame as a server sends it: the same bytes for any number of clients."""
    size = len(payload)
    if size < 126:
        head = bytes((_FIN | opcode, size))
    elif size < 1 << 16:
        head = bytes((_FIN | opcode, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((_FIN | opcode, 127)) + size.to_bytes(8, "big")
    return head + payload


def accept_token(key: str) -> str:
    """Return the answer to a Sec-WebSocket-Key."""
    return generate_accept_token(key.encode("latin-1")).decode()
