"""Endpoints as users write them, and how they are parsed.

    "10.0.0.1:2379"            TLS if there are TLS options
    "http://…"  "unix:…"       plaintext, whatever the options
    "https://…" "unixs:…"      TLS

The name a server's certificate must have is the host; that of a unix socket the last part of its
path up to a colon.
"""

from typing import NamedTuple
from urllib.parse import urlsplit

from kvstack.component.errors import ConfigError

_PORT = 2379  # if the endpoint has none


class Endpoint(NamedTuple):
    """The address of one server."""

    name: str  # as the user wrote it
    host: str  # or the path of a unix socket
    port: int | None  # None: a unix socket
    is_tls: bool
    authority: str  # in the Host or :authority header of requests
    server_name: str  # that the certificate must have


def parse_endpoint(text: str, *, with_tls: bool) -> Endpoint:
    """Return a parsed endpoint; with_tls is used if it has no scheme. ConfigError if invalid."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, separator, rest = text.partition(":")
        if scheme not in ("unix", "unixs"):
            scheme, rest = "", text
    if scheme in ("unix", "unixs"):
        return _unix(text, rest, is_tls=scheme == "unixs")
    if scheme not in ("", "http", "https"):
        raise ConfigError(f"endpoint {text!r}: the scheme must be one of http, https, unix, unixs")
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"endpoint {text!r}: {error}") from None
    if not host:
        raise ConfigError(f"endpoint {text!r} has no host")
    host = host.rstrip(".")  # names from DNS end in a dot, those in certificates do not
    port = _PORT if port is None else port
    shown = f"[{host}]" if ":" in host else host
    is_tls = scheme == "https" or (not scheme and with_tls)
    return Endpoint(text, host, port, is_tls, f"{shown}:{port}", host)


def _unix(text: str, path: str, *, is_tls: bool) -> Endpoint:
    if not path:
        raise ConfigError(f"endpoint {text!r} has no path")
    server_name = path.rpartition("/")[2].partition(":")[0]
    return Endpoint(text, path, None, is_tls, "localhost", server_name or "localhost")
