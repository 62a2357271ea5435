"""Data of ConfigMaps and Secrets: size, keys, immutability."""

import base64
from collections.abc import Iterable
from typing import Final

from kvstack.apimachinery.objects.field_errors import FieldError, forbidden, key
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_config_key
from kvstack.apiserver.kinds.rules import Errors, add_invalid

DATA_BYTES_MAX: Final = 1024 * 1024

_SEALED: Final = "field is immutable when `immutable` is set"


def check_keys(errors: Errors, path: str, keys: Iterable[str]) -> None:
    """Check the keys of a map."""
    for each in keys:
        messages = check_config_key(each)
        if messages:
            add_invalid(errors, key(path, each), each, messages)


def fill_bytes(blobs: dict[str, str | None] | None) -> None:
    """Replace null values by empty ones: the store does not distinguish them."""
    if blobs and None in blobs.values():
        blobs.update({name: "" for name, value in blobs.items() if value is None})


def check_sealed(new: Object, old: Object, *names: str) -> list[FieldError]:
    """Return the errors of changing an immutable object's data, or making it mutable."""
    if not old.get("immutable"):
        return []
    changed = [each for each in names if (new.get(each) or {}) != (old.get(each) or {})]
    if not new.get("immutable"):
        changed.insert(0, "immutable")
    return [forbidden(each, _SEALED) for each in changed]


def decoded_length(text: str) -> int:
    """Return the length of base64 data."""
    return len(text) * 3 // 4 - text.count("=", -2)


def decoded(text: str) -> bytes:
    """Return the bytes of base64 data."""
    return base64.b64decode(text)
