"""Logs as messages of a WebSocket.

    Sec-WebSocket-Protocol: binary.k8s.io, or none     a binary message for each piece
    Sec-WebSocket-Protocol: base64.binary.k8s.io       a text message with the piece in base64

The first message is empty: it shows that the stream has begun, even if the log is still empty.
Messages of the client are ignored; when it closes, reading the log stops.
"""

import asyncio
from base64 import b64encode
from http import HTTPStatus
from typing import Final

from kvstack.apiserver.http.answers import Reply
from kvstack.component.http.serving.request import ClientGoneError, Request
from kvstack.component.http.streamed_answer import StreamedAnswer
from kvstack.component.streams import websocket
from kvstack.component.streams.websocket import WebSocket

_BASE64: Final = "base64.binary.k8s.io"
_PROTOCOLS: Final = ("", "binary.k8s.io", _BASE64)
_GOODBYE_S: Final = 5.0
"""How long a client has to close its side."""


async def send_log(answer: StreamedAnswer, request: Request, reply: Reply) -> None:
    """Forward a kubelet's answer to a client that requests a WebSocket; raises AnswerError."""
    protocol = websocket.chosen(request, _PROTOCOLS)
    if protocol is None:
        reply.refuse_upgrade(HTTPStatus.FORBIDDEN)
        return
    socket = websocket.accept(request, reply, protocol)
    copying = asyncio.create_task(_copy(answer, socket, protocol), name="log to a WebSocket")
    reading = asyncio.create_task(_until_closed(socket), name="WebSocket of a log")
    both = (copying, reading)
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if copying.done() and copying.exception() is None:
            # Otherwise a client that is still closing would see a broken connection.
            await asyncio.wait((reading,), timeout=_GOODBYE_S)
    finally:
        for task in both:
            task.cancel()
        ends = await asyncio.gather(*both, return_exceptions=True)
        socket.drop()
    for end in ends:
        if isinstance(end, Exception) and not isinstance(end, ClientGoneError):
            raise end


async def _copy(answer: StreamedAnswer, socket: WebSocket, protocol: str) -> None:
    is_text = protocol == _BASE64
    await socket.send(b"", is_text=is_text)
    async for piece in answer.pieces():
        await socket.send(b64encode(piece) if is_text else piece, is_text=is_text)
    await socket.close()


async def _until_closed(socket: WebSocket) -> None:
    while await socket.receive() is not None:
        pass
