"""A transport over HTTP/1.1 with TLS: connections are kept and used again.

    transport = OverHttp("https://127.0.0.1:6443", Credentials(token="…"), ca=pem)

aiohttp speaks HTTP; which certificates are shown and believed is said here. A token file is read
again every minute, as service accounts' tokens are renewed in place.
"""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvstack.agents.client.transport import UnreachableError

if TYPE_CHECKING:
    import aiohttp

_TOKEN_AGE_S: Final = 60.0
_CONNECTIONS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who asks; all empty: nobody."""

    token: str = ""
    token_file: str = ""
    certificate: bytes = b""
    """PEM, with its chain."""
    key: bytes = b""
    """PEM."""


class _Response:
    """An answer of aiohttp."""

    __slots__ = ("_response", "status")

    def __init__(self, response: "aiohttp.ClientResponse") -> None:
        self._response = response
        self.status = response.status

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    async def read(self) -> bytes:
        import aiohttp

        try:
            return await self._response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_text(error)) from error

    async def pieces(self) -> AsyncIterator[bytes]:
        import aiohttp

        try:
            async for piece in self._response.content.iter_any():
                yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_text(error)) from error

    def close(self) -> None:
        self._response.close()


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
        """Ask the server at an URL; ca: PEM of the authorities to believe (empty: the system's)."""
        self._server = server.rstrip("/")
        self._credentials = credentials
        self._tls = _tls(credentials, ca, insecure=insecure) if server.startswith("https") else None
        self._server_name = server_name or None
        self._token = credentials.token
        self._token_until = 0.0
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeout_s: float,
    ) -> _Response:
        """Send a request."""
        # Loaded by the first request: agents beside the API server ask it without a socket.
        import aiohttp
        from yarl import URL

        token = self._current_token()
        if token:
            headers = [*headers, ("Authorization", f"Bearer {token}")]
        session = self._session
        if session is None:
            # The headers are the caller's alone, and bodies come as they are.
            session = self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS_MAX, ssl=self._tls or False),
                timeout=aiohttp.ClientTimeout(total=None),
                skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=1 << 20,
            )
        try:
            async with asyncio.timeout(timeout_s):
                response = await session.request(
                    method,
                    URL(self._server + target, encoded=True),
                    headers=headers,
                    data=body or None,
                    allow_redirects=False,
                    server_hostname=self._server_name,
                )
        except TimeoutError as error:
            raise UnreachableError(f"no answer within {timeout_s} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError(_text(error)) from error
        return _Response(response)

    def use_token(self, token: str) -> None:
        """Ask with another token from now on."""
        self._token = token

    async def close(self) -> None:
        """Give up all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _current_token(self) -> str:
        if self._credentials.token_file:
            now = asyncio.get_running_loop().time()
            if now >= self._token_until:
                self._token = Path(self._credentials.token_file).read_text("utf-8").strip()
                self._token_until = now + _TOKEN_AGE_S
        return self._token


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _tls(credentials: Credentials, ca: bytes, *, insecure: bool) -> ssl.SSLContext:
    """Return what TLS needs to know; raises ssl.SSLError for what is no certificate."""
    context = ssl.create_default_context(cadata=ca.decode() if ca else None)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credentials.certificate:
        # OpenSSL takes a client's pair from files alone.
        with tempfile.TemporaryDirectory() as folder:
            cert, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
            cert.write_bytes(credentials.certificate)
            key.touch(mode=0o600)
            key.write_bytes(credentials.key)
            context.load_cert_chain(cert, key)
    return context
