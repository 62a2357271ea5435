"""JSON Web Tokens: signing them and verifying their signatures.

    {"alg": "RS256", "typ": "JWT"} . {"exp": 1700000300, "revision": 7, "username": "alice"} . …

All methods of etcd are supported: HS, RS, PS and ES with 256, 384 or 512, and EdDSA (Ed25519). The
key files are PEM, except for HS, whose private key is the file's bytes. With a public key alone
tokens can only be verified. A token must be signed with the configured method.

Times and permissions of a token are checked elsewhere.
"""

import warnings
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import jwt
import jwt.warnings
from cryptography.hazmat.primitives.asymmetric.ec import (
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from cryptography.x509 import load_pem_x509_certificate
from jwt.types import Options

from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.units import MILLISECOND_NS, SECOND_NS
from kvstore.auth.tokens import Claims
from kvstore.config.values import parse_duration

PrivateKey: TypeAlias = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey
PublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

TTL_DEFAULT_NS: Final = 300_000_000_000
TOKEN_BYTES_MAX: Final = 16 << 10  # a longer token is invalid

_KeyTypes: TypeAlias = tuple[type[PrivateKey], type[PublicKey]]
_RSA: Final[_KeyTypes] = (RSAPrivateKey, RSAPublicKey)
_EC: Final[_KeyTypes] = (EllipticCurvePrivateKey, EllipticCurvePublicKey)
_ED: Final[_KeyTypes] = (Ed25519PrivateKey, Ed25519PublicKey)
_KEY_TYPES: Final[dict[str, _KeyTypes]] = {
    **{f"{family}{bits}": _RSA for family in ("RS", "PS") for bits in (256, 384, 512)},
    **{f"ES{bits}": _EC for bits in (256, 384, 512)},
    "EdDSA": _ED,
}
_CURVE_BITS: Final = {"ES256": 256, "ES384": 384, "ES512": 521}
_SECRET_METHODS: Final = frozenset({"HS256", "HS384", "HS512"})
_OPTIONS: Final = frozenset({"sign-method", "pub-key", "priv-key", "ttl"})

# The node checks the claims with its own clock.
_SIGNATURE_ONLY: Final[Options] = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


# A short key is logged once, at start, not with every token.
warnings.filterwarnings("ignore", category=jwt.warnings.InsecureKeyLengthWarning)


class JwtKeys:
    """The keys of one signing method."""

    def __init__(
        self,
        method: str,
        private: PrivateKey | bytes | None,
        public: PublicKey | bytes,
        ttl_ns: int,
        clock: Clock,
    ) -> None:
        """Take the keys, or the secret twice; without a private key tokens are only verified."""
        self._clock = clock
        self._method = method
        self._private = private
        self._public = public
        self._ttl_ns = ttl_ns
        self._decoder = jwt.PyJWT()

    @classmethod
    def of_options(cls, options: dict[str, str], logger: Logger, clock: Clock) -> Self:
        """Load the keys of the options of --auth-token=jwt; ConfigError if they cannot be used."""
        unknown = sorted(options.keys() - _OPTIONS)
        if unknown:
            logger.warning("unknown JWT options", keys=unknown)
        method = options.get("sign-method", "")
        ttl_ns = TTL_DEFAULT_NS
        if text := options.get("ttl", ""):
            try:
                ttl_ns = parse_duration(text)
            except ValueError as error:
                raise ConfigError(f'--auth-token: ttl "{text}": {error}') from error
        private = _read(options, "priv-key")
        public = _read(options, "pub-key")
        if method in _SECRET_METHODS:
            if not private:
                raise ConfigError(f"--auth-token: {method} needs priv-key, the file of the secret")
            _check_secret(method, private, logger)
            return cls(method, private, private, ttl_ns, clock)
        if method not in _KEY_TYPES:
            known = ", ".join(sorted([*_SECRET_METHODS, *_KEY_TYPES]))
            raise ConfigError(f'--auth-token: unknown sign-method "{method}"; known are {known}')
        keys = _load_pair(method, private, public)
        return cls(method, *keys, ttl_ns, clock)

    @property
    def can_sign(self) -> bool:
        """Whether there is a private key."""
        return self._private is not None

    def sign(self, username: str, revision: int) -> str:
        """Return a token that is valid for the configured time; takes up to milliseconds."""
        expires_s = (self._clock.unix_ms() * MILLISECOND_NS + self._ttl_ns) // SECOND_NS
        if self._private is None:
            raise ValueError("there is no private key to sign with")
        claims = {"exp": expires_s, "revision": revision, "username": username}
        return self._decoder.encode(claims, self._private, self._method)

    def verify(self, token: str) -> Claims | None:
        """Return the claims of a token with a valid signature; None for any other text."""
        if len(token) > TOKEN_BYTES_MAX:
            return None
        try:
            claims = self._decoder.decode(
                token, self._public, algorithms=[self._method], options=_SIGNATURE_ONLY
            )
        except (jwt.PyJWTError, ValueError):  # ValueError: invalid numbers
            return None
        return _claims(claims)


def _claims(payload: dict[str, Any]) -> Claims | None:
    username, revision = payload.get("username"), _number(payload.get("revision"))
    if not isinstance(username, str) or revision is None or revision < 0:
        return None
    times: list[float | None] = []
    for name in ("exp", "nbf"):
        value = _number(payload.get(name))
        if value is None and payload.get(name) is not None:
            return None
        times.append(value)
    return Claims(username, revision, *times)


def _number(value: object) -> int | None:
    """Return the whole part of a JSON number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) < 2**63 else None


def _read(options: dict[str, str], name: str) -> bytes:
    path = options.get(name, "")
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--auth-token: {name} {path}: {error.strerror}") from error


def _check_secret(method: str, secret: bytes, logger: Logger) -> None:
    try:
        jwt.get_algorithm_by_name(method).prepare_key(secret)
    except jwt.InvalidKeyError as error:
        raise ConfigError(
            f"--auth-token: priv-key is not a secret for {method}: {error}"
        ) from error
    least = int(method[2:]) // 8
    if len(secret) < least:
        logger.warning(
            "the secret that signs tokens is short", bytes=len(secret), recommended=least
        )


def _load_pair(
    method: str, private_pem: bytes, public_pem: bytes
) -> tuple[PrivateKey | None, PublicKey]:
    """Return the private key, if there is one, and the public key; they must belong together."""
    private_type, public_type = _KEY_TYPES[method]
    private: PrivateKey | None = None
    public: PublicKey | None = None
    if private_pem:
        key: object = _load_private(private_pem)
        if not isinstance(key, private_type):
            raise ConfigError(f"--auth-token: priv-key is not a key for {method}")
        private = key
    if public_pem:
        key = _load_public(public_pem)
        if not isinstance(key, public_type):
            raise ConfigError(f"--auth-token: pub-key is not a key for {method}")
        public = key
    if private is not None:
        own = private.public_key()
        if public is not None and _public_bytes(public) != _public_bytes(own):
            raise ConfigError("--auth-token: pub-key and priv-key do not match")
        public = own
    if public is None:
        raise ConfigError(f"--auth-token: {method} needs priv-key, or pub-key to only verify")
    _check_curve(method, public)
    return private, public


def _load_private(pem: bytes) -> object:
    try:
        return load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:  # TypeError: the key is encrypted
        raise ConfigError(f"--auth-token: priv-key cannot be read: {error}") from error


def _load_public(pem: bytes) -> object:
    """Load a public key, or that of a certificate."""
    try:
        if b"BEGIN CERTIFICATE" in pem:
            return load_pem_x509_certificate(pem).public_key()
        return load_pem_public_key(pem)
    except ValueError as error:
        raise ConfigError(f"--auth-token: pub-key cannot be read: {error}") from error


def _check_curve(method: str, public: PublicKey) -> None:
    if not isinstance(public, EllipticCurvePublicKey):
        return
    bits = _CURVE_BITS[method]
    if public.curve.key_size != bits:
        raise ConfigError(
            f"--auth-token: {method} needs a curve of {bits} bits, the key's is {public.curve.name}"
        )


def _public_bytes(key: PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
