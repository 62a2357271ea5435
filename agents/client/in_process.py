"""A transport to an API server of the same process and loop.

Requests take the whole of its pipeline: authentication, permission, admission, limits. The user is
whom the bearer token says.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from kvstack.agents.client.transport import UnreachableError
from kvstack.component.http.serving.local_transport import LocalResponse, LocalTransport
from kvstack.component.metrics.rest_client import IN_PROCESS, REQUESTS


class _Response:
    """An answer; an aborted one raises what any other transport raises."""

    __slots__ = ("_response", "status")

    def __init__(self, response: LocalResponse) -> None:
        self._response = response
        self.status = response.status

    def header(self, name: str) -> str:
        return self._response.header(name)

    async def read(self) -> bytes:
        try:
            return await self._response.read()
        except ConnectionResetError as error:
            raise UnreachableError(str(error)) from error

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            while piece := await self._response.next():
                yield piece
        except ConnectionResetError as error:
            raise UnreachableError(str(error)) from error

    def close(self) -> None:
        self._response.close()


class InProcess:
    """Carries requests of one user to the server behind a loopback."""

    def __init__(self, loopback: LocalTransport, token: str) -> None:
        """Send requests with a token."""
        self._loopback = loopback
        self._authorization = ("authorization", f"Bearer {token}")

    async def request(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeout_s: float,
    ) -> _Response:
        """Send a request."""
        now_s = asyncio.get_running_loop().time
        began_s, code = now_s(), 0
        try:
            response = await self._request(method, target, headers, body, timeout_s)
            code = response.status
            return response
        finally:
            REQUESTS.count(IN_PROCESS, method, code, now_s() - began_s)

    async def _request(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeout_s: float,
    ) -> _Response:
        try:
            response = await self._loopback.request(
                method, target, [*headers, self._authorization], body, timeout_s=timeout_s
            )
        except TimeoutError as error:
            raise UnreachableError(f"no answer within {timeout_s} s") from error
        except ConnectionError as error:
            raise UnreachableError(str(error)) from error
        return _Response(response)

    async def close(self) -> None:
        """Do nothing: there is no connection."""
