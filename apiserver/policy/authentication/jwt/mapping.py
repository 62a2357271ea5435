"""Mapping of a token's claims to a user.

    {"sub": "bob", "roles": ["devs"], "jti": "7"}   → User("https://i#bob", groups=("devs",), …)

Upstream takes a null claim for an empty text; here it counts as absent, and user names are never
empty.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.authentication.jwt.settings import (
    Condition,
    ExpressionError,
    JwtSettings,
    Source,
)
from kvstack.apiserver.policy.authentication.results import AuthenticationError
from kvstack.apiserver.policy.service_accounts.claims import CREDENTIAL_ID

Claims = Mapping[str, Any]

_EMAIL: Final = "email"
_VERIFIED: Final = "email_verified"


def user_of(settings: JwtSettings, claims: Claims) -> User:
    """Return the user of verified claims; raises AuthenticationError."""
    name = _username(settings.username, claims)
    groups = _groups(settings.groups, claims)
    uid = _uid(settings.uid, claims)
    user = User(name, uid, groups, _extra(settings, claims))
    _check_required(settings.required_claims, claims)
    _check(settings.claim_conditions, claims, "claim validation expression")
    if settings.user_conditions:
        # Expressions see all members, also empty ones.
        shown = {"uid": "", "groups": [], "extra": {}, **user.to_object()}
        _check(settings.user_conditions, shown, "user info validation rule")
    return user


def _username(source: Source, claims: Claims) -> str:
    if source.expression is not None:
        name = _evaluated(source, claims, "username")
        if not isinstance(name, str):
            raise AuthenticationError(
                "oidc: error evaluating username claim expression: username claim expression must"
                " return a string"
            )
        if not name:
            raise AuthenticationError("oidc: empty username via CEL expression is not allowed")
        return name
    name = _text(claims, source.claim, f"username claims {quote(source.claim)}")
    if source.claim == _EMAIL and claims.get(_VERIFIED, True) is not True:
        raise AuthenticationError("oidc: email not verified")
    if not name:
        raise AuthenticationError("oidc: empty username is not allowed")
    return source.prefix + name


def _groups(source: Source, claims: Claims) -> tuple[str, ...]:
    if source.expression is not None:
        value = _evaluated(source, claims, "group")
        return _as_list(value, "oidc: error evaluating group claim expression")
    if not source.claim:
        return ()
    value = claims.get(source.claim)
    if value is None:
        return ()
    named = [value] if isinstance(value, str) else value
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise AuthenticationError(
            f"oidc: parse groups claim {quote(source.claim)}: not a string or list of strings"
        )
    return tuple(source.prefix + each for each in named)


def _uid(source: Source, claims: Claims) -> str:
    if source.expression is not None:
        uid = _evaluated(source, claims, "uid")
        if not isinstance(uid, str):
            raise AuthenticationError(
                "oidc: error evaluating uid claim expression: uid claim expression must return a"
                " string"
            )
        return uid
    return _text(claims, source.claim, f"uid claim {quote(source.claim)}") if source.claim else ""


def _extra(settings: JwtSettings, claims: Claims) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    token_id = claims.get("jti")
    if isinstance(token_id, str) and token_id:
        extra[CREDENTIAL_ID] = (f"JTI={token_id}",)
    for key, expression in settings.extra:
        what = "oidc: error evaluating extra claim expression"
        try:
            values = _as_list(expression.evaluate(claims), what)
        except ExpressionError as error:
            raise AuthenticationError(f"{what}: {error}") from None
        if values:
            extra[key] = values
    return extra


def _check_required(required: Mapping[str, str], claims: Claims) -> None:
    for claim, value in required.items():
        if claim not in claims:
            raise AuthenticationError(f"oidc: required claim {claim} not present in ID token")
        found = claims[claim]
        if found != value:
            actual = found if isinstance(found, str) else "another type"
            raise AuthenticationError(
                f"oidc: required claim {claim} value does not match. Got = {actual}, want = {value}"
            )


def _check(conditions: Iterable[Condition], value: Mapping[str, Any], what: str) -> None:
    for each in conditions:
        try:
            found = each.expression.evaluate(value)
        except ExpressionError as error:
            raise AuthenticationError(f"oidc: error evaluating {what}: {error}") from None
        if found is not True:
            message = each.message or f"validation expression '{each.text}' failed"
            raise AuthenticationError(f"oidc: error evaluating {what}: {message}")


def _evaluated(source: Source, claims: Claims, part: str) -> object:
    assert source.expression is not None
    try:
        return source.expression.evaluate(claims)
    except ExpressionError as error:
        raise AuthenticationError(
            f"oidc: error evaluating {part} claim expression: {error}"
        ) from None


def _text(claims: Claims, claim: str, what: str) -> str:
    value = claims.get(claim)
    if value is None:
        raise AuthenticationError(f"oidc: parse {what}: claim not present")
    if not isinstance(value, str):
        raise AuthenticationError(f"oidc: parse {what}: the claim is not a string")
    return value


def _as_list(value: object, what: str) -> tuple[str, ...]:
    """Return a text or a list of texts as a list without empty ones."""
    if value is None or value == "":
        return ()
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(each, str) for each in texts):
        raise AuthenticationError(f"{what}: expression must return a string or a list of strings")
    return tuple(each for each in texts if each)
