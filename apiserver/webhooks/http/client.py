"""Requests over connections that are kept.

    client = HttpClient(resolve)
    answer = await client.request("POST", url, head, body, context=context, bytes_max=1 << 20)

A kept connection that the other side closed meanwhile is replaced. The caller bounds the time, and
follows what redirects it likes.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kvstack.apiserver.webhooks.http.answers import HttpAnswer
from kvstack.apiserver.webhooks.http.connection import ClosedError, Connection
from kvstack.apiserver.webhooks.http.dialling import Address, addresses_of, dial

KEEP_S: Final = 90.0
_PORTS: Final = {"http": 80, "https": 443}

Resolve = Callable[[str, int], Awaitable[list[Address]]]


class UrlError(ValueError):
    """A URL that cannot be asked."""


class Site(NamedTuple):
    """Where a URL leads."""

    host: str
    port: int
    is_secure: bool
    target: str
    """Of the request line."""
    host_header: str


class _Key(NamedTuple):
    host: str
    port: int
    context: ssl.SSLContext | None
    name: str


class _Idle(NamedTuple):
    connection: Connection
    since_s: float


class HttpClient:
    """Sends requests; belongs to one event loop."""

    def __init__(self, resolve: Resolve = addresses_of) -> None:
        """Dial nobody yet; resolve: finds the addresses of a host and port, or raises OSError."""
        self._resolve: Final = resolve
        self._idle: dict[_Key, list[_Idle]] = {}
        self._open: set[Connection] = set()
        self._is_closed = False
        self._sweep: asyncio.TimerHandle | None = None

    async def request(
        self,
        method: str,
        url: str,
        head: str,
        body: bytes,
        *,
        context: ssl.SSLContext | None,
        bytes_max: int,
        server_name: str = "",
    ) -> HttpAnswer:
        """Return what is answered.

        head: lines of headers, each with its end. context: of TLS, for https. server_name: that the
        certificate must be for; empty: the host. Raises AnswerError, OSError and UrlError.
        """
        site = site_of(url)
        request = (
            f"{method} {site.target} HTTP/1.1\r\nHost: {site.host_header}\r\n{head}"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode("latin-1") + body
        secure = context if site.is_secure else None
        key = _Key(site.host, site.port, secure, server_name or site.host)
        while True:
            connection = self._kept(key) or await self._opened(key)
            is_kept = connection.uses > 0
            try:
                answer = await connection.exchange(request, bytes_max)
            except (ClosedError, ConnectionResetError, BrokenPipeError):
                # A kept connection may be closed at the moment it is used again.
                if not is_kept or self._is_closed:
                    raise
                continue
            if connection.is_usable:
                self._keep(key, connection)
            return answer

    def close(self) -> None:
        """Close all connections; what is asked from now on, or waits, fails."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for each in list(self._open):
            each.close()
        self._idle.clear()

    def _kept(self, key: _Key) -> Connection | None:
        idle = self._idle.get(key)
        return idle.pop().connection if idle else None

    async def _opened(self, key: _Key) -> Connection:
        addresses = await self._resolve(key.host, key.port)
        sock = await dial(addresses, key.context, key.name)
        loop = asyncio.get_running_loop()
        connection = Connection(loop, sock, lambda ended: self._forget(key, ended))
        self._open.add(connection)
        if self._is_closed:
            connection.close()
        return connection

    def _keep(self, key: _Key, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle.setdefault(key, []).append(_Idle(connection, loop.time()))
        if self._sweep is None:
            self._sweep = loop.call_later(KEEP_S, self._end_old)

    def _forget(self, key: _Key, ended: Connection) -> None:
        """Take note that a connection was closed."""
        self._open.discard(ended)
        idle = self._idle.get(key, [])
        idle[:] = [each for each in idle if each.connection is not ended]

    def _end_old(self) -> None:
        """Close what nobody has used for long."""
        loop = asyncio.get_running_loop()
        since_s = loop.time() - KEEP_S
        self._sweep = None
        for idle in self._idle.values():
            for each in [each for each in idle if each.since_s <= since_s]:
                each.connection.close()
        self._idle = {key: idle for key, idle in self._idle.items() if idle}
        if self._idle:
            # The last is used first, so the first of each has waited longest.
            oldest_s = min(idle[0].since_s for idle in self._idle.values())
            self._sweep = loop.call_at(oldest_s + KEEP_S, self._end_old)


@lru_cache(1024)
def site_of(url: str) -> Site:
    """Return where a URL leads; raises UrlError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UrlError(f"parse {url!r}: {error}") from None
    host, default = parts.hostname, _PORTS.get(parts.scheme)
    if not host or default is None or not url.isascii() or not url.isprintable() or " " in url:
        raise UrlError(f"{url!r} is no URL of http or https")
    target = parts.path or "/"
    if parts.query:
        target = f"{target}?{parts.query}"
    shown = f"[{host}]" if ":" in host else host
    shown = shown if port in (None, default) else f"{shown}:{port}"
    return Site(host, port or default, parts.scheme == "https", target, shown)
