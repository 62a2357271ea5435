"""Patches of mutating policies: CEL values as JSON, merged or applied.

applied(live, value, type_)    an apply configuration laid over an object
patched(live, operations)      JSON patch operations; raises PatchError
"""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects import json_patch, status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.json_patch import JsonPatchError
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.schema.types import Shape, Type
from kvstack.apiserver.apply.merging import merge
from kvstack.apiserver.apply.structure import ItemError
from kvstack.apiserver.apply.validation import mismatches, summary
from kvstack.cel.library import conversions
from kvstack.cel.values import (
    Duration,
    ObjectValue,
    Optional,
    StructValue,
    Timestamp,
    Uint,
)

_TEST_FAILED: Final = "testing value "


class PatchError(Exception):
    """A patch cannot be applied; the text says why."""


def plain(value: Any) -> Any:  # noqa: ANN401
    """Return a CEL value as JSON."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, ObjectValue):
        return value.raw
    if isinstance(value, Optional):
        return plain(value.value) if value.has_value else None
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Timestamp):
        return conversions.timestamp_text(value)
    if isinstance(value, Duration):
        return conversions.duration_text(value)
    return int(value) if isinstance(value, Uint) else value


def _misnamed(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401
    """Yield errors in the type names of objects within a value."""
    if isinstance(value, StructValue):
        if value.type_name != path:
            yield (
                f"unexpected type name {quote(value.type_name)}, expected {quote(path)}, which"
                " matches field name path from root Object type"
            )
        for name, each in value.items():
            yield from _misnamed(each, f"{path}.{name}")
    elif isinstance(value, dict):
        for each in value.values():
            yield from _misnamed(each, path)
    elif isinstance(value, list):
        for each in value:
            yield from _misnamed(each, path)


def _check_names(value: StructValue) -> None:
    wrong = list(_misnamed(value, value.type_name))
    if wrong:
        raise PatchError("type mismatch: " + "\n".join(wrong))


def applied(live: Object, value: Any, type_: Type) -> Object:  # noqa: ANN401
    """Return an object with an apply configuration merged into it; raises PatchError."""
    if not isinstance(value, StructValue):
        raise PatchError("unsupported return type from ApplyConfiguration expression")
    _check_names(value)
    config = plain(value)
    config = {**config, "apiVersion": live.get("apiVersion"), "kind": live.get("kind")}
    wrong = mismatches(config, type_)
    if wrong:
        message = "failed to convert patch object to typed object"
        raise PatchError(f"error applying patch: {message}: {summary(wrong)}")
    atomics = list(_atomics(config, type_, ""))
    if atomics:
        message = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs"
        raise PatchError(f"error applying patch: {message}: {', '.join(atomics)}")
    try:
        return merge(live, config, type_)
    except ItemError as error:
        raise PatchError(f"error applying patch: failed to merge patch: {error}") from error


def _atomics(value: Any, type_: Type | None, path: str) -> Iterator[str]:  # noqa: ANN401
    """Yield the paths of atomic values."""
    if type_ is None:
        return
    if isinstance(value, dict) and type_.shape in {Shape.STRUCT, Shape.MAP}:
        if type_.map_type == "atomic":
            yield path
        for name, each in value.items():
            field = type_.fields.get(name)
            if field is not None:
                yield from _atomics(each, field.type, f"{path}.{name}")
    elif isinstance(value, list) and type_.shape is Shape.LIST:
        if type_.list_type == "atomic":
            yield path
        for position, each in enumerate(value):
            yield from _atomics(each, type_.element, f"{path}[{position}]")


def patched(live: Object, operations: Any) -> Object:  # noqa: ANN401
    """Return an object with JSON patch operations applied; raises PatchError, ApiError."""
    document = orjson.dumps([_operation(each) for each in operations])
    try:
        parsed, _ = json_patch.parse(document, is_strict=False)
    except ApiError as error:
        raise PatchError(f"JSON Patch: {error}") from error
    try:
        patched_object: Object = json_patch.apply(live, parsed)
    except JsonPatchError as error:
        text = str(error)
        if text.startswith(_TEST_FAILED):
            return live  # a failed test turns the patch into a no-op
        raise PatchError(f"JSON Patch: {text}") from error
    return patched_object


def _operation(value: Any) -> Object:  # noqa: ANN401
    if not isinstance(value, StructValue) or value.type_name != "JSONPatch":
        raise status.internal_error(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch"
        )
    operation: Object = {"op": value.get("op", ""), "path": value.get("path", "")}
    if value.get("from"):
        operation["from"] = value["from"]
    if "value" in value:
        inner = value["value"]
        if isinstance(inner, StructValue):
            _check_names(inner)
        operation["value"] = plain(inner)
    return operation
