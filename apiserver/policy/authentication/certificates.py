"""Client certificates: the user is the subject, if a client CA signed it.

    CN=bob, O=devs, O=ops   → User("bob", groups=("devs", "ops"))

The chain is verified here and not by TLS alone, so that CAs can be replaced and certificates expire
while a connection lives. A valid chain is cached until its first certificate expires, or the CAs
change; a refused one, by digest, until another of its certificates becomes valid: users'
certificates are first checked against the front proxy CA on each request. Certificates without a
purpose are valid for any. Those of version 1, which `openssl x509 -req` makes, are valid if a
trusted CA signed them directly: they have no extensions to check.
"""

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kvstack.apimachinery.attributes import User
from kvstack.apiserver.policy.authentication.results import AuthenticationError
from kvstack.apiserver.policy.service_accounts.claims import CREDENTIAL_ID
from kvstack.component.clock import Clock
from kvstack.component.metrics.histograms import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

REMEMBERED_MAX: Final = 8192
_NEVER: Final = float("inf")
_LEFT_BOUNDS: Final = (
    0.0, 1800.0, 3600.0, 7200.0, 21600.0, 43200.0, 86400.0, 172800.0, 345600.0, 604800.0,
    2592000.0, 7776000.0, 15552000.0, 31104000.0,
)  # fmt: skip
CHAIN_LENGTH_MAX: Final = 10

_UID: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
_PURPOSES: Final = frozenset(
    (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)
)
_UNREADABLE: Final = (
    ValueError,
    UnsupportedAlgorithm,
    verification.VerificationError,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
# A cluster's own certificates lack what web certificates must have: mostly alternative names and
# often key identifiers. That a CA certificate says that it is one is always required.
_OF_AUTHORITIES: Final = verification.ExtensionPolicy.permit_all().require_present(
    x509.BasicConstraints, verification.Criticality.AGNOSTIC, None
)
_OF_CLIENTS: Final = verification.ExtensionPolicy.permit_all()
_WEAK: Final = frozenset(("md5", "sha1"))


class ClientCertificate(NamedTuple):
    """A verified client certificate."""

    certificate: x509.Certificate
    expires: float
    """When the first certificate of its chain expires, seconds since 1970."""

    @property
    def common_name(self) -> str:
        """The CN of its subject; empty if absent."""
        names = _values(self.certificate.subject, NameOID.COMMON_NAME)
        return names[-1] if names else ""


class _Refusal(NamedTuple):
    """The refusal of a chain, and its validity in seconds since 1970."""

    text: str
    since: float
    until: float


class Authorities:
    """CA certificates for client certificates."""

    def __init__(self, pem: bytes, clock: Clock) -> None:
        """pem: the certificates; ValueError if there is none."""
        self._clock: Final = clock
        self._known, self._pem = x509.load_pem_x509_certificates(pem), pem
        self._store = verification.Store(self._known)
        self._remembered: dict[tuple[bytes, ...], ClientCertificate] = {}
        self._refused: dict[bytes, _Refusal] = {}
        self.on_change: Callable[[], None] | None = None
        """Called when other certificates have replaced them."""

    def replace(self, pem: bytes) -> None:
        """Replace the certificates; ValueError, and no change, if there is none."""
        if pem != self._pem:
            known = x509.load_pem_x509_certificates(pem)
            self._store = verification.Store(known)
            self._known, self._pem = known, pem
            self._remembered.clear()
            self._refused.clear()
            if self.on_change is not None:
                self.on_change()

    @property
    def pem(self) -> bytes:
        """The certificates as they were read."""
        return self._pem

    def now_s(self) -> float:
        """Return the current time for verification, in seconds since 1970."""
        return self._clock.unix_ms() / 1000

    def verify(self, chain: tuple[bytes, ...]) -> ClientCertificate:
        """Return the first certificate of a DER chain, verified; raises AuthenticationError."""
        now = self.now_s()
        remembered = self._remembered.get(chain)
        if remembered is None or now > remembered.expires:
            self._remembered.pop(chain, None)
            remembered = self._judged(chain, now)
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[chain] = remembered
        return remembered

    def _judged(self, chain: tuple[bytes, ...], now: float) -> ClientCertificate:
        """Return the verification result of a chain; a refused one is cached."""
        digest = _digest(chain)  # any client can have one refused: little is cached
        refusal = self._refused.get(digest)
        if refusal is not None and refusal.since <= now < refusal.until:
            raise AuthenticationError(refusal.text)
        try:
            return self._verified(chain, now)
        except AuthenticationError as error:
            if len(self._refused) >= REMEMBERED_MAX:
                self._refused.clear()
            self._refused[digest] = _Refusal(str(error), now, self._next_begin(chain, now))
            raise

    def _next_begin(self, chain: tuple[bytes, ...], now: float) -> float:
        """Return when the next relevant certificate becomes valid."""
        try:
            given = [x509.load_der_x509_certificate(each) for each in chain[:CHAIN_LENGTH_MAX]]
            begins = [each.not_valid_before_utc.timestamp() for each in (*given, *self._known)]
        except _UNREADABLE:
            return _NEVER
        return min((each for each in begins if each > now), default=_NEVER)

    def _verified(self, chain: tuple[bytes, ...], now: float) -> ClientCertificate:
        if len(chain) > CHAIN_LENGTH_MAX:
            raise AuthenticationError("x509: the client's chain is too long")
        try:
            leaf, *others = [x509.load_der_x509_certificate(each) for each in chain]
            if leaf.version is x509.Version.v1:
                return _signed_directly(leaf, self._known, now)
            verifier = (
                verification.PolicyBuilder()
                .store(self._store)
                .time(datetime.fromtimestamp(now, UTC))
                .extension_policies(ca_policy=_OF_AUTHORITIES, ee_policy=_OF_CLIENTS)
                .build_client_verifier()
            )
            found = verifier.verify(leaf, others).chain
            for each in found:
                _check_purpose(each)
        except _UNREADABLE as error:
            raise AuthenticationError(f"x509: {error}") from None
        ends = min(each.not_valid_after_utc.timestamp() for each in found)
        return ClientCertificate(leaf, ends)


class CertificateUsers:
    """Maps certificate subjects to users."""

    def __init__(self, authorities: Authorities) -> None:
        self.authorities: Final = authorities
        self._users: dict[bytes, User | None] = {}
        self.left: Final = Histogram(_LEFT_BOUNDS)
        """Histogram of the remaining validity of certificates, in seconds."""

    def authenticate(self, chain: tuple[bytes, ...]) -> User | None:
        """Return the user; None: the subject has no name. Raises AuthenticationError."""
        verified = self.authorities.verify(chain)
        self.left.add(verified.expires - self.authorities.now_s())
        if chain[0] not in self._users:
            if len(self._users) >= REMEMBERED_MAX:
                self._users.clear()
            self._users[chain[0]] = _user(verified, chain[0])
        return self._users[chain[0]]


def _user(client: ClientCertificate, der: bytes) -> User | None:
    name = client.common_name
    if not name:
        return None
    subject = client.certificate.subject
    uids = _values(subject, _UID)
    if len(uids) > 1:
        raise AuthenticationError(f"expected 1 UID, but found multiple: [{' '.join(uids)}]")
    if uids == [""]:
        raise AuthenticationError("UID cannot be an empty string")
    groups = tuple(_values(subject, NameOID.ORGANIZATION_NAME))
    fingerprint = f"X509SHA256={hashlib.sha256(der).hexdigest()}"
    return User(name, uids[0] if uids else "", groups, {CREDENTIAL_ID: (fingerprint,)})


def _values(subject: x509.Name, oid: x509.ObjectIdentifier) -> list[str]:
    found = [each.value for each in subject.get_attributes_for_oid(oid)]
    texts = [each for each in found if isinstance(each, str)]
    if oid == _UID and len(texts) < len(found):
        raise AuthenticationError("unable to parse UID into a string")
    return texts


def _signed_directly(
    leaf: x509.Certificate, trusted: list[x509.Certificate], now: float
) -> ClientCertificate:
    """Verify a certificate of version 1; raises AuthenticationError."""
    for authority in trusted:
        if not _has_signed(authority, leaf):
            continue
        _check_purpose(authority)
        ends = min(each.not_valid_after_utc.timestamp() for each in (leaf, authority))
        begins = max(each.not_valid_before_utc.timestamp() for each in (leaf, authority))
        if begins <= now <= ends:
            return ClientCertificate(leaf, ends)
        raise AuthenticationError("x509: certificate has expired or is not yet valid")
    raise AuthenticationError("x509: certificate signed by unknown authority")


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    algorithm = certificate.signature_hash_algorithm
    if algorithm is not None and algorithm.name in _WEAK:
        return False
    try:
        limits = authority.extensions.get_extension_for_class(x509.BasicConstraints).value
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError, ValueError, x509.ExtensionNotFound):
        return False
    return limits.ca


def _check_purpose(certificate: x509.Certificate) -> None:
    try:
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if _PURPOSES.isdisjoint(purposes):
        raise AuthenticationError("x509: certificate specifies an incompatible key usage")


def _digest(chain: tuple[bytes, ...]) -> bytes:
    found = hashlib.sha256()
    for each in chain:
        found.update(len(each).to_bytes(4, "big"))
        found.update(each)
    return found.digest()
