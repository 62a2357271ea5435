"""WebSocket beside the gateway: one JSON message a frame, both ways, as etcd's proxy does it.

    GET /v3/watch  Upgrade: websocket  Sec-WebSocket-Protocol: Bearer, TOKEN
      ◄─ 101  Sec-WebSocket-Protocol: Bearer
      ─► {"create_request":{...}}         ◄─ {"result":{...}}      ◄─ {"result":{...}}

Each message is a piece of a POST's body, each line of its answer a message. The token comes with
the protocol or in a cookie named token, since a browser can set no other header. What the gateway
refuses is a message too; then the connection is closed.

Which paths are upgraded is decided by who calls; for what is, `websocket_session` is loaded.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from kvstore.http.exchange import Headers, Request, Responder, plain_error

Handler = Callable[[Request, Responder], Awaitable[None]]

_VERSION: Final = "13"


def is_upgrade(request: Request) -> bool:
    """Tell whether a client asks for a WebSocket."""
    return _has_token(request, "connection", "upgrade") and _has_token(
        request, "upgrade", "websocket"
    )


class WebSockets:
    """Lets a handler of streams serve WebSockets as well."""

    def __init__(self, handler: Handler, message_bytes_max: int) -> None:
        """Pass requests to handler; close connections that send longer messages."""
        self._handler = handler
        self._message_bytes_max = message_bytes_max

    async def serve(self, request: Request, respond: Responder) -> None:
        """Answer one request, upgraded if it asks for it."""
        if not is_upgrade(request):
            await self._handler(request, respond)
            return
        key = request.header("sec-websocket-key")
        if request.method != "GET":
            await plain_error(respond, 405, "Method Not Allowed", _refusal())
        elif request.header("sec-websocket-version") != _VERSION or not key:
            await plain_error(respond, 400, "Bad Request", _refusal())
        else:
            from kvstore.http.websocket_session import Session, acceptance

            socket = await respond.upgrade(acceptance(request, key))
            await Session(socket, self._message_bytes_max).run(self._handler, request)


def _refusal() -> Headers:
    return [("Sec-Websocket-Version", _VERSION)]


def _has_token(request: Request, name: str, token: str) -> bool:
    values = [value for each, value in request.headers if each == name]
    return any(part.strip().lower() == token for value in values for part in value.split(","))
