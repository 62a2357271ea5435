"""Validation of schemas in a definition, structural or not: types, lists, maps, CEL rules.

    check_schema(schema, "spec.validation.openAPIV3Schema", options)
    → …openAPIV3Schema.properties[a].$ref: Forbidden: $ref is not supported

CEL rules are only compiled if nothing else is wrong with their schema or one below it, and only if
the whole is structural.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.field_errors import (
    REQUIRED,
    FieldError,
    child,
    forbidden,
    index,
    invalid,
    key,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.apiextensions.customresourcedefinitions.rule_costs import Budget, more_values
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import (
    META_FIELDS,
    PathError,
    Schema,
    any_schema,
    find_field,
    has_inner,
    unsupported,
)
from kvstack.apiserver.kinds.expressions import Expressions, RuleFindings, SchemaRule
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.rules import Errors

TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")

_API: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_LIST_TYPE: Final = "x-kubernetes-list-type"
_LIST_TYPES: Final = ("atomic", "set", "map")
_MAP_KEYS: Final = "x-kubernetes-list-map-keys"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_MAP_TYPES: Final = ("atomic", "granular")
_RULES: Final = "x-kubernetes-validations"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_REASONS: Final = enum_values(
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ValidationRule", "reason"
)
_UNSUPPORTED: Final = (
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
)
_POINTERS: Final = frozenset(("additionalItems", "dependencies", "$ref"))
"""Keywords that may be present and empty."""


class Options(NamedTuple):
    """Which checks apply; an update skips those that the stored object fails."""

    expressions: Expressions
    stored_rules: frozenset[str] = frozenset()
    stored_messages: frozenset[str] = frozenset()
    needs_valid_types: bool = True
    needs_atomic_sets: bool = True
    needs_good_keys: bool = True
    """Whether keys of map lists must be required or defaulted, and items not nullable."""
    limits_rules: bool = True
    """Whether the cost of each CEL rule is limited."""
    compiles_rules: bool = True


class _Location(NamedTuple):
    """The location of a schema."""

    path: str
    is_root: bool = False
    is_compiled: bool = True
    """Whether its CEL rules are compiled."""
    no_defaults: str | None = None
    """Why defaults are not allowed."""
    is_in_metadata: bool = False
    uncorrelated: str | None = None
    """The enclosing schema whose values cannot be correlated with old ones."""
    cardinality: int | None = 1
    """Maximum number of values; None: unlimited."""
    is_resource: bool = False


@dataclass(slots=True)
class _Walk:
    """The check of a whole schema."""

    options: Options
    budget: Budget = field(default_factory=Budget)


class Checked(NamedTuple):
    """The findings."""

    errors: list[FieldError]
    budget: Budget


def check_schema(schema: Schema, path: str, options: Options) -> Checked:
    """Return the errors of a root schema, and the cost of its rules."""
    walk = _Walk(options)
    location = _Location(
        path=path, is_root=True, is_compiled=options.compiles_rules, is_resource=True
    )
    errors, of_rules = _check(schema, location, walk)
    return Checked(errors + of_rules, walk.budget)


def _check(schema: Schema, location: _Location, walk: _Walk) -> tuple[Errors, Errors]:
    """Return the errors of a schema and its subschemas, and of its CEL rules."""
    errors: Errors = []
    of_rules: Errors = []
    _check_fields(schema, location, walk, errors)
    for inner, where in _within(schema, location):
        more, more_of_rules = _check(inner, where, walk)
        errors += more
        of_rules += more_of_rules
    path = location.path
    if schema.get(_PRESERVE) is False:
        errors.append(invalid(child(path, _PRESERVE), False, "must be true or undefined"))
    _check_map_type(schema, path, errors)
    _check_list_type(schema, path, errors, walk.options)
    if walk.options.needs_good_keys:
        errors += key_errors(schema, path)
    _check_rules(schema, child(path, _RULES), errors)
    if not errors and location.is_compiled:
        of_rules += _compiled_errors(schema, location, walk)
    return errors, of_rules


def _check_fields(schema: Schema, location: _Location, walk: _Walk, errors: Errors) -> None:
    path, type_name = location.path, schema.get("type", "")
    if walk.options.needs_valid_types and type_name and type_name not in TYPES:
        errors.append(not_supported(child(path, "type"), type_name, TYPES))
    if location.no_defaults is not None and schema.get("default") is not None:
        errors.append(forbidden(child(path, "default"), f"must not be set {location.no_defaults}"))
    for name in _UNSUPPORTED:
        if schema.get(name) or (name in _POINTERS and schema.get(name) is not None):
            errors.append(forbidden(child(path, name), f"{name} is not supported"))
    if type_name == "null":
        detail = "type cannot be set to null, use nullable as an alternative"
        errors.append(forbidden(child(path, "type"), detail))
    items = schema.get("items")
    if isinstance(items, list) and items:
        detail = "items must be a schema object and not an array"
        errors.append(forbidden(child(path, "items"), detail))
    if location.is_in_metadata and schema.get(_EMBEDDED):
        detail = "must not be used inside of resource meta"
        errors.append(forbidden(child(path, _EMBEDDED), detail))
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.append(forbidden(child(path, "uniqueItems"), detail))
    extra = schema.get("additionalProperties")
    if extra is not None and extra is not True and schema.get("properties"):
        detail = "additionalProperties and properties are mutual exclusive"
        errors.append(forbidden(child(path, "additionalProperties"), detail))


def _within(schema: Schema, location: _Location) -> Iterator[tuple[Schema, _Location]]:
    """Yield the direct subschemas of a schema, and their locations."""
    if not has_inner(schema):
        return
    path = location.path
    inner = location._replace(
        is_root=False,
        is_resource=False,
        cardinality=more_values(schema, location.cardinality),
    )
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        where = inner._replace(path=child(path, "additionalProperties"))
        if location.is_in_metadata:
            reason = "inside additionalProperties applying to object metadata"
            where = where._replace(no_defaults=reason)
        yield extra, where
    yield from _properties(schema, location, inner)
    plain = location._replace(is_root=False, is_compiled=False, is_resource=False)
    negated = schema.get("not")
    if negated is not None:
        yield negated, plain._replace(path=child(path, "not"))
    for name in ("allOf", "oneOf", "anyOf"):
        for position, each in enumerate(schema.get(name) or ()):
            yield each, plain._replace(path=index(child(path, name), position))
    for name, each in (schema.get("definitions") or {}).items():
        yield each, plain._replace(path=key(child(path, "definitions"), name))
    yield from _items(schema, location, inner)
    for name, each in (schema.get("dependencies") or {}).items():
        if isinstance(each, dict):
            yield each, plain._replace(path=key(child(path, "dependencies"), name))


def _properties(
    schema: Schema, location: _Location, inner: _Location
) -> Iterator[tuple[Schema, _Location]]:
    is_resource = location.is_root or schema.get(_EMBEDDED)
    if schema.get(_MAP_TYPE) not in {None, *_MAP_TYPES}:
        inner = inner._replace(uncorrelated=location.uncorrelated or location.path)
    base = child(location.path, "properties")
    for name, each in (schema.get("properties") or {}).items():
        where = inner._replace(path=key(base, name), is_resource=bool(each.get(_EMBEDDED)))
        if is_resource and name in META_FIELDS:
            where = where._replace(is_in_metadata=True)
            if location.is_root:
                where = where._replace(no_defaults=f"in top-level {name}")
        yield each, where


def _items(
    schema: Schema, location: _Location, inner: _Location
) -> Iterator[tuple[Schema, _Location]]:
    if schema.get(_LIST_TYPE) != "map":
        inner = inner._replace(uncorrelated=location.uncorrelated or location.path)
    items, base = schema.get("items"), child(location.path, "items")
    if isinstance(items, dict):
        yield items, inner._replace(path=base, is_resource=bool(items.get(_EMBEDDED)))
    for position, each in enumerate(items if isinstance(items, list) else ()):
        yield each, inner._replace(path=index(base, position))


def _check_map_type(schema: Schema, path: str, errors: Errors) -> None:
    map_type = schema.get(_MAP_TYPE)
    if map_type is None:
        return
    _check_type_of(schema, "object", _MAP_TYPE, path, errors)
    if map_type not in _MAP_TYPES:
        errors.append(not_supported(child(path, _MAP_TYPE), map_type, _MAP_TYPES))


def _check_type_of(schema: Schema, expected: str, name: str, path: str, errors: Errors) -> bool:
    """Return whether a schema has the type that a keyword requires; add an error if not."""
    type_name, where = schema.get("type", ""), child(path, "type")
    detail = f"must be {expected} if {name} is specified"
    if type_name != expected:
        errors.append(invalid(where, type_name, detail) if type_name else required(where, detail))
    return bool(type_name == expected)


def _check_list_type(schema: Schema, path: str, errors: Errors, options: Options) -> None:
    list_type, keys, where = schema.get(_LIST_TYPE), schema.get(_MAP_KEYS), child(path, _LIST_TYPE)
    if list_type is not None:
        fits = _check_type_of(schema, "array", _LIST_TYPE, path, errors)
        wrong = _non_atomic(schema) if fits and options.needs_atomic_sets else ""
        if wrong:
            detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
            # Upstream shows the type of a list for maps, too.
            shown = schema["items"].get(_LIST_TYPE)
            value = None if shown is None else JsonText(shown)
            errors.append(invalid(child(path, "items", wrong), value, detail))
        if list_type not in _LIST_TYPES:
            errors.append(not_supported(where, list_type, _LIST_TYPES))
    if keys:
        detail = f"must be map if {_MAP_KEYS} is non-empty"
        if list_type is None:
            errors.append(required(where, detail))
        elif list_type != "map":
            errors.append(invalid(where, list_type, detail))
    if list_type == "map":
        _check_map_list(schema, path, errors)


def _non_atomic(schema: Schema) -> str:
    """Return the keyword by which items of a set are not atomic; empty: they are."""
    items = schema.get("items")
    if schema.get(_LIST_TYPE) != "set" or not isinstance(items, dict):
        return ""
    if items.get("type") == "array" and items.get(_LIST_TYPE) not in {None, "atomic"}:
        return _LIST_TYPE
    return _MAP_TYPE if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic" else ""


def _check_map_list(schema: Schema, path: str, errors: Errors) -> None:
    keys, items = schema.get(_MAP_KEYS) or [], schema.get("items")
    keys_path, items_path = child(path, _MAP_KEYS), child(path, "items")
    if not keys:
        errors.append(required(keys_path, f"must not be empty if {_LIST_TYPE} is map"))
    if items is None:
        errors.append(required(items_path, f"must have a schema if {_LIST_TYPE} is map"))
        return
    if not isinstance(items, dict):
        value = internal_value({"items": items}, f"{_API}.JSONSchemaProps")["Items"]
        detail = f"must only have a single schema if {_LIST_TYPE} is map"
        errors.append(invalid(items_path, value, detail))
        return
    type_name, properties = items.get("type", ""), items.get("properties") or {}
    if type_name != "object":
        detail = f"must be object if parent array's {_LIST_TYPE} is map"
        errors.append(invalid(child(items_path, "type"), type_name, detail))
        return
    for position, name in enumerate(keys):
        if name not in properties:
            detail = "entries must all be names of item properties"
            errors.append(invalid(keys_path, keys, detail))
        elif properties[name].get("type") in {"array", "object"}:
            where = child(key(child(items_path, "properties"), name), "type")
            detail = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
            errors.append(invalid(where, type_name, detail))
        if name in keys[:position]:
            errors.append(invalid(keys_path, keys, "must not contain duplicate entries"))


def key_errors(schema: Schema, path: str) -> list[FieldError]:
    """Return the errors of nullable items, and of keys that are not required or defaulted."""
    list_type, items = schema.get(_LIST_TYPE), schema.get("items")
    if list_type not in {"set", "map"} or not isinstance(items, dict):
        return []
    errors: Errors = []
    where = child(path, "items")
    if items.get("nullable"):
        detail = f"cannot be nullable when {_LIST_TYPE} is {list_type}"
        errors.append(forbidden(child(where, "nullable"), detail))
    properties = items.get("properties") or {}
    for name in schema.get(_MAP_KEYS) or () if list_type == "map" else ():
        property_ = properties.get(name)
        if property_ is None:
            continue
        below, prefix = (
            key(child(where, "properties"), name),
            f"this property is in {_MAP_KEYS}, so",
        )
        if name not in (items.get("required") or ()) and property_.get("default") is None:
            detail = f"{prefix} it must have a default or be a required property"
            errors.append(required(child(below, "default"), detail))
        if property_.get("nullable"):
            errors.append(forbidden(child(below, "nullable"), f"{prefix} it cannot be nullable"))
    return errors


def _check_rules(schema: Schema, base: str, errors: Errors) -> None:
    for position, rule in enumerate(schema.get(_RULES) or ()):
        path = index(base, position)
        _check_rule_texts(rule, path, errors)
        reason, field_path = rule.get("reason"), rule.get("fieldPath", "")
        if reason is not None and reason not in _REASONS:
            errors.append(not_supported(child(path, "reason"), JsonText(reason), _REASONS))
        where = child(path, "fieldPath")
        if field_path and not field_path.strip():
            errors.append(invalid(where, field_path, "must be non-empty if specified"))
        if _has_line_breaks(field_path):
            errors.append(invalid(where, field_path, "must not contain line breaks"))
        if field_path and not _leads_somewhere(field_path, schema):
            errors.append(invalid(where, field_path, "must be a valid path"))


def _check_rule_texts(rule: dict[str, Any], path: str, errors: Errors) -> None:
    text, message = rule.get("rule", "").strip(), rule.get("message", "")
    expression, where = rule.get("messageExpression", ""), child(path, "message")
    if not text:
        errors.append(required(child(path, "rule"), "rule is not specified"))
    elif message and not message.strip():
        errors.append(invalid(where, message, "must be non-empty if specified"))
    elif _has_line_breaks(message.strip()):
        errors.append(invalid(where, message, "must not contain line breaks"))
    elif _has_line_breaks(text) and not message.strip():
        errors.append(required(where, "message must be specified if rule contains line breaks"))
    if expression and not expression.strip():
        detail = "messageExpression must be non-empty if specified"
        errors.append(required(child(path, "messageExpression"), detail))


def _has_line_breaks(text: str) -> bool:
    return "\n" in text or "\r" in text


def _leads_somewhere(path: str, schema: Schema) -> bool:
    if unsupported(schema):
        return True
    try:
        find_field(path, schema)
    except PathError:
        return False
    return True


def _compiled_errors(schema: Schema, location: _Location, walk: _Walk) -> list[FieldError]:
    errors: Errors = []
    options = walk.options
    for position, rule in enumerate(schema.get(_RULES) or ()):
        path = index(child(location.path, _RULES), position)
        findings = options.expressions.check_rule(
            SchemaRule(
                schema,
                position,
                location.is_resource,
                rule.get("rule", "") in options.stored_rules,
                rule.get("messageExpression", "") in options.stored_messages,
            )
        )
        errors += _finding_errors(rule, findings, path, location)
        errors += walk.budget.spend(
            findings, location.cardinality, path, is_limited=options.limits_rules
        )
    return errors


def _finding_errors(
    rule: dict[str, Any], findings: RuleFindings, path: str, location: _Location
) -> Iterable[FieldError]:
    value = internal_value(rule, f"{_API}.ValidationRule")
    if findings.problem is not None:
        where, detail = child(path, "rule"), findings.problem.detail
        is_missing = findings.problem.reason == REQUIRED
        yield required(where, detail) if is_missing else invalid(where, value, detail)
    if findings.message_problem is not None:
        yield invalid(child(path, "messageExpression"), value, findings.message_problem.detail)
    if findings.uses_old_self and location.uncorrelated is not None:
        detail = (
            "oldSelf cannot be used on the uncorrelatable portion of the schema within"
            f" {location.uncorrelated}"
        )
        yield invalid(child(path, "rule"), rule.get("rule", ""), detail)
    is_optional = rule.get("optionalOldSelf")
    if findings.uses_old_self is False and is_optional is not None:
        detail = "may not be set if oldSelf is not used in rule"
        yield invalid(child(path, "optionalOldSelf"), is_optional, detail)


def has_wrong_types(schemas: Sequence[Schema]) -> bool:
    """Return whether a schema has an unknown type."""
    return any(
        any_schema(each, lambda inner: inner.get("type", "") not in {"", *TYPES})
        for each in schemas
    )


def has_wrong_sets(schemas: Sequence[Schema]) -> bool:
    """Return whether a schema has sets with items that are not atomic."""
    return any(any_schema(each, lambda inner: bool(_non_atomic(inner))) for each in schemas)


def has_wrong_keys(schemas: Sequence[Schema]) -> bool:
    """Return whether a schema has map lists with optional keys, or nullable items."""
    return any(any_schema(each, lambda inner: bool(key_errors(inner, ""))) for each in schemas)
