"""A transport over HTTP with TLS: HTTP/2 if the server supports it, else HTTP/1.1.

    transport = OverHttp("https://127.0.0.1:6443", Credentials(token="…"), ca=pem)

Credentials and trusted authorities are set here. A token file is read again every minute, as
service accounts' tokens are renewed in place. Requests that a server has not processed are sent
again.
"""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kvstack.agents.client.http2.pool import Http2Pool, ServerAddress
from kvstack.agents.client.http2.stream import NotProcessedError, Stream
from kvstack.agents.client.over_http1 import OverHttp1
from kvstack.agents.client.transport import Response, UnreachableError
from kvstack.component.http.tls import KeyPair, client_context
from kvstack.component.metrics.rest_client import REQUESTS

_TOKEN_AGE_S: Final = 60.0
_REPEATS_MAX: Final = 5
_HTTPS: Final = "https"
_HTTPS_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class Credentials:
    """The client's credentials; all empty: anonymous."""

    token: str = ""
    token_file: str = ""
    certificate: bytes = b""
    """PEM, with its chain."""
    key: bytes = b""
    """PEM."""


class OverHttp:
    """Carries requests of one user to one server."""

    def __init__(
        self,
        server: str,
        credentials: Credentials,
        *,
        ca: bytes = b"",
        insecure: bool = False,
        server_name: str = "",
    ) -> None:
        """ca: PEM of the authorities to trust (empty: the system's)."""
        self._server = server.rstrip("/")
        self._credentials = credentials
        url = urlsplit(self._server)
        self._prefix = url.path
        self._ca = ca
        self._is_insecure = insecure
        self._server_name = server_name
        self._token = credentials.token
        self._token_until = 0.0
        self._is_secure = url.scheme == _HTTPS
        host = url.hostname or ""
        self._address = ServerAddress(
            host, url.port or _HTTPS_PORT, server_name or host, url.netloc
        )
        self._http2 = Http2Pool(self._address, self._context()) if self._is_secure else None
        self._http1: OverHttp1 | None = None

    async def request(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeout_s: float,
    ) -> Response:
        """Send a request."""
        now_s = asyncio.get_running_loop().time
        began_s, code = now_s(), 0
        try:
            response = await self._request(method, target, headers, body, timeout_s)
            code = response.status
            return response
        finally:
            REQUESTS.count(self._address.authority, method, code, now_s() - began_s)

    async def _request(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeout_s: float,
    ) -> Response:
        token = self._current_token()
        if token:
            headers = [*headers, ("Authorization", f"Bearer {token}")]
        try:
            async with asyncio.timeout(timeout_s):
                if self._http2 is not None:
                    stream = await self._over_http2(self._http2, method, target, headers, body)
                    if stream is not None:
                        return stream
                return await self._over_http1().request(method, target, headers, body)
        except TimeoutError as error:
            raise UnreachableError(f"no answer within {timeout_s} s") from error

    def use_token(self, token: str) -> None:
        """Use another token from now on."""
        self._token = token

    async def use_certificate(self, certificate: bytes, key: bytes) -> None:
        """Use another certificate (PEM) from now on; requests under way are aborted.

        Raises ValueError for an invalid certificate.
        """
        before = self._credentials
        self._credentials = replace(before, certificate=certificate, key=key)
        try:
            context = self._context()
        except ValueError:
            self._credentials = before
            raise
        await self.close()
        if self._http2 is not None:
            self._http2 = Http2Pool(self._address, context)

    async def close(self) -> None:
        """Give up all connections."""
        if self._http2 is not None:
            self._http2.close()
        if self._http1 is not None:
            await self._http1.close()
            self._http1 = None

    async def _over_http2(
        self,
        pool: Http2Pool,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
    ) -> Stream | None:
        """Return an answer; None: the server does not support HTTP/2."""
        repeats = 0
        while True:
            connection = pool.ready()
            if connection is None:
                try:
                    connection = await pool.open()
                except OSError as error:  # also of TLS
                    raise UnreachableError(str(error) or type(error).__name__) from error
                if connection is None:
                    self._http2 = None
                    return None
            stream = connection.request(method, self._prefix + target, headers, body)
            try:
                await stream.headed()
            except NotProcessedError:
                repeats += 1
                if repeats > _REPEATS_MAX:
                    raise
                continue
            except BaseException:
                stream.close()
                raise
            return stream

    def _over_http1(self) -> OverHttp1:
        if self._http1 is None:
            context = self._context() if self._is_secure else None
            self._http1 = OverHttp1(self._server, context, self._server_name)
        return self._http1

    def _current_token(self) -> str:
        if self._credentials.token_file:
            now = asyncio.get_running_loop().time()
            if now >= self._token_until:
                self._token = Path(self._credentials.token_file).read_text("utf-8").strip()
                self._token_until = now + _TOKEN_AGE_S
        return self._token

    def _context(self) -> ssl.SSLContext:
        """Return the TLS context; raises ValueError for an invalid certificate."""
        given = self._credentials
        shown = KeyPair(given.certificate, given.key)
        return client_context(self._ca, cert=shown, insecure=self._is_insecure)
