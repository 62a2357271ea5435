"""The hooks of a version of a custom resource, made from its definition.

    strategy = strategy_of_version(definition, version, hub)

Objects are handled in the storage version, the hub. Those in another version are validated by the
schema of that version, as far as the hub preserves their fields.
"""

from collections.abc import Callable
from typing import Any, Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.field_errors import FieldError, invalid
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import validate
from kvstack.apimachinery.objects.names import name_is_dns_subdomain
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from kvstack.apiserver.apiextensions.customresourcedefinitions.embedded import embedded_errors
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema, any_schema
from kvstack.apiserver.apiextensions.customresourcedefinitions.values import NEW, ValueSchema
from kvstack.apiserver.apiextensions.customresources.columns import cells_of
from kvstack.apiserver.apiextensions.customresources.defaulting import fill_defaults
from kvstack.apiserver.apiextensions.customresources.lists import has_unique_lists, list_errors
from kvstack.apiserver.apiextensions.customresources.paths import Finder
from kvstack.apiserver.apiextensions.customresources.rules import RuleChecks, has_rules
from kvstack.apiserver.apiextensions.customresources.scales import scaling_of
from kvstack.apiserver.kinds.strategy import Context, Conversion, Strategy

_GOING: Final = "create not allowed while custom resource definition is terminating"
_KEPT_BY_STATUS: Final = ("managedFields", "resourceVersion")
_NEGATIVE: Final = "should be a non-negative integer"
_HIGH: Final = "should be less than or equal to 2147483647"
_INT32_MAX: Final = 2**31 - 1


def schema_of(version: Object) -> Schema:
    """Return the schema of a version of a definition."""
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def strategy_of_version(
    definition: Object, version: Object, hub: Object, *, is_going: bool, is_converted: bool
) -> Strategy:
    """Return the hooks of a version of a definition; hub: the storage version.

    is_going: whether the definition is being deleted. is_converted: whether a webhook converts;
    objects are then only handled in this version.
    """
    spec = definition["spec"]
    checks = _Checks(version, is_namespaced=spec["scope"] == "Namespaced")
    has_status = (version.get("subresources") or {}).get("status") is not None
    prepare = _Preparation(
        GroupResource(spec["group"], spec["names"]["plural"]),
        has_status=has_status,
        is_going=is_going,
    )
    api_version = f"{spec['group']}/{version['name']}"
    version_schema, stored = schema_of(version), schema_of(hub)
    conversions = {}
    if version is not hub and not is_converted:
        hub_version = f"{spec['group']}/{hub['name']}"
        conversions[version["name"]] = _conversion(version_schema, api_version, hub_version)
    if is_converted:
        stored = version_schema
    shared: dict[str, Any] = {
        "default": lambda obj: fill_defaults(obj, stored),
        "validate": checks.errors,
        "validate_update": checks.update_errors,
        "warnings": lambda obj, _context: _finalizer_warnings(obj),
        "update_warnings": lambda new, _old, _context: _finalizer_warnings(new),
        "allows_any_finalizer": True,
        "allows_unconditional_update": False,
        "has_generation": True,
        "cells": cells_of(version),
        "selectable": _selectable(version),
        "conversions": conversions,
    }
    scale = (version.get("subresources") or {}).get("scale")
    below: dict[str, Strategy] = {}
    if has_status:
        others = [name for name in version_schema.get("properties") or () if name not in _NOT_RESET]
        below["status"] = Strategy(
            prepare_update=_prepare_status,
            reset_fields=[("metadata",), *((name,) for name in others)],
            **shared,
        )
    return Strategy(
        prepare_create=prepare.create,
        prepare_update=prepare.update,
        asks_for_more=prepare.differs if conversions else None,
        reset_fields=(("status",),) if has_status else (),
        scaling=scaling_of(scale) if scale else None,
        subresources=below,
        **shared,
    )


def _finalizer_warnings(obj: Object) -> list[str]:
    return [
        f"metadata.finalizers: {quote(each)}: {_DOMAIN}"
        for each in obj["metadata"].get("finalizers") or ()
        if "/" not in each and each not in _COLLECTOR
    ]


_COLLECTOR: Final = frozenset((ORPHAN_FINALIZER, FOREGROUND_FINALIZER))
_DOMAIN: Final = (
    "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer"
    " writers"
)
_NOT_RESET: Final = frozenset(("apiVersion", "kind", "metadata", "status"))


def _conversion(version_schema: Schema, api_version: str, hub_version: str) -> Conversion:
    """Return the conversion between a version and the hub: only apiVersion changes."""

    def to_stored(obj: Object) -> Object:
        return {**obj, "apiVersion": hub_version}

    def to_served(obj: Object) -> Object:
        found: Object = json_text.copied(obj)
        found["apiVersion"] = api_version
        return found  # without the defaults of this version, as upstream

    return Conversion(
        to_stored=to_stored,
        to_served=to_served,
        default=lambda obj: fill_defaults(obj, version_schema),
    )


def _selectable(version: Object) -> Callable[[Object], dict[str, str]] | None:
    fields = version.get("selectableFields") or ()
    if not fields:
        return None
    found = {each["jsonPath"].removeprefix("."): Finder(each["jsonPath"]) for each in fields}

    def selectable(obj: Object) -> dict[str, str]:
        return {name: _field_text(each.first(obj)) for name, each in found.items()}

    return selectable


def _field_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class _Preparation:
    """Preparation: what is dropped, kept and counted."""

    def __init__(self, resource: GroupResource, *, has_status: bool, is_going: bool) -> None:
        self._resource = resource
        self._has_status = has_status
        self._is_going = is_going

    def create(self, obj: Object, _context: Context) -> None:
        if self._is_going:
            name = obj["metadata"].get("name", "")
            raise status.forbidden(self._resource, name, _GOING)
        if self._has_status:
            obj.pop("status", None)

    def update(self, new: Object, old: Object, _context: Context) -> None:
        if self._has_status:
            if "status" in old:
                new["status"] = old["status"]
            else:
                new.pop("status", None)
        if self.differs(new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def differs(self, new: Object, old: Object) -> bool:
        """Return whether the desired state differs."""
        kept = ("metadata", "status") if self._has_status else ("metadata",)
        wanted = [{k: v for k, v in obj.items() if k not in kept} for obj in (new, old)]
        return not json_text.equal(*wanted)


def _prepare_status(new: Object, old: Object, _context: Context) -> None:
    given = new["metadata"]
    stored: Object = {**json_text.copied(old), "metadata": dict(old["metadata"])}
    for name in _KEPT_BY_STATUS:
        stored["metadata"].pop(name, None)
        if name in given:
            stored["metadata"][name] = given[name]
    stored.pop("status", None)
    if "status" in new:
        stored["status"] = new["status"]
    stored["apiVersion"], stored["kind"] = new["apiVersion"], new["kind"]
    new.clear()
    new.update(stored)


class _Checks:
    """Validation of a version's objects."""

    def __init__(self, version: Object, *, is_namespaced: bool) -> None:
        self._is_namespaced = is_namespaced
        self._schema = schema_of(version)
        self._values: ValueSchema | None = None
        self._has_lists = has_unique_lists(self._schema)
        self._rules = RuleChecks(self._schema) if has_rules(self._schema) else None
        self._has_embedded = any_schema(
            self._schema, lambda each: bool(each.get("x-kubernetes-embedded-resource"))
        )
        scale = (version.get("subresources") or {}).get("scale") or {}
        self._scale = [
            (path.removeprefix("."), Finder(path))
            for path in (scale.get("specReplicasPath"), scale.get("statusReplicasPath"))
            if path
        ]

    def errors(self, obj: Object, context: Context) -> list[FieldError]:
        """Return the errors of an object besides its metadata."""
        errors = self._value_errors(obj, NEW) + self._other_errors(obj)
        if self._rules is None:
            return errors
        # Rules are not evaluated if something is missing or too long, even in the metadata.
        found = [*errors, *self._metadata_errors(obj)]
        return errors + self._rule_errors(obj, None, context, found)

    def _metadata_errors(self, obj: Object) -> list[FieldError]:
        return validate(obj["metadata"], name_is_dns_subdomain, is_namespaced=self._is_namespaced)

    def update_errors(self, new: Object, old: Object, context: Context) -> list[FieldError]:
        """Return the errors of an update.

        Existing faults may stay.
        """
        errors = self._value_errors(new, old)
        others = self._other_errors(new)
        if others:
            before = {str(each) for each in self._other_errors(old)}
            errors += [each for each in others if str(each) not in before]
        return errors + self._rule_errors(new, old, context, errors)

    def _rule_errors(
        self, obj: Object, old: Object | None, context: Context, found: list[FieldError]
    ) -> list[FieldError]:
        if self._rules is None:
            return []
        return self._rules.errors(obj, old, context.warnings, errors_before=found)

    def _value_errors(self, obj: Object, old: Any) -> list[FieldError]:  # noqa: ANN401
        if self._values is None:
            self._values = ValueSchema(self._schema, is_served=True)
        return self._values.errors(obj, "", old)

    def _other_errors(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        if self._has_embedded:
            errors += embedded_errors(obj, self._schema, "")
        if self._has_lists:
            errors += list_errors(obj, self._schema, "")
        for path, finder in self._scale:
            errors += _replicas_errors(path, finder.first(obj))
        return errors


def _replicas_errors(path: str, replicas: object) -> list[FieldError]:
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        return []
    if replicas < 0:
        return [invalid(path, replicas, _NEGATIVE)]
    return [invalid(path, replicas, _HIGH)] if replicas > _INT32_MAX else []
