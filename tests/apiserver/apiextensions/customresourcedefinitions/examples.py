"""A small definition, and changes of it."""

from copy import deepcopy
from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object

SCHEMA: Final = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
}


def definition(schema: Any = None, **spec: Any) -> Object:
    """Return a definition with one version; `schema`: of all objects."""
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": deepcopy(SCHEMA if schema is None else schema)},
    }
    return {
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [version],
            **deepcopy(spec),
        },
    }


def versions(*names: str, storage: str = "") -> list[Object]:
    """Return versions that share a schema; the first is stored if none is named."""
    return [
        {
            "name": name,
            "served": True,
            "storage": name == (storage or names[0]),
            "schema": {"openAPIV3Schema": deepcopy(SCHEMA)},
        }
        for name in names
    ]


def of_spec(schema: Any) -> Any:
    """Return a schema of objects whose `spec` has the given one."""
    return {"type": "object", "properties": {"spec": schema}}


def established(obj: Object) -> Object:
    """Return a stored definition that is served."""
    condition = {"type": "Established", "status": "True"}
    status = {"conditions": [condition], "storedVersions": ["v1"], "acceptedNames": {}}
    return {**obj, "status": status}
