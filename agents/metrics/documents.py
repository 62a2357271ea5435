"""Discovery and OpenAPI of the metrics groups.

group = MetricsGroup("metrics.k8s.io", "v1beta1", (NODES, PODS))
group.resource_list(), group.aggregated(), group.openapi_v3(), group.openapi_v2()
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object

_STRING: Final[Mapping[str, Any]] = {"type": "string"}
_QUANTITIES: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": _STRING}


class ServedResource(NamedTuple):
    """A resource."""

    name: str
    kind: str
    is_namespaced: bool
    properties: Mapping[str, Any]
    """The properties of its objects, besides apiVersion, kind and metadata."""
    has_list: bool = True

    @property
    def verbs(self) -> list[str]:
        """The verbs of the resource."""
        return ["get", "list"] if self.has_list else ["get"]


_USAGE: Final = {"timestamp": {**_STRING, "format": "date-time"}, "window": _STRING}
USAGE_SCHEMA: Final = {"timestamp": _USAGE["timestamp"], "usage": _QUANTITIES}
"""Properties of what was used at a time."""
_CONTAINER: Final = {
    "type": "object",
    "required": ["name", "usage"],
    "properties": {"name": _STRING, "usage": _QUANTITIES},
}
NODES: Final = ServedResource("nodes", "NodeMetrics", False, {**_USAGE, "usage": _QUANTITIES})
PODS: Final = ServedResource(
    "pods", "PodMetrics", True, {**_USAGE, "containers": {"type": "array", "items": _CONTAINER}}
)


def openapi_answer(groups: "Sequence[MetricsGroup]", path: str) -> Object | None:
    """Return what is at a path below /openapi, for a server of these groups; None: nothing is."""
    by_name = {f"/openapi/v3{each.path}": each for each in groups}
    if path == "/openapi/v3":
        names = [name.removeprefix("/openapi/v3/") for name in by_name]
        return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in names}}
    if path == "/openapi/v2":
        found: Object = {"swagger": "2.0", "info": {"title": "kvstack", "version": "unversioned"}}
        found |= {"paths": {}, "definitions": {}}
        for each in groups:
            part = each.openapi_v2()
            found["paths"] |= part["paths"]
            found["definitions"] |= part["definitions"]
        return found
    group = by_name.get(path)
    return None if group is None else group.openapi_v3()


class MetricsGroup(NamedTuple):
    """One version of a group."""

    name: str
    version: str
    resources: Sequence[ServedResource]

    @property
    def api_version(self) -> str:
        """Group and version, as objects have it."""
        return f"{self.name}/{self.version}"

    @property
    def path(self) -> str:
        """The path of its resources."""
        return f"/apis/{self.api_version}"

    def resource_list(self) -> Object:
        """Return the APIResourceList."""
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": self.api_version,
            "resources": [
                {
                    "name": each.name,
                    "singularName": "",
                    "namespaced": each.is_namespaced,
                    "kind": each.kind,
                    "verbs": each.verbs,
                }
                for each in self.resources
            ],
        }

    def aggregated(self) -> list[Object]:
        """Return the resources as aggregated discovery has them."""
        return [
            {
                "resource": each.name,
                "responseKind": {"group": "", "version": "", "kind": each.kind},
                "scope": "Namespaced" if each.is_namespaced else "Cluster",
                "singularResource": "",
                "verbs": each.verbs,
            }
            for each in self.resources
        ]

    def openapi_v3(self) -> Object:
        """Return the document of OpenAPI v3."""
        return {
            "openapi": "3.0.0",
            "info": {"title": "kvstack", "version": "unversioned"},
            "paths": self._paths(is_v3=True),
            "components": {"schemas": self._schemas("#/components/schemas/")},
        }

    def openapi_v2(self) -> Object:
        """Return the part of the document of OpenAPI v2."""
        return {
            "paths": self._paths(is_v3=False),
            "definitions": self._schemas("#/definitions/"),
            "parameters": {},
        }

    def _schemas(self, before: str) -> Object:
        schemas: Object = {}
        for each in self.resources:
            name = self._schema_name(each.kind)
            schemas[name] = self._schema(each.kind, each.properties)
            if not each.has_list:
                continue
            items = {"type": "array", "items": {"$ref": f"{before}{name}"}}
            schemas[f"{name}List"] = self._schema(f"{each.kind}List", {"items": items})
        return schemas

    def _schema(self, kind: str, properties: Mapping[str, Any]) -> Object:
        own = {"apiVersion": _STRING, "kind": _STRING, "metadata": {"type": "object"}}
        return {
            "type": "object",
            "properties": {**own, **properties},
            "x-kubernetes-group-version-kind": [self._kind(kind)],
        }

    def _kind(self, kind: str) -> Object:
        return {"group": self.name, "kind": kind, "version": self.version}

    def _schema_name(self, kind: str) -> str:
        return ".".join((*reversed(self.name.split(".")), self.version, kind))

    def _paths(self, *, is_v3: bool) -> Object:
        paths: Object = {}
        for each in self.resources:
            places = [f"{self.path}/{each.name}"]
            if each.is_namespaced:
                places.append(f"{self.path}/namespaces/{{namespace}}/{each.name}")
            for place in places if each.has_list else ():
                paths[place] = {"get": self._operation(each, "list", place, is_v3=is_v3)}
            one = f"{places[-1]}/{{name}}"
            paths[one] = {"get": self._operation(each, "get", one, is_v3=is_v3)}
        return paths

    def _operation(
        self, served: ServedResource, action: str, template: str, *, is_v3: bool
    ) -> Object:
        kind = served.kind if action == "get" else f"{served.kind}List"
        name = self._schema_name(kind)
        response: Object = {"description": "OK", "schema": {"$ref": f"#/definitions/{name}"}}
        if is_v3:
            schema = {"$ref": f"#/components/schemas/{name}"}
            response = {"description": "OK", "content": {"application/json": {"schema": schema}}}
        parameters = [
            {
                "name": each,
                "in": "path",
                "required": True,
                **({"schema": dict(_STRING)} if is_v3 else _STRING),
            }
            for each in ("namespace", "name")
            if f"{{{each}}}" in template
        ]
        scope = "Namespaced" if "{namespace}" in template else ""
        return {
            "operationId": f"{action}{self.version.title()}{scope}{served.kind}",
            "parameters": parameters,
            "responses": {"200": response},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self._kind(served.kind),
            **({} if is_v3 else {"produces": ["application/json"]}),
        }
