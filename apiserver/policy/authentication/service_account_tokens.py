"""Validation of service account tokens.

    issuer known? ──► signature ──► audience ──► times ──► account and bound object are as they were

A token of another issuer is left to other authenticators. Objects are looked up in the cache; if
one does not match the token, the cache is brought up to date first and checked again.
"""

import base64
import binascii
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import go_quoted_list, quote
from kvstack.apimachinery.objects.times import parse_time
from kvstack.apiserver.policy.authentication.results import (
    AuthenticationError,
    Found,
    Identified,
    shared,
)
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView
from kvstack.apiserver.policy.service_accounts.claims import (
    Claims,
    ClaimsError,
    Reference,
    parse_audiences,
    parse_claims,
)
from kvstack.component.certs.service_account_keys import KeyRing, SignatureError
from kvstack.component.clock import Clock

LEEWAY_S: Final = 60
"""Allowed clock skew, and how long terminating objects still count."""

ACCOUNTS: Final = GroupResource("", "serviceaccounts")
PODS: Final = GroupResource("", "pods")
SECRETS: Final = GroupResource("", "secrets")
NODES: Final = GroupResource("", "nodes")

_INVALIDATED: Final = "service account token has been invalidated"


class Verified(NamedTuple):
    """A token whose signature and audience are valid."""

    payload: dict[str, Any]
    audiences: tuple[str, ...]


class OutdatedError(AuthenticationError):
    """An object does not match the token, according to the watch cache."""


class TokenVerifier:
    """Verifies what does not depend on objects."""

    def __init__(self, issuers: Iterable[str], keys: KeyRing, api_audiences: Sequence[str]) -> None:
        """Tokens without an audience are for `api_audiences`."""
        self._issuers: Final = frozenset(issuers)
        self._keys: Final = keys
        self._api_audiences: Final = tuple(api_audiences)

    def verify(self, token: str, audiences: Sequence[str]) -> Verified | None:
        """Return a token's contents; None: it is of another issuer. Raises AuthenticationError."""
        parts = token.split(".", 3)
        if len(parts) != 3:
            return None
        claimed = _decoded(parts[1])
        if claimed is None or claimed.get("iss") not in self._issuers:
            return None
        header = _decoded(parts[0])
        if header is None:
            return None
        key_id = header.get("kid")
        try:
            signed = self._keys.verify(token, key_id if isinstance(key_id, str) else "")
        except SignatureError as error:
            raise AuthenticationError(str(error)) from None
        payload = orjson.loads(signed)
        try:
            of_token = parse_audiences(payload) or self._api_audiences
        except ClaimsError as error:
            raise AuthenticationError(str(error)) from None
        accepted = shared(of_token, audiences)
        if not accepted and self._api_audiences:
            raise AuthenticationError(
                f"token audiences {go_quoted_list(of_token)} is invalid for the target audiences"
                f" {go_quoted_list(audiences)}"
            )
        return Verified(payload, accepted)


class ServiceAccountTokens:
    """Authenticates tokens of the TokenRequest API."""

    def __init__(
        self, verifier: TokenVerifier, view: ObjectView, live: LiveObjects, clock: Clock
    ) -> None:
        self._verifier: Final = verifier
        self._view: Final = view
        self._live: Final = live
        self._clock: Final = clock
        self.uses: Final[Counter[str]] = Counter()
        """Uses of tokens with an extended expiry that should have been renewed in time (`valid`) or
        were not (`stale`)."""

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found | Awaitable[Found]:
        """Return the token's user; raises AuthenticationError."""
        verified = self._verifier.verify(token, audiences)
        if verified is None:
            return None
        try:
            claims = parse_claims(verified.payload)
        except ClaimsError:
            raise AuthenticationError(
                "service account token claims could not be validated due to unexpected validation"
                " error"
            ) from None
        now = self._clock.unix_ms() / 1000
        _check_times(claims, now)
        try:
            return self._identified(claims, verified.audiences, now)
        except OutdatedError:
            return self._look_again(claims, verified.audiences, now)

    async def _look_again(
        self, claims: Claims, audiences: tuple[str, ...], now: float
    ) -> Identified:
        await self._live.catch_up()
        return self._identified(claims, audiences, now)

    def _identified(self, claims: Claims, audiences: tuple[str, ...], now: float) -> Identified:
        self._check_account(claims, now)
        if claims.secret is not None:
            self._check_bound("secret", SECRETS, claims.namespace, claims.secret, now)
        if claims.pod is not None:
            self._check_bound("pod", PODS, claims.namespace, claims.pod, now)
        elif claims.node is not None:
            self._check_bound("node", NODES, "", claims.node, now)
        annotations = _stale(claims, now)
        if claims.warn_after:
            self.uses["stale" if annotations else "valid"] += 1
        return Identified(claims.user(), audiences, annotations=annotations)

    def _check_account(self, claims: Claims, now: float) -> None:
        namespace, (name, uid) = claims.namespace, claims.account
        account = self._view.get(ACCOUNTS, namespace, name)
        if account is None:
            raise OutdatedError(f"serviceaccounts {quote(name)} not found")
        found = account["metadata"].get("uid", "")
        if found != uid:
            raise OutdatedError(f"service account UID ({found}) does not match claim ({uid})")
        if _was_deleted(account, now):
            raise OutdatedError(f"service account {namespace}/{name} has been deleted")

    def _check_bound(
        self, kind: str, resource: GroupResource, namespace: str, bound: Reference, now: float
    ) -> None:
        obj = self._view.get(resource, namespace, bound.name)
        if obj is None:
            raise OutdatedError(_INVALIDATED)
        found = obj["metadata"].get("uid", "")
        if found != bound.uid:
            raise OutdatedError(
                f"{kind} UID ({found}) does not match service account {kind} ref claim"
                f" ({bound.uid})"
            )
        if _was_deleted(obj, now):
            raise OutdatedError(_INVALIDATED)


def _check_times(claims: Claims, now: float) -> None:
    if claims.not_before is not None and now + LEEWAY_S < claims.not_before:
        raise AuthenticationError("service account token is not valid yet")
    if claims.expires is not None and now - LEEWAY_S > claims.expires:
        raise AuthenticationError("service account token has expired")
    if claims.issued is not None and now + LEEWAY_S < claims.issued:
        raise AuthenticationError("service account token is issued in the future")


def _stale(claims: Claims, now: float) -> dict[str, str]:
    if claims.warn_after is None or now <= claims.warn_after:
        return {}
    seconds = int(now) - int(claims.warn_after)
    warning = f"subject: {claims.subject}, seconds after warning threshold: {seconds}"
    return {"authentication.k8s.io/stale-token": warning}


def _was_deleted(obj: Object, now: float) -> bool:
    deleted = obj["metadata"].get("deletionTimestamp")
    return deleted is not None and parse_time(deleted).seconds < now - LEEWAY_S


def _decoded(segment: str) -> dict[str, Any] | None:
    """Return an unverified part of a token; None: it is not a JSON object."""
    try:
        padded = segment.encode("ascii") + b"=" * (-len(segment) % 4)
        found = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (UnicodeEncodeError, binascii.Error, orjson.JSONDecodeError):
        return None
    return found if isinstance(found, dict) else None
