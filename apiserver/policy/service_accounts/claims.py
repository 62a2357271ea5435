"""Claims of service account tokens.

    {"aud": […], "exp": …, "iat": …, "iss": …, "jti": …, "nbf": …,
     "sub": "system:serviceaccount:a:b",
     "kubernetes.io": {"namespace": "a", "serviceaccount": {"name": "b", "uid": …},
                       "pod": {"name": …, "uid": …}, "node": {…}, "warnafter": …}}

A token may be bound to a Pod (and then includes its Node), a Secret or a Node.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.attributes import (
    User,
    service_account_groups,
    service_account_name,
)

PRIVATE: Final = "kubernetes.io"
LEGACY_ISSUER: Final = "kubernetes/serviceaccount"
_LEGACY: Final = "kubernetes.io/serviceaccount/"
_EXTRA: Final = "authentication.kubernetes.io/"
CREDENTIAL_ID: Final = f"{_EXTRA}credential-id"


class ClaimsError(ValueError):
    """The payload of a token is invalid."""


class Reference(NamedTuple):
    """An object that a token names."""

    name: str
    uid: str = ""

    def to_claim(self) -> dict[str, str]:
        """Return the claim; empty members are left out."""
        claim = {"name": self.name, "uid": self.uid}
        return {member: value for member, value in claim.items() if value}


class Claims(NamedTuple):
    """The claims of a token; times are seconds since 1970."""

    issuer: str
    audiences: tuple[str, ...]
    namespace: str
    account: Reference
    id: str = ""
    issued: float | None = None
    not_before: float | None = None
    expires: float | None = None
    warn_after: float | None = None
    pod: Reference | None = None
    secret: Reference | None = None
    node: Reference | None = None

    @property
    def subject(self) -> str:
        """The user name."""
        return service_account_name(self.namespace, self.account.name)

    def to_payload(self) -> dict[str, Any]:
        """Return the claims as they are signed."""
        private: dict[str, Any] = {
            "namespace": self.namespace,
            "serviceaccount": self.account.to_claim(),
        }
        for name, bound in (("pod", self.pod), ("secret", self.secret), ("node", self.node)):
            if bound is not None:
                private[name] = bound.to_claim()
        if self.warn_after is not None:
            private["warnafter"] = self.warn_after
        return {
            "aud": list(self.audiences),
            "exp": self.expires,
            "iat": self.issued,
            "iss": self.issuer,
            "jti": self.id,
            PRIVATE: private,
            "nbf": self.not_before,
            "sub": self.subject,
        }

    def user(self) -> User:
        """Return the user of the token."""
        extra: dict[str, tuple[str, ...]] = {}
        if self.id:
            extra[CREDENTIAL_ID] = (f"JTI={self.id}",)
        for kind, bound in (("node", self.node), ("pod", self.pod)):
            if bound is not None:
                extra[f"{_EXTRA}{kind}-name"] = (bound.name,)
                if bound.uid:
                    extra[f"{_EXTRA}{kind}-uid"] = (bound.uid,)
        return User(self.subject, self.account.uid, service_account_groups(self.namespace), extra)


class LegacyClaims(NamedTuple):
    """The claims of a token in a Secret, which is valid as long as the Secret exists."""

    subject: str
    namespace: str
    account: Reference
    secret: str

    def user(self) -> User:
        """Return the user of the token."""
        name = service_account_name(self.namespace, self.account.name)
        return User(name, self.account.uid, service_account_groups(self.namespace))


def parse_claims(payload: Mapping[str, Any]) -> Claims:
    """Return the claims of a verified payload; raises ClaimsError."""
    private = _member(payload, PRIVATE, dict, {})
    return Claims(
        issuer=_text(payload, "iss"),
        audiences=parse_audiences(payload),
        namespace=_text(private, "namespace"),
        account=_reference(private, "serviceaccount") or Reference(""),
        id=_text(payload, "jti"),
        issued=_number(payload, "iat"),
        not_before=_number(payload, "nbf"),
        expires=_number(payload, "exp"),
        warn_after=_number(private, "warnafter"),
        pod=_reference(private, "pod"),
        secret=_reference(private, "secret"),
        node=_reference(private, "node"),
    )


def parse_legacy_claims(payload: Mapping[str, Any]) -> LegacyClaims:
    """Return the claims of a verified payload of the legacy issuer; raises ClaimsError."""
    name, uid = f"{_LEGACY}service-account.name", f"{_LEGACY}service-account.uid"
    return LegacyClaims(
        subject=_text(payload, "sub"),
        namespace=_text(payload, f"{_LEGACY}namespace"),
        account=Reference(_text(payload, name), _text(payload, uid)),
        secret=_text(payload, f"{_LEGACY}secret.name"),
    )


def parse_audiences(payload: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the token's audiences; a single one may be a string. Raises ClaimsError."""
    audiences: object = payload.get("aud")
    if audiences is None:
        return ()
    if isinstance(audiences, str):
        return (audiences,)
    if isinstance(audiences, Sequence) and all(isinstance(each, str) for each in audiences):
        return tuple(audiences)
    raise ClaimsError("aud is neither a string nor a list of strings")


def _reference(claims: Mapping[str, Any], member: str) -> Reference | None:
    found = _member(claims, member, dict, None)
    return None if found is None else Reference(_text(found, "name"), _text(found, "uid"))


def _text(claims: Mapping[str, Any], member: str) -> str:
    found: str = _member(claims, member, str, "")
    return found


def _number(claims: Mapping[str, Any], member: str) -> float | None:
    found: float | None = _member(claims, member, (int, float), None)
    if isinstance(found, bool):
        raise ClaimsError(f"{member} is not a number")
    return found


def _member(
    claims: Mapping[str, Any], member: str, kind: type | tuple[type, ...], absent: object
) -> Any:  # noqa: ANN401 — of the kind
    found = claims.get(member)
    if found is None:
        return absent
    if not isinstance(found, kind):
        raise ClaimsError(f"{member} is of the wrong type")
    return found
