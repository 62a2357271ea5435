"""VolumeAttributesClasses: mutable parameters of volumes."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, forbidden, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.storage.parameters import check_driver, check_parameters
from kvstack.apiserver.kinds.strategy import Context, Strategy


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    driver = obj.get("driverName", "")
    if driver:
        check_driver(errors, "driverName", driver)
    else:
        errors.append(required("driverName"))
    check_parameters(errors, "parameters", obj.get("parameters") or {}, is_required=True)
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    return [
        forbidden(each, f"updates to {each} are forbidden.")
        for each in ("driverName", "parameters")
        if (new.get(each) or None) != (old.get(each) or None)
    ] + _validate(new, context)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    created = metadata.get("creationTimestamp")
    return [metadata["name"], obj.get("driverName", ""), age(created, now)]


VOLUME_ATTRIBUTES_CLASSES: Final = Strategy(
    validate=_validate,
    validate_update=_validate_update,
    cells=_cells,
)
