"""Headers of forwarded requests and answers.

Hop-by-hop headers are dropped (`Connection` and those it names, `Transfer-Encoding`, `Upgrade`
except for an upgrade, …), and so are the client's credentials, which are for this server only.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from kvstack.apiserver.policy.authentication.requests import without_token
from kvstack.component.http.hop_by_hop import HOP_BY_HOP
from kvstack.component.http.serving.request import Request

Header: TypeAlias = tuple[str, str]

_REWRITTEN: Final = frozenset(
    ("authorization", "content-length", "expect", "host", "x-forwarded-for", "x-forwarded-uri")
)
_PROTOCOLS: Final = "sec-websocket-protocol"
_IDENTITIES: Final = ("impersonate-", "x-remote-")
_NOT_ANSWERED: Final = frozenset(
    (
        "access-control-allow-credentials",
        "access-control-allow-headers",
        "access-control-allow-methods",
        "access-control-allow-origin",
        "content-length",
        # A page behind `proxy` may register a service worker for its own path, but not for this
        # server's origin, where it would intercept the dashboard.
        "service-worker-allowed",
    )
)


def of_request(request: Request) -> list[Header]:
    """Return the headers of a forwarded request, without its length."""
    named = _header_names(request.header_values("connection"))
    passed = [
        (name, value)
        for name, value in request.headers
        if name not in HOP_BY_HOP
        and name not in _REWRITTEN
        and name not in named
        and not name.startswith(_IDENTITIES)
        and name != _PROTOCOLS
    ]
    if "trailers" in [each.strip() for each in request.header("te").split(",")]:
        passed.append(("te", "trailers"))
    return [("host", request.header("host")), *passed, _way(request)]


def of_upgrade(request: Request) -> list[Header]:
    """Return the headers of a forwarded upgrade request."""
    passed = [
        (name, value)
        for name, value in request.headers
        if name not in _REWRITTEN
        and not name.startswith(_IDENTITIES)
        and name not in ("connection", _PROTOCOLS)
    ]
    # The subprotocols may include a token.
    protocols = without_token(request.header_values(_PROTOCOLS))
    if protocols:
        passed.append((_PROTOCOLS, ", ".join(protocols)))
    host = ("host", request.header("host"))
    return [host, ("connection", "Upgrade"), *passed, _way(request)]


def of_answer(headers: Iterable[Header]) -> Iterator[Header]:
    """Return the headers of a forwarded answer, without its length."""
    kept = list(headers)
    named = _header_names(value for name, value in kept if name.lower() == "connection")
    for name, value in kept:
        lower = name.lower()
        if lower not in HOP_BY_HOP and lower not in _NOT_ANSWERED and lower not in named:
            yield name, value


def _header_names(values: Iterable[str]) -> set[str]:
    return {each.strip().lower() for value in values for each in value.split(",")}


def _way(request: Request) -> Header:
    """Return the X-Forwarded-For header."""
    address = request.connection.peer.rpartition(":")[0].strip("[]")
    return "x-forwarded-for", ", ".join([*request.header_values("x-forwarded-for"), address])
