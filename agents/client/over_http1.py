"""Requests over HTTP/1.1, with or without TLS: connections are reused."""

import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Final

from kvstack.agents.client.transport import UnreachableError
from kvstack.component.http.answers import ANY_SIZE, AnswerError
from kvstack.component.http.client import HttpClient
from kvstack.component.http.request_head import UrlError, head_lines
from kvstack.component.http.streamed_answer import StreamedAnswer

_CONNECTIONS_MAX: Final = 100


class _Response:
    """An answer, as transports return it."""

    __slots__ = ("_answer", "status")

    def __init__(self, answer: StreamedAnswer) -> None:
        self._answer = answer
        self.status = answer.code

    def header(self, name: str) -> str:
        return self._answer.header(name.lower())

    async def read(self) -> bytes:
        try:
            return await self._answer.body(ANY_SIZE)
        except (AnswerError, OSError) as error:
            raise UnreachableError(_text(error)) from error
        finally:
            self._answer.close()

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._answer.pieces():
                yield piece
        except (AnswerError, OSError) as error:
            raise UnreachableError(_text(error)) from error
        finally:
            self._answer.close()

    def close(self) -> None:
        self._answer.close()


class OverHttp1:
    """Connections to one server."""

    def __init__(self, server: str, context: ssl.SSLContext | None, server_name: str) -> None:
        """context: None for http; server_name: empty: that of the URL."""
        self._server = server
        self._context = context
        self._server_name = server_name
        self._client = HttpClient(connections_max=_CONNECTIONS_MAX)

    async def request(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> _Response:
        """Send a request; return once the head of the answer is there. Raises UnreachableError."""
        try:
            answer = await self._client.open(
                method,
                self._server + target,
                head_lines(headers),
                body or None,
                context=self._context,
                server_name=self._server_name,
            )
        except (AnswerError, OSError, UrlError) as error:
            raise UnreachableError(_text(error)) from error
        return _Response(answer)

    async def close(self) -> None:
        """Give up all connections."""
        self._client.close()


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
