"""WebSockets of a server: messages both ways on a connection that was upgraded.

    socket = accept(request, answer, protocol)
    while (message := await socket.receive()) is not None: …
    await socket.send(b"…"); await socket.close()

`TunnelPipe` makes messages a stream of bytes again: SPDY within a WebSocket.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError, generate_accept_token

from kvstore.http.serving.answer import Upgraded
from kvstore.http.serving.request import ClientGoneError, Request

_MESSAGE_BYTES_MAX: Final = 32 << 20


def is_asked(request: Request) -> bool:
    """Whether a request asks for a WebSocket."""
    return request.may_upgrade and request.header("upgrade").lower() == "websocket"


def offered(request: Request) -> list[str]:
    """Return the protocols that a client offers."""
    names = ",".join(request.header_values("sec-websocket-protocol")).split(",")
    return [each.strip() for each in names if each.strip()]


def chosen(request: Request, spoken: Sequence[str]) -> str | None:
    """Return the first protocol that a client offers and is spoken; None: there is none.

    A client that offers none gets the one that has no name, if that is spoken.
    """
    names = offered(request)
    if not names:
        return "" if "" in spoken else None
    return next((each for each in names if each in spoken), None)


class Upgrading(Protocol):
    """An answer that gives its connection over."""

    def upgrade(self, protocol: str, headers: list[tuple[str, str]]) -> Upgraded:
        """Speak another protocol from now on."""
        ...


def accept(request: Request, answer: Upgrading, protocol: str) -> "WebSocket":
    """Answer the handshake."""
    key = request.header("sec-websocket-key")
    accepted = generate_accept_token(key.encode("latin-1")).decode()
    headers = [("Sec-WebSocket-Accept", accepted)]
    if protocol:
        headers.append(("Sec-WebSocket-Protocol", protocol))
    return WebSocket(answer.upgrade("websocket", headers))


class WebSocket:
    """One connection of a server."""

    def __init__(self, socket: Upgraded) -> None:
        """After the handshake."""
        self._socket = socket
        self._frames = Connection(ConnectionType.SERVER)
        self._messages: list[bytes] = []
        self._begun = bytearray()
        self._is_over = False

    async def receive(self) -> bytes | None:
        """Return the next message; None: the client has gone."""
        while not self._messages:
            if self._is_over:
                return None
            data = await self._socket.read()
            try:
                self._frames.receive_data(data or None)
                for event in self._frames.events():
                    await self._take(event)
            except RemoteProtocolError:
                self._is_over = True
            self._is_over = self._is_over or not data
        return self._messages.pop(0)

    async def _take(self, event: object) -> None:
        if isinstance(event, BytesMessage | TextMessage):
            piece = event.data
            self._begun += piece.encode() if isinstance(piece, str) else piece
            if len(self._begun) > _MESSAGE_BYTES_MAX:
                raise RemoteProtocolError("a message is too long")
            if event.message_finished:
                self._messages.append(bytes(self._begun))
                self._begun.clear()
        elif isinstance(event, Ping):
            await self._socket.write(self._frames.send(event.response()))
        elif isinstance(event, CloseConnection):
            self._is_over = True
            if self._frames.state is ConnectionState.REMOTE_CLOSING:
                await self._socket.write(self._frames.send(event.response()))

    async def send(self, message: bytes, *, is_text: bool = False) -> None:
        """Send a message; raises ClientGoneError."""
        try:
            event = TextMessage(message.decode()) if is_text else BytesMessage(message)
            data = self._frames.send(event)
        except LocalProtocolError as error:  # the client has said goodbye
            raise ClientGoneError from error
        await self._socket.write(data)

    async def close(self) -> None:
        """End the connection in order; raises ClientGoneError."""
        if self._frames.state is ConnectionState.OPEN:
            goodbye = CloseConnection(CloseReason.NORMAL_CLOSURE)
            await self._socket.write(self._frames.send(goodbye))

    def drop(self) -> None:
        """End the connection."""
        self._socket.close()


class TunnelPipe:
    """Bytes in a WebSocket, cut into messages anyhow."""

    def __init__(self, socket: WebSocket) -> None:
        """Carry what its messages hold."""
        self._socket = socket

    async def read(self) -> bytes:
        """Return the next bytes."""
        while (message := await self._socket.receive()) is not None:
            if message:
                return message
        return b""

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        await self._socket.send(data)

    def close(self) -> None:
        """End the connection."""
        self._socket.drop()
