"""Passes requests on to aggregated API servers, and their answers back.

    proxy = AggregationProxy(remotes, backends)
    if proxy.takes(path): await proxy.serve(request, reply, route, user)

The client has been authenticated and permitted before. What it says of itself is replaced: tokens
stay here, X-Remote-* and impersonation never come from outside. Watches are streams like any other
answer; upgrades (WebSocket, SPDY) become a connection of their own. Redirects are refused.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from kvstack.apiserver.aggregation.backend import (
    BackendError,
    Backends,
    Body,
    Headers,
    identity_headers,
)
from kvstack.apiserver.aggregation.remotes import Remote, Remotes
from kvstack.apiserver.http.answers import NO_SNIFF, Reply
from kvstack.apiserver.http.routing import Route
from kvstack.apiserver.objects import status
from kvstack.apiserver.policy.attributes import User
from kvstack.apiserver.streams.carrying import carry
from kvstack.apiserver.streams.http_answer import AnswerError, read_head
from kvstore.http.serving.request import Request

if TYPE_CHECKING:
    import aiohttp

_CONNECT_S: Final = 30.0
_WHOLE_BYTES_MAX: Final = 256 << 10
_UNAVAILABLE: Final = "service unavailable\n"
_REDIRECTED: Final = "the backend attempted to redirect this request, which is not permitted\n"
_KEPT_HERE: Final = frozenset(
    (
        "authorization",
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_KEPT_PREFIXES: Final = ("impersonate-", "x-remote-")
_OF_ONE_HOP: Final = frozenset(
    ("connection", "content-length", "keep-alive", "trailer", "transfer-encoding", "upgrade")
)


class AggregationProxy:
    """Serves what others serve."""

    def __init__(self, remotes: Remotes, backends: Backends) -> None:
        """Pass on to these."""
        self._remotes: Final = remotes
        self._backends: Final = backends

    def takes(self, path: str) -> bool:
        """Tell whether another server serves a path."""
        return self._remotes.at(path) is not None

    async def serve(self, request: Request, reply: Reply, route: Route, user: User) -> None:
        """Answer with what the other server answers."""
        path = route.info.path
        if route.at or any(each in ("", ".", "..") for each in path.strip("/").split("/")):
            raise status.generic(404)  # what was permitted must be what is asked for
        await self.pass_to(self._remotes.at(path), request, reply, route, user)

    async def pass_to(
        self, remote: Remote | None, request: Request, reply: Reply, route: Route, user: User
    ) -> None:
        """Answer with what a server answers; None: it is not there any more."""
        if remote is None or not remote.is_available:
            reply.send_text(503, _UNAVAILABLE, NO_SNIFF)
            return
        try:
            if request.may_upgrade:
                await self._upgrade(remote, request, reply, route, user)
            else:
                await self._pass_on(remote, request, reply, route, user)
        except BackendError as error:
            if reply.is_begun:
                raise
            reply.send_text(503, f"error trying to reach service: {error}\n", NO_SNIFF)

    async def _pass_on(
        self, remote: Remote, request: Request, reply: Reply, route: Route, user: User
    ) -> None:
        headers = [*forwarded(request), *identity_headers(user)]
        data: Body = request.body
        if data is None and request.method not in ("GET", "HEAD"):
            data = request.pieces()
            if length := request.header("content-length"):
                headers.append(("Content-Length", length))
        response = await self._backends.request(
            remote, request.method, _target(request, route), headers, data or None
        )
        async with response:
            if 300 <= response.status < 400 and response.status != 304:
                reply.send_text(502, _REDIRECTED, NO_SNIFF)
                return
            await _answer(response, reply, is_endless=route.is_long)

    async def _upgrade(
        self, remote: Remote, request: Request, reply: Reply, route: Route, user: User
    ) -> None:
        host, port = self._backends.address(remote)
        context = self._backends.context(remote)
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    host, port, ssl=context, server_hostname=remote.host
                )
        except (OSError, TimeoutError) as error:
            raise BackendError(str(error) or "i/o timeout") from error
        try:
            writer.write(_upgrade_head(remote, request, _target(request, route), user))
            await writer.drain()
            answer = await read_head(reader)
            if answer.code == 101:
                await carry(answer, (reader, writer), reply)
            else:
                body = b"".join([piece async for piece in answer.pieces()])
                _send_whole(reply, answer.code, answer.headers, body)
        except (AnswerError, OSError) as error:
            raise BackendError(str(error)) from error
        finally:
            writer.close()


async def _answer(response: "aiohttp.ClientResponse", reply: Reply, *, is_endless: bool) -> None:
    import aiohttp  # which has been, by whoever asked

    headers = list(response.headers.items())
    length = response.content_length
    try:
        if not is_endless and length is not None and length <= _WHOLE_BYTES_MAX:
            _send_whole(reply, response.status, headers, await response.read())
            return
        reply.begin_foreign(response.status, _kept(headers), is_endless=is_endless)
        async for piece in response.content.iter_any():
            reply.size += len(piece)
            await reply.answer.write(piece)
    except (aiohttp.ClientError, OSError) as error:
        if reply.is_begun:
            reply.answer.abort()  # the client sees that it is not complete
            return
        raise BackendError(str(error) or type(error).__name__) from error
    reply.answer.finish()


def _send_whole(reply: Reply, code: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
    reply.send_foreign(code, _kept(headers), body)


def _kept(headers: Iterable[tuple[str, str]]) -> Headers:
    return [each for each in headers if each[0].lower() not in _OF_ONE_HOP]


def forwarded(request: Request) -> Headers:
    """Return the headers of a client that another server may see."""
    named = {
        each.strip().lower() for each in request.header("connection").split(",") if each.strip()
    }
    found = [
        (name, value)
        for name, value in request.headers
        if name not in _KEPT_HERE
        and name not in named
        and not name.startswith(_KEPT_PREFIXES)
        and not name.startswith("x-forwarded-")
    ]
    client = request.connection.peer.rpartition(":")[0].strip("[]")
    before = request.header("x-forwarded-for")
    found.append(("X-Forwarded-For", f"{before}, {client}" if before else client))
    found.append(("X-Forwarded-Host", request.header("host")))
    found.append(("X-Forwarded-Proto", "https" if request.connection.is_tls else "http"))
    return found


def _target(request: Request, route: Route) -> str:
    """Return path and query as they are sent on: the path as it was permitted."""
    path = quote(route.info.path, safe="/:@!$&'()*+,;=~")
    query = request.target.partition("?")[2]
    return f"{path}?{query}" if query else path


def _upgrade_head(remote: Remote, request: Request, target: str, user: User) -> bytes:
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {remote.host}"]
    lines += ["Connection: Upgrade", f"Upgrade: {request.header('upgrade')}"]
    headers = [*forwarded(request), *identity_headers(user)]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")
