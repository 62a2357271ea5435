"""TLS between members: the certificates that each side presents, requires and refuses.

    listening   presents cert-file; with a trusted CA or client-cert-auth every client must present
                a certificate signed by it that is not revoked, whose IP addresses or DNS names
                fit the client's address (unless that check is skipped), and that has one of the
                allowed names
    dialling    presents client-cert-file (else cert-file); the server's certificate must be signed
                by the trusted CA (else the system's), fit the host of the URL, and have one of
                the allowed names

A certificate of the trusted CA file is trusted itself, as in Go (see `trust`); certificates that
bear their authority's subject name are judged by their signatures (see `same_name_tls`). The files
are read for every handshake, so a renewed certificate needs no restart. Of the certificates that a
client sends the first is looked up in the revocation list, not its issuers.

Nothing is negotiated above TLS (no ALPN): peer ports speak HTTP/1.1 only. Certificates are not made
here.
"""

import contextlib
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kvstack.component.certs.cipher_suites import openssl_name
from kvstack.component.net.listening import peer_host
from kvstore.errors import KvstoreError
from kvstore.peers.certificates.crl import revoked_serials
from kvstore.wire.varint import WireError

if TYPE_CHECKING:
    from kvstore.peers.certificates.same_name_tls import SameNameTlsSocket

    TlsSocket: TypeAlias = ssl.SSLSocket | SameNameTlsSocket

HANDSHAKE_S_MAX: Final = 10.0
LINGER_S: Final = 1.0  # after a refused client
_LINGER_BYTES: Final = 64 << 10
_SELF_SIGNED: Final = frozenset({18, 19})  # X509_V_ERR: the certificate, or one of its chain
_seen_self_signed: Final = threading.Event()
_Certificate: TypeAlias = Mapping[str, object]  # as ssl describes one
_VERSIONS: Final = {"TLS1.2": ssl.TLSVersion.TLSv1_2, "TLS1.3": ssl.TLSVersion.TLSv1_3}


class PeerTlsError(KvstoreError):
    """A failed handshake, or a refused certificate."""


class PeerTls(NamedTuple):
    """The --peer-* flags; all empty: the system's CAs are trusted."""

    cert_file: str = ""
    key_file: str = ""
    client_cert_file: str = ""  # empty: cert_file is used
    client_key_file: str = ""
    trusted_ca_file: str = ""
    client_cert_auth: bool = False
    crl_file: str = ""
    allowed_cns: tuple[str, ...] = ()
    allowed_hostnames: tuple[str, ...] = ()
    skip_client_san_verification: bool = False
    is_self_signed: bool = False  # by the members themselves: nothing to verify against
    min_version: str = ""  # "TLS1.2" or "TLS1.3"; empty: TLS1.2
    max_version: str = ""
    cipher_suites: tuple[str, ...] = ()  # OpenSSL's or Go's names; empty: OpenSSL's choice
    server_name: str = ""  # whose certificate is expected when dialling; empty: the URL's host's
    local_address: str = ""  # to dial from, with TLS or without; empty: the system's choice


def server_context(tls: PeerTls) -> ssl.SSLContext:
    """Return the context to accept with, from the current files; PeerTlsError if unusable."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, tls)
    _load_certificate(context, tls.cert_file, tls.key_file)
    if tls.trusted_ca_file or tls.client_cert_auth:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_authorities(context, tls.trusted_ca_file)
    return context


def client_context(tls: PeerTls) -> ssl.SSLContext:
    """Return the context to dial with, from the current files; PeerTlsError if unusable."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, tls)
    if tls.client_cert_file:
        _load_certificate(context, tls.client_cert_file, tls.client_key_file)
    elif tls.cert_file:
        _load_certificate(context, tls.cert_file, tls.key_file)
    if tls.is_self_signed:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.hostname_checks_common_name = False
        _load_authorities(context, tls.trusted_ca_file)
    return context


def accept(raw: socket.socket, tls: PeerTls) -> "TlsSocket":
    """Do the handshake with a client, blocking; PeerTlsError if it is refused.

    The handshake has HANDSHAKE_S_MAX seconds; raw is closed when it fails.
    """
    secure = _shake_hands(raw, tls, None)
    try:
        certificate = secure.getpeercert() or {}
        if certificate:
            admit(certificate, raw_host(secure), tls)
    except BaseException:
        secure.close()
        raise
    return secure


def connect(raw: socket.socket, host: str, tls: PeerTls) -> "TlsSocket":
    """Do the handshake with a dialled member, blocking; PeerTlsError if it is refused."""
    name = tls.server_name or host
    secure = _shake_hands(raw, tls, name)
    try:
        certificate = secure.getpeercert() or {}
        if not isinstance(secure, ssl.SSLSocket):
            _check_server(certificate, name)
        _check_allowed(certificate, tls)
    except BaseException:
        secure.close()
        raise
    return secure


def admit(certificate: _Certificate, host: str, tls: PeerTls) -> str:
    """Check a client's verified certificate; return its common name.

    PeerTlsError if a client from the address host is refused.
    """
    _check_revoked(certificate, tls.crl_file)
    if not tls.skip_client_san_verification:
        _check_address(certificate, host)
    _check_allowed(certificate, tls)
    return _common_name(certificate)


def raw_host(connection: socket.socket) -> str:
    """Return the other end's address; empty for a unix socket."""
    name = connection.getpeername()
    return peer_host(name) if isinstance(name, tuple) else ""


def _context(protocol: int, tls: PeerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = _VERSIONS[tls.min_version or "TLS1.2"]
    if tls.max_version:
        context.maximum_version = _VERSIONS[tls.max_version]
    if tls.cipher_suites:
        names = [openssl_name(name) for name in tls.cipher_suites]
        try:
            context.set_ciphers(":".join(names))
        except ssl.SSLError as error:
            raise PeerTlsError(f"--cipher-suites {','.join(tls.cipher_suites)}: {error}") from None
    return context


def _load_certificate(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    if not cert_file or not key_file:
        raise PeerTlsError("KeyFile and CertFile must both be present for TLS between members")
    try:
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        raise PeerTlsError(f"certificate {cert_file} with key {key_file}: {error}") from None


def _load_authorities(context: ssl.SSLContext, trusted_ca_file: str) -> None:
    try:
        if trusted_ca_file:
            # A parser of certificates, for which a member without TLS has no use.
            from kvstore.peers.certificates.trust import load_trusted

            load_trusted(context, trusted_ca_file)
        else:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as error:
        raise PeerTlsError(f"trusted CA file {trusted_ca_file}: {error}") from None


def _wrap(raw: socket.socket, tls: PeerTls, server_hostname: str | None) -> "TlsSocket":
    """Return raw as a TLS socket, before its handshake; a client's if server_hostname is given."""
    if _needs_signatures(tls):
        return _wrap_by_signature(raw, tls, server_hostname)
    if server_hostname is None:
        return server_context(tls).wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
    return client_context(tls).wrap_socket(
        raw, server_hostname=server_hostname, do_handshake_on_connect=False
    )


def _shake_hands(raw: socket.socket, tls: PeerTls, server_hostname: str | None) -> "TlsSocket":
    before_s = raw.gettimeout()
    raw.settimeout(HANDSHAKE_S_MAX if before_s is None else min(before_s, HANDSHAKE_S_MAX))
    try:
        secure = _wrap(raw, tls, server_hostname)
    except (OSError, ValueError) as error:
        raw.close()
        raise PeerTlsError(f"TLS handshake: {error}") from None
    try:
        secure.do_handshake()
    except (OSError, ValueError) as error:
        if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _SELF_SIGNED:
            _seen_self_signed.set()
        if server_hostname is None:
            _linger(secure)
        secure.close()
        raise PeerTlsError(f"TLS handshake: {error}") from None
    secure.settimeout(before_s)
    return secure


def _linger(connection: socket.socket) -> None:
    """Wait a little until the client has closed: a reset could overtake the alert it was sent."""
    deadline_s = time.monotonic() + LINGER_S
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_WR)
        while (left_s := deadline_s - time.monotonic()) > 0:
            connection.settimeout(left_s)
            if not socket.socket.recv(connection, _LINGER_BYTES):
                return


def _needs_signatures(tls: PeerTls) -> bool:
    """Return whether handshakes need `same_name_tls`.

    They do if this member's certificates bear their issuer's name, or once a certificate was
    refused as self-signed: it may bear its issuer's name, and its member dials again.
    """
    if not tls.trusted_ca_file or tls.is_self_signed:
        return False
    if _seen_self_signed.is_set():
        return True
    from kvstore.peers.certificates.trust import is_like_issuer

    try:
        return is_like_issuer(tls.cert_file) or is_like_issuer(tls.client_cert_file)
    except OSError:
        return False  # the handshake reports which file cannot be read


def _wrap_by_signature(
    raw: socket.socket, tls: PeerTls, server_hostname: str | None
) -> "SameNameTlsSocket":
    from kvstore.peers.certificates.same_name_tls import SameNameTlsSocket, Settings

    is_own = server_hostname is None or not tls.client_cert_file
    settings = Settings(
        tls.cert_file if is_own else tls.client_cert_file,
        tls.key_file if is_own else tls.client_key_file,
        tls.trusted_ca_file,
        _VERSIONS[tls.min_version or "TLS1.2"],
        _VERSIONS[tls.max_version] if tls.max_version else None,
        [openssl_name(name) for name in tls.cipher_suites],
    )
    return SameNameTlsSocket(raw, settings, server_hostname)


def _check_server(certificate: _Certificate, host: str) -> None:
    """Check a server's certificate for the host that was dialled; the text is OpenSSL's."""
    ips, names = _alternative_names(certificate)
    is_address = _is_ip(host)
    if is_address:
        is_valid = any(_same_ip(ip, host) for ip in ips)
    else:
        is_valid = any(_fits(host.lower().rstrip("."), name.lower()) for name in names)
    if not is_valid:
        what = "IP address" if is_address else "Hostname"
        raise PeerTlsError(
            f"TLS handshake: certificate verify failed: {what} mismatch, certificate is not valid "
            f"for '{host}'; it is for {', '.join(ips + names)}"
        )


def _check_revoked(certificate: _Certificate, crl_file: str) -> None:
    if not crl_file:
        return
    serial = int(str(certificate["serialNumber"]), 16)
    try:
        revoked = revoked_serials(Path(crl_file).read_bytes())
    except (OSError, WireError) as error:
        raise PeerTlsError(f"certificate revocation list {crl_file}: {error}") from None
    if serial in revoked:
        raise PeerTlsError(f"transport: certificate serial {serial:x} revoked")


def _check_address(certificate: _Certificate, host: str) -> None:
    """Check the client's address against the IP and DNS names of its certificate, if any."""
    ips, names = _alternative_names(certificate)
    if not (ips or names) or any(_same_ip(ip, host) for ip in ips):
        return
    if not names:
        raise PeerTlsError(f"x509: certificate is valid for {', '.join(ips)}, not {host}")
    if not _is_one_of(host, names):
        raise PeerTlsError(f'tls: "{host}" does not match any of DNSNames {names}')


def _check_allowed(certificate: _Certificate, tls: PeerTls) -> None:
    if tls.is_self_signed:
        return
    if tls.allowed_cns and _common_name(certificate) not in tls.allowed_cns:
        raise PeerTlsError("client certificate authentication failed")
    if tls.allowed_hostnames:
        ips, names = _alternative_names(certificate)
        for host in tls.allowed_hostnames:
            if any(_same_ip(ip, host) for ip in ips):
                return
            if any(_fits(host.lower(), name.lower()) for name in names):
                return
        raise PeerTlsError("client certificate authentication failed")


def _alternative_names(certificate: _Certificate) -> tuple[list[str], list[str]]:
    """Return (IP addresses, DNS names)."""
    found = certificate.get("subjectAltName", ())
    assert isinstance(found, tuple)
    pairs = [(str(kind), str(value)) for kind, value in found]
    ips = [value.strip() for kind, value in pairs if kind == "IP Address"]
    return ips, [value for kind, value in pairs if kind == "DNS"]


def _common_name(certificate: _Certificate) -> str:
    subject = certificate.get("subject", ())
    assert isinstance(subject, tuple)
    pairs = [pair for part in subject for pair in part]
    return next((str(value) for key, value in reversed(pairs) if key == "commonName"), "")


def _same_ip(ip: str, host: str) -> bool:
    try:
        return ipaddress.ip_address(ip) == ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _fits(host: str, pattern: str) -> bool:
    """Return whether a DNS name fits a certificate's, whose first label may be a star."""
    if pattern.startswith("*."):
        return host.partition(".")[2] == pattern[2:]
    return host == pattern


def _is_one_of(host: str, names: list[str]) -> bool:
    """Return whether an address belongs to one of the names, by reverse, then forward lookups."""
    try:
        found = [name.rstrip(".") for name in _names_of(host)]
    except OSError:
        found = []
    for name in names:
        if name.startswith("*.") and any(each.endswith(name[1:]) for each in found):
            return True
        if name in found:
            return True
    for name in names:
        if name.startswith("*."):
            continue
        try:
            addresses = {info[4][0] for info in socket.getaddrinfo(name, None)}
        except OSError:
            continue
        if any(_same_ip(str(address), host) for address in addresses):
            return True
    return False


def _names_of(host: str) -> list[str]:
    name, aliases, _ = socket.gethostbyaddr(host)
    return [name, *aliases]
