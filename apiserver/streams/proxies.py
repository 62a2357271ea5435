"""Requests that are passed on to nodes, pods and Services, and their answers.

    client ── GET /api/v1/nodes/n/proxy/x ──► server ── GET /x ──► kubelet

The other side sees the client's request under the path behind `proxy`, without its credentials, and
with the way it came (`X-Forwarded-For`, `X-Forwarded-Uri`). Its redirects and the links of its
pages are changed so that they lead through the server. A request for another protocol is handed
over with its connection.
"""

import asyncio
import contextlib
import posixpath
import zlib
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.objects import status
from kvstack.apiserver.streams import forwarded, html_links
from kvstack.apiserver.streams.backends import Backends, DialError, Streams, of_anybody
from kvstack.apiserver.streams.carrying import carry, wants_upgrade
from kvstack.apiserver.streams.http_answer import AnswerError, HttpAnswer, read_head
from kvstack.apiserver.verbs.results import Proxying
from kvstore.http.serving.request import Request

_PATH_SAFE: Final = "/$&+,:;=@-_.~"
_WHOLE_MAX: Final = 256 << 10
"""Up to which size an answer is sent with its length."""
_PAGE_MAX: Final = 32 << 20
"""Up to which size links of a page are looked for."""
_GZIP: Final = 31
_DEFLATE: Final = -15
_ENCODINGS: Final = {"": 0, "gzip": _GZIP, "deflate": _DEFLATE}
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_READING: Final = ("GET", "HEAD")


class Proxies:
    """Passes requests on."""

    def __init__(self, backends: Backends) -> None:
        """Reach others by these."""
        self._backends = backends

    async def serve(self, place: Proxying, request: Request, reply: Reply) -> None:
        """Answer with what somebody else answers; raises ApiError."""
        is_upgrade = wants_upgrade(request)
        if not place.path and request.method in _READING and not is_upgrade:
            _redirect(place, request, reply)
            return
        try:
            backend = await self._connect(place)
        except DialError as error:
            if is_upgrade:
                raise status.unknown(f"error dialing backend: {error}") from error
            raise _unreachable(error) from error
        try:
            if is_upgrade:
                await _upgrade(place, backend, request, reply)
            else:
                await _pass_on(place, backend, request, reply)
        except (AnswerError, OSError) as error:
            if reply.is_begun:
                raise
            raise _unreachable(error) from error
        finally:
            backend[1].close()

    async def _connect(self, place: Proxying) -> Streams:
        parts = urlsplit(f"//{place.host}")
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORTS[place.scheme]
        context = None
        if place.scheme == "https":
            context = self._backends.of_kubelet() if place.is_kubelet else of_anybody()
        return await self._backends.connect(host, port, context, place.address)


def _unreachable(error: Exception) -> Exception:
    return status.service_unavailable(f"error trying to reach service: {error}")


def _redirect(place: Proxying, request: Request, reply: Reply) -> None:
    """Send a client to the root of the other side, so that relative links work."""
    query = request.target.partition("?")[2]
    location = f"{quote(place.prefix, safe=_PATH_SAFE)}/" + (f"?{query}" if query else "")
    reply.send_nothing(301, ("Location", location))


def _target(place: Proxying, request: Request) -> str:
    query = request.target.partition("?")[2]
    path = quote(place.path or "/", safe=_PATH_SAFE)
    return f"{path}?{query}" if query else path


async def _upgrade(place: Proxying, backend: Streams, request: Request, reply: Reply) -> None:
    reader, writer = backend
    writer.write(_head(request.method, _target(place, request), forwarded.of_upgrade(request)))
    await writer.drain()
    answer = await read_head(reader)
    if answer.code == 101:
        await carry(answer, backend, reply)
    elif answer.code < 400:
        raise status.unknown(f"invalid upgrade response: status code {answer.code}")
    else:
        await _send(answer, list(forwarded.of_answer(answer.headers)), request, reply)


async def _pass_on(place: Proxying, backend: Streams, request: Request, reply: Reply) -> None:
    reader, _ = backend
    sending = asyncio.create_task(_send_request(place, backend, request), name="proxied request")
    try:
        answer = await read_head(reader)
        headers = list(forwarded.of_answer(answer.headers))
        answer.has_body = request.method != "HEAD"
        for position, (name, value) in enumerate(headers):
            if name.lower() == "location":
                headers[position] = (name, _rewritten(value, place, request))
        if _is_page(answer):
            await _send_page(answer, headers, place, request, reply)
        else:
            await _send(answer, headers, request, reply)
    finally:
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await sending


async def _send_request(place: Proxying, backend: Streams, request: Request) -> None:
    _, writer = backend
    escaped = quote(place.path, safe=_PATH_SAFE)
    uri = posixpath.normpath(f"{place.prefix}/{escaped}")
    headers = [*forwarded.of_request(request), ("x-forwarded-uri", _slashed(uri, escaped))]
    length = request.header("content-length")
    has_body = bool(length) or request.header("transfer-encoding") != "" or request.body
    is_chunked = bool(has_body) and not length
    if length:
        headers.append(("content-length", length))
    elif is_chunked:
        headers.append(("transfer-encoding", "chunked"))
    headers.append(("connection", "close"))
    writer.write(_head(request.method, _target(place, request), headers))
    if has_body:
        async for piece in _body(request):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
            await writer.drain()
        if is_chunked:
            writer.write(b"0\r\n\r\n")
    await writer.drain()


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


def _head(method: str, target: str, headers: list[forwarded.Header]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _send(
    answer: HttpAnswer, headers: list[forwarded.Header], request: Request, reply: Reply
) -> None:
    """Send an answer as it comes; a small one with its length."""
    length = answer.length
    if request.method == "HEAD":
        own = [("Content-Length", str(length))] if length is not None else []
        reply.send_as_it_is(answer.code, [*headers, *own], b"")
    elif length is not None and length <= _WHOLE_MAX:
        body = b"".join([piece async for piece in answer.pieces()])
        reply.send_as_it_is(answer.code, headers, body)
    else:
        reply.begin_as_it_is(answer.code, headers)
        async for piece in answer.pieces():
            await reply.answer.write(piece)


def _is_page(answer: HttpAnswer) -> bool:
    """Tell whether an answer is a page whose links can be changed."""
    media_type = answer.header("content-type").partition(";")[0].strip()
    is_small = answer.length is None or answer.length <= _PAGE_MAX
    return (
        media_type == "text/html" and answer.header("content-encoding") in _ENCODINGS and is_small
    )


async def _send_page(
    answer: HttpAnswer,
    headers: list[forwarded.Header],
    place: Proxying,
    request: Request,
    reply: Reply,
) -> None:
    body = b"".join([piece async for piece in answer.pieces()])
    bits = _ENCODINGS[answer.header("content-encoding")]
    try:
        page = zlib.decompressobj(bits).decompress(body, _PAGE_MAX) if bits else body
    except zlib.error as error:
        raise AnswerError(str(error)) from error
    page = html_links.rewritten(page, lambda url: _rewritten(url, place, request))
    if bits:
        packer = zlib.compressobj(wbits=bits)
        page = packer.compress(page) + packer.flush()
    reply.send_as_it_is(answer.code, headers, page)


def _rewritten(url: str, place: Proxying, request: Request) -> str:
    """Return a URL of the other side as the client can follow it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    own_host = request.header("host")
    if parts.netloc not in ("", place.host, own_host) or not parts.path.startswith("/"):
        return url
    prefix = quote(place.prefix, safe=_PATH_SAFE)
    path = parts.path
    if not path.startswith(prefix):
        path = _slashed(posixpath.normpath(f"{prefix}/{path}"), path)
    if parts.netloc == own_host:
        return urlunsplit(parts._replace(path=path))
    return urlunsplit(("", "", path, parts.query, parts.fragment))
