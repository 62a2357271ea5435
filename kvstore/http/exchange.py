"""One HTTP request and its answer, independent of who owns the socket.

    await respond.whole(200, headers, body)                          one body, length known
    await respond.start(200, headers); await respond.write(...); await respond.finish()
    connection = await respond.upgrade(headers)                      101, then bytes both ways

A handler answers exactly once, in one of the three ways. Its task is cancelled when the client goes
away. `write` waits while the client does not read.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from kvstore.batch import HttpHeaders

QUERY_FIELDS_MAX: Final = 1000


class Body(Protocol):
    """A request's body, read once."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the pieces as they arrive."""
        ...


class WholeBody:
    """A body that has arrived."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body in one piece, if it is not empty."""
        if self._data:
            yield self._data


@dataclass
class PageRequest:
    """One request."""

    method: str
    target: str  # path and query, as sent
    headers: HttpHeaders
    body: Body = field(default_factory=WholeBody)
    remote_ip: str = ""  # empty: unknown, as on a unix socket
    is_tls: bool = False
    common_name: str = ""  # of the verified client certificate

    def header(self, name: str) -> str:
        """Return the first value of a header, by its name in lower case; empty if there is none."""
        for each, value in self.headers:
            if each == name:
                return value
        return ""

    @cached_property
    def host(self) -> str:
        """The host that the client named, with its port."""
        return self.header(":authority") or self.header("host")

    @cached_property
    def raw_path(self) -> str:
        """The path as sent; of an absolute target its path."""
        if not self.target.startswith("/"):
            return urlsplit(self.target).path or "/" if "://" in self.target else self.target
        return self.target.partition("?")[0].partition("#")[0]

    @cached_property
    def path(self) -> str:
        """The path with its escapes decoded."""
        return unquote(self.raw_path, errors="surrogateescape")

    @cached_property
    def raw_query(self) -> str:
        """The text after the question mark."""
        return self.target.partition("?")[2].partition("#")[0]

    @cached_property
    def query(self) -> dict[str, list[str]]:
        """The query's values by name, in order; empty for more than QUERY_FIELDS_MAX fields."""
        try:
            return parse_qs(self.raw_query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError:
            return {}


class UpgradedConnection(Protocol):
    """A connection after 101."""

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while the client does not read."""
        ...


class Responder(Protocol):
    """Answers one request."""

    async def whole(self, status: int, headers: HttpHeaders, body: bytes) -> None:
        """Answer with a body of known length; for HEAD the body is not sent."""
        ...

    async def start(self, status: int, headers: HttpHeaders) -> None:
        """Begin an answer of unknown length."""
        ...

    async def write(self, data: bytes) -> None:
        """Send a piece; waits while the client does not read."""
        ...

    async def finish(self) -> None:
        """End an answer that was started."""
        ...

    async def upgrade(self, headers: HttpHeaders) -> UpgradedConnection:
        """Answer 101 and return the connection."""
        ...


PageHandler = Callable[[PageRequest, Responder], Awaitable[None]]

PLAIN_TEXT: Final = ("Content-Type", "text/plain; charset=utf-8")
NO_SNIFF: Final = ("X-Content-Type-Options", "nosniff")


async def plain_error(
    respond: Responder, status: int, text: str, headers: HttpHeaders | None = None
) -> None:
    """Answer with a line of text, as Go's http.Error does."""
    body = f"{text}\n".encode(errors="replace")
    await respond.whole(status, [*(headers or ()), PLAIN_TEXT, NO_SNIFF], body)


async def not_found(respond: Responder) -> None:
    """Answer 404."""
    await plain_error(respond, 404, "404 page not found")


async def method_not_allowed(respond: Responder, allowed: str) -> None:
    """Answer 405 with the allowed method."""
    await plain_error(respond, 405, "Method Not Allowed", [("Allow", allowed)])
