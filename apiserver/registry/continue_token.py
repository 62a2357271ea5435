"""Continue tokens of lists.

    after(7, "web")   → eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Nywic3RhcnQiOiIvd2ViXHUwMDAwIn0
                        {"v":"meta.k8s.io/v1","rv":7,"start":"/web\\u0000"}

A token holds the revision of the list and the next key, relative to the listed prefix (a namespace,
or all). Revision -1: the current state.
"""

import posixpath
from base64 import b64decode, urlsafe_b64encode
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.text import json_text

LATEST: Final = -1
_VERSION: Final = "meta.k8s.io/v1"
_INVALID: Final = "continue key is not valid"
_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_LETTERS: Final = frozenset(_ALPHABET)
_TO_STANDARD: Final = str.maketrans("-_", "+/")


class TokenError(ValueError):
    """An invalid token; the message is upstream's."""


class Position(NamedTuple):
    """The position where a list continues."""

    revision: int
    """Revision of the first page; LATEST: the current state."""
    start: str
    """The next key, relative to the listed prefix."""


def after(revision: int, key: str) -> str:
    """Return the token of the position after a key."""
    return encode(revision, f"/{key}\0")


def encode(revision: int, start: str) -> str:
    """Return the token of a revision and a start, as they are encoded in it."""
    members = {"v": _VERSION, "rv": revision, "start": start}
    return urlsafe_b64encode(json_text.write(members)).rstrip(b"=").decode()


def decode(token: str) -> Position:
    """Return the position of a token; raises TokenError."""
    try:
        members = _members(json_text.parse(_unpadded(token)))
    except ValueError as error:
        raise TokenError(f"{_INVALID}: {error}") from None
    version = members.get("v", "")
    if version != _VERSION:
        raise TokenError(f"{_INVALID}: server does not recognize this encoded version {version}")
    revision: int = members.get("rv", 0)
    start: str = members.get("start", "")
    if not revision:
        raise TokenError(
            f"{_INVALID}: incorrect encoded start resourceVersion (version {_VERSION})"
        )
    if not start:
        raise TokenError(f"{_INVALID}: encoded start key empty (version {_VERSION})")
    path = start if start.startswith("/") else f"/{start}"
    if posixpath.normpath(path) != path or path.startswith("//"):
        raise TokenError(f"{_INVALID}: {start}")
    return Position(revision, path[1:])


def _members(value: object) -> dict[str, Any]:
    """Return the members of a token's object; ValueError if one has the wrong type."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        word = json_text.type_word(value)
        raise ValueError(  # noqa: TRY004 — of the client's text
            f"json: cannot unmarshal {word} into Go value of type storage.continueToken"
        )
    members = {name: each for name, each in value.items() if each is not None}
    for name, type_, go_type in (
        ("v", str, "string"),
        ("rv", int, "int64"),
        ("start", str, "string"),
    ):
        each = members.get(name, type_())
        if not isinstance(each, type_) or isinstance(each, bool):
            word = json_text.type_word(each)
            raise ValueError(  # noqa: TRY004
                f"json: cannot unmarshal {word} into Go struct field continueToken.{name}"
                f" of type {go_type}"
            )
    return members


def _unpadded(token: str) -> bytes:
    """Return the bytes of base64 without padding; ValueError with Go's text."""
    text = token.replace("\n", "").replace("\r", "")
    for position, letter in enumerate(text):
        if letter not in _LETTERS:
            size = len(text[:position].encode())
            raise ValueError(f"illegal base64 data at input byte {size}")
    if len(text) % 4 == 1:
        raise ValueError(f"illegal base64 data at input byte {len(text) - 1}")
    return b64decode(text.translate(_TO_STANDARD) + "=" * (-len(text) % 4))
