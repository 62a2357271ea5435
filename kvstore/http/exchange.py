"""One HTTP request and the way to answer it, whoever owns the socket.

    await respond.whole(200, headers, body)                          one body, length known
    await respond.start(200, headers); await respond.write(...); await respond.finish()
    socket = await respond.upgrade(headers)                          101, then bytes both ways

A handler answers exactly once, by one of the three. A client that goes away cancels the handler's
task. `write` waits while the client does not read.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

Headers = list[tuple[str, str]]  # in order; names of requests in lower case

QUERY_FIELDS_MAX: Final = 1000


class Body(Protocol):
    """A request's body, read once."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the pieces as they arrive."""
        ...


class WholeBody:
    """A body that is there."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Give the body in one piece, if it is not empty."""
        if self._data:
            yield self._data


@dataclass
class Request:
    """What a client asks."""

    method: str
    target: str  # path and query as they were sent
    headers: Headers
    body: Body = field(default_factory=WholeBody)
    remote_ip: str = ""  # empty: not known, as on a unix socket
    is_tls: bool = False
    common_name: str = ""  # of the verified client certificate

    def header(self, name: str) -> str:
        """Return the first value of a header by its lower-case name; empty: there is none."""
        for each, value in self.headers:
            if each == name:
                return value
        return ""

    @cached_property
    def host(self) -> str:
        """The host the client meant, with its port."""
        return self.header(":authority") or self.header("host")

    @cached_property
    def raw_path(self) -> str:
        """The path as it was sent; absolute targets are cut to their path."""
        if not self.target.startswith("/"):
            return urlsplit(self.target).path or "/" if "://" in self.target else self.target
        return self.target.partition("?")[0].partition("#")[0]

    @cached_property
    def path(self) -> str:
        """The path with its escapes undone."""
        return unquote(self.raw_path, errors="surrogateescape")

    @cached_property
    def raw_query(self) -> str:
        """What follows the question mark."""
        return self.target.partition("?")[2].partition("#")[0]

    @cached_property
    def query(self) -> dict[str, list[str]]:
        """The query's values by name, in order; a query too long to be meant counts as none."""
        try:
            return parse_qs(self.raw_query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError:
            return {}


class Socket(Protocol):
    """A connection given over after 101."""

    async def read(self) -> bytes:
        """Return what arrives next; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while the client does not read."""
        ...


class Responder(Protocol):
    """The way to answer one request."""

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer with a body of known length; nothing of it is sent to HEAD."""
        ...

    async def start(self, status: int, headers: Headers) -> None:
        """Begin an answer of unknown length."""
        ...

    async def write(self, data: bytes) -> None:
        """Send a piece; waits while the client does not read."""
        ...

    async def finish(self) -> None:
        """End an answer that was started."""
        ...

    async def upgrade(self, headers: Headers) -> Socket:
        """Answer 101 and take the connection over."""
        ...


_PLAIN: Final = [
    ("Content-Type", "text/plain; charset=utf-8"),
    ("X-Content-Type-Options", "nosniff"),
]


async def plain_error(
    respond: Responder, status: int, text: str, headers: Headers | None = None
) -> None:
    """Answer with a line of text, as Go's http.Error does."""
    await respond.whole(status, [*(headers or ()), *_PLAIN], f"{text}\n".encode(errors="replace"))


async def not_found(respond: Responder) -> None:
    """Answer that there is no such page."""
    await plain_error(respond, 404, "404 page not found")


async def method_not_allowed(respond: Responder, allowed: str) -> None:
    """Answer that the page takes another method."""
    await plain_error(respond, 405, "Method Not Allowed", [("Allow", allowed)])
