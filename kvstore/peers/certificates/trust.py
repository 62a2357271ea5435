"""The certificates of a trusted CA file, prepared so that OpenSSL accepts what Go accepts.

    -----BEGIN CERTIFICATE-----  ──►  -----BEGIN TRUSTED CERTIFICATE-----
    certificate                       certificate, trusted as a server's, as a client's

Go trusts a certificate of the file for everything that its extended key usage allows, also as the
certificate of the other side itself. OpenSSL refuses a server's or client's certificate whose key
usage has only the bits of an authority, as that of a self-signed authority does, unless it is
marked as trusted for that use.

A certificate that cannot be parsed here is left to OpenSSL as it is.
"""

import os
import re
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID

_BLOCK: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL)
_LINE_CHARS: Final = 64
_OIDS: Final = {
    ExtendedKeyUsageOID.SERVER_AUTH: bytes.fromhex("06082b06010505070301"),
    ExtendedKeyUsageOID.CLIENT_AUTH: bytes.fromhex("06082b06010505070302"),
}  # DER
_SEQUENCE: Final = 0x30


def load_trusted(context: ssl.SSLContext, path: str) -> None:
    """Trust the certificates in a file; OSError or ssl.SSLError if it is unusable."""
    with trusted_file(path) as copy:
        context.load_verify_locations(copy)
    # A certificate of the file ends a chain, whether or not it signs itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


@contextmanager
def trusted_file(path: str) -> Iterator[str]:
    """Yield the path of a copy in memory with the marks: OpenSSL reads them only from a file."""
    with open(path, "rb") as file:
        pem = _marked(file.read())
    descriptor = os.memfd_create("trusted-ca")
    with os.fdopen(descriptor, "wb") as copy:
        copy.write(pem)
        copy.flush()
        yield f"/proc/self/fd/{descriptor}"


def is_like_issuer(cert_file: str) -> bool:
    """Return whether a file's first certificate has its issuer's name but is not self-signed."""
    return bool(cert_file) and _is_like_issuer(Path(cert_file).read_bytes())


@lru_cache(maxsize=8)
def _is_like_issuer(pem: bytes) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError:
        return False  # the handshake reports the error
    return certificate.subject == certificate.issuer and not is_signed_by(certificate, certificate)


def is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Return whether issuer's key signed the certificate, and the names fit."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


@lru_cache(maxsize=8)
def _marked(pem: bytes) -> bytes:
    """Return the file with its certificates marked as trusted for the uses they allow."""
    return _BLOCK.sub(lambda block: _mark(block[0]), pem)


def _mark(block: bytes) -> bytes:
    try:
        der = ssl.PEM_cert_to_DER_cert(block.decode("ascii"))
        uses = _uses(x509.load_der_x509_certificate(der))
    except (ValueError, x509.DuplicateExtension):
        return block
    if not uses:
        return block
    marks = _sequence(_sequence(b"".join(_OIDS[use] for use in uses)))
    text = b64encode(der + marks)
    lines = [text[at : at + _LINE_CHARS] for at in range(0, len(text), _LINE_CHARS)]
    return b"\n".join(
        [b"-----BEGIN TRUSTED CERTIFICATE-----", *lines, b"-----END TRUSTED CERTIFICATE-----"]
    )


def _uses(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    """Return which of the uses of TLS the extended key usage allows; without one, both."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return list(_OIDS)
    if ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usage:
        return list(_OIDS)
    return [use for use in _OIDS if use in usage]


def _sequence(content: bytes) -> bytes:
    return bytes((_SEQUENCE, len(content))) + content
