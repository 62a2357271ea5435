"""Dialling the gRPC port of a server with grpcio: endpoints and files into targets and credentials.

    "10.0.0.1:2379"            TLS if the settings require it
    "http://…" "unix:…"        plaintext, whatever the settings
    "https://…" "unixs:…"      TLS

The result of `dial_plan` fits grpc.secure_channel and grpc.aio.secure_channel alike. grpcio always
verifies certificates. Where verification is disabled, the certificate that the server presents now
is fetched and trusted, so a new plan is needed when the server renews it.
"""

import socket
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from kvstack.component.certs.client_files import load_client_files
from kvstack.component.errors import ConfigError
from kvstore.transport.grpcio import grpc

Option = tuple[str, int | str]

_FETCH_S: Final = 5.0
_PORT: Final = 443  # of a host without a port, as in a URL


class DialTls(NamedTuple):
    """The certificate a client presents, and those it trusts."""

    cert_file: str = ""
    key_file: str = ""
    trusted_ca_file: str = ""  # empty: the system's
    is_unverified: bool = False
    is_enabled: bool = False  # for endpoints without a scheme; file names have the same effect


class DialPlan(NamedTuple):
    """The target and the credentials of one endpoint."""

    target: str
    credentials: grpc.ChannelCredentials | None  # None: plaintext
    options: tuple[Option, ...]


def uses_tls(endpoint: str, tls: DialTls) -> bool:
    """Return whether an endpoint is dialled with TLS."""
    scheme = _split(endpoint)[0]
    if scheme:
        return scheme in {"https", "unixs"}
    return tls.is_enabled or any((tls.cert_file, tls.trusted_ca_file, tls.is_unverified))


def dial_plan(endpoint: str, tls: DialTls) -> DialPlan:
    """Return how to reach endpoint.

    Raises ConfigError if the files cannot be used, OSError if a certificate cannot be fetched.
    """
    scheme, address = _split(endpoint)
    is_unix = scheme.startswith("unix")
    target = f"unix:{address}" if is_unix else address
    if not uses_tls(endpoint, tls):
        return DialPlan(target, None, ())
    _context(tls)
    roots, key, cert = (_read(each) for each in (tls.trusted_ca_file, tls.key_file, tls.cert_file))
    options: tuple[Option, ...] = ()
    if tls.is_unverified:
        roots, name = _fetch_certificate(address, tls, is_unix=is_unix)
        options = (("grpc.ssl_target_name_override", name),)
    elif roots is None:
        roots = _read(ssl.get_default_verify_paths().cafile or "")
    return DialPlan(target, grpc.ssl_channel_credentials(roots, key, cert), options)


def _split(endpoint: str) -> tuple[str, str]:
    """Return scheme and host:port, or scheme and path of a unix socket."""
    scheme, separator, rest = endpoint.partition("://")
    if separator and scheme.startswith("unix"):
        return scheme, rest
    if not separator:
        scheme, _, rest = endpoint.partition(":")
        if scheme in {"unix", "unixs"}:
            return scheme, rest
        scheme, rest = "", endpoint
    host, colon, port = rest.partition("/")[0].rpartition(":")
    # Names from DNS end in a dot, those in certificates do not.
    return scheme, f"{host.rstrip('.')}{colon}{port}"


def _context(tls: DialTls) -> ssl.SSLContext:
    """Load the files with OpenSSL, because grpcio gives no reason when it cannot."""
    return load_client_files(tls.cert_file, tls.key_file, tls.trusted_ca_file)


def _read(path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _fetch_certificate(address: str, tls: DialTls, *, is_unix: bool) -> tuple[bytes, str]:
    """Return the certificate a server presents, as PEM, and a name that is in it."""
    context = _context(tls)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with _connect(address, is_unix=is_unix) as raw, context.wrap_socket(raw) as secure:
        der = secure.getpeercert(binary_form=True)
    if der is None:
        raise OSError(f"{address} presents no certificate")
    return ssl.DER_cert_to_PEM_cert(der).encode(), _name_in(x509.load_der_x509_certificate(der))


def _connect(address: str, *, is_unix: bool) -> socket.socket:
    if not is_unix:
        host, _, port = address.rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port or _PORT)), _FETCH_S)
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    raw.settimeout(_FETCH_S)
    try:
        raw.connect(address)
    except BaseException:
        raw.close()
        raise
    return raw


def _name_in(certificate: x509.Certificate) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(found[0].value) if found else ""
    hosts = [each.replace("*", "any") for each in names.get_values_for_type(x509.DNSName)]
    addresses = [str(each) for each in names.get_values_for_type(x509.IPAddress)]
    return next(iter(hosts + addresses), "")
