"""Values of internal types, as errors about fields print them.

    internal(port, service_port, "core.ServicePort")
    → {"Name": "", "Protocol": "TCP", "AppProtocol": None, "Port": 80, …}

Kubernetes validates objects in internal versions of their kinds, whose structs have no JSON names:
printed, they have Go's field names, all fields, in the order of their declaration. A value is found
by the Go name that the versioned field has; fields that are elsewhere in the versioned object print
as their zero. Metadata and the types of the API machinery print as in JSON.

The names are those of the folders and types, `core.Pod`, `apps.Deployment`; `networking.…` too.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.stored_form import without_empty
from kvstack.apimachinery.schema.types import Field, Shape, Type
from kvstack.apimachinery.schema.zeros import zero

DATA: Final = Path(__file__).resolve().parent / "data" / "internal.json"

Value = Any
"""A value of JSON, or None."""

_EMPTY: Final[tuple[Value, ...]] = (None, [], {})
_MAP: Final = re.compile(r"^map\[[\w./-]+\](.+)$")
_SCALARS: Final[Mapping[str, Value]] = {
    "string": "",
    "bool": False,
    "int": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0,
}
_ZEROS: Final[Mapping[str, Value]] = {
    "api/resource.Quantity": "0",
    "intstr.IntOrString": 0,
    "types.UID": "",
    "types.NodeName": "",
}


def internal(value: Value, type_: Type, name: str) -> Value:
    """Return a value of a versioned type as its internal type prints; KeyError: no such type."""
    return _print(value, type_, name, name.rpartition(".")[0])


@cache
def _types() -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(DATA.read_bytes())
    return found


def _print(value: Value, type_: Type | None, text: str, package: str) -> Value:
    """Return the value of the Go type that is written `text` within an internal package."""
    if text.startswith("*"):
        return None if value is None else _print(value, type_, text[1:], package)
    if text == "[]byte":
        return value
    if text.startswith("[]"):
        element = None if type_ is None else type_.element
        if value is None:
            return None
        return [_print(each, element, text[2:], package) for each in value]
    match = _MAP.match(text)
    if match:
        element = None if type_ is None else type_.element
        if value is None:
            return None
        return {key: _print(value[key], element, match[1], package) for key in sorted(value)}
    if text in _SCALARS:
        return _SCALARS[text] if value is None else value
    full = text if "." in text else f"{package}.{text}"
    declared = _types().get(full)
    if declared is None:
        return _outside(value, type_, full)
    below = full.rpartition(".")[0]
    if isinstance(declared, str):
        return _print(value, type_, declared, below)
    if type_ is not None and type_.shape is Shape.RAW and type_.element is not None:
        return _holder(value, type_.element, declared, below)
    return _struct(value or {}, type_, declared, below)


def _holder(value: Value, schema: Type, declared: list[list[str]], package: str) -> Object:
    """Return a value that is a schema or something else: both have a field of their own."""
    is_schema = isinstance(value, dict)
    printed: Object = {}
    for name, text in declared:
        if name == "Schema":
            printed[name] = _print(value if is_schema else None, schema, text, package)
        elif name == "Allows":
            printed[name] = is_schema or bool(value)
        elif is_schema or value is None:
            printed[name] = None
        else:
            printed[name] = [_print(each, schema, text[2:], package) for each in value]
    return printed


def _outside(value: Value, type_: Type | None, name: str) -> Value:
    """Return a value of a type without an internal version."""
    if value is not None:
        is_struct = type_ is not None and type_.shape is Shape.STRUCT
        return without_empty(value, type_) if type_ is not None and is_struct else value
    if name in _ZEROS:
        return _ZEROS[name]
    return zero(type_)() if type_ is not None and type_.shape is Shape.STRUCT else None


def _struct(obj: Object, type_: Type | None, declared: list[list[str]], package: str) -> Object:
    printed: Object = {}
    by_go_name = {} if type_ is None else _by_go_name(type_)
    for name, text, *tag in declared:
        if not name:
            printed |= _embedded(obj, type_, text, package)
            continue
        field = by_go_name.get(name)
        value = None if field is None else obj.get(field.name)
        key, _, options = tag[0].partition(",") if tag else ("", "", "")
        if value in _EMPTY and "omitempty" in options:
            continue
        printed[key or name] = _print(value, None if field is None else field.type, text, package)
    return printed


def _embedded(obj: Object, type_: Type | None, text: str, package: str) -> Object:
    last = text.rpartition(".")[2]
    if last == "TypeMeta":
        return {name: obj[name] for name in ("kind", "apiVersion") if name in obj}
    if last in {"ObjectMeta", "ListMeta"}:
        metadata: Object = obj.get("metadata", {})
        field = None if type_ is None else type_.fields.get("metadata")
        return metadata if field is None else without_empty(metadata, field.type)
    printed: Object = _print(obj, type_, text, package)
    return printed


def _by_go_name(type_: Type) -> dict[str, Field]:
    return {field.go_name: field for field in type_.fields.values()}
