"""Fast validation of values by functions that are compiled from a schema.

    fits = fits_of({"type": "integer", "minimum": 1}, slow)
    fits(2)   → True

A function returns True only for valid values; for others, `values` finds the errors, if any.
Schemas with more than types, limits, patterns and members are left to `slow`.
"""

from collections.abc import Callable
from typing import Any, Final

from kvstack.apimachinery.objects.text.go_patterns import PatternError, compile_pattern, is_match
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema

Value = Any
"""A JSON value."""
Fits = Callable[[Value], bool]
Slow = Callable[[Schema], Fits]
"""Returns the function of a schema that needs the full check."""

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_EXACT_MAX: Final = 2**53
"""Limits are floats: larger ones are inexact."""
_PLAIN_TYPES: Final = frozenset(("object", "array", "string", "integer", "boolean"))
_SILENT: Final = frozenset((
    "type", "description", "title", "default", "example", "externalDocs", "nullable",
    "x-kubernetes-validations", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-map-type",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
))  # fmt: skip
"""Keywords that only concern a value's type and whether it may be null."""
_KNOWN: Final = {
    "object": _SILENT | {"properties", "required", "additionalProperties"},
    "array": _SILENT | {"items", "minItems", "maxItems"},
    "string": _SILENT | {"minLength", "maxLength", "pattern", "enum"},
    "integer": _SILENT | {"minimum", "maximum"},
    "boolean": _SILENT,
}


def fits_of(schema: Schema, slow: Slow) -> Fits:
    """Return the function of a schema."""
    type_name = schema.get("type", "")
    if type_name not in _PLAIN_TYPES or not _KNOWN[type_name].issuperset(schema):
        return slow(schema)
    check_value = _MAKERS[type_name](schema, slow)
    if check_value is None:
        return slow(schema)
    # A schema with an enum does not accept null.
    if not schema.get("nullable") or schema.get("enum"):
        return check_value
    return lambda value: value is None or check_value(value)


def _of_object(schema: Schema, slow: Slow) -> Fits | None:
    extra = schema.get("additionalProperties")
    if extra is False:
        return None
    members = {name: fits_of(each, slow) for name, each in (schema.get("properties") or {}).items()}
    required = tuple(schema.get("required") or ())
    others = fits_of(extra, slow) if isinstance(extra, dict) else None
    find = members.get

    def fits(value: Value) -> bool:
        if type(value) is not dict:
            return False
        for name in required:
            if name not in value:
                return False
        for name, each in value.items():
            check = find(name, others)
            if check is not None and not check(each):
                return False
        return True

    return fits


def _of_array(schema: Schema, slow: Slow) -> Fits | None:
    items = schema.get("items")
    if items is not None and not isinstance(items, dict):
        return None
    check = None if items is None else fits_of(items, slow)
    minimum, maximum = schema.get("minItems") or 0, schema.get("maxItems")

    def fits(value: Value) -> bool:
        if type(value) is not list or len(value) < minimum:
            return False
        if maximum is not None and len(value) > maximum:
            return False
        return check is None or all(map(check, value))

    return fits


def _of_string(schema: Schema, _slow: Slow) -> Fits | None:
    minimum, maximum = schema.get("minLength") or 0, schema.get("maxLength")
    try:
        pattern = compile_pattern(schema["pattern"]) if schema.get("pattern") else None
    except PatternError:
        return None
    choices: list[Value] = schema.get("enum") or []
    texts = frozenset(each for each in choices if isinstance(each, str))

    def fits(value: Value) -> bool:
        if type(value) is not str or len(value) < minimum:
            return False
        if maximum is not None and len(value) > maximum:
            return False
        if choices and value not in texts:
            return False
        return pattern is None or is_match(pattern, value)

    return fits


def _of_integer(schema: Schema, _slow: Slow) -> Fits | None:
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = [each for each in (low, high) if each is not None]
    if any(type(each) is not int or abs(each) > _EXACT_MAX for each in bounds):
        return None
    least = _INT64_MIN if low is None else low
    most = _INT64_MAX if high is None else high
    return lambda value: type(value) is int and least <= value <= most


def _of_boolean(_schema: Schema, _slow: Slow) -> Fits | None:
    return lambda value: type(value) is bool


_MAKERS: Final[dict[str, Callable[[Schema, Slow], Fits | None]]] = {
    "object": _of_object,
    "array": _of_array,
    "string": _of_string,
    "integer": _of_integer,
    "boolean": _of_boolean,
}
