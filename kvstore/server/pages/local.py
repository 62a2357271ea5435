"""Requests for a member's pages within the process, without a socket.

    answer = await ask(router.serve, "GET", "/metrics")
    answer.status, answer.headers, answer.body

Nothing is checked here: the caller decides who may see the page.
"""

from typing import NamedTuple

from kvstore.batch import HttpHeaders
from kvstore.http.exchange import PageHandler, PageRequest, UpgradedConnection


class PageAnswer(NamedTuple):
    """The response of a page."""

    status: int
    headers: HttpHeaders
    body: bytes


async def ask(handler: PageHandler, method: str, path: str) -> PageAnswer:
    """Request a page that needs no body and no upgrade; path: with its query."""
    kept = _BufferedResponder()
    await handler(PageRequest(method, path, []), kept)
    return PageAnswer(kept.status, kept.headers, bytes(kept.body))


class _BufferedResponder:
    """A responder that keeps the answer."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: HttpHeaders = []
        self.body = bytearray()

    async def whole(self, status: int, headers: HttpHeaders, body: bytes) -> None:
        await self.start(status, headers)
        await self.write(body)

    async def start(self, status: int, headers: HttpHeaders) -> None:
        self.status, self.headers = status, headers

    async def write(self, data: bytes) -> None:
        self.body += data

    async def finish(self) -> None:
        pass

    async def upgrade(self, headers: HttpHeaders) -> UpgradedConnection:
        raise NotImplementedError("requests within the process cannot be upgraded")
