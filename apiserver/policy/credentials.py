"""The credentials of a request."""

from collections.abc import Callable, Sequence
from typing import Final


def _no_headers() -> Sequence[tuple[str, str]]:
    return ()


class Credentials:
    """The parts of a request that authenticators read, unverified."""

    __slots__ = (
        "annotations",
        "authorization",
        "certificates",
        "headers",
        "path",
        "protocols",
        "warnings",
    )

    def __init__(
        self,
        authorization: str = "",
        certificates: tuple[bytes, ...] = (),
        headers: Callable[[], Sequence[tuple[str, str]]] = _no_headers,
        path: str = "",
        protocols: Sequence[str] = (),
    ) -> None:
        """Nothing is copied."""
        self.authorization: Final = authorization
        """The first Authorization header; empty: there is none."""
        self.certificates: Final = certificates
        """The client's chain in DER, its own certificate first, whatever TLS thought of it."""
        self.headers: Final = headers
        """Returns all headers, names in lower case; only called for those of a front proxy."""
        self.path: Final = path
        """The URL's path, without the query."""
        self.protocols: Final = protocols
        """All values of Sec-WebSocket-Protocol, if the request is a WebSocket handshake."""
        self.annotations: Final[dict[str, str]] = {}
        """Audit annotations; authenticators add to them."""
        self.warnings: Final[list[str]] = []
        """Warnings for the client; authenticators append to them."""
