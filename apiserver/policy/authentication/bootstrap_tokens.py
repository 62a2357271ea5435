"""Bootstrap tokens of joining nodes: `abcdef.0123456789abcdef`, in Secrets of kube-system.

    Secret bootstrap-token-abcdef, type bootstrap.kubernetes.io/token
        token-id, token-secret, usage-bootstrap-authentication: "true"
        expiration, auth-extra-groups

A token that does not match its Secret is refused without saying which part was wrong.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import TimeError, parse_time
from kvstack.apimachinery.well_known import BOOTSTRAP_TOKEN_TYPE
from kvstack.apiserver.policy.authentication.results import Found, Identified, shared
from kvstack.apiserver.policy.interfaces import ObjectView
from kvstack.component.clock import Clock

BOOTSTRAPPERS: Final = "system:bootstrappers"

_TOKEN: Final = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})", re.ASCII)
_GROUP: Final = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]", re.ASCII)
_SECRETS: Final = GroupResource("", "secrets")
_NAMESPACE: Final = "kube-system"


class BootstrapTokens:
    """Authenticates bootstrap tokens."""

    def __init__(self, view: ObjectView, api_audiences: Sequence[str], clock: Clock) -> None:
        """view: has the Secrets. The tokens are only valid for the API's audiences."""
        self._view: Final = view
        self._audiences: Final = tuple(api_audiences)
        self._clock: Final = clock

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found:
        """Return the token's user; None: it is of another kind, or invalid."""
        accepted = shared(self._audiences, audiences)
        parts = _TOKEN.fullmatch(token)
        if parts is None or (self._audiences and not accepted):
            return None
        token_id, secret_part = parts.groups()
        secret = self._view.get(_SECRETS, _NAMESPACE, f"bootstrap-token-{token_id}")
        if secret is None or not self._fits(secret, token_id, secret_part):
            return None
        groups = _groups(_text(secret, "auth-extra-groups"))
        if groups is None:
            return None
        return Identified(User(f"system:bootstrap:{token_id}", groups=groups), accepted)

    def _fits(self, secret: Object, token_id: str, secret_part: str) -> bool:
        return (
            secret["metadata"].get("deletionTimestamp") is None
            and secret.get("type") == BOOTSTRAP_TOKEN_TYPE
            and hmac.compare_digest(_text(secret, "token-secret").encode(), secret_part.encode())
            and _text(secret, "token-id") == token_id
            and not self._is_over(_text(secret, "expiration"))
            and _text(secret, "usage-bootstrap-authentication") == "true"
        )

    def _is_over(self, expiration: str) -> bool:
        if not expiration:
            return False
        try:
            return parse_time(expiration).seconds * 1000 <= self._clock.unix_ms()
        except TimeError:
            return True


def _text(secret: Object, member: str) -> str:
    """Return a text of a Secret; empty: it is missing or not a text."""
    try:
        return base64.b64decode((secret.get("data") or {}).get(member) or "").decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _groups(listed: str) -> tuple[str, ...] | None:
    """Return the groups of a token, sorted; None: one is not allowed."""
    extra = {each for each in listed.split(",") if each}
    if not all(_GROUP.fullmatch(each) for each in extra):
        return None
    return tuple(sorted({BOOTSTRAPPERS, *extra}))
