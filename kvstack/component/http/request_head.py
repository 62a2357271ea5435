"""The head of a request: the target of a URL, and lines of headers.

    site = site_of("https://h.svc:8443/v?timeout=1s")       Site("h.svc", 8443, True, "/v?…", …)
    head_lines((("Accept", "*/*"),))                        "Accept: */*\\r\\n"

What could end a line, and so begin another header or request, is refused.
"""

import re
from collections.abc import AsyncIterator, Iterable
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from kvstack.component.net.hosts import join_host_port

Body: TypeAlias = bytes | AsyncIterator[bytes] | None
"""The body of a request; in pieces: sent as they arrive."""

BODILESS_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))
_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class UrlError(ValueError):
    """A URL, or a header, that cannot be sent."""


class Site(NamedTuple):
    """The server and the target of a URL."""

    host: str
    port: int
    is_secure: bool
    target: str
    """The target in the request line."""
    host_header: str


def site_of(url: str) -> Site:
    """Return the server and the target of a URL; raises UrlError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UrlError(f"parse {url!r}: {error}") from None
    host, default = parts.hostname, _PORTS.get(parts.scheme)
    if not host or default is None or not url.isascii() or not url.isprintable() or " " in url:
        raise UrlError(f"{url!r} is not an http or https URL")
    target = parts.path or "/"
    if parts.query:
        target = f"{target}?{parts.query}"
    shown = f"[{host}]" if ":" in host else host
    shown = shown if port in (None, default) else join_host_port(host, port or 0)
    return Site(host, port or default, parts.scheme == "https", target, shown)


def head_lines(headers: Iterable[tuple[str, str]]) -> str:
    """Return headers as they are sent; raises UrlError for invalid ones, as Go's client does."""
    lines = []
    for name, value in headers:
        if not _NAME.fullmatch(name):
            raise UrlError(f'net/http: invalid header field name "{name}"')
        if _CONTROLS.search(value):
            raise UrlError(f'net/http: invalid header field value for "{name}"')
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines)


def request_head(method: str, target: str, host: str, lines: str, body: Body) -> bytes:
    """Return the head of a request as it is sent, with the length of its body.

    lines: of headers; they may contain Host, and the length of a body in pieces.
    """
    return begun_head(method, target, host, lines) + length_lines(method, lines, body)


def begun_head(method: str, target: str, host: str, lines: str) -> bytes:
    """Return the head of a request without its end."""
    own = "" if "\r\nhost:" in f"\r\n{lines.lower()}" else f"Host: {host}\r\n"
    return f"{method} {target} HTTP/1.1\r\n{own}{lines}".encode("utf-8", "surrogateescape")


def length_lines(method: str, lines: str, body: Body) -> bytes:
    """Return the header that delimits the body, and the end of the head."""
    if is_chunked(lines, body):
        return b"Transfer-Encoding: chunked\r\n\r\n"
    if isinstance(body, bytes) or (body is None and method not in BODILESS_METHODS):
        return b"Content-Length: %d\r\n\r\n" % len(body or b"")
    return b"\r\n"


def is_chunked(lines: str, body: Body) -> bool:
    """Return whether a body is sent in chunks: it comes in pieces of unknown total length."""
    if isinstance(body, bytes | None):
        return False
    return "\r\ncontent-length:" not in f"\r\n{lines.lower()}"
