"""The interface of transports to an API server: requests and answers as bytes.

Implementations: `over_http` (TLS, kubeconfig), `in_process` (an API server on the same loop).
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol


class UnreachableError(Exception):
    """No answer came: whether the server did what was asked is not known."""


class Response(Protocol):
    """An answer whose body may still be on its way."""

    status: int

    def header(self, name: str) -> str:
        """Return the first value of a header; empty: there is none."""
        ...

    async def read(self) -> bytes:
        """Return the whole body; UnreachableError if it breaks off."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """Give the body as it comes; UnreachableError if it breaks off."""
        ...

    def close(self) -> None:
        """Abandon the answer."""
        ...


class Transport(Protocol):
    """Carries requests of one user."""

    async def request(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeout_s: float,
    ) -> Response:
        """Send a request; return once the head of the answer is there, within timeout_s.

        Raises UnreachableError.
        """
        ...

    async def close(self) -> None:
        """Give up all connections."""
        ...
