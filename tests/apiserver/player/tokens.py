"""What a service account's token says, in the form recordings have it: volatile values marked."""

import base64
import json
import re
from typing import Any

_UID = re.compile(r"[0-9a-f-]{36}")
_TIMES = {"exp", "iat", "nbf", "warnafter"}


def claims_of(token: str) -> dict[str, Any]:
    """Return header and claims of a token, and how far its times are apart."""
    head, claims = (_decoded(part) for part in token.split(".")[:2])
    bound = claims["kubernetes.io"]
    marked: dict[str, Any] = _marked(claims)
    marked["lifetime"] = claims["exp"] - claims["iat"]
    marked["warnafter-iat"] = bound.get("warnafter", claims["iat"]) - claims["iat"]
    return {"header": _marked(head), "claims": marked}


def _decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def _marked(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _marked(each, name) for name, each in value.items()}
    if key in _TIMES and isinstance(value, int):
        return "<time>"
    if key in ("jti", "uid") and _UID.fullmatch(str(value)):
        return "<uid>"
    return "<key id>" if key == "kid" and value else value
