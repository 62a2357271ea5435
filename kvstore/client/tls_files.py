"""Checks of a client's TLS files before it dials, so that an error at the start names the file.

Channels read the files for each dial.
"""

from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from kvstack.component.certs.client_files import load_client_files
from kvstack.component.errors import ConfigError
from kvstore.client.options import ClientTls
from kvstore.config.checks import check_key_pair


def check_files(tls: ClientTls) -> None:
    """Raise ConfigError unless the files can be used."""
    check_key_pair(tls.cert_file, tls.key_file)
    load_client_files(tls.cert_file, tls.key_file, tls.trusted_ca_file)


def common_name_of(cert_file: str) -> str:
    """Return the common name in a certificate's subject, or an empty text."""
    try:
        certificate = x509.load_pem_x509_certificate(Path(cert_file).read_bytes())
    except OSError as error:
        raise ConfigError(f"{cert_file}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{cert_file}: {error}") from None
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""
