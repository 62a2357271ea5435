"""Ratcheting: checks that a definition skips because the stored one fails them already."""

from typing import Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.apiextensions.customresourcedefinitions.conditions import (
    ESTABLISHED,
    has_bad_bundle,
    is_true,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.defaults import has_unknown_fields
from kvstack.apiserver.apiextensions.customresourcedefinitions.layout import API
from kvstack.apiserver.apiextensions.customresourcedefinitions.schema_rules import (
    has_wrong_keys,
    has_wrong_sets,
    has_wrong_types,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import (
    Schema,
    any_schema,
    everywhere,
    unsupported,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.structural import structural_errors
from kvstack.apiserver.apiextensions.customresourcedefinitions.warnings import schemas_of
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.expressions import Expressions

REVIEW_VERSIONS: Final = ("v1", "v1beta1")
SELECTABLE_MAX: Final = 8


class Demands(NamedTuple):
    """The checks of a definition."""

    expressions: Expressions
    needs_same_names: bool = False
    needs_known_review: bool = True
    needs_schema: bool = True
    needs_valid_types: bool = True
    needs_structure: bool = True
    needs_pruned_defaults: bool = True
    needs_atomic_sets: bool = True
    needs_good_keys: bool = True
    needs_good_bundle: bool = False
    stored_rules: frozenset[str] = frozenset()
    stored_messages: frozenset[str] = frozenset()
    unchanged_schemas: frozenset[str] = frozenset()
    """Versions whose schema is unchanged."""
    many_fields: frozenset[str] = frozenset()
    """Versions that may have too many selectable fields; empty: the shared part."""


def demands_of(new: Object, old: Object, expressions: Expressions) -> Demands:
    """Return the checks of a change of a stored definition."""
    before = old["spec"]
    schemas = schemas_of(before)
    rules = [
        rule
        for schema in schemas
        for inner in everywhere(schema)
        for rule in inner.get("x-kubernetes-validations") or ()
    ]
    webhook = (before.get("conversion") or {}).get("webhook") or {}
    reviews = webhook.get("conversionReviewVersions") or ()
    return Demands(
        expressions=expressions,
        needs_same_names=is_established(old),
        needs_known_review=not reviews or any(each in REVIEW_VERSIONS for each in reviews),
        needs_schema=all(_schema_of(each) is not None for each in before.get("versions") or ()),
        needs_valid_types=not has_wrong_types(schemas),
        needs_structure=all(_is_structural(each) for each in schemas),
        needs_pruned_defaults=not any(_has_unpruned_defaults(each) for each in schemas),
        needs_atomic_sets=not has_wrong_sets(schemas),
        needs_good_keys=not has_wrong_keys(schemas),
        needs_good_bundle=is_established(old) and not has_bad_bundle(before),
        stored_rules=frozenset(each.get("rule", "") for each in rules),
        stored_messages=frozenset(each.get("messageExpression", "") for each in rules),
        unchanged_schemas=_unchanged_schemas(new["spec"], before),
        many_fields=_with_many_fields(new["spec"], before),
    )


def is_established(obj: Object) -> bool:
    """Return whether a definition is served."""
    return is_true(obj, ESTABLISHED)


def has_defaults(schema: Schema) -> bool:
    """Return whether a schema has defaults."""
    return any_schema(schema, lambda inner: inner.get("default") is not None)


def _schema_of(version: Object) -> Schema | None:
    schema: Schema | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema


def _is_structural(schema: Schema) -> bool:
    return not unsupported(schema) and not structural_errors(schema, "")


def _has_unpruned_defaults(schema: Schema) -> bool:
    return has_defaults(schema) and _is_structural(schema) and has_unknown_fields(schema)


def _unchanged_schemas(spec: Object, before: Object) -> frozenset[str]:
    stored = {each.get("name", ""): each.get("schema") for each in before.get("versions") or ()}
    type_name = f"{API}.CustomResourceValidation"
    return frozenset(
        name
        for each in spec.get("versions") or ()
        if (name := each.get("name", "")) in stored
        and same(each.get("schema"), stored[name], type_name)
    )


def _with_many_fields(spec: Object, before: Object) -> frozenset[str]:
    stored = {
        each.get("name", ""): each.get("selectableFields") or []
        for each in before.get("versions") or ()
    }
    return frozenset(
        name
        for each in spec.get("versions") or ()
        if len(stored.get(name := each.get("name", ""), [])) > SELECTABLE_MAX
        and stored[name] == each.get("selectableFields")
    )
