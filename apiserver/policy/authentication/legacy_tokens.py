"""Legacy service account tokens in Secrets, as before TokenRequest.

Such a token does not expire. It is valid while its Secret exists with the same token, and the
account with the same UID. The day of its last use is a label of the Secret.
"""

import base64
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kvstack.apimachinery.attributes import parse_service_account
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.well_known import TOKEN_INVALID_SINCE_LABEL, TOKEN_LAST_USED_LABEL
from kvstack.apiserver.policy.authentication.results import (
    AuthenticationError,
    Found,
    Identified,
)
from kvstack.apiserver.policy.authentication.service_account_tokens import (
    ACCOUNTS,
    SECRETS,
    OutdatedError,
    TokenVerifier,
)
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView
from kvstack.apiserver.policy.service_accounts.claims import (
    ClaimsError,
    LegacyClaims,
    parse_legacy_claims,
)
from kvstack.component.clock import Clock

_DAY_S: Final = 86_400
_PENDING_MAX: Final = 10_000
_AUTO_GENERATED: Final = (
    "Use tokens from the TokenRequest API or manually created secret-based tokens instead of"
    " auto-generated secret-based tokens."
)


class LegacyTokens:
    """Authenticates tokens of the legacy issuer."""

    def __init__(
        self,
        verifier: TokenVerifier,
        view: ObjectView,
        live: LiveObjects,
        clock: Clock,
        *,
        looks_up: bool = True,
    ) -> None:
        """looks_up: whether the objects must exist."""
        self._verifier: Final = verifier
        self._view: Final = view
        self._live: Final = live
        self._clock: Final = clock
        self._looks_up: Final = looks_up
        self._used: dict[tuple[str, str], str] = {}
        self.on_use: Callable[[], None] = lambda: None
        """Called when there is something for `write_last_uses` to write."""
        self.uses: Final[Counter[str]] = Counter()
        """Uses of tokens that were made by hand (`manual`), by the token controller (`auto`), or
        since marked invalid (`invalid_auto`)."""

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found | Awaitable[Found]:
        """Return the token's user; raises AuthenticationError."""
        verified = self._verifier.verify(token, audiences)
        if verified is None:
            return None
        try:
            claims = parse_legacy_claims(verified.payload)
        except ClaimsError as error:
            raise AuthenticationError(str(error)) from None
        _check(claims)
        if not self._looks_up:
            return Identified(claims.user(), verified.audiences)
        try:
            return self._identified(token, claims, verified.audiences)
        except OutdatedError:
            return self._look_again(token, claims, verified.audiences)

    async def write_last_uses(self) -> None:
        """Label the Secrets whose tokens were used; to be called periodically."""
        while self._used:
            (namespace, name), day = self._used.popitem()
            secret = self._view.get(SECRETS, namespace, name)
            if secret is None or _labels(secret).get(TOKEN_LAST_USED_LABEL) == day:
                continue
            metadata = {
                **secret["metadata"],
                "labels": {**_labels(secret), TOKEN_LAST_USED_LABEL: day},
            }
            try:
                await self._live.replace(SECRETS, {**secret, "metadata": metadata})
            except ApiError as error:
                # On a conflict the next use labels it; the Secret may be gone.
                if not (error.is_not_found or error.is_conflict):
                    raise

    async def _look_again(
        self, token: str, claims: LegacyClaims, audiences: tuple[str, ...]
    ) -> Identified:
        await self._live.catch_up()
        return self._identified(token, claims, audiences)

    def _identified(
        self, token: str, claims: LegacyClaims, audiences: tuple[str, ...]
    ) -> Identified:
        secret = self._checked_secret(token, claims)
        account = self._checked_account(claims)
        self._note_use(secret)
        name, labels = claims.secret, _labels(secret)
        is_listed = any(each.get("name") == name for each in account.get("secrets") or ())
        if labels.get(TOKEN_INVALID_SINCE_LABEL):
            self.uses["invalid_auto"] += 1
            owner = f"{claims.namespace}/{claims.account.name}"
            raise AuthenticationError(
                f"the token in secret {claims.namespace}/{name} for service account {owner} has"
                " been marked invalid. Use tokens from the TokenRequest API or manually created"
                f" secret-based tokens, or remove the '{TOKEN_INVALID_SINCE_LABEL}' label from the"
                " secret to temporarily allow use of this token"
            )
        self.uses["auto" if is_listed else "manual"] += 1
        kind = "autogenerated" if is_listed else "manual"
        annotations = {f"authentication.k8s.io/legacy-token-{kind}-secret": name}
        warnings = (_AUTO_GENERATED,) if is_listed else ()
        return Identified(claims.user(), audiences, warnings, annotations)

    def _checked_secret(self, token: str, claims: LegacyClaims) -> Object:
        secret = self._view.get(SECRETS, claims.namespace, claims.secret)
        if secret is None or secret["metadata"].get("deletionTimestamp"):
            raise OutdatedError("Token has been invalidated")
        kept = base64.b64decode((secret.get("data") or {}).get("token") or "")
        if not hmac.compare_digest(kept, token.encode()):
            raise OutdatedError("Token does not match server's copy")
        return secret

    def _checked_account(self, claims: LegacyClaims) -> Object:
        namespace, (name, uid) = claims.namespace, claims.account
        account = self._view.get(ACCOUNTS, namespace, name)
        if account is None:
            raise OutdatedError(f'serviceaccounts "{name}" not found')
        if account["metadata"].get("deletionTimestamp"):
            raise OutdatedError(f"ServiceAccount {namespace}/{name} has been deleted")
        found = account["metadata"].get("uid", "")
        if found != uid:
            raise OutdatedError(f"ServiceAccount UID ({found}) does not match claim ({uid})")
        return account

    def _note_use(self, secret: Object) -> None:
        now = self._clock.unix_ms() / 1000
        today = format_time(now)[:10]
        # Clocks of several API servers need not agree on midnight.
        if _labels(secret).get(TOKEN_LAST_USED_LABEL) in {today, format_time(now + _DAY_S)[:10]}:
            return
        if len(self._used) < _PENDING_MAX:
            metadata = secret["metadata"]
            self._used[metadata["namespace"], metadata["name"]] = today
            self.on_use()


def _labels(secret: Object) -> dict[str, str]:
    return secret["metadata"].get("labels") or {}


def _check(claims: LegacyClaims) -> None:
    for value, name in (
        (claims.subject, "sub"),
        (claims.namespace, "namespace"),
        (claims.secret, "secretName"),
        (claims.account.name, "serviceAccountName"),
        (claims.account.uid, "serviceAccountUID"),
    ):
        if not value:
            raise AuthenticationError(f"{name} claim is missing")
    if parse_service_account(claims.subject) != (claims.namespace, claims.account.name):
        raise AuthenticationError("sub claim is invalid")
