"""Uniqueness of items in sets and map lists.

list_errors({"ports": [{"port": 1}, {"port": 1}]}, schema, "")
→ ports[1]: Duplicate value: {"port":1}
"""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, child, duplicate, index, key
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema
from kvstack.apiserver.apiextensions.customresourcedefinitions.values import same_json
from kvstack.apiserver.kinds.rules import Errors

_LIST_TYPE: Final = "x-kubernetes-list-type"
_KEYS: Final = "x-kubernetes-list-map-keys"


def has_unique_lists(schema: Schema) -> bool:
    """Return whether a schema, or a subschema, is of a set or map list."""
    if schema.get(_LIST_TYPE) in {"set", "map"}:
        return True
    below = [schema.get("items"), schema.get("additionalProperties")]
    below += (schema.get("properties") or {}).values()
    return any(isinstance(each, dict) and has_unique_lists(each) for each in below)


def list_errors(value: Any, schema: Schema | None, path: str) -> list[FieldError]:  # noqa: ANN401
    """Return the errors of duplicate items of sets and map lists."""
    errors: Errors = []
    if not schema:
        return errors
    if isinstance(value, list):
        list_type = schema.get(_LIST_TYPE)
        if list_type == "set":
            errors += _repeated(value, value, path)
        elif list_type == "map":
            identities = [_identity(each, schema) for each in value]
            errors += _repeated(identities, identities, path)
        items = schema.get("items")
        for position, item in enumerate(value):
            if isinstance(items, dict) and isinstance(item, (dict, list)):
                errors += list_errors(item, items, index(path, position))
    elif isinstance(value, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, each in value.items():
            if not isinstance(each, (dict, list)):
                continue
            if name in properties:
                errors += list_errors(each, properties[name], child(path, name))
            elif isinstance(extra, dict):
                errors += list_errors(each, extra, key(path, name))
    return errors


def _identity(item: Any, schema: Schema) -> Any:  # noqa: ANN401
    """Return the keys of an item; the item itself if it is not an object."""
    if not isinstance(item, dict):
        return item
    return {name: item[name] for name in schema.get(_KEYS) or () if name in item}


def _repeated(values: list[Any], values_shown: list[Any], path: str) -> Errors:
    """Return one error for each value that occurs more than once."""
    errors: Errors = []
    seen: list[Any] = []
    repeated: list[Any] = []
    for position, each in enumerate(values):
        if not any(same_json(each, before) for before in seen):
            seen.append(each)
        elif not any(same_json(each, before) for before in repeated):
            repeated.append(each)
            errors.append(duplicate(index(path, position), values_shown[position]))
    return errors
