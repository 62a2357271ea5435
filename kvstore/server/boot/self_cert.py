"""The self-signed certificates that --auto-tls and --peer-auto-tls generate.

    <data-dir>/fixtures/client/cert.pem, key.pem     for the client port
    <data-dir>/fixtures/peer/cert.pem, key.pem       for members

Paths, names and fields are etcd's, so that either server can use the other's files: self-signed,
ECDSA on P-521, the listening hosts as alternative names. They are made once and then kept, as in
etcd; an expired one is logged as a warning, since a new one is made only if it is removed. Such a
certificate can be verified only by those who have the file.
"""

import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.config.model import Config, TlsConfig

_YEAR: Final = timedelta(days=365)
_YEARS_MAX: Final = 10_000
_LAST_DAY: Final = datetime(9999, 12, 31, tzinfo=UTC)  # the last of X.509
_SERIAL_BITS: Final = 128
_PRIVATE_DIR_MODE: Final = 0o700
_PRIVATE_FILE_MODE: Final = 0o600
_PUBLIC_FILE_MODE: Final = 0o666  # reduced by the umask, as for any file


def with_made_certificates(config: Config, root: Path, wall_s: int, logger: Logger) -> Config:
    """Return config with the files of made certificates, where its flags ask for them.

    root is the data directory, wall_s the Unix time. ConfigError if one cannot be made.
    """
    years, fixtures = config.self_signed_cert_validity_years, root / "fixtures"
    return replace(
        config,
        client_tls=_with_made(
            config.client_tls,
            "auto-tls",
            config.all_client_urls,
            fixtures / "client",
            years,
            wall_s,
            logger,
        ),
        peer_tls=_with_made(
            config.peer_tls,
            "peer-auto-tls",
            config.listen_peer_urls,
            fixtures / "peer",
            years,
            wall_s,
            logger,
        ),
    )


def _with_made(
    tls: TlsConfig,
    flag: str,
    urls: Sequence[str],
    directory: Path,
    years: int,
    wall_s: int,
    logger: Logger,
) -> TlsConfig:
    """Return the settings of a port with the files of a made certificate, if flag asks for one."""
    if not tls.auto_tls:
        return tls
    if tls.cert_file or tls.key_file:
        logger.warning(f"ignoring --{flag} since certificates are given")
        return replace(tls, auto_tls=False)
    if years <= 0:
        raise ConfigError(
            f"selfSignedCertValidity is invalid,it should be greater than 0 (set to {years})"
        )
    hosts = [urlsplit(url).hostname or "" for url in urls if url.startswith("http")]
    try:
        cert_file, key_file = provide(directory, hosts, years, wall_s, logger)
    except OSError as error:
        raise ConfigError(
            f"cannot generate a certificate in {directory}: {error.strerror or error}"
        ) from error
    return replace(tls, cert_file=cert_file, key_file=key_file)


def provide(
    directory: Path, hosts: Sequence[str], validity_years: int, wall_s: int, logger: Logger
) -> tuple[str, str]:
    """Return the files of certificate and key, made unless both are there; or OSError."""
    directory.mkdir(mode=_PRIVATE_DIR_MODE, parents=True, exist_ok=True)
    cert_file, key_file = directory.absolute() / "cert.pem", directory.absolute() / "key.pem"
    now = datetime.fromtimestamp(wall_s, UTC)
    if cert_file.exists() and key_file.exists():
        _warn_of_age(cert_file, now, logger)
        return str(cert_file), str(key_file)
    until = now + min(min(validity_years, _YEARS_MAX) * _YEAR, _LAST_DAY - now)
    logger.warning("generated a certificate", path=str(cert_file), valid_until=until.isoformat())
    key = ec.generate_private_key(ec.SECP521R1())
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    cert_pem = _certificate(key, hosts, now, until).public_bytes(Encoding.PEM)
    _write(cert_file, cert_pem, _PUBLIC_FILE_MODE)
    _write(key_file, key_pem, _PRIVATE_FILE_MODE)
    return str(cert_file), str(key_file)


def _certificate(
    key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], begin: datetime, end: datetime
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "etcd")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .serial_number(1 + secrets.randbelow((1 << _SERIAL_BITS) - 1))
        .not_valid_before(begin)
        .not_valid_after(end)
        .public_key(key.public_key())
        .add_extension(_KEY_USAGE, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if names := _alternative_names(hosts):
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA512())


_KEY_USAGE: Final = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=True,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _alternative_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(filter(None, hosts)):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _warn_of_age(cert_file: Path, now: datetime, logger: Logger) -> None:
    try:
        until = x509.load_pem_x509_certificate(cert_file.read_bytes()).not_valid_after_utc
    except ValueError as error:
        raise ConfigError(
            f"the generated certificate {cert_file} cannot be read: {error}"
        ) from error
    if until < now:
        logger.warning(
            "the generated certificate has expired; remove it to have a new one generated",
            path=str(cert_file),
            valid_until=until.isoformat(),
        )


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a file atomically and durably."""
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
