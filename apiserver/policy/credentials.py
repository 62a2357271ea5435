"""What a request brings to tell whose it is."""

from collections.abc import Callable, Sequence
from typing import Final


def _no_headers() -> Sequence[tuple[str, str]]:
    return ()


class Credentials:
    """The parts of a request that authenticators look at; nothing in them is believed yet."""

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
        """Hold them; nothing is copied."""
        self.authorization: Final = authorization
        """The first Authorization header; empty: there is none."""
        self.certificates: Final = certificates
        """The client's chain in DER, its own first, however TLS judged it."""
        self.headers: Final = headers
        """Returns all headers, names in lower case; asked only for what a front proxy sends."""
        self.path: Final = path
        """Of the URL, without the query."""
        self.protocols: Final = protocols
        """All values of Sec-WebSocket-Protocol, if the request asks for WebSocket."""
        self.annotations: Final[dict[str, str]] = {}
        """For the audit log; authenticators add them."""
        self.warnings: Final[list[str]] = []
        """What the client is to be told; authenticators append."""
