"""Types of custom resources: schemas as nodes of the type graph.

    type_of(schema, "stable.example.com/v1", "CronTab")   → Type(STRUCT, …)

Server-side apply uses these types like those of built-in kinds. Decoding does not: the schema
validates the values after pruning. So the type of the whole has a decoder of its own, which checks
the metadata and prunes.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.schema.findings import ERROR, UNKNOWN, Finding, StopDecodingError
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.scalars import OMITTED, Read, mismatch
from kvstack.apimachinery.schema.types import NO_DEFAULT, Field, Shape, Type
from kvstack.apimachinery.schema.walkers import set_walker, walker
from kvstack.apiserver.apiextensions.customresourcedefinitions.embedded import coerce
from kvstack.apiserver.apiextensions.customresourcedefinitions.pruning import prune
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema, any_schema

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_AS_THEY_ARE: Final = frozenset((str, bool, type(None)))
_SCALARS: Final = {
    "string": Shape.STRING,
    "integer": Shape.INT64,
    "number": Shape.FLOAT64,
    "boolean": Shape.BOOL,
}


def type_of(schema: Schema, kind: str) -> Type:
    """Return the type of a custom resource with a structural schema."""
    found = _struct(schema, is_resource=True)
    found.go_kind = f"*unstructured.{kind}"
    set_walker(found, _reader(schema))
    return found


def _reader(schema: Schema) -> Read:
    read_metadata = walker(load().types[_META])
    has_embedded = any_schema(schema, lambda each: bool(each.get(_EMBEDDED)))

    def read(value: Any, findings: list[Finding]) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            return mismatch(value, "map[string]interface {}", findings)
        obj = _plain(value)
        if obj.get("metadata") is not None:
            before = len(findings)
            metadata = read_metadata(obj["metadata"], findings)
            for each in findings[before:]:
                each.enter_field("", (), "metadata")
            if metadata is OMITTED:
                metadata = {}
            obj["metadata"] = metadata
        elif "metadata" in obj:
            del obj["metadata"]
        dropped: list[str] = []
        prune(obj, schema, is_resource=True, dropped=dropped)
        findings.extend(Finding(UNKNOWN, path=each) for each in sorted(dropped))
        unknown: list[str] = []
        error = coerce(obj, schema, "", unknown=unknown) if has_embedded else None
        if error is not None:
            raise StopDecodingError(Finding(ERROR, str(error)))
        findings.extend(Finding(UNKNOWN, path=each) for each in unknown)
        return obj

    return read


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a copy of a value with its numbers as they are read from the store."""
    if isinstance(value, dict):
        return {
            name: each if type(each) in _AS_THEY_ARE else _plain(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return json_text.canonical_number(value)
    return value


def _type(schema: Schema) -> Type:
    """Return the type of a schema's values."""
    kind = schema.get("type", "")
    if schema.get("x-kubernetes-int-or-string"):
        return Type(Shape.INT_OR_STRING)
    if kind == "array":
        return _list(schema)
    if kind == "object":
        extra = schema.get("additionalProperties")
        if extra and not schema.get("properties"):
            found = Type(Shape.MAP)
            found.element = _type(extra) if isinstance(extra, dict) else Type(Shape.RAW)
            found.map_type = schema.get("x-kubernetes-map-type") or "granular"
            return found
        return _struct(schema, is_resource=bool(schema.get(_EMBEDDED)))
    return Type(_SCALARS.get(kind, Shape.RAW))


def _list(schema: Schema) -> Type:
    found = Type(Shape.LIST)
    items = schema.get("items")
    found.element = _type(items) if isinstance(items, dict) else Type(Shape.RAW)
    found.list_type = schema.get("x-kubernetes-list-type") or "atomic"
    found.list_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    return found


def _struct(schema: Schema, *, is_resource: bool) -> Type:
    struct = Type(Shape.STRUCT)
    struct.map_type = schema.get("x-kubernetes-map-type") or "granular"
    struct.preserves_unknown = bool(schema.get(_PRESERVE))
    fields: dict[str, Field] = {}
    if is_resource:
        for name in ("apiVersion", "kind"):
            fields[name] = _field(name, Type(Shape.STRING))
        fields["metadata"] = _field("metadata", load().types[_META])
    for name, each in (schema.get("properties") or {}).items():
        if name in fields:
            continue
        field = fields[name] = _field(name, _type(each))
        default = each.get("default")
        field.default = NO_DEFAULT if default is None else default
    struct.fields = fields
    return struct


def _field(name: str, type_: Type) -> Field:
    field = Field(name, type_)
    field.is_pointer = True  # zeros are kept as given
    return field
