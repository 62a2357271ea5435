"""Upgrades of connections: to a WebSocket, or to SPDY/3.1.

wire = await command_wire(request, answer, wants)       exec and attach
forwarder = await forwarding(request, answer)           port-forward
"""

from collections.abc import Sequence
from typing import Final

from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.request import Request
from kvstack.component.streams import websocket
from kvstack.component.streams.spdy.session import Session

WEB_SOCKETS: Final = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "",
)
SPDY_COMMANDS: Final = (
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
)
TUNNEL: Final = "SPDY/3.1+"
PORT_FORWARD: Final = "portforward.k8s.io"
_PROTOCOLS: Final = "X-Stream-Protocol-Version"


class UpgradeError(Exception):
    """A client and this server do not speak the same."""

    def __init__(self, code: int, text: str, accepted: Sequence[str] = ()) -> None:
        """accepted: the supported protocols, if none matches."""
        super().__init__(text)
        self.code = code
        self.text = text
        self.headers = [("X-Accepted-Stream-Protocol-Versions", each) for each in accepted]


def web_socket(
    request: Request, answer: Answer, protocols: Sequence[str]
) -> tuple[websocket.WebSocket, str]:
    """Accept a WebSocket; return it and its protocol; raises UpgradeError."""
    protocol = websocket.chosen(request, protocols)
    if protocol is None:
        raise UpgradeError(403, "")
    return websocket.accept(request, answer, protocol), protocol


def spdy(request: Request, answer: Answer, protocols: Sequence[str]) -> tuple[Session, str]:
    """Accept a connection of SPDY/3.1; return it and its protocol; raises UpgradeError."""
    if not request.may_upgrade or request.header("upgrade").upper() != "SPDY/3.1":
        shown = {name.title(): value for name, value in request.headers}
        raise UpgradeError(400, f"unable to upgrade: missing upgrade headers in request: {shown!r}")
    values = request.header_values(_PROTOCOLS.lower())
    names = [each.strip() for value in values for each in value.split(",") if each.strip()]
    if not names:
        raise UpgradeError(
            400,
            f"unable to upgrade: header {_PROTOCOLS} does not exist in request "
            f"with {len(request.headers)} headers",
        )
    protocol = next((each for each in names if each in protocols), "")
    if not protocol:
        text = (
            "unable to upgrade: unable to negotiate protocol: client supports "
            f"[{' '.join(names)}], server accepts [{' '.join(protocols)}]"
        )
        raise UpgradeError(403, text, protocols)
    socket = answer.upgrade("SPDY/3.1", [(_PROTOCOLS, protocol)])
    return Session(socket, is_client=False), protocol


def tunnel(request: Request, answer: Answer) -> Session:
    """Accept SPDY/3.1 within a WebSocket, for port-forward; raises UpgradeError."""
    if f"{TUNNEL}{PORT_FORWARD}" not in websocket.offered(request):
        raise UpgradeError(400, "unable to upgrade: no tunneling spdy protocols provided")
    socket = websocket.accept(request, answer, f"{TUNNEL}{PORT_FORWARD}")
    return Session(websocket.TunnelPipe(socket), is_client=False)


def is_tunnel(request: Request) -> bool:
    """Whether a client offers SPDY/3.1 within a WebSocket."""
    return any(each.startswith(TUNNEL) for each in websocket.offered(request))
