"""Certificate requests in DER (PKCS #10) and public keys, checked as the API requires.

Parse errors and signature errors have the texts of Go's x509 where it has some.
"""

import hashlib
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)

from kvstack.apimachinery.objects.text import pem

REQUEST: Final = "CERTIFICATE REQUEST"

_CURVES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
_OTHER_CURVES: Final = {"secp224r1": "P-224"}
_MODULUS_SIZES: Final = frozenset((3072, 4096))
_UNKNOWN_KEY: Final = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"


class BadKeyError(ValueError):
    """A public key is not accepted: the value to report, if any, and a detail."""

    def __init__(self, detail: str, value: str | None = None) -> None:
        """Take the value that the detail is about; None: no value is reported."""
        super().__init__(detail)
        self.detail = detail
        self.value = value


def request_problem(data: bytes) -> str:
    """Return the error of a request in PEM; empty if it is valid."""
    block = next(pem.blocks(data), None)
    if block is None or block.kind != REQUEST:
        return f"PEM block type must be {REQUEST}"
    request = read_request(block.content)
    if request is None:
        return "x509: malformed certificate request"
    return "" if has_good_signature(request) else _signature_problem(request)


def read_request(data: bytes) -> x509.CertificateSigningRequest | None:
    """Return the request in DER; None if it cannot be parsed."""
    try:
        request = x509.load_der_x509_csr(data)
        request.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None
    return request


def has_good_signature(request: x509.CertificateSigningRequest) -> bool:
    """Return whether a request was signed with the key that it is for."""
    try:
        is_sha1 = isinstance(request.signature_hash_algorithm, hashes.SHA1)
        return _has_good_sha1_signature(request) if is_sha1 else request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        return False


def _has_good_sha1_signature(request: x509.CertificateSigningRequest) -> bool:
    """Check SHA-1 signatures, which the library does not: Go accepts them in requests."""
    key, signed = request.public_key(), request.tbs_certrequest_bytes
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(request.signature, signed, padding.PKCS1v15(), hashes.SHA1())
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(request.signature, signed, ec.ECDSA(hashes.SHA1()))
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _signature_problem(request: x509.CertificateSigningRequest) -> str:
    key = request.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return "crypto/rsa: verification error"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "x509: ECDSA verification failure"
    if isinstance(key, ed25519.Ed25519PublicKey):
        return "x509: Ed25519 verification failure"
    return "x509: cannot verify signature: algorithm unimplemented"


def read_key(data: bytes) -> PublicKeyTypes | None:
    """Return the public key in DER (PKIX); None if it cannot be parsed."""
    try:
        return load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        return None


def check_key(key: PublicKeyTypes, allowed_curves: str) -> None:
    """Check the kind and size of a key; raises BadKeyError.

    allowed_curves: the curves it may have, for the error.
    """
    if isinstance(key, ed25519.Ed25519PublicKey):
        return
    if isinstance(key, ec.EllipticCurvePublicKey):
        name = key.curve.name
        if name not in _CURVES:
            told = f"curve {_OTHER_CURVES.get(name, name)}"
            raise BadKeyError(f"elliptic public keys must use curve {allowed_curves}", told)
        return
    if not isinstance(key, rsa.RSAPublicKey):
        raise BadKeyError(_UNKNOWN_KEY)
    size = (key.key_size + 7) // 8 * 8
    if size not in _MODULUS_SIZES:
        raise BadKeyError("RSA keys must have modulus size 3072 or 4096", f"{size}-bit modulus")


def is_signed(key: PublicKeyTypes, signature: bytes, message: bytes) -> bool:
    """Return whether a message was signed with a key that `check_key` takes."""
    digest = utils.Prehashed(hashes.SHA256())
    hashed = hashlib.sha256(message).digest()
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, message)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, hashed, ec.ECDSA(digest))
        elif isinstance(key, rsa.RSAPublicKey):
            salt = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.AUTO)
            key.verify(signature, hashed, salt, digest)
        else:
            return False
    except InvalidSignature:
        return False
    return True


def is_same_key(one: PublicKeyTypes, other: PublicKeyTypes) -> bool:
    """Return whether two public keys are the same."""
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return one.public_bytes(*form) == other.public_bytes(*form)


def read_certificate(data: bytes) -> x509.Certificate | None:
    """Return the certificate in DER; None if it cannot be parsed."""
    try:
        return x509.load_der_x509_certificate(data)
    except (ValueError, UnsupportedAlgorithm):
        return None
