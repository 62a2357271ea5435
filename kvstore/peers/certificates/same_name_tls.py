"""TLS with certificates that bear the same subject name as the authority that signed them.

    authority  subject CN=etcd, issuer CN=etcd, signed by itself
    member     subject CN=etcd, issuer CN=etcd, signed by the authority

OpenSSL takes the second for self-signed as well, unless it names its issuer's key, and refuses it;
Go looks at the signature. The `ssl` module does not let a program decide that, pyOpenSSL does: if
OpenSSL reports "self-signed", the signature of a trusted authority is checked. All other checks
stay OpenSSL's.

Used only where such certificates occur. The socket is for the same users as an
`ssl.SSLSocket`, with the same exceptions.
"""

import errno
import ipaddress
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, cast

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID
from OpenSSL import SSL, crypto
from typing_extensions import Buffer

from kvstore.peers.certificates.trust import is_signed_by, trusted_file
from kvstore.types import override

_SELF_SIGNED: Final = frozenset({18, 19})  # X509_V_ERR: the certificate, or one of its chain
_REASONS: Final = {
    9: "certificate is not yet valid",
    10: "certificate has expired",
    20: "unable to get local issuer certificate",
    26: "unsuitable certificate purpose",
}  # X509_V_ERR, as OpenSSL describes it
_T = TypeVar("_T")


class Settings(NamedTuple):
    """The settings of a context; files are PEM."""

    cert_file: str
    key_file: str
    trusted_ca_file: str
    version_min: ssl.TLSVersion
    version_max: ssl.TLSVersion | None
    ciphers: Sequence[str]  # OpenSSL's names; empty: its choice


class SameNameTlsSocket(socket.socket):
    """One TLS connection; takes over the descriptor of raw."""

    def __init__(self, raw: socket.socket, settings: Settings, server_hostname: str | None) -> None:
        """Prepare a handshake, as client if server_hostname is given; OSError: unusable files."""
        timeout_s = raw.gettimeout()
        super().__init__(raw.family, raw.type, raw.proto, fileno=raw.detach())
        self._failures: list[str] = []  # faults of certificates
        try:
            self.settimeout(timeout_s)
            context = _context(settings, self._failures, is_server=server_hostname is None)
            # A descriptor instead of the socket, so that the two are no cycle.
            self._tls = SSL.Connection(context, cast("socket.socket", self.fileno()))
            if server_hostname is None:
                self._tls.set_accept_state()
            else:
                self._tls.set_connect_state()
                if not _is_address(server_hostname):
                    self._tls.set_tlsext_host_name(server_hostname.encode("idna"))
        except BaseException:
            self.close()
            raise

    def do_handshake(self) -> None:
        """Do the handshake; OSError if it fails."""
        self._run(self._tls.do_handshake)

    def getpeercert(self) -> dict[str, object]:
        """Return the fields of `ssl.SSLSocket.getpeercert` that members use."""
        found = self._tls.get_peer_certificate(as_cryptography=True)
        try:
            return {} if found is None else _described(found)
        except (ValueError, x509.DuplicateExtension) as error:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, f"malformed certificate: {error}") from None

    @override
    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        return self._run(lambda: self._tls.recv(bufsize), b"")

    @override
    def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        return self._run(lambda: self._tls.recv_into(buffer, nbytes or None), 0)

    @override
    def send(self, data: Buffer, flags: int = 0) -> int:
        return self._run(lambda: self._tls.send(memoryview(data)))

    @override
    def sendall(self, data: Buffer, flags: int = 0) -> None:
        left = memoryview(data)
        while left:
            left = left[self.send(left) :]

    def _run(self, action: Callable[[], _T], at_end: _T | None = None) -> _T:
        """Run an operation within the timeout; return at_end if the other side has closed."""
        timeout_s = self.gettimeout()
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self.fileno() < 0:
                raise OSError(errno.EBADF, "the connection is closed")
            try:
                return action()
            except SSL.WantReadError:
                self._wait(select.POLLIN, deadline_s, ssl.SSLWantReadError)
            except SSL.WantWriteError:
                self._wait(select.POLLOUT, deadline_s, ssl.SSLWantWriteError)
            except SSL.ZeroReturnError:
                if at_end is None:
                    raise ssl.SSLZeroReturnError(ssl.SSL_ERROR_ZERO_RETURN, "closed") from None
                return at_end
            except SSL.SysCallError as error:
                number, text = error.args
                if number > 0:
                    raise OSError(number, text) from None
                if at_end is None:
                    raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, str(text)) from None
                return at_end
            except SSL.Error as error:
                raise ssl.SSLError(ssl.SSL_ERROR_SSL, _describe(error, self._failures)) from None

    def _wait(self, events: int, deadline_s: float | None, blocked: type[ssl.SSLError]) -> None:
        if self.gettimeout() == 0:
            raise blocked(ssl.SSL_ERROR_WANT_READ, "the operation did not complete")
        poller = select.poll()
        poller.register(self.fileno(), events)
        left_s = None if deadline_s is None else deadline_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise TimeoutError("timed out")
        if not poller.poll(None if left_s is None else left_s * 1000):
            raise TimeoutError("timed out")


def _describe(error: SSL.Error, failures: Sequence[str] = ()) -> str:
    """Return the reason in the form of the ssl module: "[SSL: NAME] text"."""
    rows = error.args[0] if error.args else []
    reason = str(rows[-1][2]) if rows else "TLS failed"
    name = reason.upper().replace(" ", "_").replace("/", "_")
    return f"[SSL: {name}] {reason}" + (f": {failures[-1]}" if failures else "")


def _context(settings: Settings, failures: list[str], *, is_server: bool) -> SSL.Context:
    """Return a context that adds faults of the other side's certificates to failures."""
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(settings.version_min)
    if settings.version_max is not None:
        context.set_max_proto_version(settings.version_max)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)
    try:
        if settings.ciphers:
            context.set_cipher_list(":".join(settings.ciphers).encode())
        if settings.cert_file:
            context.use_certificate_chain_file(settings.cert_file)
            context.use_privatekey_file(settings.key_file)
        with trusted_file(settings.trusted_ca_file) as path:
            context.load_verify_locations(path)
    except SSL.Error as error:
        raise ssl.SSLError(ssl.SSL_ERROR_SSL, _describe(error)) from None
    store = context.get_cert_store()
    assert store is not None
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
    authorities = _authorities(Path(settings.trusted_ca_file).read_bytes())
    use = ExtendedKeyUsageOID.CLIENT_AUTH if is_server else ExtendedKeyUsageOID.SERVER_AUTH

    def judge(
        _: SSL.Connection, presented: crypto.X509, error: int, depth: int, is_sound: int
    ) -> bool:
        if is_sound:
            return True
        certificate = presented.to_cryptography()
        if error in _SELF_SIGNED and any(
            _has_signed(each, certificate, depth, use) for each in authorities
        ):
            return True
        fault = "self-signed certificate" if error in _SELF_SIGNED else f"error {error}"
        failures.append(_REASONS.get(error, fault))
        return False

    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, judge)
    return context


@lru_cache(maxsize=8)
def _authorities(pem: bytes) -> Sequence[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def _has_signed(
    authority: x509.Certificate,
    certificate: x509.Certificate,
    depth: int,
    use: x509.ObjectIdentifier,
) -> bool:
    """Return whether an authority may sign, and has signed, the certificate at this depth."""
    if authority == certificate or authority.subject != certificate.issuer:
        return False
    now = datetime.now(UTC)
    if not authority.not_valid_before_utc <= now <= authority.not_valid_after_utc:
        return False
    try:
        return _may_sign(authority.extensions, depth, use) and is_signed_by(certificate, authority)
    except (ValueError, x509.DuplicateExtension):
        return False


def _may_sign(extensions: x509.Extensions, depth: int, use: x509.ObjectIdentifier) -> bool:
    by_oid = {each.oid: each.value for each in extensions}
    basics = by_oid.get(ExtensionOID.BASIC_CONSTRAINTS)
    if not isinstance(basics, x509.BasicConstraints) or not basics.ca:
        return False
    if basics.path_length is not None and basics.path_length < depth:
        return False
    usage = by_oid.get(ExtensionOID.KEY_USAGE)
    if isinstance(usage, x509.KeyUsage) and not usage.key_cert_sign:
        return False
    extended = by_oid.get(ExtensionOID.EXTENDED_KEY_USAGE)
    if isinstance(extended, x509.ExtendedKeyUsage):
        allowed = {use, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
        if allowed.isdisjoint(extended):
            return False
    return ExtensionOID.NAME_CONSTRAINTS not in by_oid  # which would have to be checked


def _described(certificate: x509.Certificate) -> dict[str, object]:
    names: list[tuple[str, str]] = []
    try:
        alternative_names = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    except x509.ExtensionNotFound:
        pass
    else:
        names += [("DNS", name) for name in alternative_names.get_values_for_type(x509.DNSName)]
        names += [
            ("IP Address", str(address))
            for address in alternative_names.get_values_for_type(x509.IPAddress)
        ]
    subject = tuple(
        (("commonName", str(each.value)),)
        for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    )
    return {
        "subject": subject,
        "subjectAltName": tuple(names),
        "serialNumber": f"{certificate.serial_number:X}",
    }


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
