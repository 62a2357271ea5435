"""A server of a few lines: each request is answered by hand, and remembered.

server = Scripted(answer)                     answer(Request) → Answered, or an exception to raise
api = Api(server); …; server.requests
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import orjson


class Request(NamedTuple):
    """What was asked."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


class Answered:
    """An answer: a code with a document, or (of a watch) with lines."""

    def __init__(self, status: int, body: object = None, lines: Sequence[object] = ()) -> None:
        self.status = status
        self._body = b"" if body is None else orjson.dumps(body)
        self._lines = lines

    def header(self, name: str) -> str:
        """Return no header."""
        return ""

    async def read(self) -> bytes:
        """Return the document."""
        return self._body

    async def pieces(self) -> AsyncIterator[bytes]:
        """Give a line at a time."""
        for line in self._lines:
            yield orjson.dumps(line) + b"\n"

    def close(self) -> None:
        """Want no more."""


def refused(code: int, *, cause: str = "") -> Answered:
    """Return a refusal; cause: the reason of its one cause."""
    details = {"causes": [{"reason": cause}]} if cause else {}
    status = {"kind": "Status", "code": code, "message": f"refused: {code}", "details": details}
    return Answered(code, status)


class Scripted:
    """The transport."""

    def __init__(self, answer: Callable[[Request], Any]) -> None:
        """answer: may return what is to be awaited."""
        self._answer = answer
        self.requests: list[Request] = []

    async def request(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeout_s: float,
    ) -> Answered:
        """Answer."""
        path, _, query = target.partition("?")
        request = Request(method, path, dict(parse_qsl(query)), orjson.loads(body or b"null"))
        self.requests.append(request)
        found = self._answer(request)
        if hasattr(found, "__await__"):
            found = await found
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, Answered), found
        return found

    async def close(self) -> None:
        """Nothing is open."""
