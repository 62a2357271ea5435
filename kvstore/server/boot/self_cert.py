"""Certificates that a member makes for itself: --auto-tls, --peer-auto-tls.

    <data-dir>/fixtures/client/cert.pem, key.pem     for the client port
    <data-dir>/fixtures/peer/cert.pem, key.pem       for members

They are etcd's in place, name and fields, so that either server goes on with what the other made:
self-signed, ECDSA on P-521, the listening hosts as alternative names. They are made once and then
used for ever, as etcd does; one that is past its time is warned of, for only removing it makes a
new one. Nobody who does not know the file itself can verify such a certificate.
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

from kvstore.config.model import Config
from kvstore.config.values import Value
from kvstore.errors import ConfigError
from kvstore.logger import Logger

_YEAR: Final = timedelta(days=365)
_YEARS_MAX: Final = 10_000
_LAST_DAY: Final = datetime(9999, 12, 31, tzinfo=UTC)  # X.509 knows no later one
_SERIAL_BITS: Final = 128
_PRIVATE_DIR_MODE: Final = 0o700
_PRIVATE_FILE_MODE: Final = 0o600
_PUBLIC_FILE_MODE: Final = 0o666  # less what umask takes, as for any file


def with_made_certificates(config: Config, root: Path, wall_s: int, logger: Logger) -> Config:
    """Return config with certificates made and named where its flags ask for that.

    root is the data directory, wall_s the Unix time. ConfigError if one cannot be made.
    """
    values = dict(config.values)
    http_urls = values["listen-client-http-urls"]
    assert isinstance(http_urls, tuple)
    client_urls = (*config.listen_client_urls, *http_urls)
    _provide(values, "", client_urls, root / "fixtures" / "client", wall_s, logger)
    _provide(values, "peer-", config.listen_peer_urls, root / "fixtures" / "peer", wall_s, logger)
    return replace(config, values=values)


def _provide(
    values: dict[str, Value],
    prefix: str,
    urls: Sequence[str],
    directory: Path,
    wall_s: int,
    logger: Logger,
) -> None:
    """Name the files of a made certificate among the flags, if they ask for one."""
    if not values[f"{prefix}auto-tls"]:
        return
    if values[f"{prefix}cert-file"] or values[f"{prefix}key-file"]:
        values[f"{prefix}auto-tls"] = False
        logger.warning(f"ignoring --{prefix}auto-tls since certificates are given")
        return
    years = values["self-signed-cert-validity"]
    assert isinstance(years, int)
    if years <= 0:
        raise ConfigError(
            f"selfSignedCertValidity is invalid,it should be greater than 0 (set to {years})"
        )
    hosts = [urlsplit(url).hostname or "" for url in urls if url.startswith("http")]
    try:
        cert_file, key_file = provide(directory, hosts, years, wall_s, logger)
    except OSError as error:
        raise ConfigError(
            f"cannot make a certificate in {directory}: {error.strerror or error}"
        ) from error
    values[f"{prefix}cert-file"], values[f"{prefix}key-file"] = cert_file, key_file


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
    logger.warning("made a certificate", path=str(cert_file), valid_until=until.isoformat())
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
        raise ConfigError(f"the made certificate {cert_file} cannot be read: {error}") from error
    if until < now:
        logger.warning(
            "the made certificate is past its time; remove it, and a new one is made",
            path=str(cert_file),
            valid_until=until.isoformat(),
        )


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a file that is whole or not there, and outlives a crash."""
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
