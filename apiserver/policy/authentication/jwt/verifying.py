"""Verification of a token: signature, audience and times."""

import base64
import binascii
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.text.go_text import go_quoted_list
from kvstack.apiserver.policy.authentication.jwt.keys import IssuerKey
from kvstack.apiserver.policy.authentication.results import AuthenticationError

if TYPE_CHECKING:
    from jwt.api_jws import PyJWS

NOT_BEFORE_LEEWAY_S: Final = 300
"""Allowed clock skew of the issuer."""

Claims = dict[str, Any]


class Unverified(NamedTuple):
    """The unverified contents of a token."""

    token: str
    algorithm: str
    key_id: str
    issuer: str


def read_token(token: str) -> Unverified | None:
    """Return a token's unverified contents; None: it has not three parts with an issuer."""
    parts = token.split(".", 3)
    if len(parts) != 3:
        return None
    claims = _decoded(parts[1])
    issuer = None if claims is None else claims.get("iss")
    if not isinstance(issuer, str):
        return None
    header = _decoded(parts[0]) or {}
    # Critical extensions are not supported.
    is_plain = "crit" not in header and "b64" not in header
    algorithm, key_id = header.get("alg"), header.get("kid")
    return Unverified(
        token,
        algorithm if isinstance(algorithm, str) and is_plain else "",
        key_id if isinstance(key_id, str) else "",
        issuer,
    )


def signed_claims(unverified: Unverified, keys: Iterable[IssuerKey]) -> Claims | None:
    """Return the claims of a token; None: none of the keys signed it."""
    from jwt.exceptions import PyJWTError

    for each in keys:
        try:
            payload = _jws().decode_complete(unverified.token, each.key, [unverified.algorithm])[
                "payload"
            ]
            claims = orjson.loads(payload)
        except (PyJWTError, orjson.JSONDecodeError):
            continue
        if isinstance(claims, dict):
            return claims
    return None


def check_claims(
    claims: Mapping[str, Any], issuer: str, audiences: Collection[str], now_s: float
) -> None:
    """Refuse a token of another issuer or audience, or time; raises AuthenticationError."""
    if claims.get("iss") != issuer:
        raise AuthenticationError("oidc: verify token: id token issued by a different provider")
    found = claims.get("aud")
    listed = [found] if isinstance(found, str) else found
    named = [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
    if not any(each in audiences for each in named):
        audiences_text = go_quoted_list(named)
        raise AuthenticationError(
            f"oidc: verify token: oidc: expected audience in {go_quoted_list(sorted(audiences))}"
            f" got {audiences_text}"
        )
    expires, not_before = _moment(claims, "exp"), _moment(claims, "nbf")
    if expires is None or expires < now_s:
        raise AuthenticationError("oidc: verify token: oidc: token is expired")
    if not_before is not None and now_s + NOT_BEFORE_LEEWAY_S < not_before:
        raise AuthenticationError("oidc: verify token: oidc: token is not valid yet")


def _moment(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise AuthenticationError(f"oidc: verify token: {name} is not a number")
    return value


def _decoded(segment: str) -> Claims | None:
    try:
        padded = segment.encode("ascii") + b"=" * (-len(segment) % 4)
        found = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (UnicodeEncodeError, binascii.Error, orjson.JSONDecodeError):
        return None
    return found if isinstance(found, dict) else None


@cache
def _jws() -> "PyJWS":
    # Loaded on the first token, since it takes as long as half of a start.
    from jwt.api_jws import PyJWS

    return PyJWS()
