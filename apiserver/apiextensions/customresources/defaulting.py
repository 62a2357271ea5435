"""Defaulting by a schema.

    fill_defaults({"spec": {}}, schema)   → {"spec": {"replicas": 1}}, in place

A null that is not allowed counts as absent: it becomes the default, or is dropped if there is none.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.text import json_text
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema

_COMPILED: Final = frozenset(("properties", "items", "additionalProperties"))


def fill_defaults(value: Any, schema: Schema | None) -> None:  # noqa: ANN401 — of any schema
    """Set defaults below a value, and drop nulls that are not allowed, in place."""
    if not schema or _COMPILED.isdisjoint(schema):
        return
    if isinstance(value, dict):
        _fill_object(value, schema)
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for position, item in enumerate(value):
                if item is None and _replaces_null(items):
                    value[position] = json_text.copied(items["default"])
                fill_defaults(value[position], items)


def _fill_object(value: dict[str, Any], schema: Schema) -> None:
    properties = schema.get("properties") or {}
    for name, each in properties.items():
        if value.get(name) is None and (name not in value or not each.get("nullable")):
            if each.get("default") is not None:
                value[name] = json_text.copied(each["default"])
            else:
                value.pop(name, None)
                continue
        if isinstance(value[name], (dict, list)):
            fill_defaults(value[name], each)
    extra = schema.get("additionalProperties")
    if not isinstance(extra, dict):
        return
    for name in [each for each in value if each not in properties]:
        if value[name] is None and not extra.get("nullable"):
            if extra.get("default") is None:
                del value[name]
                continue
            value[name] = json_text.copied(extra["default"])
        fill_defaults(value[name], extra)


def _replaces_null(schema: Schema) -> bool:
    return schema.get("default") is not None and not schema.get("nullable")
