"""The rows of a definition, one for each of its versions.

rows_of(definition)   → [CustomResource(v1), CustomResource(v1beta1, is_served=False), …]
"""

import hashlib
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.schema.resource import Kind, Selectable, Storage
from kvstack.apiserver.apiextensions.customresourcedefinitions.conditions import (
    TERMINATING,
    is_true,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema
from kvstack.apiserver.apiextensions.customresources.columns import columns_of
from kvstack.apiserver.apiextensions.customresources.publishing import component_name, components_of
from kvstack.apiserver.apiextensions.customresources.resource import (
    CompiledSchema,
    Converter,
    CustomResource,
)
from kvstack.apiserver.apiextensions.customresources.strategy import schema_of, strategy_of_version
from kvstack.apiserver.apiextensions.customresources.types import type_of
from kvstack.apiserver.apiextensions.customresources.versions import version_rank

if TYPE_CHECKING:
    from kvstack.apimachinery.schema.openapi.descriptions import Descriptions

_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_PART_VERBS: Final = ("get", "patch", "update")
_PARTS: Final = ("status", "scale")
_HASHED_BYTES: Final = 8


def rows_of(
    definition: Object,
    again: Callable[[], Object] | None = None,
    converter: Converter | None = None,
) -> list[CustomResource]:
    """Return the rows of a definition, including unserved versions.

    again: returns the definition again, when its schemas are compiled; else it is kept.
    """
    versions = definition["spec"].get("versions") or ()
    hub = next(each for each in versions if each.get("storage"))
    find = again or (lambda: definition)
    rows = [_row(definition, each, hub, find, converter) for each in versions]
    found = {each.group_version: each for each in rows}
    for row in rows:
        row.versions = found
    return rows


def _row(
    definition: Object,
    version: Object,
    hub: Object,
    find: Callable[[], Object],
    converter: Converter | None,
) -> CustomResource:
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    group, kind = spec["group"], Kind(spec["group"], version["name"], names["kind"])
    is_going = is_true(definition, TERMINATING)
    row = CustomResource(
        kind,
        names,
        Storage(group, hub["name"], names["kind"], f"{group}/{names['plural']}", is_json=True),
        partial(_make, find, kind.version, is_going=is_going, is_converted=converter is not None),
        is_namespaced=spec["scope"] == "Namespaced",
        verbs=_VERBS,
        parts={
            name: _PART_VERBS
            for name in _PARTS
            if (version.get("subresources") or {}).get(name) is not None
        },
        fingerprint=_fingerprint(spec, names, version, hub),
    )
    row.storage_version_hash = _hash(group, hub["name"], names["kind"])
    row.component = component_name(group, kind.version, kind.kind)
    list_kind = names.get("listKind") or f"{kind.kind}List"
    row.components = partial(_components, find, kind, list_kind)
    row.deprecation = _deprecation(spec, version, kind.kind)
    row.is_served = bool(version.get("served"))
    row.converter = converter
    return row


def _make(
    find: Callable[[], Object], name: str, *, is_going: bool, is_converted: bool
) -> CompiledSchema:
    """Return what depends on the schema of a version."""
    definition = find()
    version = _version(definition, name)
    hub = next(each for each in definition["spec"]["versions"] if each.get("storage"))
    kind = definition["status"]["acceptedNames"]["kind"]
    return CompiledSchema(
        type_of(schema_of(version), kind),
        strategy_of_version(definition, version, hub, is_going=is_going, is_converted=is_converted),
        columns_of(version),
        Selectable(("metadata.name", "metadata.namespace", *_selectable_paths(version))),
    )


def _components(
    find: Callable[[], Object], kind: Kind, list_kind: str, descriptions: "Descriptions"
) -> dict[str, Schema]:
    version = _version(find(), kind.version)
    return components_of(
        kind.group,
        kind.version,
        kind.kind,
        list_kind,
        schema_of(version),
        descriptions,
        _selectable_paths(version),
    )


def _selectable_paths(version: Object) -> list[str]:
    return [each["jsonPath"].removeprefix(".") for each in version.get("selectableFields") or ()]


def _version(definition: Object, name: str) -> Object:
    found: Object = next(each for each in definition["spec"]["versions"] if each["name"] == name)
    return found


def _fingerprint(spec: Object, names: Object, version: Object, hub: Object) -> str:
    parts = [spec.get("scope"), names, version, hub["name"]]
    return hashlib.sha256(json_text.write(parts)).hexdigest()


def _deprecation(spec: Object, version: Object, kind: str) -> str:
    """Return the deprecation warning of a version; empty: it is not deprecated."""
    if not version.get("deprecated"):
        return ""
    own = version.get("deprecationWarning")
    if own is not None:
        return str(own)
    warning = f"{spec['group']}/{version['name']} {kind} is deprecated"
    rank = version_rank(version["name"])
    better = sorted(
        version_rank(each["name"])
        for each in spec["versions"]
        if each.get("served") and not each.get("deprecated")
    )
    if better and better[0] < rank:
        return f"{warning}; use {spec['group']}/{better[0][-1]} {kind}"
    return warning


def _hash(group: str, version: str, kind: str) -> str:
    digest = hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()
    return b64encode(digest[:_HASHED_BYTES]).decode()
