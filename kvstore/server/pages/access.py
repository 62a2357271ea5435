"""The checks before every page of the client port: host, origin, old paths.

    Host: evil.example (plaintext, not known)          → 421 and etcd's explanation
    Origin: http://evil.example (not named by --cors)  → 403
    OPTIONS anything                                   → 200, empty
    /v3beta/…                                          → /v3/…

`browsers` decides which hosts and origins are served. A response has the CORS headers if --cors
names the origin.
"""

from collections.abc import Callable
from typing import Final

from kvstack.component.logger import Logger
from kvstore.batch import HttpHeaders
from kvstore.http.exchange import (
    PageHandler,
    PageRequest,
    Responder,
    UpgradedConnection,
    plain_error,
)
from kvstore.http.go_text import quote
from kvstore.server.gateway.routes import OLD_PREFIX, PREFIX
from kvstore.server.pages.browsers import BrowserRules

_EXPLANATION: Final = """
etcd received your request, but the Host header was unrecognized.

To fix this, choose one of the following options:
- Enable TLS, then any HTTPS request will be allowed.
- Add the hostname you want to use to the whitelist in settings.
  - e.g. etcd --host-whitelist {host}

This requirement has been added to help prevent "DNS Rebinding" attacks (CVE-2018-5702).
"""
_FOREIGN_ORIGIN: Final = (
    "requests from web pages of {origin} are refused: --cors does not name this origin"
)
_NAMED_CERTIFICATE: Final = (
    "CommonName of client sending a request against gateway will be ignored and not used as "
    "expected"
)


class Access:
    """Passes requests to a handler, or answers them itself."""

    def __init__(
        self,
        handler: PageHandler,
        logger: Logger,
        *,
        rules: BrowserRules,
        is_common_name_refused: Callable[[], bool],
    ) -> None:
        """Guard handler.

        is_common_name_refused returns whether the gateway refuses client certificates with a common
        name: with authentication on, gRPC takes that name as the user, and the gateway does not.
        """
        self._handler = handler
        self._logger = logger
        self._rules = rules
        self._is_common_name_refused = is_common_name_refused

    async def serve(self, request: PageRequest, respond: Responder) -> None:
        """Answer one request, or pass it to the handler."""
        if request.raw_path.startswith(OLD_PREFIX):
            request = _renamed(request)
        host = host_name(request.host)
        if not request.is_tls:
            if not self._rules.is_host_served(request, host):
                self._logger.warning(
                    "rejecting HTTP request to prevent DNS rebinding attacks", host=host
                )
                await plain_error(respond, 421, _EXPLANATION.format(host=quote(host)))
                return
        elif (
            request.common_name
            and request.path.startswith(PREFIX)
            and self._is_common_name_refused()
        ):
            await plain_error(respond, 400, _NAMED_CERTIFICATE)
            return
        if refused := self._rules.refused_origin(request, host):
            self._logger.warning("rejecting an HTTP request from a web page", origin=refused)
            await plain_error(respond, 403, _FOREIGN_ORIGIN.format(origin=quote(refused)))
            return
        headers = self._cors(request)
        if request.method == "OPTIONS":
            await respond.whole(200, headers, b"")
            return
        await self._handler(request, _WithHeaders(respond, headers) if headers else respond)

    def _cors(self, request: PageRequest) -> HttpHeaders:
        allowed = self._rules.allowed_origin(request)
        if not allowed:
            return []
        return [
            ("Access-Control-Allow-Headers", "accept, content-type, authorization"),
            ("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE"),
            ("Access-Control-Allow-Origin", allowed),
        ]


class _WithHeaders:
    """A responder that adds headers to every response."""

    def __init__(self, respond: Responder, headers: HttpHeaders) -> None:
        self._respond = respond
        self._headers = headers

    async def whole(self, status: int, headers: HttpHeaders, body: bytes) -> None:
        await self._respond.whole(status, self._headers + headers, body)

    async def start(self, status: int, headers: HttpHeaders) -> None:
        await self._respond.start(status, self._headers + headers)

    async def write(self, data: bytes) -> None:
        await self._respond.write(data)

    async def finish(self) -> None:
        await self._respond.finish()

    async def upgrade(self, headers: HttpHeaders) -> UpgradedConnection:
        return await self._respond.upgrade(headers)


def host_name(host: str) -> str:
    """Return the host without its port; as it is, if it cannot be split."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        return name if bracket and port.startswith(":") else host
    name, colon, port = host.rpartition(":")
    return name if colon and ":" not in name else host


def _renamed(request: PageRequest) -> PageRequest:
    return PageRequest(
        method=request.method,
        target=request.target.replace(OLD_PREFIX, PREFIX, 1),
        headers=request.headers,
        body=request.body,
        remote_ip=request.remote_ip,
        is_tls=request.is_tls,
        common_name=request.common_name,
    )
