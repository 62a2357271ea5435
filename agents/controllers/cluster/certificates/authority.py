"""Signs certificate signing requests with the key of an authority.

Subject, other names and key are the request's; usages and times are the caller's. The serial number
is a hash of what is signed and for whom, so that the same is never issued twice under two numbers.
"""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from kvstack.agents.controllers.cluster.certificates.requests import Request, alternative_names

_PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

_BACKDATED: Final = timedelta(minutes=5)
_SHORT: Final = timedelta(hours=8)
_SERIAL_BYTES: Final = 16

_BITS: Final = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_NO_BITS: Final = dict.fromkeys(_BITS.values(), False)
_PURPOSES: Final = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": ObjectIdentifier("2.16.840.1.113730.4.1"),
}


class AuthorityError(ValueError):
    """An authority cannot be used, or does not sign."""


class Authority:
    """A certificate with its key."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        """Load both from PEM; raises AuthorityError."""
        try:
            self._certificate = x509.load_pem_x509_certificate(certificate)
            private = load_pem_private_key(key, None)
        except (ValueError, TypeError) as error:
            raise AuthorityError(f"the authority cannot be read: {error}") from error
        if not isinstance(
            private, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
        ):
            raise AuthorityError("the authority's key is of no kind that signs certificates")
        self._key: _PrivateKey = private

    def sign(
        self, request: Request, uid: str, usages: Iterable[str], duration_s: float, now_s: float
    ) -> bytes:
        """Return a certificate in PEM; raises AuthorityError."""
        now = datetime.fromtimestamp(int(now_s), UTC)
        ends = self._certificate.not_valid_after_utc
        if now >= ends:
            raise AuthorityError(
                f"refusing to sign a certificate that expired in the past: NotAfter={ends}"
            )
        duration = timedelta(seconds=duration_s)
        until = now + (duration if duration < _SHORT else duration - _BACKDATED)
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(self._certificate.subject)
            .public_key(request.public_key())
            .serial_number(_serial(request, uid))
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(min(until, ends))
        )
        for extension, is_critical in self._extensions(request, usages):
            builder = builder.add_extension(extension, critical=is_critical)
        signed = builder.sign(self._key, _hash_for(self._key))
        return signed.public_bytes(Encoding.PEM)

    def _extensions(
        self, request: Request, usages: Iterable[str]
    ) -> list[tuple[x509.ExtensionType, bool]]:
        names = list(dict.fromkeys(usages))
        bits: dict[str, Any] = {
            **_NO_BITS,
            **{_BITS[each]: True for each in names if each in _BITS},
        }
        extensions: list[tuple[x509.ExtensionType, bool]] = []
        if any(bits.values()):
            extensions.append((x509.KeyUsage(**bits), True))
        if purposes := [_PURPOSES[each] for each in names if each in _PURPOSES]:
            extensions.append((x509.ExtendedKeyUsage(dict.fromkeys(purposes)), False))
        extensions.append((x509.BasicConstraints(ca=False, path_length=None), True))
        if (own := self._own_key_id()) is not None:
            extensions.append((x509.AuthorityKeyIdentifier(own, None, None), False))
        others = alternative_names(request)
        if others is not None:
            extensions.append((others, False))
        return extensions

    def _own_key_id(self) -> bytes | None:
        extensions = self._certificate.extensions
        try:
            own = extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        except x509.ExtensionNotFound:
            return None
        return own.value.digest


def _serial(request: Request, uid: str) -> int:
    data = uid.encode() + request.public_bytes(Encoding.DER)
    digest = hashlib.sha256(data).digest()[:_SERIAL_BYTES]
    return int.from_bytes(digest, "big") or 1


def _hash_for(key: _PrivateKey) -> hashes.SHA256 | hashes.SHA384 | hashes.SHA512 | None:
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        size = key.curve.key_size
        if size > 384:
            return hashes.SHA512()
        if size > 256:
            return hashes.SHA384()
    return hashes.SHA256()
