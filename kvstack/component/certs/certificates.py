"""Certificates a cluster needs, made by its own authority.

    ca = new_authority("kubernetes", now)
    pair = issue(ca, Profile("kube-apiserver", hosts=("localhost", "10.0.0.1"), serves=True), now)

Keys are on the curve P-256: fast to generate, and supported by every TLS client. Times are seconds
since 1970; nothing reads a clock or a file here.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
LEAF_DAYS: Final = 365
TOKEN_KEY_BITS: Final = 2048
RENEW_PART: Final = 0.2
"""A certificate is renewed when less than this part of its life is left."""
_CLOCK_SLACK: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate, with those it is verified by after it, and its key, in PEM."""

    cert: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Profile:
    """The subject and the usages of a certificate."""

    name: str
    """The common name; for a client, the user."""
    groups: tuple[str, ...] = ()
    """The organizations; for a client, the groups."""
    hosts: tuple[str, ...] = ()
    """DNS names and IP addresses of a server."""
    serves: bool = False
    """Whether it is a server certificate; else a client certificate."""
    asks: bool = False
    """Whether a server certificate is also used as a client certificate."""


def new_authority(name: str, now_s: float) -> Pair:
    """Return a new self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name, ())
    builder = _builder(subject, subject, key.public_key(), now_s, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
    )
    return Pair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def issue(authority: Pair, profile: Profile, now_s: float) -> Pair:
    """Return a new certificate that an authority signed, and its key."""
    signer = load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey), "authorities are made here"
    issuer = x509.load_pem_x509_certificate(authority.cert)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(profile.name, profile.groups)
    builder = _builder(subject, issuer.subject, key.public_key(), now_s, LEAF_DAYS)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if profile.serves else []
    if profile.asks or not profile.serves:
        purposes.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(_key_id(issuer), critical=False)
    )
    if profile.hosts:
        names = [_host(each) for each in dict.fromkeys(profile.hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Pair(_pem(builder.sign(signer, hashes.SHA256())), _key_pem(key))


def new_key() -> tuple[bytes, bytes]:
    """Return a private key that signs tokens, and its public half, in PEM.

    It is an RSA key: not all verifiers of tokens support elliptic curves.
    """
    key = rsa.generate_private_key(65537, TOKEN_KEY_BITS)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), public


def reason_to_renew(authority: bytes, cert: bytes, profile: Profile, now_s: float) -> str:
    """Return why a certificate does not fit a profile; empty if it does. ValueError: invalid."""
    certificate = x509.load_pem_x509_certificate(cert)
    issuer = x509.load_pem_x509_certificate(authority)
    begins, ends = (
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )
    if ends - now_s < (ends - begins) * RENEW_PART:
        return "it expires soon"
    if certificate.subject != _name(profile.name, profile.groups):
        return "it has another subject"
    if not set(profile.hosts) <= set(hosts_of(certificate)):
        return "it lacks a host name"
    return "" if _is_signed_by(issuer, certificate) else "another authority signed it"


def is_signed_by(authority: bytes, cert: bytes) -> bool:
    """Return whether an authority signed a certificate; ValueError if one of them is invalid."""
    return _is_signed_by(
        x509.load_pem_x509_certificate(authority), x509.load_pem_x509_certificate(cert)
    )


def _is_signed_by(authority: x509.Certificate, cert: x509.Certificate) -> bool:
    try:
        cert.verify_directly_issued_by(authority)
    except (ValueError, TypeError, _invalid_signature()):
        return False
    return True


def ends_at(cert: bytes) -> float:
    """Return when the first certificate expires, in seconds since 1970; ValueError."""
    return x509.load_pem_x509_certificate(cert).not_valid_after_utc.timestamp()


def hosts_of(cert: x509.Certificate) -> Sequence[str]:
    """Return the host names and addresses in a certificate."""
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = [str(each) for each in names.get_values_for_type(x509.IPAddress)]
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def _invalid_signature() -> type[Exception]:
    from cryptography.exceptions import InvalidSignature

    return InvalidSignature


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now_s: float,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(int(now_s), UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier(_digest(key)), critical=False)
    )


def _digest(key: ec.EllipticCurvePublicKey) -> bytes:
    point = key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return hashlib.sha256(point).digest()[:20]


def _key_id(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
