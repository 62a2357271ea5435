"""Authorities and client certificates, made in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.apiserver.policy.clocks import BEGAN_S

BEGAN = datetime.fromtimestamp(BEGAN_S, UTC)
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@cache
def curve_key(number: int, curve: type[ec.EllipticCurve] = ec.SECP256R1) -> Key:
    """Return one of several keys."""
    return ec.generate_private_key(curve())


@cache
def rsa_key(number: int) -> rsa.RSAPrivateKey:
    """Return one of several keys."""
    return rsa.generate_private_key(65537, 2048)


def private_pem(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key: Key) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def subject(name: str = "", groups: tuple[str, ...] = (), uids: tuple[str, ...] = ()) -> x509.Name:
    """Return a name of a certificate."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
    parts += [x509.NameAttribute(UID, each) for each in uids]
    if name:
        parts.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    return x509.Name(parts)


@dataclass
class Authority:
    """One that signs certificates of clients, and of other authorities."""

    certificate: x509.Certificate
    key: Key

    @classmethod
    def root(cls, number: int = 0, days: int = 100) -> "Authority":
        name, key = subject(f"ca-{number}"), curve_key(number)
        return cls(_signed(name, name, key, key, days, is_authority=True), key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def below(self, number: int) -> "Authority":
        """Return an authority that this one vouches for."""
        key = curve_key(number)
        name = subject(f"ca-{number}")
        issuer = self.certificate.subject
        return Authority(_signed(name, issuer, key, self.key, 100, is_authority=True), key)

    def client(
        self,
        name: x509.Name | str,
        *,
        days: float = 1,
        begins: float = -1,
        purposes: tuple[x509.ObjectIdentifier, ...] = (CLIENT,),
        key: Key | None = None,
    ) -> bytes:
        """Return a client's certificate in DER; days: from now until it ends."""
        shown = subject(name) if isinstance(name, str) else name
        own = key or curve_key(100)
        issuer = self.certificate.subject
        made = _signed(shown, issuer, own, self.key, days, begins=begins, purposes=purposes)
        return made.public_bytes(Encoding.DER)

    def client_of_version_1(self, name: str, **settings: Any) -> bytes:
        """Return a client's certificate as `openssl x509 -req` makes it, without extensions."""
        made = x509.load_der_x509_certificate(self.client(name, **settings))
        _, parts = next(_members(made.tbs_certificate_bytes))
        # Without the number of the version, [0], and the extensions, [3].
        own = _der(0x30, b"".join(each for tag, each in _members(parts, whole=True) if tag < 0xA0))
        _, signed = next(_members(made.public_bytes(Encoding.DER)))
        _, algorithm, _ = (each for _, each in _members(signed, whole=True))
        assert isinstance(self.key, ec.EllipticCurvePrivateKey)
        signature = self.key.sign(own, ec.ECDSA(hashes.SHA256()))
        return _der(0x30, own + algorithm + _der(0x03, b"\0" + signature))


def _members(data: bytes, *, whole: bool = False) -> Iterator[tuple[int, bytes]]:
    """Give tags and contents of what follows one another in DER; whole: with tag and length."""
    at = 0
    while at < len(data):
        start, size = at, data[at + 1]
        at += 2
        if size >= 0x80:
            size, at = int.from_bytes(data[at : at + size - 0x80]), at + size - 0x80
        yield data[start], data[start if whole else at : at + size]
        at += size


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 + len(length))) + length + content


def _signed(
    name: x509.Name,
    issuer: x509.Name,
    key: Key,
    signer: Key,
    days: float,
    *,
    begins: float = -1,
    is_authority: bool = False,
    purposes: tuple[x509.ObjectIdentifier, ...] = (),
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGAN + timedelta(days=begins))
        .not_valid_after(BEGAN + timedelta(days=days))
    )
    if is_authority:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), False)
    return builder.sign(signer, hashes.SHA256())
