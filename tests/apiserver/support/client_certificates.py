"""Client certificates, signed by the authority that a server under test trusts."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=2)


class ClientCa:
    """An authority from files of PEM."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = x509.load_pem_x509_certificate(certificate.read_bytes())
        self._key = serialization.load_pem_private_key(key.read_bytes(), password=None)

    def issue(self, name: str, groups: Sequence[str], folder: Path) -> tuple[Path, Path]:
        """Write a user's certificate and its key into a folder; return both files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        if name:
            subject.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
        now = dt.datetime.now(dt.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())  # type: ignore[arg-type]
        )
        files = folder / "client.crt", folder / "client.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files
