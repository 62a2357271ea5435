"""Short hashes for names: FNV of 32 bits, in safe letters.

    safe_text("3498172645")          → "7bf6b4d9c8"
    template_hash(template, None)    → "6d4b75cb6d"

A hash names a template; whether two templates are equal it does not say. Upstream hashes a dump of
its own structures, so its names differ from these: both find what the other made by comparing
templates.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

_BASIS: Final = 2166136261
_PRIME: Final = 16777619
_MASK: Final = 0xFFFFFFFF
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_COLLISION_BYTES: Final = 8


def fnv1_32(data: bytes) -> int:
    """Return the FNV-1 hash."""
    value = _BASIS
    for byte in data:
        value = ((value * _PRIME) & _MASK) ^ byte
    return value


def fnv1a_32(data: bytes) -> int:
    """Return the FNV-1a hash."""
    value = _BASIS
    for byte in data:
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


def safe_text(text: str) -> str:
    """Return a text in letters and digits from which no bad word is made."""
    return "".join(_ALPHABET[ord(char) % len(_ALPHABET)] for char in text)


def template_hash(template: Mapping[str, Any], collision_count: int | None) -> str:
    """Return the hash of a pod template; collision_count: of hashes that were taken before."""
    data = orjson.dumps(template, option=orjson.OPT_SORT_KEYS)
    if collision_count is not None:
        data += collision_count.to_bytes(_COLLISION_BYTES, "little")
    return safe_text(str(fnv1a_32(data)))
