"""OpenAPI v2: one document of all paths and definitions, for clients that know no v3.

It is made of the v3 documents. Where the two versions differ, this says the same in v2's words: a
body is a parameter, media types stand with the operation, and a type that is one of several is the
one that old clients expect.
"""

from collections.abc import Mapping
from typing import Any, Final

from kvstack.apimachinery.schema.openapi.operations import META
from kvstack.apimachinery.schema.openapi.schemas import REFERENCE
from kvstack.apimachinery.schema.openapi.v3 import Documents

Document = dict[str, Any]

_DEFINITIONS: Final = "#/definitions/"
_METHODS: Final = frozenset({"delete", "get", "head", "options", "patch", "post", "put"})
_SECURITY: Final = {
    "BearerToken": {
        "description": "Bearer Token authentication",
        "in": "header",
        "name": "authorization",
        "type": "apiKey",
    }
}
_PATCHES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_PRODUCED: Final = (
    "text/plain",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
    "application/jwk-set+json",
    "*/*",
)
"""The orders in which media types are listed."""
_UNSAID: Final = frozenset(("allOf", "anyOf", "oneOf", "not", "nullable"))
"""Keywords in schemas of custom resources that v2 does not have."""
_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
_OF_KINDS: Final = frozenset(("x-kubernetes-group-version-kind", "x-kubernetes-selectable-fields"))
_OF_ALL_GROUPS: Final = (f"{META}.DeleteOptions", f"{META}.WatchEvent")


def document(documents: Documents, version: str) -> Document:
    """Return the v2 document of v3 documents."""
    paths: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    kinds: dict[str, list[Any]] = {name: [] for name in _OF_ALL_GROUPS}
    for name in documents.names:
        part = documents.document(name)
        for path, item in part["paths"].items():
            paths[path] = _item(item)
        for schema_name, schema in part["components"].get("schemas", {}).items():
            if schema_name in kinds:
                kinds[schema_name] += schema["x-kubernetes-group-version-kind"]
            if schema_name not in definitions:
                is_custom = schema_name in documents.custom_names
                definitions[schema_name] = _custom_root(schema) if is_custom else _schema(schema)
    for name, listed in kinds.items():
        if name in definitions:
            unique = {(each["group"], each["version"]): each for each in listed}
            definitions[name]["x-kubernetes-group-version-kind"] = list(unique.values())
    return {
        "definitions": dict(sorted(definitions.items())),
        "info": {"title": "Kubernetes", "version": version},
        "paths": dict(sorted(paths.items())),
        "security": [{"BearerToken": []}],
        "securityDefinitions": _SECURITY,
        "swagger": "2.0",
    }


def _custom_root(schema: Mapping[str, Any]) -> Document:
    """Return the schema of a custom resource, or of a list.

    Of one that keeps unknown fields nothing is said but that it is an object: with any property,
    or the extension, kubectl would complain of all others.
    """
    if not schema.get(_PRESERVES):
        return _custom(schema)
    kept = {key: value for key, value in schema.items() if key in _OF_KINDS}
    return dict(sorted({"type": "object", **kept}.items()))


def _custom(schema: Mapping[str, Any]) -> Document:
    """Return the schema of a custom resource without what old clients cannot read.

    Where null or unknown fields may be, they are told nothing of what may be there.
    """
    hidden = set(_UNSAID)
    if schema.get(_PRESERVES) or schema.get("nullable"):
        hidden |= {"type", "items", "properties"}
    elif schema.get("x-kubernetes-int-or-string"):
        hidden |= {"type"}
    document: Document = {}
    for key, value in schema.items():
        if key == "$ref":
            document[key] = _DEFINITIONS + value.removeprefix(REFERENCE)
        elif key == "allOf" and len(value) == 1 and "$ref" in value[0]:
            document |= _custom(value[0])
        elif key in hidden:
            continue
        elif key == "required":
            properties = schema.get("properties") or {}
            names = [each for each in value if not (properties.get(each) or {}).get("nullable")]
            if names:
                document[key] = names
        elif key == "properties":
            document[key] = {name: _custom(each) for name, each in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            document[key] = _custom(value)
        else:
            document[key] = value
    return dict(sorted(document.items()))


def _item(item: Mapping[str, Any]) -> Document:
    found: Document = {
        method: _operation(operation) for method, operation in item.items() if method in _METHODS
    }
    if "parameters" in item:
        found["parameters"] = [_parameter(each) for each in item["parameters"]]
    return dict(sorted(found.items()))


def _operation(operation: Mapping[str, Any]) -> Document:
    document = dict(operation)
    body = document.pop("requestBody", None)
    listed = [_parameter(each) for each in operation.get("parameters", ())]
    if body is not None:
        listed.insert(0, _body(body))
    if listed:
        document["parameters"] = listed
    produced = {
        media_type
        for answer in operation["responses"].values()
        for media_type in answer.get("content", ())
    }
    document["produces"] = [each for each in _PRODUCED if each in produced]
    consumed = _consumed(operation, body, document["produces"])
    if consumed:
        document["consumes"] = consumed
    document["responses"] = {code: _answer(each) for code, each in operation["responses"].items()}
    document["schemes"] = ["https"]
    return dict(sorted(document.items()))


def _consumed(
    operation: Mapping[str, Any], body: Mapping[str, Any] | None, produced: list[str]
) -> list[str]:
    if body is not None and "*/*" not in body["content"]:
        return [each for each in _PATCHES if each in body["content"]]
    if operation["operationId"] == "getCodeVersion":
        return ["application/json"]
    if "x-kubernetes-action" in operation:
        return ["*/*"]
    return produced if "application/vnd.kubernetes.protobuf" in produced else []


def _parameter(parameter: Mapping[str, Any]) -> Document:
    found = {key: value for key, value in parameter.items() if key != "schema"}
    return dict(sorted({**found, **parameter["schema"]}.items()))


def _body(body: Mapping[str, Any]) -> Document:
    content = next(iter(body["content"].values()))
    found: Document = {"in": "body", "name": "body", "schema": _schema(content["schema"])}
    if body.get("required"):
        found["required"] = True
    return dict(sorted(found.items()))


def _answer(answer: Mapping[str, Any]) -> Document:
    found: Document = {"description": answer["description"]}
    for content in answer.get("content", {}).values():
        found["schema"] = _schema(content["schema"])
        break
    return found


def _schema(schema: Mapping[str, Any]) -> Document:
    """Return a schema with v2's references, and without what v2 does not have."""
    converted: Document = {}
    for key, value in schema.items():
        if key == "$ref":
            converted[key] = _DEFINITIONS + value.removeprefix(REFERENCE)
        elif key == "allOf":
            converted |= _schema(value[0])
        elif key == "oneOf":
            converted["type"] = "string"
        elif key == "properties":
            converted[key] = {name: _schema(each) for name, each in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            converted[key] = _schema(value)
        elif key != "default":
            converted[key] = value
    return dict(sorted(converted.items()))
