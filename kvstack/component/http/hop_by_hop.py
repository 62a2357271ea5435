"""Headers that are about one connection: a proxy does not pass them on."""

from typing import Final

HOP_BY_HOP: Final = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""The names of these headers, in lower case."""
