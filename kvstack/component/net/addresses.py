"""Addresses to listen on: parsing, and the reasons why one cannot be used.

    "http://localhost:2379" ──► TcpAddress("127.0.0.1", 2379, secure=False)
    "unixs:///run/kv.sock"  ──► UnixAddress("/run/kv.sock", secure=True)

A unix socket that a running process listens on is not taken over; a stale one may be. Nothing is
bound here.
"""

import os
import socket
import stat
from typing import NamedTuple
from urllib.parse import urlsplit

from kvstack.component.errors import ConfigError


def is_secure(url: str) -> bool:
    """Return whether a URL asks for TLS."""
    return url.startswith(("https:", "unixs:"))


class TcpAddress(NamedTuple):
    """A TCP address to listen on."""

    host: str  # a name or an address; IPv6 without brackets
    port: int  # 0: any
    secure: bool  # https

    @property
    def text(self) -> str:
        """The address as host:port, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnixAddress(NamedTuple):
    """A unix socket to listen on."""

    path: str
    secure: bool  # unixs


def parse(url: str, *, with_tls: bool = False) -> TcpAddress | UnixAddress:
    """Return the address of a URL; ConfigError for a scheme that is not served.

    https:// and unixs:// are served only with_tls.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https", "unix", "unixs"}:
        raise ConfigError(
            f"cannot listen on {url}: only http://, https://, unix:// and unixs:// are served"
        )
    secure = is_secure(url)
    if secure and not with_tls:
        raise ConfigError(
            f"cannot listen on {url}: without a certificate only http:// and unix:// are served"
        )
    if parts.scheme in {"unix", "unixs"}:
        path = parts.netloc + parts.path
        if is_answered(path):
            raise ConfigError(f"cannot listen on {url}: the socket is in use by another process")
        return UnixAddress(path, secure)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or "0.0.0.0"
    return TcpAddress(host, parts.port or 0, secure)


def remove_stale(path: str) -> None:
    """Remove a unix socket that no process listens on; any other file stays, and bind fails."""
    try:
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"cannot take over unix socket {path}: {error.strerror}") from error


def is_answered(path: str) -> bool:
    """Return whether a process listens on a unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError as error:
            raise ConfigError(f"cannot listen on unix socket {path}: {error.strerror}") from error
        return True


def unix_error(path: str) -> str:
    """Return why a unix socket could not be created at path."""
    return "the directory is missing or not writable" if path else "the path is empty"


def bound_url(url: str, port: int) -> str:
    """Return a http or https URL with the port that was bound."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"
