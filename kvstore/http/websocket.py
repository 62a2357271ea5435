"""WebSockets for the JSON gateway: one JSON message a frame, both ways, as in etcd's gateway.

    GET /v3/watch  Upgrade: websocket  Sec-WebSocket-Protocol: Bearer, TOKEN
      ◄─ 101  Sec-WebSocket-Protocol: Bearer
      ─► {"create_request":{...}}         ◄─ {"result":{...}}      ◄─ {"result":{...}}

The handler sees a POST: each message is a piece of its body, and each line of its answer is sent as
a message. The token comes with the protocol or in a cookie named token, since a browser cannot set
other headers. An error of the gateway is sent as a message, then the connection is closed.

The caller decides which paths can be upgraded. `websocket_session` is loaded at the first upgrade.
"""

from typing import Final

from kvstore.batch import HttpHeaders
from kvstore.http.exchange import PageHandler, PageRequest, Responder, plain_error

_VERSION: Final = "13"


def is_upgrade(request: PageRequest) -> bool:
    """Return whether a client asks for a WebSocket."""
    return _has_token(request, "connection", "upgrade") and _has_token(
        request, "upgrade", "websocket"
    )


class WebSockets:
    """Serves WebSockets with a handler of streams."""

    def __init__(self, handler: PageHandler, message_bytes_max: int) -> None:
        """Pass requests to handler; close connections that send longer messages."""
        self._handler = handler
        self._message_bytes_max = message_bytes_max

    async def serve(self, request: PageRequest, respond: Responder) -> None:
        """Answer one request, with an upgrade if it asks for one."""
        if not is_upgrade(request):
            await self._handler(request, respond)
            return
        key = request.header("sec-websocket-key")
        if request.method != "GET":
            await plain_error(respond, 405, "Method Not Allowed", _version_header())
        elif request.header("sec-websocket-version") != _VERSION or not key:
            await plain_error(respond, 400, "Bad Request", _version_header())
        else:
            from kvstore.http.websocket_session import WebSocketSession, acceptance

            connection = await respond.upgrade(acceptance(request, key))
            session = WebSocketSession(connection, self._message_bytes_max)
            await session.run(self._handler, request)


def _version_header() -> HttpHeaders:
    return [("Sec-Websocket-Version", _VERSION)]


def _has_token(request: PageRequest, name: str, token: str) -> bool:
    values = [value for each, value in request.headers if each == name]
    return any(part.strip().lower() == token for value in values for part in value.split(","))
