"""Forwards requests to aggregated API servers.

    proxy = AggregationProxy(remotes, backends, here, outbound)
    if proxy.takes(path): await proxy.serve(context)

The client has been authenticated and authorized. Its identity headers are replaced: tokens are not
forwarded, X-Remote-* and impersonation headers of clients are dropped. Watches are streams like any
other answer; upgrades (WebSocket, SPDY) get a connection of their own. Redirects are refused.
"""

from collections.abc import AsyncIterator, Iterable
from string import punctuation
from typing import Final
from urllib.parse import quote

from kvstack.apimachinery.objects import status
from kvstack.apiserver.aggregation.backend import (
    BackendError,
    Backends,
    Headers,
    identity_headers,
)
from kvstack.apiserver.aggregation.in_process import ServedHere
from kvstack.apiserver.aggregation.remotes import Remote, Remotes
from kvstack.apiserver.http.answers import NO_SNIFF, Reply
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.http.routing import Route
from kvstack.apiserver.streams.carrying import carry
from kvstack.apiserver.webhooks.outbound import API_SERVER, CLOSED, Outbound
from kvstack.component.http.answers import AnswerError
from kvstack.component.http.hop_by_hop import HOP_BY_HOP
from kvstack.component.http.serving.request import Request
from kvstack.component.http.streamed_answer import StreamedAnswer

_WHOLE_BYTES_MAX: Final = 256 << 10
_REFUSAL_BYTES_MAX: Final = 1 << 20
_QUERY_SAFE: Final = punctuation
_UNAVAILABLE: Final = "service unavailable\n"
_REDIRECTED: Final = "the backend attempted to redirect this request, which is not permitted\n"
_KEPT_HERE: Final = HOP_BY_HOP | {"authorization", "content-length", "host"}
_KEPT_PREFIXES: Final = ("impersonate-", "x-remote-")
_OF_ONE_HOP: Final = frozenset(
    ("connection", "content-length", "keep-alive", "trailer", "transfer-encoding", "upgrade")
)


class AggregationProxy:
    """Serves the APIs of aggregated servers."""

    def __init__(
        self, remotes: Remotes, backends: Backends, in_process: ServedHere, outbound: Outbound
    ) -> None:
        """in_process: the APIs that this process serves."""
        self._outbound: Final = outbound
        self._remotes: Final = remotes
        self._backends: Final = backends
        self._here: Final = in_process

    def takes(self, path: str) -> bool:
        """Return whether another server serves a path."""
        return self._remotes.at(path) is not None or self._here.at(path) is not None

    async def serve(self, context: RequestContext) -> None:
        """Forward the request and its answer."""
        route = context.route
        path = route.info.path
        if route.at or any(each in ("", ".", "..") for each in path.strip("/").split("/")):
            raise status.generic(404)  # the authorized path must be the requested one
        here = self._here.at(path)
        if here is not None:
            await here.serve(context)
            return
        await self.pass_to(self._remotes.at(path), context)

    async def pass_to(self, remote: Remote | None, context: RequestContext) -> None:
        """Forward a request to a server; None: the server is gone."""
        reply, request = context.reply, context.request
        name = "" if remote is None else remote.name
        if not self._outbound.may_ask(API_SERVER, name, f"{request.method} {request.target}"):
            reply.send_text(503, f"{name} was not called: {CLOSED}\n", NO_SNIFF)
            return
        if remote is None or not remote.is_available:
            reply.send_text(503, _UNAVAILABLE, NO_SNIFF)
            return
        try:
            if request.may_upgrade:
                await self._upgrade(remote, context)
            else:
                await self._pass_on(remote, context)
        except BackendError as error:
            if reply.is_begun:
                raise
            reply.send_text(503, f"error trying to reach service: {error}\n", NO_SNIFF)

    async def _pass_on(self, remote: Remote, context: RequestContext) -> None:
        request, reply, route = context.request, context.reply, context.route
        headers = [*forwarded(request), *identity_headers(context.user)]
        data: bytes | AsyncIterator[bytes] | None = request.body
        if data is None and request.method not in ("GET", "HEAD"):
            data = request.pieces()
            if length := request.header("content-length"):
                headers.append(("Content-Length", length))
        answer = await self._backends.request(
            remote, request.method, _target(request, route), headers, data or None
        )
        async with answer:
            if 300 <= answer.code < 400 and answer.code != 304:
                reply.send_text(502, _REDIRECTED, NO_SNIFF)
                return
            await _pass_back(answer, reply, is_endless=route.is_long)

    async def _upgrade(self, remote: Remote, context: RequestContext) -> None:
        request, reply = context.request, context.reply
        headers = [
            ("Connection", "Upgrade"),
            ("Upgrade", request.header("upgrade")),
            *forwarded(request),
            *identity_headers(context.user),
        ]
        target = _target(request, context.route)
        answer = await self._backends.request(
            remote, request.method, target, headers, is_upgrade=True
        )
        async with answer:
            if answer.is_upgraded:
                await carry(answer, reply)
                return
            try:
                body = await answer.body(_REFUSAL_BYTES_MAX)
            except (AnswerError, OSError) as error:
                raise BackendError(str(error)) from error
            _send_whole(reply, answer.code, answer.fields, body)


async def _pass_back(answer: StreamedAnswer, reply: Reply, *, is_endless: bool) -> None:
    length = answer.length
    try:
        if not is_endless and length is not None and length <= _WHOLE_BYTES_MAX:
            _send_whole(reply, answer.code, answer.fields, await answer.body(_WHOLE_BYTES_MAX))
            return
        reply.begin_foreign(answer.code, _end_to_end(answer.fields), is_endless=is_endless)
        async for piece in answer.pieces():
            reply.size += len(piece)
            await reply.answer.write(piece)
    except (AnswerError, OSError) as error:
        if reply.is_begun:
            reply.answer.abort()  # the client sees that the answer is incomplete
            return
        raise BackendError(str(error) or type(error).__name__) from error
    reply.answer.finish()


def _send_whole(reply: Reply, code: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
    reply.send_foreign(code, _end_to_end(headers), body)


def _end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    return [each for each in headers if each[0].lower() not in _OF_ONE_HOP]


def forwarded(request: Request) -> Headers:
    """Return the headers of a client that an aggregated server may see."""
    named = {
        each.strip().lower() for each in request.header("connection").split(",") if each.strip()
    }
    headers = [
        (name, value)
        for name, value in request.headers
        if name not in _KEPT_HERE
        and name not in named
        and not name.startswith(_KEPT_PREFIXES)
        and not name.startswith("x-forwarded-")
    ]
    client = request.connection.peer.rpartition(":")[0].strip("[]")
    before = request.header("x-forwarded-for")
    headers.append(("X-Forwarded-For", f"{before}, {client}" if before else client))
    headers.append(("X-Forwarded-Host", request.header("host")))
    headers.append(("X-Forwarded-Proto", "https" if request.connection.is_tls else "http"))
    return headers


def _target(request: Request, route: Route) -> str:
    """Return path and query to send: the path as it was authorized."""
    path = quote(route.info.path, safe="/:@!$&'()*+,;=~")
    query = quote(request.target.partition("?")[2], safe=_QUERY_SAFE)
    return f"{path}?{query}" if query else path
