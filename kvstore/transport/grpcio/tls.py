"""TLS of the grpcio transport, as far as grpcio goes; the rest is refused by the flag's name.

    files ──(again for every handshake, where they changed)──► grpc.ServerCredentials

Law: what was right once is served until something right takes its place; a pair that does not fit
or cannot be read costs one notice per change, and no handshake.

grpcio has no revocation lists, no say in versions and suites, and asks nothing of a client's
certificate but that a trusted authority has signed it.
"""

import os
import ssl
import threading
from collections.abc import Callable
from typing import Final

import grpc

from kvstore.errors import ConfigError
from kvstore.transport.tls import TlsOptions

# (inode, bytes, mtime ns, ctime ns) per file; None where it cannot be had
_Stamp = tuple[tuple[int, int, int, int] | None, ...]


def check(tls: TlsOptions) -> None:
    """Refuse what grpcio cannot do; ConfigError names the flag."""
    for flag, asked in (
        ("--client-crl-file", tls.crl_file),
        ("--client-cert-allowed-hostname", tls.allowed_hosts),
        ("--cipher-suites", tls.cipher_suites),
        ("--tls-min-version", tls.min_version if tls.min_version != "TLS1.2" else ""),
        ("--tls-max-version", tls.max_version),
        ("names allowed in certificates of clients", tls.allowed_names),
    ):
        if asked:
            raise ConfigError(f"{flag} needs the native transport: grpcio cannot do that")


def credentials(tls: TlsOptions, on_notice: Callable[[str], None]) -> grpc.ServerCredentials:
    """Return what to listen with; ConfigError if the files are not right now.

    on_notice is given a line for the log, from any thread, per change that cannot be used.
    """
    check(tls)
    files = _Files(tls, on_notice)
    return grpc.dynamic_ssl_server_credentials(
        files.first(),
        files.newer,  # type: ignore[arg-type]  # grpcio takes None for: as before
        require_client_authentication=bool(tls.trusted_ca_file),
    )


class _Files:
    """The files, and which of their states was looked at last."""

    def __init__(self, tls: TlsOptions, on_notice: Callable[[str], None]) -> None:
        self._tls: Final = tls
        self._on_notice = on_notice
        self._lock = threading.Lock()  # handshakes come from threads of grpcio's
        self._seen: _Stamp | None = None

    def first(self) -> grpc.ServerCertificateConfiguration:
        """Return what is there at the start; ConfigError if that cannot be used."""
        try:
            self._seen = self._stamp()
            return self._load()
        except ConfigError as error:
            raise ConfigError(f"cannot listen on TLS: {error}") from error

    def newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what changed since it was last looked at, if it can be used."""
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
        _try_out(tls)
        return grpc.ssl_server_certificate_configuration([pair], roots)


def _try_out(tls: TlsOptions) -> None:
    """Load the files as grpcio will, which would not say what is wrong; ConfigError names them."""
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
