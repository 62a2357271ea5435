"""Requests over connections that are kept alive.

    client = HttpClient(resolve)
    answer = await client.request("POST", url, head, body, context=context, bytes_max=1 << 20)

    async with await client.open("GET", url, head, context=context) as answer:     in pieces
        async for piece in answer.pieces(): …

A kept connection that the other side closed meanwhile is replaced. The caller bounds the time and
follows redirects.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Final, NamedTuple

from kvstack.component.http.answers import AnswerReader, HttpAnswer
from kvstack.component.http.connection import ClosedError, Connection
from kvstack.component.http.dialling import Address, addresses_of, dial, secured, tunnel
from kvstack.component.http.proxies import Proxy
from kvstack.component.http.request_head import (
    BODILESS_METHODS,
    Body,
    Site,
    begun_head,
    is_chunked,
    length_lines,
    site_of,
)
from kvstack.component.http.streamed_answer import StreamedAnswer

KEEP_S: Final = 90.0
_SAFE: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_BROKEN: Final = (ClosedError, ConnectionResetError, BrokenPipeError)

_cached_site: Final = lru_cache(256)(site_of)
_cached_head: Final = lru_cache(256)(begun_head)  # mostly the same, as a webhook's

Resolve = Callable[[str, int], Awaitable[list[Address]]]


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

    def __init__(
        self,
        resolve: Resolve = addresses_of,
        *,
        proxy: Proxy | None = None,
        connections_max: int = 0,
        dial_s: float | None = None,
    ) -> None:
        """Create the client, not connected; resolve returns the addresses of a host and port.

        connections_max: in use at once, others wait; 0: any number. dial_s: of one new connection.
        """
        self._resolve: Final = resolve
        self._proxy: Final = proxy
        self._dial_s: Final = dial_s
        self._slots: Final = asyncio.Semaphore(connections_max) if connections_max else None
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
        """Return the whole answer. Parsed URLs are cached, for repeated requests.

        head: lines of headers, each with its end (`head_lines`); with Host, if it differs
        from the URL's. context: of TLS, for https. server_name: that the certificate must be for;
        empty: the host. Raises AnswerError, OSError and UrlError.
        """
        site = _cached_site(url)
        request = _cached_head(method, *self._target(site, head))
        if body or method not in BODILESS_METHODS:
            request += b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        else:
            request += b"\r\n"
        key = _key(site, context, server_name)
        if self._slots is None:
            return await self._exchange(key, request, bytes_max, is_head=method == "HEAD")
        async with self._slots:
            return await self._exchange(key, request, bytes_max, is_head=method == "HEAD")

    async def _exchange(
        self, key: _Key, request: bytes, bytes_max: int, *, is_head: bool
    ) -> HttpAnswer:
        while True:
            connection = self._take_idle(key) or await self._opened(key)
            is_kept = connection.uses > 0
            reader = AnswerReader(bytes_max, is_head=is_head)
            try:
                answer = await connection.exchange(request, reader)
            except _BROKEN:
                # A kept connection may be closed at the moment it is used again.
                if not is_kept or self._is_closed:
                    raise
                continue
            if connection.is_usable:
                self._keep(key, connection)
            return answer

    async def open(
        self,
        method: str,
        url: str,
        head: str,
        body: Body = None,
        *,
        context: ssl.SSLContext | None,
        server_name: str = "",
        is_upgrade: bool = False,
    ) -> StreamedAnswer:
        """Return an answer once its head is there; the caller closes it.

        head, context, server_name: see `request`. body: that comes in pieces is sent beside the
        answer, in chunks unless the head tells its length. is_upgrade: 101 is an answer.
        Raises AnswerError, OSError and UrlError.
        """
        site = site_of(url)
        text = begun_head(method, *self._target(site, head)) + length_lines(method, head, body)
        key = _key(site, context, server_name)
        if self._slots is not None:
            await self._slots.acquire()
        try:
            while True:
                connection = self._alive(key) or await self._opened(key)
                is_kept = connection.uses > 0
                answer = StreamedAnswer(connection, partial(self._end, key, connection))
                reader = AnswerReader(
                    is_streamed=True, is_head=method == "HEAD", is_upgrade=is_upgrade
                )
                try:
                    await answer.begin(text, body, reader, is_chunked=is_chunked(head, body))
                except BaseException as error:
                    connection.close()
                    await answer.end_sending()
                    may_repeat = is_kept and not body and method in _SAFE
                    if isinstance(error, _BROKEN) and may_repeat and not self._is_closed:
                        continue
                    raise
                return answer
        except BaseException:
            self._release()
            raise

    def close(self) -> None:
        """Close all connections; waiting and later requests fail."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for each in list(self._open):
            each.close()
        self._idle.clear()

    def _target(self, site: Site, lines: str) -> tuple[str, str, str]:
        """Return target, host and headers of a request."""
        if self._proxy is None or site.is_secure:
            return site.target, site.host_header, lines
        whole = f"http://{site.host_header}{site.target}"
        return whole, site.host_header, lines + self._proxy.head

    def _take_idle(self, key: _Key) -> Connection | None:
        idle = self._idle.get(key)
        return idle.pop().connection if idle else None

    def _alive(self, key: _Key) -> Connection | None:
        while (found := self._take_idle(key)) is not None:
            if found.is_alive():
                return found
        return None

    async def _opened(self, key: _Key) -> Connection:
        async with asyncio.timeout(self._dial_s):
            sock = await self._dialled(key)
        loop = asyncio.get_running_loop()
        connection = Connection(loop, sock, lambda ended: self._forget(key, ended))
        self._open.add(connection)
        if self._is_closed:
            connection.close()
        return connection

    async def _dialled(self, key: _Key) -> socket.socket:
        proxy = self._proxy
        if proxy is None:
            sock = await dial(await self._resolve(key.host, key.port))
        else:
            sock = await dial(await addresses_of(proxy.host, proxy.port))
        if key.context is None:
            return sock
        if proxy is not None:
            try:
                await tunnel(sock, key.host, key.port, proxy)
            except BaseException:
                sock.close()
                raise
        return await secured(sock, key.context, key.name)

    def _end(self, key: _Key, connection: Connection) -> None:
        """Note the end of a streamed answer."""
        if connection.is_usable:
            self._keep(key, connection)
        else:
            connection.close()
        self._release()

    def _release(self) -> None:
        if self._slots is not None:
            self._slots.release()

    def _keep(self, key: _Key, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle.setdefault(key, []).append(_Idle(connection, loop.time()))
        if self._sweep is None:
            self._sweep = loop.call_later(KEEP_S, self._end_old)

    def _forget(self, key: _Key, ended: Connection) -> None:
        """Note that a connection was closed."""
        self._open.discard(ended)
        idle = self._idle.get(key, [])
        idle[:] = [each for each in idle if each.connection is not ended]

    def _end_old(self) -> None:
        """Close connections that have been idle for long."""
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


def _key(site: Site, context: ssl.SSLContext | None, server_name: str) -> _Key:
    return _Key(site.host, site.port, context if site.is_secure else None, server_name or site.host)
