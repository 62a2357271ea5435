"""Reads the OpenAPI v3 documents of a release, and what a schema adds to its Go type."""

import json
from pathlib import Path
from typing import Final

from kvstack.apimachinery.schema.openapi.schemas import Schema

_GO_SAYS: Final = frozenset({"type", "format", "description", "$ref", "allOf", "items"})


def read_schemas(folder: Path) -> dict[str, Schema]:
    """Return the schemas of all documents by name; kinds of several documents are joined."""
    found: dict[str, Schema] = {}
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for name, schema in document.get("components", {}).get("schemas", {}).items():
            found.setdefault(name, schema)
    return found


def returned_when_deleted(folder: Path) -> set[tuple[str, str, str]]:
    """Return the (group, version, resource) whose deletes answer the object, not a Status."""
    kinds: set[tuple[str, str, str]] = set()
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for name, item in document.get("paths", {}).items():
            deleted = item.get("delete", {})
            if deleted.get("x-kubernetes-action") == "delete" and not _answers_status(deleted):
                parts = name.strip("/").split("/")
                group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2])
                kinds.add((group, version, parts[-2]))
    return kinds


def _answers_status(operation: Schema) -> bool:
    content = operation["responses"]["200"]["content"]["application/json"]
    return bool(content["schema"]["$ref"].endswith(".Status"))


def beyond_go(schema: Schema) -> Schema:
    """Return the members of a field's schema that its Go type does not imply."""
    keywords = {key: value for key, value in schema.items() if key not in _GO_SAYS}
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            keywords.pop(part, None)
            below = beyond_go(schema[part])
            if below:
                keywords[part] = below
    return keywords
