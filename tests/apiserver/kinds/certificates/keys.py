"""Keys, requests and certificates, the same in every run but for signatures."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding

NAME: Final = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
EC: Final = ec.derive_private_key(5, ec.SECP256R1())
SMALL_EC: Final = ec.derive_private_key(5, ec.SECP224R1())
ED25519: Final = ed25519.Ed25519PrivateKey.from_private_bytes(b"\1" * 32)
START: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
"""The time of the requests in tests."""

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey


def text(data: bytes) -> str:
    """Return bytes as objects have them."""
    return base64.b64encode(data).decode()


def request_of(key: Key, form: Encoding = Encoding.DER) -> bytes:
    """Return a request for a certificate of a key."""
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    request = x509.CertificateSigningRequestBuilder(NAME).sign(key, algorithm)
    return request.public_bytes(form)


def certificate(
    key: Key = EC, *, hours: int = 2, is_authority: bool | None = None, names: Any = ()
) -> bytes:
    """Return a certificate of a key in PEM; who signed it does not matter."""
    builder = x509.CertificateBuilder(
        issuer_name=NAME,
        subject_name=NAME,
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=START,
        not_valid_after=START + timedelta(hours=hours),
    )
    if is_authority is not None:
        constraints = x509.BasicConstraints(ca=is_authority, path_length=None)
        builder = builder.add_extension(constraints, critical=True)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(EC, hashes.SHA256()).public_bytes(Encoding.PEM)
