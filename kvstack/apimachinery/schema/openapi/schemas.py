"""The schemas of types, as components of an OpenAPI v3 document.

A struct becomes an object with its properties; what refers to one is a `$ref`, or an `allOf` of one
where it has a description or default. Types that have a form of their own in JSON (times,
quantities) are components, too.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kvstack.apimachinery.schema.openapi.descriptions import Descriptions
from kvstack.apimachinery.schema.types import NO_DEFAULT, Field, Shape, Type

Schema = dict[str, Any]

REFERENCE: Final = "#/components/schemas/"

_SCALARS: Final[dict[Shape, Schema]] = {
    Shape.STRING: {"type": "string"},
    Shape.INT32: {"format": "int32", "type": "integer"},
    Shape.INT64: {"format": "int64", "type": "integer"},
    Shape.FLOAT64: {"format": "double", "type": "number"},
    Shape.BOOL: {"type": "boolean"},
    Shape.BYTES: {"format": "byte", "type": "string"},
}
_LEAVES: Final[dict[Shape, Schema]] = {
    Shape.TIME: {"format": "date-time", "type": "string"},
    Shape.MICRO_TIME: {"format": "date-time", "type": "string"},
    Shape.DURATION: {"type": "string"},
    Shape.QUANTITY: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    Shape.INT_OR_STRING: {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    Shape.FIELDS_V1: {"type": "object"},
}
_ANY_OBJECT: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"


def components(
    names: Iterable[str], types: Mapping[str, Type], descriptions: Descriptions
) -> dict[str, Schema]:
    """Return the schemas of the named types and of all they refer to, by name."""
    schemas: dict[str, Schema] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in schemas:
            type_ = types[name]
            schemas[name] = _component(type_, descriptions.get(name))
            waiting.extend(_referred(type_))
    return dict(sorted(schemas.items()))


def _component(type_: Type, texts: tuple[str, Mapping[str, str]]) -> Schema:
    description, of_fields = texts
    schema: Schema = {"description": description} if description else {}
    if type_.shape is not Shape.STRUCT:
        if type_.name == _ANY_OBJECT:
            return {**schema, "type": "object"}
        return {**schema, **_LEAVES.get(type_.shape, {})}
    if type_.fields:
        schema["properties"] = {
            name: _property(field, of_fields.get(name, ""))
            for name, field in sorted(type_.fields.items())
        }
    required = [name for name, field in type_.fields.items() if field.required]
    if required:
        schema["required"] = required
    return {**schema, "type": "object", **type_.openapi}


def _property(field: Field, description: str) -> Schema:
    beside: Schema = {}
    if description:
        beside["description"] = description
    if field.default is not NO_DEFAULT:
        beside["default"] = field.default
    if field.type.shape in {Shape.LIST, Shape.MAP, Shape.BYTES}:
        beside.update(field.type.openapi)
    elif field.type.shape is Shape.STRUCT and field.type.map_type == "granular":
        declared = field.type.openapi.get("x-kubernetes-map-type")
        if declared is not None:
            beside["x-kubernetes-map-type"] = declared
    if field.patch_merge_key:
        beside["x-kubernetes-patch-merge-key"] = field.patch_merge_key
    if field.patch_strategies:
        beside["x-kubernetes-patch-strategy"] = ",".join(sorted(field.patch_strategies))
    schema = _schema(field.type)
    if beside and "$ref" in schema:
        schema = {"allOf": [schema]}
    return dict(sorted({**schema, **beside}.items()))


def _schema(type_: Type) -> Schema:
    if type_.name:
        return {"$ref": REFERENCE + type_.name}
    if type_.shape is Shape.LIST and type_.element is not None:
        return {"items": _schema(type_.element), "type": "array"}
    if type_.shape is Shape.MAP and type_.element is not None:
        return {"additionalProperties": _schema(type_.element), "type": "object"}
    if type_.shape is Shape.RAW:
        return {"type": "object"}
    enum = {"enum": list(type_.enum)} if type_.enum else {}
    return {**enum, **_SCALARS[type_.shape]}


def _referred(type_: Type) -> Iterable[str]:
    """Return the names of the components that a type's schema refers to."""
    for field in type_.fields.values():
        below = field.type
        while not below.name and below.element is not None:
            below = below.element
        if below.name:
            yield below.name
