"""Data by keys, as ConfigMaps and Secrets hold it: how long, how keyed, how sealed."""

import base64
from collections.abc import Iterable
from typing import Final

from kvstack.apimachinery.objects.field_errors import FieldError, forbidden, key
from kvstack.apimachinery.objects.names import check_config_key
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.strategy import Obj

DATA_BYTES_MAX: Final = 1024 * 1024

_SEALED: Final = "field is immutable when `immutable` is set"


def check_keys(errors: Errors, path: str, keys: Iterable[str]) -> None:
    """Add what is wrong with the keys of a map."""
    for each in keys:
        messages = check_config_key(each)
        if messages:
            add_invalid(errors, key(path, each), each, messages)


def fill_bytes(blobs: dict[str, str | None] | None) -> None:
    """Make null values empty: bytes that are null and none at all are the same in the store."""
    if blobs and None in blobs.values():
        blobs.update({name: "" for name, value in blobs.items() if value is None})


def check_sealed(new: Obj, old: Obj, *names: str) -> list[FieldError]:
    """Return the errors of changing maps (or opening the seal) of an object that was sealed."""
    if not old.get("immutable"):
        return []
    changed = [each for each in names if (new.get(each) or {}) != (old.get(each) or {})]
    if not new.get("immutable"):
        changed.insert(0, "immutable")
    return [forbidden(each, _SEALED) for each in changed]


def decoded_length(text: str) -> int:
    """Return how many bytes a base64 text stands for."""
    return len(text) * 3 // 4 - text.count("=", -2)


def decoded(text: str) -> bytes:
    """Return the bytes a base64 text stands for."""
    return base64.b64decode(text)
