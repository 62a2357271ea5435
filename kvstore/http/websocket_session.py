"""A WebSocket after its upgrade: messages are a request's body, lines of the answer are messages.

This module is loaded at the first WebSocket, because most servers never serve one and loading
wsproto would delay each start.
"""

import asyncio
from collections.abc import AsyncIterator
from http.cookies import CookieError, SimpleCookie
from typing import Final

from kvstack.component.http.websocket import NORMAL, Frames, GoodbyeError, accept_token
from kvstore.batch import HttpHeaders
from kvstore.http.exchange import PageHandler, PageRequest, UpgradedConnection

_PIECES_MAX: Final = 16
_TOKEN_COOKIE: Final = "token"
_BEARER: Final = "Bearer"


class WebSocketSession:
    """One connection after its upgrade; its handler sees it as request body and responder."""

    def __init__(self, connection: UpgradedConnection, message_bytes_max: int) -> None:
        self._connection = connection
        self._frames = Frames(message_bytes_max)
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_PIECES_MAX)
        self._line = bytearray()

    async def run(self, handler: PageHandler, request: PageRequest) -> None:
        """Serve until the handler returns or the client closes."""
        inner = PageRequest(
            method="POST",
            target=request.target,
            headers=_forwarded(request),
            body=self,
            remote_ip=request.remote_ip,
            is_tls=request.is_tls,
            common_name=request.common_name,
        )
        handling = asyncio.ensure_future(handler(inner, self))
        reading = asyncio.create_task(self._read(), name="websocket")
        both = (handling, reading)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if handling.done():
                await handling
                await self._close(NORMAL)
            else:
                await reading
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    # The body of the request.

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece

    async def _read(self) -> None:
        """Read messages until the client closes."""
        frames = self._frames
        while data := await self._connection.read():
            messages = frames.receive(data)
            if replies := frames.replies():
                await self._connection.write(replies)
            for message in messages:
                await self._pieces.put(message + b"\n")
            if frames.fault:
                await self._close(frames.fault)
            if frames.is_over:
                return

    async def _close(self, code: int) -> None:
        if goodbye := self._frames.goodbye(code):
            await self._connection.write(goodbye)

    # The answer: each of its lines is a message.

    async def whole(self, status: int, headers: HttpHeaders, body: bytes) -> None:
        await self.write(body)
        await self.finish()

    async def start(self, status: int, headers: HttpHeaders) -> None:
        pass  # after 101 there is no status to send

    async def write(self, data: bytes) -> None:
        self._line += data
        *lines, rest = bytes(self._line).split(b"\n") if b"\n" in data else [self._line]
        self._line = bytearray(rest)
        for line in lines:
            await self._send(bytes(line))

    async def finish(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        await self._send(line)

    async def upgrade(self, headers: HttpHeaders) -> UpgradedConnection:
        raise RuntimeError("a WebSocket cannot be upgraded again")

    async def _send(self, line: bytes) -> None:
        if not line:
            return
        try:
            data = self._frames.message(line, is_text=True)
        except GoodbyeError:
            return  # the client has closed it; the reader ends the session
        await self._connection.write(data)


def acceptance(request: PageRequest, key: str) -> HttpHeaders:
    """Return the headers of the 101 response to a Sec-WebSocket-Key."""
    headers = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", accept_token(key)),
    ]
    if request.header("sec-websocket-protocol").startswith(_BEARER):
        headers.append(("Sec-WebSocket-Protocol", _BEARER))
    return headers


def _forwarded(request: PageRequest) -> HttpHeaders:
    """Return the headers that the handler gets: the page's origin, and the token."""
    headers = [each for each in request.headers if each[0] in {"origin", "referer"}]
    _, _, token = request.header("sec-websocket-protocol").partition("Bearer,")
    authorization = f"{_BEARER} {token.strip(' ')}" if token else ""
    try:
        cookie = SimpleCookie(request.header("cookie")).get(_TOKEN_COOKIE)
    except CookieError:
        cookie = None
    if cookie is not None:
        authorization = f"{_BEARER} {cookie.value}"
    if authorization:
        headers.append(("authorization", authorization))
    return headers
