"""Listening for HTTP at a separate address: the socket, and TLS from the current files.

The files are read for each connection. If they are broken, the last usable ones are served, with a
warning.
"""

import socket
import ssl
from collections.abc import Mapping
from typing import Final

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.net.addresses import (
    TcpAddress,
    UnixAddress,
    bound_url,
    parse,
    remove_stale,
    unix_error,
)
from kvstack.component.net.listening import listen_tcp
from kvstore.http.exchange import PageHandler
from kvstore.http.h1_server import H1Server
from kvstore.peers.tls import PeerTls, PeerTlsError, admit, server_context

_BACKLOG: Final = 128  # connections that wait to be accepted
_TLS_MISSING: Final = (
    "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url"
)


def listen(
    url: str, handler: PageHandler, logger: Logger, tls: PeerTls, *, reuse_port: bool = False
) -> tuple[H1Server, str]:
    """Bind url; return a server to run, and the URL with the port that was bound.

    tls is used for https:// and unixs:// only. Raises ConfigError if the address or the TLS files
    cannot be used.
    """
    address = parse(url, with_tls=True)
    if address.secure and not (tls.cert_file and tls.key_file):
        raise ConfigError(f"{url}: {_TLS_MISSING}")
    bound = _listening_socket(url, address, reuse_port=reuse_port)
    is_unix = isinstance(address, UnixAddress)
    served_url = url if is_unix else bound_url(url, bound.getsockname()[1])
    if not address.secure:
        return H1Server(bound, handler, logger), served_url

    def admitted(certificate: Mapping[str, object], remote: str) -> str:
        # A client of a unix socket has no address that its certificate could name.
        wanted = tls if remote else tls._replace(skip_client_san_verification=True)
        try:
            return admit(certificate, remote, wanted)
        except PeerTlsError as error:
            raise OSError(str(error)) from None

    try:
        contexts = _Contexts(tls, logger)
    except PeerTlsError as error:
        bound.close()
        raise ConfigError(f"cannot listen on TLS for {url}: {error}") from None
    return H1Server(bound, handler, logger, make_context=contexts.make, admit=admitted), served_url


class _Contexts:
    """TLS contexts from the current files, else from the last usable ones."""

    def __init__(self, tls: PeerTls, logger: Logger) -> None:
        self._tls = tls
        self._logger = logger
        self._last = server_context(tls)

    def make(self) -> ssl.SSLContext:
        """Return the context of a new connection."""
        try:
            self._last = server_context(self._tls)
        except PeerTlsError as error:
            self._logger.warning("serving the last usable certificate", error=str(error))
        return self._last


def _listening_socket(
    url: str, address: TcpAddress | UnixAddress, *, reuse_port: bool
) -> socket.socket:
    try:
        bound = _bind(address, reuse_port=reuse_port)
    except OSError as error:
        reason = error.strerror or str(error)
        is_missing = isinstance(error, FileNotFoundError | PermissionError)
        if isinstance(address, UnixAddress) and is_missing:
            reason = unix_error(address.path)
        raise ConfigError(f"cannot listen on {url}: {reason}") from None
    return bound


def _bind(address: TcpAddress | UnixAddress, *, reuse_port: bool) -> socket.socket:
    if isinstance(address, UnixAddress):
        remove_stale(address.path)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound.bind(address.path)
        bound.listen(_BACKLOG)
        return bound
    return listen_tcp(address.host, address.port, _BACKLOG, reuse_port=reuse_port)
