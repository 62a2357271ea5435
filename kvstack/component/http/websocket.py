"""WebSockets as a server has them: the handshake's token, and frames; without input or output.

    frames = Frames(message_bytes_max)
    for message in frames.receive(data): …        data empty: the client has gone
    send(frames.replies())                        to pings, and to a goodbye
    send(frames.message(b"…"));  send(frames.goodbye())

wsproto knows the protocol. A client that breaks it, or sends a longer message, is over: `fault` has
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
"""The frame that ends a connection in order, if nothing else was sent by `Frames`."""


class GoodbyeError(Exception):
    """The connection was ended in order: nothing can be sent any more."""


class Frames:
    """The frames of one connection."""

    __slots__ = ("_begun", "_connection", "_message_bytes_max", "_replies", "fault", "is_over")

    def __init__(self, message_bytes_max: int) -> None:
        """Begin after the handshake; longer messages are a fault."""
        self._connection: Final = Connection(ConnectionType.SERVER)
        self._message_bytes_max: Final = message_bytes_max
        self._begun = bytearray()  # of a message that is not whole yet
        self._replies = bytearray()
        self.is_over = False
        """Whether the client sends no more messages."""
        self.fault = 0
        """The code to end the connection with; 0: the client did nothing wrong."""

    def receive(self, data: bytes) -> list[bytes]:
        """Take what has come, empty at the end; return the messages that are whole with it."""
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
            elif self._connection.state is ConnectionState.OPEN:  # wsproto's finding, not a frame
                self._fail(int(event.code))

    def _fail(self, code: int) -> None:
        self.is_over = True
        self.fault = self.fault or code

    def replies(self) -> bytes:
        """Return what is to be sent for what was received."""
        found = bytes(self._replies)
        self._replies.clear()
        return found

    def message(self, data: bytes, *, is_text: bool = False) -> bytes:
        """Return a message as it is sent; raises GoodbyeError."""
        event = TextMessage(data.decode()) if is_text else BytesMessage(data)
        try:
            return self._connection.send(event)
        except LocalProtocolError as error:
            raise GoodbyeError from error

    def goodbye(self, code: int = NORMAL) -> bytes:
        """Return what ends the connection in order; empty: it has been ended."""
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
