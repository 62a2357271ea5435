"""Requests proxied to nodes, pods and Services.

    client ── GET /api/v1/nodes/n/proxy/x ──► server ── GET /x ──► kubelet

The target gets the client's request with the path after `proxy`, without its credentials, and with
its origin (`X-Forwarded-For`, `X-Forwarded-Uri`). Redirects and links in pages are rewritten to
lead through the server. An upgrade request takes over its connection.
"""

import posixpath
import zlib
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from kvstack.apimachinery.objects import status
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.streams import forwarded, html_links
from kvstack.apiserver.streams.backends import Backend, Backends, DialError, of_anybody
from kvstack.apiserver.streams.carrying import carry, wants_upgrade
from kvstack.apiserver.verbs.results import Proxying
from kvstack.component.http.answers import AnswerError, MalformedError
from kvstack.component.http.request_head import Body
from kvstack.component.http.serving.request import Request
from kvstack.component.http.streamed_answer import StreamedAnswer

_PATH_SAFE: Final = "/$&+,:;=@-_.~"
_WHOLE_MAX: Final = 256 << 10
"""Up to this size an answer is sent with its length."""
_PAGE_MAX: Final = 32 << 20
"""Up to this size the links of a page are rewritten."""
_GZIP: Final = 31
_DEFLATE: Final = -15
_ENCODINGS: Final = {"": 0, "gzip": _GZIP, "deflate": _DEFLATE}
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_READING: Final = ("GET", "HEAD")


class Proxies:
    """Proxies requests."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends

    async def serve(self, target: Proxying, request: Request, reply: Reply) -> None:
        """Proxy a request and its answer; raises ApiError."""
        is_upgrade = wants_upgrade(request)
        if not target.path and request.method in _READING and not is_upgrade:
            _redirect(target, request, reply)
            return
        try:
            answer = await self._ask(target, request, is_upgrade=is_upgrade)
        except DialError as error:
            if is_upgrade:
                raise status.unknown(f"error dialing backend: {error}") from error
            raise _unreachable(error) from error
        except (AnswerError, OSError) as error:
            raise _unreachable(error) from error
        async with answer:
            try:
                if is_upgrade:
                    await _upgrade(answer, request, reply)
                else:
                    await _pass_back(answer, target, request, reply)
            except (AnswerError, OSError) as error:
                if reply.is_begun:
                    raise
                raise _unreachable(error) from error

    async def _ask(self, target: Proxying, request: Request, *, is_upgrade: bool) -> StreamedAnswer:
        parts = urlsplit(f"//{target.host}")
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORTS[target.scheme]
        context = None
        if target.scheme == "https":
            context = self._backends.of_kubelet() if target.is_kubelet else of_anybody()
        backend = Backend(host, port, context, target.address)
        headers, body = _upgrading(request) if is_upgrade else _request_parts(target, request)
        return await self._backends.ask(
            backend, request.method, _target(target, request), headers, body, is_upgrade=is_upgrade
        )


def _unreachable(error: Exception) -> Exception:
    return status.service_unavailable(f"error trying to reach service: {error}")


def _redirect(target: Proxying, request: Request, reply: Reply) -> None:
    """Redirect a client to the root path with a slash, so that relative links work."""
    query = request.target.partition("?")[2]
    location = f"{quote(target.prefix, safe=_PATH_SAFE)}/" + (f"?{query}" if query else "")
    reply.send_nothing(301, ("Location", location))


def _target(target: Proxying, request: Request) -> str:
    query = request.target.partition("?")[2]
    path = quote(target.path or "/", safe=_PATH_SAFE)
    return f"{path}?{query}" if query else path


def _upgrading(request: Request) -> tuple[list[forwarded.Header], Body]:
    return forwarded.of_upgrade(request), None


async def _upgrade(answer: StreamedAnswer, request: Request, reply: Reply) -> None:
    if answer.is_upgraded:
        await carry(answer, reply)
    elif answer.code < 400:
        raise status.unknown(f"invalid upgrade response: status code {answer.code}")
    else:
        await _send(answer, list(forwarded.of_answer(answer.fields)), request, reply)


async def _pass_back(
    answer: StreamedAnswer, target: Proxying, request: Request, reply: Reply
) -> None:
    headers = list(forwarded.of_answer(answer.fields))
    for position, (name, value) in enumerate(headers):
        if name.lower() == "location":
            headers[position] = (name, _rewrite_url(value, target, request))
    if _is_page(answer):
        await _send_page(answer, headers, target, request, reply)
    else:
        await _send(answer, headers, request, reply)


def _request_parts(target: Proxying, request: Request) -> tuple[list[forwarded.Header], Body]:
    """Return headers and body of a proxied request."""
    escaped = quote(target.path, safe=_PATH_SAFE)
    uri = posixpath.normpath(f"{target.prefix}/{escaped}")
    headers = [*forwarded.of_request(request), ("x-forwarded-uri", _slashed(uri, escaped))]
    length = request.header("content-length")
    has_body = bool(length) or request.header("transfer-encoding") != "" or request.body
    if length:
        headers.append(("content-length", length))
    headers.append(("connection", "close"))
    return headers, _body(request) if has_body else None


async def _body(request: Request) -> AsyncIterator[bytes]:
    if request.body is not None:
        if request.body:
            yield request.body
        return
    async for piece in request.pieces():
        if piece:
            yield piece


def _slashed(path: str, like: str) -> str:
    return f"{path}/" if like.endswith("/") and not path.endswith("/") else path


async def _send(
    answer: StreamedAnswer, headers: list[forwarded.Header], request: Request, reply: Reply
) -> None:
    """Forward an answer as it arrives; a small one with its length."""
    length = answer.length
    if request.method == "HEAD":
        own = [("Content-Length", str(length))] if length is not None else []
        reply.send_as_it_is(answer.code, [*headers, *own], b"")
    elif length is not None and length <= _WHOLE_MAX:
        body = await answer.body(_WHOLE_MAX)
        reply.send_as_it_is(answer.code, headers, body)
    else:
        reply.begin_as_it_is(answer.code, headers)
        async for piece in answer.pieces():
            await reply.answer.write(piece)


def _is_page(answer: StreamedAnswer) -> bool:
    """Return whether an answer is a page whose links can be rewritten."""
    media_type = answer.header("content-type").partition(";")[0].strip()
    is_small = answer.length is None or answer.length <= _PAGE_MAX
    return (
        media_type == "text/html" and answer.header("content-encoding") in _ENCODINGS and is_small
    )


async def _send_page(
    answer: StreamedAnswer,
    headers: list[forwarded.Header],
    target: Proxying,
    request: Request,
    reply: Reply,
) -> None:
    body = await answer.body(_PAGE_MAX)
    bits = _ENCODINGS[answer.header("content-encoding")]
    try:
        page = zlib.decompressobj(bits).decompress(body, _PAGE_MAX) if bits else body
    except zlib.error as error:
        raise MalformedError(str(error)) from error
    page = html_links.rewrite_links(page, lambda url: _rewrite_url(url, target, request))
    if bits:
        packer = zlib.compressobj(wbits=bits)
        page = packer.compress(page) + packer.flush()
    reply.send_as_it_is(answer.code, headers, page)


def _rewrite_url(url: str, target: Proxying, request: Request) -> str:
    """Return a URL of the target as the client can follow it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    own_host = request.header("host")
    if parts.netloc not in ("", target.host, own_host) or not parts.path.startswith("/"):
        return url
    prefix = quote(target.prefix, safe=_PATH_SAFE)
    path = parts.path
    if not path.startswith(prefix):
        path = _slashed(posixpath.normpath(f"{prefix}/{path}"), path)
    if parts.netloc == own_host:
        return urlunsplit(parts._replace(path=path))
    return urlunsplit(("", "", path, parts.query, parts.fragment))
