"""What OpenAPI says of a custom resource: its schema, and that of its list.

component_name("stable.example.com", "v1", "CronTab")   → "com.example.stable.v1.CronTab"
"""

from collections.abc import Sequence
from typing import Any, Final

from kvstack.apiserver.kinds.definitions.schemas import Schema
from kvstack.apiserver.objects.text import json_text

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_CONVENTIONS: Final = (
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
)
_HEAD: Final[Schema] = {
    "apiVersion": {
        "description": f"The version of the schema of this object. More info: {_CONVENTIONS}",
        "type": "string",
    },
    "kind": {
        "description": f"The kind of this object. More info: {_CONVENTIONS}",
        "type": "string",
    },
}


def component_name(group: str, version: str, kind: str) -> str:
    """Return the name of the component of a kind."""
    return ".".join((*reversed(group.split(".")), version, kind))


def components_of(
    group: str,
    version: str,
    kind: str,
    list_kind: str,
    schema: Schema,
    selectable: Sequence[str] = (),
) -> dict[str, Schema]:
    """Return the components of a version of a custom resource, by name.

    selectable: paths of the fields that selectors may name (`spec.color`).
    """
    name = component_name(group, version, kind)
    own: Schema = json_text.copied(schema)
    properties: dict[str, Any] = {**(own.get("properties") or {}), **_HEAD}
    properties["metadata"] = _metadata("ObjectMeta")
    own["properties"] = dict(sorted(properties.items()))
    own["x-kubernetes-group-version-kind"] = _kinds(group, version, kind)
    listed = {
        "description": f"{list_kind} is a list of {kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": _HEAD["apiVersion"],
            "items": {
                "description": "The objects of the list.",
                "type": "array",
                "items": {"$ref": f"#/components/schemas/{name}"},
            },
            "kind": _HEAD["kind"],
            "metadata": _metadata("ListMeta"),
        },
        "x-kubernetes-group-version-kind": _kinds(group, version, list_kind),
    }
    if selectable:
        paths = [{"fieldPath": each} for each in selectable]
        own["x-kubernetes-selectable-fields"] = listed["x-kubernetes-selectable-fields"] = paths
    return {name: own, f"{name}List": listed}


def _metadata(kind: str) -> Schema:
    return {
        "description": f"Standard metadata. More info: {_CONVENTIONS}#metadata",
        "allOf": [{"$ref": f"#/components/schemas/{_META}.{kind}"}],
    }


def _kinds(group: str, version: str, kind: str) -> list[Schema]:
    return [{"group": group, "kind": kind, "version": version}]
