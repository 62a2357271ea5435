"""Headers for browsers (CORS, HSTS), and protection against pages of other sites.

    rules = BrowserRules(patterns, ["max-age=31536000"])
    rules.check(request)                            ApiError for what another site makes it do
    if rules.answers(request, reply): return        a question before a request is answered at once

Without patterns no CORS headers are sent, so that browsers let no other site read answers.

A browser may have a client certificate, and kubectl proxy adds credentials to every request. A page
of any site could then write (a body without a media type needs no preflight), or open a WebSocket,
which browsers let it read. Such requests are refused, unless the page has credentials of its own (a
token) or its site is allowed. Browsers name the page's site (`Sec-Fetch-Site`, and `Origin` for
WebSockets); other programs do not and are not affected.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.text.go_patterns import Pattern
from kvstack.apiserver.http.answers import Headers, Reply
from kvstack.apiserver.policy.authentication.requests import PROTOCOL_PREFIX, protocols_of
from kvstack.component.http.serving.request import Request

_SHARED: Final[Headers] = [
    ("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        "Access-Control-Allow-Headers",
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization,"
        " X-Requested-With, If-Modified-Since",
    ),
    ("Access-Control-Expose-Headers", "Date"),
    ("Access-Control-Allow-Credentials", "true"),
]


_OTHERS: Final = frozenset(("cross-site", "same-site"))
_OWN: Final = frozenset(("same-origin", "none"))
"""None: the user typed the address, or chose a bookmark."""
_READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_PORTS: Final = {"http": 80, "https": 443}
_REFUSAL: Final = (
    "a page of another site may not use the credentials of the browser or of kubectl proxy;"
    " --cors-allowed-origins names sites that may"
)


class BrowserRules:
    """The rules of one server."""

    def __init__(self, origins: Sequence[Pattern], transport_security: Sequence[str]) -> None:
        """Let origins that match a pattern read answers.

        transport_security: the directives of Strict-Transport-Security; empty: not sent.
        """
        self._origins: Final = tuple(origins)
        self._always: Final[Headers] = []
        if transport_security:
            self._always.append(("Strict-Transport-Security", "; ".join(transport_security)))

    def check(self, request: Request) -> None:
        """Refuse unsafe requests of a page of another site; raises ApiError."""
        if request.may_upgrade and request.header("upgrade"):
            is_foreign = _is_foreign_socket(request)
        elif request.method in _READING:
            return
        else:
            is_foreign = request.header("sec-fetch-site") in _OTHERS
        if is_foreign and not _has_own_credentials(request) and not self._names(request):
            raise status.failure(403, "Forbidden", _REFUSAL)

    def _names(self, request: Request) -> bool:
        """Return whether a pattern matches the page's origin."""
        origin = request.header("origin")
        return bool(origin) and any(each.search(origin) for each in self._origins)

    def answers(self, request: Request, reply: Reply) -> bool:
        """Add headers to an answer; return whether the request is answered (a preflight)."""
        reply.extra += self._always
        origin = request.header("origin")
        if not origin or not self._names(request):
            return False
        reply.extra += [("Access-Control-Allow-Origin", origin), *_SHARED]
        if request.method != "OPTIONS":
            return False
        reply.send_nothing(204)
        return True


def _has_own_credentials(request: Request) -> bool:
    """Return whether a page sent a token, which no browser adds on its own."""
    if request.header("authorization"):
        return True
    offered = protocols_of(request.header_values("sec-websocket-protocol"))
    return any(each.startswith(PROTOCOL_PREFIX) for each in offered)


def _is_foreign_socket(request: Request) -> bool:
    """Return whether a page of another site opens a WebSocket; not all browsers say so."""
    site, origin = request.header("sec-fetch-site"), request.header("origin")
    if site:
        return site not in _OWN
    if not origin:
        return False
    try:
        page, server = urlsplit(origin), urlsplit(f"//{request.header('host')}")
        same_port = (page.port or _PORTS.get(page.scheme)) == (server.port or 443)
    except ValueError:
        return True
    if page.hostname and page.hostname == server.hostname and same_port:
        return False
    # Through kubectl proxy the page is served from the user's own machine.
    return not _is_loopback(page.hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
