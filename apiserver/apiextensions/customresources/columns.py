"""Table columns of custom resources: the name, and those of the definition.

columns_of(version)   → (Name, Replicas, Age)
cells_of(version)(obj, now)   → ["web", 3, "5m"]
"""

from collections.abc import Callable
from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.go_floats import format_float
from kvstack.apimachinery.objects.text.json_path import JsonPathError
from kvstack.apimachinery.objects.times import TimeError, human_duration, parse_time
from kvstack.apimachinery.schema.resource import Column
from kvstack.apiserver.apiextensions.customresources.paths import Finder

_NAME: Final = Column("Name", "string", "name", "Name of the object.")
_AGE: Final[Object] = {
    "name": "Age",
    "type": "date",
    "description": "When the object was created.",
    "jsonPath": ".metadata.creationTimestamp",
}
_ABSENT: Final = object()
_INVALID: Final = "<invalid>"


def columns_of(version: Object) -> tuple[Column, ...]:
    """Return the columns of a version of a definition."""
    return _NAME, *(
        Column(
            each["name"],
            each["type"],
            each.get("format", ""),
            each.get("description", ""),
            each.get("priority", 0),
        )
        for each in _declared_columns(version)
    )


def cells_of(version: Object) -> Callable[[Object, float], list[Any]]:
    """Return the function for an object's cells: (object, now in seconds)."""
    found = [(each["type"], Finder(each["jsonPath"])) for each in _declared_columns(version)]

    def cells(obj: Object, now: float) -> list[Any]:
        name = (obj.get("metadata") or {}).get("name", "")
        return [name, *(_cell(type_, each.first(obj, _ABSENT), now) for type_, each in found)]

    return cells


def _declared_columns(version: Object) -> list[Object]:
    """Return the columns of a version; the default ones if one of them has an invalid path."""
    columns: list[Object] = version.get("additionalPrinterColumns") or [_AGE]
    try:
        for each in columns:
            Finder(each["jsonPath"])
    except JsonPathError:
        return [_AGE]
    return columns


def _cell(type_: str, value: Any, now: float) -> Any:  # noqa: ANN401
    if value is _ABSENT:
        return None
    if type_ == "string":
        return _text(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if type_ == "integer":
        return int(value) if is_number else None
    if type_ == "number":
        return value if is_number else None
    if type_ == "boolean":
        return value if isinstance(value, bool) else None
    if type_ == "date" and isinstance(value, str):
        try:
            return human_duration(now - parse_time(value).seconds)
        except TimeError:
            return _INVALID
    return None


def _text(value: Any) -> str:  # noqa: ANN401
    if value is None:
        return "<no value>"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_float(value)
    return json_text.write_sorted(value).decode() if isinstance(value, (dict, list)) else str(value)
