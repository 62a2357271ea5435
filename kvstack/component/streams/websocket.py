"""WebSockets of a server: messages both ways on a connection that was upgraded.

    socket = accept(request, answer, protocol)
    while (message := await socket.receive()) is not None: …
    await socket.send(b"…"); await socket.close()

`TunnelPipe` makes messages a stream of bytes again: SPDY within a WebSocket.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from kvstack.component.http.serving.answer import Upgraded
from kvstack.component.http.serving.request import ClientGoneError, Request
from kvstack.component.http.websocket import Frames, GoodbyeError, accept_token

_MESSAGE_BYTES_MAX: Final = 32 << 20


def is_asked(request: Request) -> bool:
    """Whether a request asks for a WebSocket."""
    return request.may_upgrade and request.header("upgrade").lower() == "websocket"


def offered(request: Request) -> list[str]:
    """Return the protocols that a client offers."""
    names = ",".join(request.header_values("sec-websocket-protocol")).split(",")
    return [each.strip() for each in names if each.strip()]


def chosen(request: Request, supported: Sequence[str]) -> str | None:
    """Return the first protocol that a client offers and is supported; None: there is none.

    A client that offers none gets the one that has no name, if that is supported.
    """
    names = offered(request)
    if not names:
        return "" if "" in supported else None
    return next((each for each in names if each in supported), None)


class Upgrading(Protocol):
    """An answer whose connection can be upgraded."""

    def upgrade(self, protocol: str, headers: list[tuple[str, str]]) -> Upgraded:
        """Switch to another protocol."""
        ...


def accept(request: Request, answer: Upgrading, protocol: str) -> "WebSocket":
    """Answer the handshake."""
    key = request.header("sec-websocket-key")
    headers = [("Sec-WebSocket-Accept", accept_token(key))]
    if protocol:
        headers.append(("Sec-WebSocket-Protocol", protocol))
    return WebSocket(answer.upgrade("websocket", headers))


class WebSocket:
    """One connection of a server."""

    def __init__(self, socket: Upgraded) -> None:
        """Use a connection after the handshake."""
        self._socket = socket
        self._frames = Frames(_MESSAGE_BYTES_MAX)
        self._messages: list[bytes] = []

    async def receive(self) -> bytes | None:
        """Return the next message; None: the client has gone."""
        while not self._messages:
            if self._frames.is_over:
                return None
            self._messages += self._frames.receive(await self._socket.read())
            if replies := self._frames.replies():
                await self._socket.write(replies)
        return self._messages.pop(0)

    async def send(self, message: bytes, *, is_text: bool = False) -> None:
        """Send a message; raises ClientGoneError."""
        try:
            data = self._frames.message(message, is_text=is_text)
        except GoodbyeError as error:
            raise ClientGoneError from error
        await self._socket.write(data)

    async def close(self) -> None:
        """Close the connection with a close frame; raises ClientGoneError."""
        if goodbye := self._frames.goodbye():
            await self._socket.write(goodbye)

    def drop(self) -> None:
        """End the connection."""
        self._socket.close()


class TunnelPipe:
    """A stream of bytes in the messages of a WebSocket."""

    def __init__(self, socket: WebSocket) -> None:
        """Use the messages of a WebSocket."""
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
