"""OpenAPI components of a custom resource and its list.

component_name("stable.example.com", "v1", "CronTab")   → "com.example.stable.v1.CronTab"
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kvstack.apimachinery.objects.text import json_text
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema

if TYPE_CHECKING:
    from kvstack.apimachinery.schema.openapi.descriptions import Descriptions

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_OBJECT: Final = "io.k8s.api.core.v1.Pod"
_LIST: Final = "io.k8s.api.core.v1.PodList"
"""A kind and its list with the fields and descriptions of all objects."""


def component_name(group: str, version: str, kind: str) -> str:
    """Return the name of the component of a kind."""
    return ".".join((*reversed(group.split(".")), version, kind))


def components_of(
    group: str,
    version: str,
    kind: str,
    list_kind: str,
    schema: Schema,
    descriptions: "Descriptions",
    selectable: Sequence[str] = (),
) -> dict[str, Schema]:
    """Return the components of a version of a custom resource, by name.

    descriptions: of the fields of every object; own texts, if empty. selectable: paths of the
    selectable fields (`spec.color`).
    """
    name = component_name(group, version, kind)
    own_schema: Schema = json_text.copied(schema)
    head = _head(descriptions)
    properties: dict[str, Any] = {**(own_schema.get("properties") or {}), **head}
    properties["metadata"] = _metadata(descriptions, _OBJECT, "ObjectMeta")
    own_schema["properties"] = dict(sorted(properties.items()))
    own_schema["x-kubernetes-group-version-kind"] = _kinds(group, version, kind)
    listed = {
        "description": f"{list_kind} is a list of {kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": head["apiVersion"],
            "items": {
                "description": "The objects of the list.",
                "type": "array",
                "items": {"$ref": f"#/components/schemas/{name}"},
            },
            "kind": head["kind"],
            "metadata": _metadata(descriptions, _LIST, "ListMeta"),
        },
        "x-kubernetes-group-version-kind": _kinds(group, version, list_kind),
    }
    if selectable:
        paths = [{"fieldPath": each} for each in selectable]
        own_schema["x-kubernetes-selectable-fields"] = listed["x-kubernetes-selectable-fields"] = (
            paths
        )
    return {name: own_schema, f"{name}List": listed}


def _head(descriptions: "Descriptions") -> dict[str, Schema]:
    own = {
        "apiVersion": "Group and version of the API that this object is written in.",
        "kind": "Kind of this object.",
    }
    return {
        name: {"description": descriptions.of_field(_OBJECT, name, text), "type": "string"}
        for name, text in own.items()
    }


def _metadata(descriptions: "Descriptions", owner: str, kind: str) -> Schema:
    own = "Metadata that every object has." if owner == _OBJECT else "Metadata of the list."
    return {
        "description": descriptions.of_field(owner, "metadata", own),
        "allOf": [{"$ref": f"#/components/schemas/{_META}.{kind}"}],
    }


def _kinds(group: str, version: str, kind: str) -> list[Schema]:
    return [{"group": group, "kind": kind, "version": version}]
