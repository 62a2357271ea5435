"""Keys that sign tokens of service accounts, and those that verify them.

    SigningKey(pem).sign({"iss": …})           → eyJhbGciOiJSUzI1NiIsImtpZCI6…
    KeyRing(public_keys(pem)).verify(token)    → the bytes that were signed

A key is named by the SHA-256 of its public half. Each key has one algorithm, so a token cannot
choose another one: RS256 for RSA, ES256, ES384 or ES512 for the curves P-256, P-384 and P-521.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import orjson
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from cryptography.x509 import load_pem_x509_certificate

from kvstack.component.errors import ConfigError

if TYPE_CHECKING:
    from jwt.api_jws import PyJWS

_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_CURVES: Final = {
    "secp256r1": ("ES256", "P-256"),
    "secp384r1": ("ES384", "P-384"),
    "secp521r1": ("ES512", "P-521"),
}


class UnusableKeyError(ConfigError, ValueError):
    """A text contains no key that tokens can be signed or verified with."""


class SignatureError(Exception):
    """No key verifies a token; the text is upstream's."""


class PublicKey:
    """A key that verifies tokens."""

    __slots__ = ("algorithm", "id", "key")

    def __init__(self, key: object) -> None:
        """Take an RSA key, or one on a curve that tokens may be signed with."""
        if not isinstance(key, RSAPublicKey | EllipticCurvePublicKey):
            raise UnusableKeyError("tokens need a key of RSA or of an elliptic curve")
        self.key: Final = key
        self.algorithm: Final = _algorithm_of(key)
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.id: Final = _base64url(hashlib.sha256(der).digest())

    def to_jwk(self) -> dict[str, str]:
        """Return the key as a JSON Web Key."""
        if isinstance(self.key, RSAPublicKey):
            numbers = self.key.public_numbers()
            return {
                "use": "sig",
                "kty": "RSA",
                "kid": self.id,
                "alg": self.algorithm,
                "n": _base64url(_shortest(numbers.n)),
                "e": _base64url(_shortest(numbers.e)),
            }
        point = self.key.public_numbers()
        size = (self.key.curve.key_size + 7) // 8
        return {
            "use": "sig",
            "kty": "EC",
            "kid": self.id,
            "crv": _CURVES[self.key.curve.name][1],
            "alg": self.algorithm,
            "x": _base64url(point.x.to_bytes(size, "big")),
            "y": _base64url(point.y.to_bytes(size, "big")),
        }


class KeyRing:
    """The keys of which any may have signed a token."""

    def __init__(self, keys: Iterable[PublicKey]) -> None:
        """Take the keys in the order in which they are published."""
        self.keys: Final = tuple(keys)
        self._by_id: Final = {each.id: each for each in self.keys}

    def verify(self, token: str, key_id: str) -> bytes:
        """Return the payload of a token after its signature was verified; raises SignatureError.

        key_id: as the header names it; empty: any key will do.
        """
        named = self._by_id.get(key_id)
        candidates = self.keys if not key_id else (named,) if named is not None else ()
        if not candidates:
            raise SignatureError("invalid signature, no keys found")
        for key in candidates:
            payload = _verified(token, key)
            if payload is not None:
                return payload
        raise SignatureError("go-jose/go-jose: error in cryptographic primitive")


class SigningKey:
    """A private key, and the public one that verifies what it signs."""

    def __init__(self, pem: bytes) -> None:
        """Read the first private key; raises UnusableKeyError."""
        key = next((each for each in _keys(pem) if _is_private(each)), None)
        if not isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey):
            raise UnusableKeyError("no private key to sign tokens with")
        self._key: Final = key
        self.public: Final = PublicKey(key.public_key())

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a token of these claims, whose members are sorted."""
        payload = orjson.dumps(claims, option=orjson.OPT_SORT_KEYS)
        # The header of upstream has no member `typ`.
        headers = {"typ": "", "kid": self.public.id}
        return _jws().encode(payload, self._key, self.public.algorithm, headers)


def public_keys(pem: bytes) -> list[PublicKey]:
    """Return the public halves of all keys and certificates in a text; raises UnusableKeyError."""
    keys = [PublicKey(key.public_key() if _is_private(key) else key) for key in _keys(pem)]
    if not keys:
        raise UnusableKeyError("no key to verify tokens with")
    return keys


def _keys(pem: bytes) -> Iterable[Any]:
    for block in _BLOCK.finditer(pem):
        label, text = block.group(1), block.group()
        try:
            if label == b"CERTIFICATE":
                yield load_pem_x509_certificate(text).public_key()
            elif label.endswith(b"PRIVATE KEY"):
                yield _private_key(text)
            elif label.endswith(b"PUBLIC KEY"):
                yield load_pem_public_key(text)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise UnusableKeyError(f"a {label.decode().lower()} cannot be read: {error}") from error


def _private_key(text: bytes) -> object:
    """Return a private key; raises ValueError if it is invalid, or has a wrong public half.

    The library's own check of an RSA key tests whether its factors are prime, which takes longer
    than everything else at a start. The key is the operator's, and must be able to sign.
    """
    key = load_pem_private_key(text, None, unsafe_skip_rsa_key_validation=True)
    if isinstance(key, RSAPrivateKey):
        numbers = key.private_numbers()
        p, q, n = numbers.p, numbers.q, numbers.public_numbers.n
        if p * q != n or min(p, q) < 3 or not (p & q & 1):
            raise ValueError("its factors are not those of its modulus")
        try:
            signature = key.sign(b"", PKCS1v15(), SHA256())
            key.public_key().verify(signature, b"", PKCS1v15(), SHA256())
        except InvalidSignature:
            raise ValueError("its public half does not verify what it signs") from None
    return key


def _is_private(key: object) -> bool:
    return hasattr(key, "private_bytes")


def _algorithm_of(key: RSAPublicKey | EllipticCurvePublicKey) -> str:
    if isinstance(key, RSAPublicKey):
        return "RS256"
    if key.curve.name not in _CURVES:
        raise UnusableKeyError(f"unsupported curve {key.curve.name} for signing tokens")
    return _CURVES[key.curve.name][0]


def _verified(token: str, key: PublicKey) -> bytes | None:
    """Return the payload; None: the key did not sign it."""
    from jwt.exceptions import PyJWTError

    try:
        payload = _jws().decode_complete(token, key.key, [key.algorithm])["payload"]
    except PyJWTError:
        return None
    assert isinstance(payload, bytes)
    return payload


@cache
def _jws() -> "PyJWS":
    # Loaded by the first token, since that takes as long as half of a start.
    from jwt.api_jws import PyJWS

    return PyJWS()


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _shortest(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")
