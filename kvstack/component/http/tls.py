"""TLS of clients: trusted authorities, the client's certificate, and verification errors.

    context = client_context(ca)                              PEM; empty: the system's authorities
    context = client_context(cert=KeyPair(cert, key))
    context = client_context(insecure=True)

Certificates are trusted as in Go: every certificate in a bundle is a trust anchor, and names come
only from the subject's alternative names. TLS 1.2 is the minimum.
"""

import asyncio
import os
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, TypeAlias

from cryptography import x509

from kvstack.component.certs.ca_bundles import certificates_of

_UNKNOWN: Final = "x509: certificate signed by unknown authority"
_EXPIRED: Final = "x509: certificate has expired or is not yet valid"
_HOST_CODES: Final = frozenset((62, 64))
_TIME_CODES: Final = frozenset((9, 10))
_LOOK_S: Final = 2.0


class KeyPair(NamedTuple):
    """A certificate with its chain, and its key: files, or PEM; key empty: in the same file."""

    cert: str | bytes
    key: str | bytes = ""


FileState: TypeAlias = tuple[int, int, int, int] | None


def file_state(path: str) -> FileState:
    """Return what changes with the content of a file; None: it cannot be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_bundle(path: str) -> bytes:
    """Return the authorities in a file; path empty: none. Raises ValueError."""
    if not path:
        return b""
    try:
        found = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"unable to load root certificates: {error}") from error
    certificates_of(found)  # an empty file must not make us trust the system's
    return found


def client_context(
    ca: bytes = b"", *, cert: KeyPair | None = None, insecure: bool = False
) -> ssl.SSLContext:
    """Return the settings of connections; raises ValueError for an invalid certificate.

    ca: PEM; empty: the system's authorities. Certificates in it that cannot be parsed are skipped
    if there are others. cert: the client's. insecure: any server is trusted.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.hostname_checks_common_name = False
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if ca:
            _trust(context, certificates_of(ca))
        elif not insecure:
            context.load_default_certs()
    except (ssl.SSLError, OSError) as error:
        raise ValueError(f"unable to load root certificates: {error}") from error
    if cert is not None and cert.cert:
        try:
            _show(context, cert)
        except (ssl.SSLError, OSError) as error:
            raise ValueError(f"unable to load the client's certificate: {error}") from error
    return context


def _show(context: ssl.SSLContext, pair: KeyPair) -> None:
    if isinstance(pair.cert, str) and isinstance(pair.key, str):
        context.load_cert_chain(pair.cert, pair.key or None)
        return
    # OpenSSL reads a client's pair only from files.
    with TemporaryDirectory() as folder:
        cert, key = (
            _as_file(each, Path(folder, name)) for each, name in zip(pair, ("c", "k"), strict=True)
        )
        context.load_cert_chain(cert, key if pair.key else None)


def _as_file(pem: str | bytes, path: Path) -> Path:
    if isinstance(pem, str):
        return Path(pem)
    path.touch(mode=0o600)
    path.write_bytes(pem)
    return path


def _trust(context: ssl.SSLContext, certificates: list[bytes]) -> None:
    """Trust certificates in DER; raises ssl.SSLError if OpenSSL can read none of them."""
    refused: ssl.SSLError | None = None
    for each in certificates:
        try:
            context.load_verify_locations(cadata=each)
        except ssl.SSLError as error:
            refused = error
    if refused is not None and not context.cert_store_stats()["x509"]:
        raise refused


async def verification_text(
    error: ssl.SSLCertVerificationError, host: str, address: tuple[str, int] | None
) -> str:
    """Return why a certificate is not trusted, with Go's text.

    address: the server's, to find out the names in its certificate; None: no longer known.
    """
    code = error.verify_code
    if code in _HOST_CODES:
        return f"tls: failed to verify certificate: {await _other_names(host, address)}"
    text = _EXPIRED if code in _TIME_CODES else _UNKNOWN
    return f"tls: failed to verify certificate: {text}"


async def _other_names(host: str, address: tuple[str, int] | None) -> str:
    """Return the error with the names of a server's certificate, which is fetched again."""
    mismatch = f"x509: certificate is not valid for any names, but wanted to match {host}"
    if address is None:
        return mismatch
    context = client_context(insecure=True)
    try:
        async with asyncio.timeout(_LOOK_S):
            _, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=host)
    except (OSError, TimeoutError):
        return mismatch
    try:
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        names = _names(x509.load_der_x509_certificate(found))
    except (ValueError, x509.ExtensionNotFound):
        names = []
    finally:
        writer.close()
    return f"x509: certificate is valid for {', '.join(names)}, not {host}" if names else mismatch


def _names(certificate: x509.Certificate) -> list[str]:
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return list(extension.value.get_values_for_type(x509.DNSName))
