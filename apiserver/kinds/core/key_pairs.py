"""Validation of key pairs in PEM, with the texts of Go's tls.

A Secret of type kubernetes.io/tls may hold anything; an invalid key pair is only a warning. Errors
inside a certificate or key have the texts of Go's parsers where these are constant.
"""

from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificatePublicKeyTypes,
    PrivateKeyTypes,
    PublicKeyTypes,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_private_key,
)

from kvstack.apimachinery.objects.text import pem

_CERTIFICATE: Final = "CERTIFICATE"
_KEY: Final = "PRIVATE KEY"


def key_pair_problem(certificate: bytes, private_key: bytes) -> str:
    """Return why the pair cannot serve TLS, empty if it can."""
    certificates = list(pem.blocks(certificate))
    chain = [each.content for each in certificates if each.kind == _CERTIFICATE]
    if not chain:
        return _no_certificate([each.kind for each in certificates])
    keys = list(pem.blocks(private_key))
    key = next((each.content for each in keys if _is_key(each.kind)), None)
    if key is None:
        return _no_key([each.kind for each in keys])
    try:
        public = x509.load_der_x509_certificate(chain[0]).public_key()
    except (ValueError, UnsupportedAlgorithm):
        return "x509: malformed certificate"
    try:
        private = load_der_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "tls: failed to parse private key"
    return _mismatch(public, private)


def _no_certificate(skipped: list[str]) -> str:
    if not skipped:
        return "tls: failed to find any PEM data in certificate input"
    if len(skipped) == 1 and skipped[0].endswith(_KEY):
        return (
            "tls: failed to find certificate PEM data in certificate input, but did find a private"
            " key; PEM inputs may have been switched"
        )
    return (
        'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM blocks'
        f" of the following types: [{' '.join(skipped)}]"
    )


def _no_key(skipped: list[str]) -> str:
    if not skipped:
        return "tls: failed to find any PEM data in key input"
    if skipped == [_CERTIFICATE]:
        return "tls: found a certificate rather than a key in the PEM for the private key"
    return (
        'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after'
        f" skipping PEM blocks of the following types: [{' '.join(skipped)}]"
    )


def _is_key(kind: str) -> bool:
    return kind == _KEY or kind.endswith(" " + _KEY)


def _mismatch(public: CertificatePublicKeyTypes, private: PrivateKeyTypes) -> str:
    if isinstance(public, rsa.RSAPublicKey):
        is_alike = isinstance(private, rsa.RSAPrivateKey)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        is_alike = isinstance(private, ec.EllipticCurvePrivateKey)
    elif isinstance(public, ed25519.Ed25519PublicKey):
        is_alike = isinstance(private, ed25519.Ed25519PrivateKey)
    else:
        return "tls: unknown public key algorithm"
    if not is_alike:
        return "tls: private key type does not match public key type"
    if _public_bytes(private.public_key()) != _public_bytes(public):
        return "tls: private key does not match public key"
    return ""


def _public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
