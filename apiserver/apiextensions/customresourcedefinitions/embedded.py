"""Embedded resources: kind, version and metadata are checked as for any object.

    coerce({"metadata": {"labels": {"a": 1}}}, schema, "spec.template")
    → spec.template.metadata: Invalid value: {"labels":{"a":1}}: json: cannot unmarshal number …

`coerce` checks types, and drops unknown metadata; `embedded_errors` checks values.
"""

from functools import cache
from typing import Any, Final

from kvstack.apimachinery.objects import metadata
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    index,
    invalid,
    key,
    required,
)
from kvstack.apimachinery.objects.groups import parse_group_version
from kvstack.apimachinery.objects.names import check_dns1035_label, name_is_path_segment
from kvstack.apimachinery.schema.decode import Decoded, DecodeError, decode
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema
from kvstack.apiserver.kinds.rules import Errors

_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_TYPE_FIELDS: Final = ("apiVersion", "kind")
_ANY_NAME: Final = "fakename"
_UNKNOWN: Final = 'unknown field "'


def coerce(
    value: Any,  # noqa: ANN401 — of any schema
    schema: Schema | None,
    path: str,
    *,
    is_resource: bool = False,
    unknown: list[str] | None = None,
) -> FieldError | None:
    """Return the first type error in kind, version and metadata; drop unknown metadata in place.

    unknown: receives the dropped paths.
    """
    if schema is None:
        return None
    if isinstance(value, dict):
        if is_resource or schema.get(_EMBEDDED):
            error = _coerce_resource(value, path, unknown)
            if error is not None:
                return error
        for name, inner, where in _below(value, schema, path):
            error = coerce(value[name], inner, where, unknown=unknown)
            if error is not None:
                return error
    elif isinstance(value, list):
        items = schema.get("items")
        for position, item in enumerate(value):
            error = coerce(item, items, index(path, position), unknown=unknown)
            if error is not None:
                return error
    return None


def _below(
    value: dict[str, Any], schema: Schema, path: str
) -> list[tuple[str, Schema | None, str]]:
    """Return the known fields of a value, their schemas and paths."""
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    members_below: list[tuple[str, Schema | None, str]] = []
    for name in value:
        if name in properties:
            members_below.append((name, properties[name], child(path, name)))
        elif isinstance(extra, dict):
            members_below.append((name, extra, key(path, name)))
    return members_below


def _coerce_resource(
    value: dict[str, Any], path: str, unknown: list[str] | None
) -> FieldError | None:
    for name in _TYPE_FIELDS:
        if name in value and not isinstance(value[name], str):
            return invalid(child(path, name), value[name], "must be a string")
    if "metadata" in value:
        try:
            decoded = _metadata_of(value["metadata"])
        except DecodeError as error:
            return invalid(child(path, "metadata"), value["metadata"], str(error))
        value["metadata"] = decoded.obj
        if unknown is not None:
            where = child(path, "metadata")
            unknown += [child(where, each[len(_UNKNOWN) : -1]) for each in decoded.unknown]
    return None


def _metadata_of(value: Any) -> Decoded:  # noqa: ANN401
    if value is None:
        return Decoded({}, [])
    if not isinstance(value, dict):
        raise DecodeError("json: cannot unmarshal " + _go_kind(value) + _INTO_METADATA)
    return decode(value, _metadata_type())


_INTO_METADATA: Final = " into Go value of type v1.ObjectMeta"


def _go_kind(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, list):
        return "array"
    return "string" if isinstance(value, str) else "number"


@cache
def _metadata_type() -> Type:
    return load().types["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]


def embedded_errors(
    value: Any,  # noqa: ANN401
    schema: Schema | None,
    path: str,
    *,
    is_resource: bool = False,
) -> list[FieldError]:
    """Return the errors of embedded resources in a value whose types are valid."""
    errors: Errors = []
    if schema is None:
        return errors
    if isinstance(value, dict):
        if is_resource or schema.get(_EMBEDDED):
            _check_resource(value, path, errors)
        for name, inner, where in _below(value, schema, path):
            errors += embedded_errors(value[name], inner, where)
    elif isinstance(value, list):
        items = schema.get("items")
        for position, item in enumerate(value):
            errors += embedded_errors(item, items, index(path, position))
    return errors


def _check_resource(value: dict[str, Any], path: str, errors: Errors) -> None:
    errors.extend(required(child(path, name)) for name in _TYPE_FIELDS if name not in value)
    version, kind = value.get("apiVersion"), value.get("kind")
    where = child(path, "apiVersion")
    if version == "":
        errors.append(invalid(where, version, "must not be empty"))
    elif version is not None:
        try:
            parse_group_version(version)
        except ValueError as error:
            errors.append(invalid(where, version, str(error)))
    where = child(path, "kind")
    if kind == "":
        errors.append(invalid(where, kind, "must not be empty"))
    elif kind is not None and (wrong := check_dns1035_label(kind.lower())):
        detail = f"may have mixed case, but should otherwise match: {','.join(wrong)}"
        errors.append(invalid(where, kind, detail))
    meta = value.get("metadata")
    if meta is not None:
        named = {**meta, "name": meta.get("name") or _ANY_NAME}
        errors += metadata.validate(
            named,
            name_is_path_segment,
            is_namespaced=bool(meta.get("namespace")),
            path=child(path, "metadata"),
        )
