"""Structural schemas: each type is specified once, outside of `allOf` and such.

    structural_errors({"properties": {"spec": {}}}, "spec.validation.openAPIV3Schema")
    → …openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified …
      …openAPIV3Schema.type: Required value: must not be empty at the root

The schema has no unsupported keywords (`schemas.unsupported`).
"""

from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    index,
    invalid,
    key,
    required,
)
from kvstack.apimachinery.objects.text.go_patterns import PatternError, compile_pattern
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema
from kvstack.apiserver.kinds.rules import Errors

_ROOT, _ITEM, _FIELD = "at the root", "for specified array items", "for specified object fields"
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_TEXT: Final = "x-kubernetes-int-or-string"
_EMPTY, _UNDEFINED, _FALSE = "must be empty", "must be undefined", "must be false"
_FORBIDDEN_WITHIN: Final = (
    ("type", _EMPTY),
    ("additionalProperties", _UNDEFINED),
    ("default", _UNDEFINED),
    ("title", _EMPTY),
    ("description", _EMPTY),
    ("nullable", _FALSE),
    (_PRESERVE, _FALSE),
    (_EMBEDDED, _FALSE),
    (_INT_OR_TEXT, _FALSE),
    ("x-kubernetes-list-map-keys", _EMPTY),
    ("x-kubernetes-list-type", _UNDEFINED),
    ("x-kubernetes-map-type", _UNDEFINED),
    ("x-kubernetes-validations", _EMPTY),
)
"""Keywords not allowed below `allOf` and such, and their names in errors."""
_POINTERS: Final = frozenset(("default", "x-kubernetes-list-type", "x-kubernetes-map-type"))
"""Keywords that may be present and empty."""
_NAMES: Final = frozenset(("name", "generateName"))
_TEXT_FIELDS: Final = ("kind", "apiVersion")


def structural_errors(schema: Schema, path: str) -> list[FieldError]:
    """Return why a schema is not structural, sorted by text."""
    errors: Errors = []
    _check(schema, _ROOT, path, errors)
    _check_juncted(schema, schema, path, path, errors)
    return sorted(errors, key=str)


def _check(schema: Schema, level: str, path: str, errors: Errors) -> None:
    type_name, items = schema.get("type", ""), schema.get("items")
    extra = schema.get("additionalProperties")
    if isinstance(items, dict):
        _check(items, _ITEM, child(path, "items"), errors)
    elif type_name == "array":
        errors.append(required(child(path, "items"), "must be specified"))
    for name, property_ in (schema.get("properties") or {}).items():
        _check(property_, _FIELD, key(child(path, "properties"), name), errors)
    if extra is not None and level == _ROOT:
        errors.append(
            forbidden(child(path, "additionalProperties"), "must not be used at the root")
        )
    if isinstance(extra, dict):
        _check(extra, _FIELD, child(path, "additionalProperties"), errors)
    if schema.get(_INT_OR_TEXT):
        detail = f"must be false if {_INT_OR_TEXT} is true"
        errors.extend(
            invalid(child(path, name), True, detail)
            for name in (_PRESERVE, _EMBEDDED)
            if schema.get(name)
        )
    # Only int-or-string values may specify types there.
    first = (schema.get("allOf") or [{}])[0]
    _check_junctors(
        schema,
        path,
        errors,
        skips_any=schema.get("anyOf") == _INT_OR_STRING,
        skips_first=first.get("anyOf") == _INT_OR_STRING,
    )
    _check_type(schema, level, path, errors)
    _check_meta(schema, level, path, errors)


def _check_type(schema: Schema, level: str, path: str, errors: Errors) -> None:
    type_name, where = schema.get("type", ""), child(path, "type")
    if schema.get(_EMBEDDED) and type_name != "object":
        detail = f"must be object if {_EMBEDDED} is true"
        errors.append(invalid(where, type_name, detail) if type_name else required(where, detail))
    elif not type_name and not schema.get(_INT_OR_TEXT) and not schema.get(_PRESERVE):
        errors.append(required(where, f"must not be empty {level}"))
    if schema.get(_EMBEDDED) and schema.get("additionalProperties") is not None:
        detail = f"must not be used if {_EMBEDDED} is set"
        errors.append(forbidden(child(path, "additionalProperties"), detail))
    if level == _ROOT and type_name not in {"", "object"}:
        errors.append(invalid(where, type_name, "must be object at the root"))


def _check_meta(schema: Schema, level: str, path: str, errors: Errors) -> None:
    """Check the schemas of apiVersion, kind and metadata."""
    properties, where = schema.get("properties") or {}, child(path, "properties")
    is_resource = level == _ROOT or schema.get(_EMBEDDED)
    for name in _TEXT_FIELDS:
        type_name = properties.get(name, {}).get("type", "")
        if is_resource and name in properties and type_name != "string":
            errors.append(invalid(child(key(where, name), "type"), type_name, "must be string"))
    metadata, below = properties.get("metadata"), key(where, "metadata")
    if metadata is not None:
        type_name = metadata.get("type", "")
        if is_resource and type_name != "object":
            errors.append(invalid(child(below, "type"), type_name, "must be object"))
        if level == _ROOT and _says_more_than_names(metadata):
            detail = (
                "must not specify anything other than name and generateName, but metadata is"
                " implicitly specified"
            )
            errors.append(forbidden(below, detail))
    if schema.get(_EMBEDDED) and not schema.get(_PRESERVE) and not properties:
        detail = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        errors.append(required(where, detail))


def _says_more_than_names(metadata: Schema) -> bool:
    allowed = {"type", "default"}
    if (metadata.get("properties") or {}).keys() <= _NAMES:
        allowed.add("properties")
    return not metadata.keys() <= allowed


def _check_junctors(
    schema: Schema, path: str, errors: Errors, *, skips_any: bool = False, skips_first: bool = False
) -> None:
    """Check the schemas of `allOf` and such, which may only validate.

    skips_any: except `anyOf`; skips_first: except `anyOf` in the first of `allOf`.
    """
    for junctor in ("anyOf", "allOf", "oneOf"):
        if junctor == "anyOf" and skips_any:
            continue
        for position, each in enumerate(schema.get(junctor) or ()):
            inner = skips_first and junctor == "allOf" and position == 0
            _check_within(each, index(child(path, junctor), position), errors, skips_any=inner)
    negated = schema.get("not")
    if negated is not None:
        _check_within(negated, child(path, "not"), errors)
    pattern = schema.get("pattern", "")
    if pattern:
        try:
            compile_pattern(pattern)
        except PatternError as error:
            detail = f"must be a valid regular expression, but isn't: {error}"
            errors.append(invalid(child(path, "pattern"), pattern, detail))


def _check_within(schema: Schema, path: str, errors: Errors, *, skips_any: bool = False) -> None:
    _check_junctors(schema, path, errors, skips_any=skips_any)
    items, properties = schema.get("items"), schema.get("properties") or {}
    if isinstance(items, dict):
        _check_within(items, child(path, "items"), errors)
    where = child(path, "properties")
    for name, property_ in properties.items():
        _check_within(property_, key(where, name), errors)
    for name, keyword in _FORBIDDEN_WITHIN:
        value = schema.get(name)
        is_pointer = name in _POINTERS or isinstance(value, dict)
        if value or (is_pointer and value is not None):
            errors.append(forbidden(child(path, name), f"{keyword} to be structural"))
    if "metadata" in properties:
        detail = "must not be specified in a nested context"
        errors.append(forbidden(key(where, "metadata"), detail))


def _check_juncted(
    schema: Schema | None, more: Schema, path: str, more_path: str, errors: Errors
) -> None:
    """Check that `more` specifies only values that the schema specifies."""
    if schema is None:
        errors.append(required(path, f"because it is defined in {more_path}"))
        return
    negated = more.get("not")
    if negated is not None:
        _check_defined(schema, negated, path, child(more_path, "not"), errors)
    for junctor in ("allOf", "anyOf", "oneOf"):
        for position, each in enumerate(more.get(junctor) or ()):
            where = index(child(more_path, junctor), position)
            _check_defined(schema, each, path, where, errors)


def _check_defined(
    schema: Schema | None, more: Schema, path: str, more_path: str, errors: Errors
) -> None:
    _check_juncted(schema, more, path, more_path, errors)
    if schema is None:
        return
    below, items = schema.get("items"), more.get("items")
    if isinstance(items, dict):
        inner = below if isinstance(below, dict) else None
        _check_defined(inner, items, child(path, "items"), child(more_path, "items"), errors)
    properties = schema.get("properties") or {}
    for name, each in (more.get("properties") or {}).items():
        where, there = (key(child(every, "properties"), name) for every in (path, more_path))
        if name in properties:
            _check_defined(properties[name], each, where, there, errors)
        else:
            errors.append(required(where, f"because it is defined in {there}"))
