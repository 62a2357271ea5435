"""What is said of a certificate and a key that do not belong together."""

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificateIssuerPublicKeyTypes,
    PrivateKeyTypes,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kvstack.apiserver.kinds.core.key_pairs import key_pair_problem

EC = ec.derive_private_key(5, ec.SECP256R1())
OTHER_EC = ec.derive_private_key(7, ec.SECP256R1())
ED25519 = ed25519.Ed25519PrivateKey.from_private_bytes(b"\1" * 32)
ED448 = ed448.Ed448PrivateKey.from_private_bytes(b"\1" * 57)
RSA_PUBLIC = rsa.RSAPublicNumbers(65537, (1 << 1023) + 9).public_key()


def pem_of(key: PrivateKeyTypes, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    """Return a private key in PEM."""
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def certificate_of(public: CertificateIssuerPublicKeyTypes) -> bytes:
    """Return a certificate of a key in PEM; who signed it does not matter."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=public,
        serial_number=1,
        not_valid_before=datetime(2026, 1, 1, tzinfo=UTC),
        not_valid_after=datetime(2027, 1, 1, tzinfo=UTC),
    )
    return builder.sign(OTHER_EC, hashes.SHA256()).public_bytes(Encoding.PEM)


CERTIFICATE = certificate_of(EC.public_key())
KEY = pem_of(EC)
PARAMETERS = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"


@pytest.mark.parametrize(
    ("certificate", "key"),
    [
        (CERTIFICATE, KEY),
        (CERTIFICATE, pem_of(EC, PrivateFormat.TraditionalOpenSSL)),
        (b"a note\n" + CERTIFICATE + certificate_of(ED25519.public_key()), PARAMETERS + KEY),
        (CERTIFICATE.replace(b"\n", b"\r\n"), KEY.replace(b"\n", b"\r\n")),
        (certificate_of(ED25519.public_key()), pem_of(ED25519)),
    ],
)
def test_pair(certificate: bytes, key: bytes) -> None:
    """The first certificate and the first key count."""
    assert key_pair_problem(certificate, key) == ""


@pytest.mark.parametrize(
    ("certificate", "key", "expected"),
    [
        (b"", KEY, "tls: failed to find any PEM data in certificate input"),
        (
            KEY,
            CERTIFICATE,
            "tls: failed to find certificate PEM data in certificate input, but did find a"
            " private key; PEM inputs may have been switched",
        ),
        (
            PARAMETERS + KEY,
            KEY,
            'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM'
            " blocks of the following types: [EC PARAMETERS PRIVATE KEY]",
        ),
        (CERTIFICATE, b"x", "tls: failed to find any PEM data in key input"),
        (
            CERTIFICATE,
            CERTIFICATE,
            "tls: found a certificate rather than a key in the PEM for the private key",
        ),
        (
            CERTIFICATE,
            PARAMETERS,
            'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after'
            " skipping PEM blocks of the following types: [EC PARAMETERS]",
        ),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            KEY,
            "x509: malformed certificate",
        ),
        (
            CERTIFICATE,
            b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "tls: failed to parse private key",
        ),
        (
            b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n",
            KEY,
            "tls: failed to find any PEM data in certificate input",
        ),
        (CERTIFICATE, pem_of(OTHER_EC), "tls: private key does not match public key"),
        (CERTIFICATE, pem_of(ED25519), "tls: private key type does not match public key type"),
        (
            certificate_of(RSA_PUBLIC),
            KEY,
            "tls: private key type does not match public key type",
        ),
        (
            certificate_of(ED25519.public_key()),
            KEY,
            "tls: private key type does not match public key type",
        ),
        (certificate_of(ED448.public_key()), KEY, "tls: unknown public key algorithm"),
    ],
)
def test_no_pair(certificate: bytes, key: bytes, expected: str) -> None:
    """In the words of Go's tls."""
    assert key_pair_problem(certificate, key) == expected


def test_block_with_headers() -> None:
    """They end at the first line without a colon; something must follow them."""
    first, _, rest = KEY.partition(b"\n")
    for gap in (b"\n", b""):
        with_headers = first + b"\nProc-Type: 4\nOther: 5\n" + gap + rest
        assert key_pair_problem(CERTIFICATE, with_headers) == ""
    only_headers = first + b"\nProc-Type: 4\n-----END PRIVATE KEY-----\n"
    expected = "tls: failed to find any PEM data in key input"
    assert key_pair_problem(CERTIFICATE, only_headers) == expected
