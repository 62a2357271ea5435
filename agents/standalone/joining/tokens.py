"""Bootstrap tokens: `abcdef.0123456789abcdef`, and the Secrets that they are.

token = new_token()
secret_of(token, description, until)     bootstrap-token-abcdef of kube-system
row_of(secret)                           what `kvstack token list` shows
"""

import base64
import re
import secrets
import string
from typing import Final, NamedTuple

from typing_extensions import override

from kvstack.agents.standalone.joining.access import JOINING, SYSTEM
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import TimeError, human_duration, parse_time
from kvstack.apimachinery.well_known import BOOTSTRAP_TOKEN_TYPE

_PREFIX: Final = "bootstrap-token-"
_LETTERS: Final = string.ascii_lowercase + string.digits
_TOKEN: Final = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})", re.ASCII)
_ID: Final = re.compile(r"[a-z0-9]{6}", re.ASCII)
_USAGES: Final = ("authentication", "signing")


class TokenError(ValueError):
    """A text is not a valid token."""


class Token(NamedTuple):
    """The public name of a token, and what only its holder knows."""

    id: str
    secret: str

    @override
    def __str__(self) -> str:
        """Return it as it is given on."""
        return f"{self.id}.{self.secret}"


class Row(NamedTuple):
    """A token as lists show it."""

    token: str
    ttl: str
    expires: str
    usages: str
    description: str
    groups: str


def new_token() -> Token:
    """Return a new random token."""
    return Token(_random(6), _random(16))


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


def parse(text: str) -> Token:
    """Parse a token; TokenError, which does not show the secret."""
    found = _TOKEN.fullmatch(text)
    if found is None:
        shown = f"{text[:6]}…" if len(text) > 6 else text
        raise TokenError(f"invalid token {shown!r}: 6 and 16 of a-z and 0-9, with a point between")
    return Token(found[1], found[2])


def id_of(text: str) -> str:
    """Return the id that a text is, or that of the token that it is; TokenError."""
    return text if _ID.fullmatch(text) else parse(text).id


def secret_name(token_id: str) -> str:
    """Return the name of a token's Secret."""
    return f"{_PREFIX}{token_id}"


def secret_of(token: Token, description: str, expiration: str) -> Object:
    """Return a token's Secret; expiration: a time as RFC 3339 has it; empty: never."""
    data = {
        "auth-extra-groups": JOINING,
        "token-id": token.id,
        "token-secret": token.secret,
        **{f"usage-bootstrap-{each}": "true" for each in _USAGES},
    }
    data |= {"description": description} if description else {}
    data |= {"expiration": expiration} if expiration else {}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(token.id), "namespace": SYSTEM},
        "type": BOOTSTRAP_TOKEN_TYPE,
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }


def row_of(secret: Object, now_s: float) -> Row:
    """Return what a list shows of a Secret of the type."""
    data = {
        key: base64.b64decode(text or "").decode("utf-8", "replace")
        for key, text in (secret.get("data") or {}).items()
    }
    until = data.get("expiration", "")
    usages = [each for each in _USAGES if data.get(f"usage-bootstrap-{each}") == "true"]
    return Row(
        f"{data.get('token-id', '')}.{data.get('token-secret', '')}",
        _time_left(until, now_s),
        until or "<never>",
        ",".join(usages) or "<none>",
        data.get("description") or "<none>",
        data.get("auth-extra-groups") or "<none>",
    )


def _time_left(until: str, now_s: float) -> str:
    if not until:
        return "<forever>"
    try:
        left_s = parse_time(until).seconds - now_s
    except TimeError:
        return "<invalid>"
    return human_duration(left_s) if left_s > 0 else "<expired>"
