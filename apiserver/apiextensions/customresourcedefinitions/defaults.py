"""Validation of defaults by their schema.

    default_errors(schema, "spec.validation.openAPIV3Schema")
    → …properties[n].default: Invalid value: "string": …default in body must be of type integer: …

The schema is structural. Defaults of metadata, which only embedded resources may have, are
validated within the resource that they belong to. A default must satisfy the CEL rules of its
schema both as a new value and as an update of itself.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, child, invalid, key
from kvstack.apimachinery.objects.text.go_text import aggregate
from kvstack.apiserver.apiextensions.customresourcedefinitions.embedded import (
    coerce,
    embedded_errors,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.pruning import prune
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import META_FIELDS, Schema
from kvstack.apiserver.apiextensions.customresourcedefinitions.values import ValueSchema, same_json
from kvstack.apiserver.kinds.expressions import NO_EXPRESSIONS, Expressions

_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_TYPE_META: Final = {"apiVersion": "validation/v1", "kind": "Validation"}

Surround = Callable[[Any], Any]
"""Returns the resource that a value is part of."""


def default_errors(
    schema: Schema,
    path: str,
    *,
    needs_pruned: bool = True,
    expressions: Expressions = NO_EXPRESSIONS,
) -> list[FieldError]:
    """Return the errors of defaults in the schema of a resource.

    needs_pruned: whether unknown fields are errors. expressions: evaluates CEL rules.
    """
    root = {**schema, _EMBEDDED: True}
    walk = _Walk(expressions, needs_pruned=needs_pruned)
    walk.check(root, root, path, _surround, is_meta=False)
    return walk.errors


def has_unknown_fields(schema: Schema) -> bool:
    """Return whether a default in a schema has unknown fields."""
    errors = default_errors(schema, "")
    return any(each.body.endswith(_UNKNOWN) for each in errors)


_UNKNOWN: Final = "must not have unknown fields"


def _surround(value: Any) -> Any:  # noqa: ANN401 — of any schema
    return {**_TYPE_META, **value}


class _Walk:
    """The check of all defaults in a schema."""

    def __init__(self, expressions: Expressions, *, needs_pruned: bool) -> None:
        self.errors: list[FieldError] = []
        self._expressions = expressions
        self._needs_pruned = needs_pruned

    def check(
        self, schema: Schema, root: Schema, path: str, surround: Surround, *, is_meta: bool
    ) -> None:
        """Check a schema and its subschemas.

        root: the schema of the enclosing resource; is_meta: whether it is part of the metadata.
        """
        if schema.get(_EMBEDDED):
            is_meta, surround, root = False, _surround, schema
        if schema.get("default") is not None:
            where = child(path, "default")
            if not is_meta:
                self._check_pruned(schema, where)
                wrong = _value_errors(schema, where)
            else:
                wrong = _metadata_errors(schema, root, where, surround)
            self.errors += wrong or self._expressions.check_default(
                schema, schema["default"], where, is_resource=schema is root
            )
        items = schema.get("items")
        if isinstance(items, dict):

            def listed(value: Any) -> Any:  # noqa: ANN401
                return surround([value])

            self.check(items, root, child(path, "items"), listed, is_meta=is_meta)
        base = child(path, "properties")
        for name, each in (schema.get("properties") or {}).items():
            inner = is_meta or (bool(schema.get(_EMBEDDED)) and name in META_FIELDS)
            where = key(base, name)
            self.check(each, root, where, _member(surround, name), is_meta=inner)

    def _check_pruned(self, schema: Schema, path: str) -> None:
        value = schema["default"]
        if self._needs_pruned:
            pruned = deepcopy(value)
            prune(pruned, schema)
            if not same_json(pruned, value):
                self.errors.append(invalid(path, value, _UNKNOWN))


def _value_errors(schema: Schema, path: str) -> list[FieldError]:
    coerced = deepcopy(schema["default"])
    error = coerce(coerced, schema, path)
    if error is not None:
        return [error]
    return embedded_errors(coerced, schema, path) or ValueSchema(schema).errors(coerced, path)


def _member(surround: Surround, name: str) -> Surround:
    def member(value: Any) -> Any:  # noqa: ANN401
        return surround({name: value})

    return member


def _metadata_errors(
    schema: Schema, root: Schema, path: str, surround: Surround
) -> list[FieldError]:
    value = schema["default"]
    resource = surround(deepcopy(value))
    prefix = "must result in valid metadata: "
    error = coerce(resource, root, "", is_resource=True)
    if error is not None:
        return [invalid(path, value, f"{prefix}{error}")]
    wrong = embedded_errors(resource, root, "", is_resource=True)
    if wrong:
        return [invalid(path, value, prefix + aggregate(map(str, wrong)))]
    return ValueSchema(schema).errors(value, path)
