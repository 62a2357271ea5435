"""Preparation and validation of the statuses of both kinds."""

from collections.abc import Callable
from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    index,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.generation import raise_generation
from kvstack.apiserver.kinds.strategy import Context

_PATH: Final = "status.conditions"


def prepare_create(obj: Object, _context: Context) -> None:
    """Clear the status."""
    obj["status"] = {}
    obj["metadata"]["generation"] = 1


def prepare_update_of(spec_type: str) -> Callable[[Object, Object, Context], None]:
    """Return the preparation of an update; `spec_type`: the type of the spec."""

    def prepare(new: Object, old: Object, _context: Context) -> None:
        new["status"] = old.get("status") or {}
        raise_generation(new, old, spec_type)

    return prepare


def prepare_status(new: Object, old: Object, _context: Context) -> None:
    """Keep all but the status."""
    managed = new["metadata"].get("managedFields")
    new["metadata"] = dict(old["metadata"])
    new["metadata"].pop("managedFields", None)
    if managed is not None:
        new["metadata"]["managedFields"] = managed
    new["spec"] = old["spec"]


def validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    """Validate a status."""
    return status_errors(new)


def status_errors(obj: Object) -> list[FieldError]:
    """Return the errors of conditions, whose types must be unique."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for position, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        path = child(index(_PATH, position), "type")
        kind = condition.get("type", "")
        if kind in seen:
            errors.append(duplicate(path, JsonText(kind)))
        seen.add(kind)
        if not kind:
            errors.append(required(path))
    return errors
