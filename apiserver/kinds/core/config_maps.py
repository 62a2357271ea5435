"""ConfigMaps: texts and bytes by key, immutable if `immutable` is true."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, invalid, key, too_long
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import length
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.core.keyed_data import (
    DATA_BYTES_MAX,
    check_keys,
    check_sealed,
    decoded_length,
    fill_bytes,
)
from kvstack.apiserver.kinds.strategy import Context, Strategy


def _default(obj: Object) -> None:
    fill_bytes(obj.get("binaryData"))


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    texts: dict[str, str] = obj.get("data") or {}
    blobs: dict[str, str] = obj.get("binaryData") or {}
    check_keys(errors, "data", texts)
    if blobs:
        errors.extend(
            invalid(key("data", each), each, "duplicate of key present in binaryData")
            for each in texts.keys() & blobs.keys()
        )
        check_keys(errors, "binaryData", blobs)
    size = sum(map(length, texts.values())) + sum(map(decoded_length, blobs.values()))
    if size > DATA_BYTES_MAX:
        errors.append(too_long("[]", DATA_BYTES_MAX))
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    return check_sealed(new, old, "data", "binaryData") + _validate(new, context)


def _cells(obj: Object, now: float) -> list[Any]:
    count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    return [obj["metadata"]["name"], count, age(obj["metadata"].get("creationTimestamp"), now)]


CONFIG_MAPS: Final = Strategy(
    default=_default, validate=_validate, validate_update=_validate_update, cells=_cells
)
