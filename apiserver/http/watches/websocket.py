"""Watches over WebSocket: the handshake as Go's library does it.

    GET … Upgrade: websocket, Origin: …  →  101, then one message an event, a close at the end

A client offers at most one subprotocol, which is accepted as it is; one that carries a token counts
only if the request has no Authorization. Frames are read and written by `component.http.websocket`.
"""

from typing import Final

from kvstack.apiserver.http.answers import Header, Reply
from kvstack.apiserver.policy.authentication.requests import protocols_of, without_token
from kvstack.component.http.serving.answer import Upgraded
from kvstack.component.http.serving.request import Request
from kvstack.component.http.websocket import accept_token

MESSAGE_BYTES_MAX: Final = 1 << 20
"""Limit of a client's message; its content is ignored."""


def is_asked(request: Request) -> bool:
    """Return whether a request is a WebSocket handshake."""
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
    is_known = bool(request.header("authorization"))  # the token in the subprotocol was not used
    protocols = protocols_of(offered) if is_known else without_token(offered)
    if not key or len(protocols) > 1:
        reply.refuse_upgrade(400)
        return None
    headers: list[Header] = [("Sec-WebSocket-Accept", accept_token(key))]
    if protocols:
        headers.append(("Sec-WebSocket-Protocol", protocols[0]))
    return reply.upgrade("websocket", headers)
