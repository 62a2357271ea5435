"""TLS of the grpcio transport, as far as grpcio supports it; the rest is refused by flag name.

    files ──(again before each handshake, if they changed)──► grpc.ServerCredentials

Rule: the last usable files are served until usable ones replace them. Files that do not fit or
cannot be read cost one notice per change, and no handshake fails for them.

grpcio has no revocation lists and no choice of versions and cipher suites, and checks of a client's
certificate only that a trusted authority signed it.
"""

import os
import ssl
import threading
from collections.abc import Callable
from typing import Final

from kvstack.component.errors import ConfigError
from kvstore.transport.grpcio import grpc
from kvstore.transport.tls import TlsOptions

# (inode, bytes, mtime ns, ctime ns) per file; None if there is no such file
_Stamp = tuple[tuple[int, int, int, int] | None, ...]


def check(tls: TlsOptions) -> None:
    """Refuse settings that grpcio does not support; ConfigError names the flag."""
    for flag, setting in (
        ("--client-crl-file", tls.crl_file),
        ("--client-cert-allowed-hostname", tls.allowed_hosts),
        ("--cipher-suites", tls.cipher_suites),
        ("--tls-min-version", tls.min_version if tls.min_version != "TLS1.2" else ""),
        ("--tls-max-version", tls.max_version),
        ("names allowed in certificates of clients", tls.allowed_names),
    ):
        if setting:
            raise ConfigError(f"{flag} needs the native transport: grpcio does not support it")


def credentials(tls: TlsOptions, on_notice: Callable[[str], None]) -> grpc.ServerCredentials:
    """Return credentials to listen with; ConfigError if the files cannot be used now.

    on_notice gets a line for the log, from any thread, for each change that cannot be used.
    """
    check(tls)
    files = _Files(tls, on_notice)
    return grpc.dynamic_ssl_server_credentials(
        files.load_first(),
        files.load_changed,  # type: ignore[arg-type]  # grpcio takes None as: unchanged
        require_client_authentication=bool(tls.trusted_ca_file),
    )


class _Files:
    """The files, and the state in which they were last loaded."""

    def __init__(self, tls: TlsOptions, on_notice: Callable[[str], None]) -> None:
        self._tls: Final = tls
        self._on_notice = on_notice
        self._lock = threading.Lock()  # handshakes run in grpcio's threads
        self._seen: _Stamp | None = None

    def load_first(self) -> grpc.ServerCertificateConfiguration:
        """Return the files as they are at the start; ConfigError if they cannot be used."""
        try:
            self._seen = self._stamp()
            return self._load()
        except ConfigError as error:
            raise ConfigError(f"cannot listen on TLS: {error}") from error

    def load_changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the files if they have changed and can be used."""
        with self._lock:
            stamp = self._stamp()
            if stamp == self._seen:
                return None
            self._seen = stamp
            try:
                return self._load()
            except ConfigError as error:
                self._on_notice(f"TLS files cannot be used, the last good ones are: {error}")
                return None

    def _stamp(self) -> _Stamp:
        tls = self._tls
        return tuple(
            _stamp_of(path) for path in (tls.cert_file, tls.key_file, tls.trusted_ca_file) if path
        )

    def _load(self) -> grpc.ServerCertificateConfiguration:
        """Read the files; ConfigError names the one that cannot be used."""
        tls = self._tls
        pair = (_read(tls.key_file), _read(tls.cert_file))
        roots = _read(tls.trusted_ca_file) if tls.trusted_ca_file else None
        _check_loadable(tls)
        return grpc.ssl_server_certificate_configuration([pair], roots)


def _check_loadable(tls: TlsOptions) -> None:
    """Load the files with OpenSSL, because grpcio gives no reason; ConfigError names them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    except OSError as error:
        pair = f"certificate {tls.cert_file} with key {tls.key_file}"
        raise ConfigError(f"{pair}: {_reason(error)}") from None
    if not tls.trusted_ca_file:
        return
    try:
        context.load_verify_locations(tls.trusted_ca_file)
    except OSError as error:
        raise ConfigError(f"trusted CA file {tls.trusted_ca_file}: {_reason(error)}") from None


def _stamp_of(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{path}: {_reason(error)}") from None


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return error.strerror or str(error)
