"""Requests over HTTP/1.1, with or without TLS: aiohttp keeps connections and uses them again."""

import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Final

import aiohttp
from yarl import URL

from kvstack.agents.client.transport import UnreachableError

_CONNECTIONS_MAX: Final = 100


class _Response:
    """An answer of aiohttp."""

    __slots__ = ("_response", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    async def read(self) -> bytes:
        try:
            return await self._response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_text(error)) from error

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._response.content.iter_any():
                yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_text(error)) from error

    def close(self) -> None:
        self._response.close()


class OverHttp1:
    """Connections to one server."""

    def __init__(self, server: str, context: ssl.SSLContext | None, server_name: str) -> None:
        """Connect to nothing yet; context: None for http; server_name: empty: that of the URL."""
        self._server = server
        self._server_name = server_name or None
        # The headers are the caller's alone, and bodies come as they are.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS_MAX, ssl=context or False),
            timeout=aiohttp.ClientTimeout(total=None),
            skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=1 << 20,
        )

    async def request(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> _Response:
        """Send a request; return once the head of the answer is there. Raises UnreachableError."""
        try:
            response = await self._session.request(
                method,
                URL(self._server + target, encoded=True),
                headers=headers,
                data=body or None,
                allow_redirects=False,
                server_hostname=self._server_name,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError(_text(error)) from error
        return _Response(response)

    async def close(self) -> None:
        """Give up all connections."""
        await self._session.close()


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
