"""Checks the form of a stored definition before rows are made.

The API admits only valid definitions, but others write to the store, too. Schemas are compiled
late; whether that is possible is known at once.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.apiextensions.customresources.paths import Finder
from kvstack.apiserver.apiextensions.customresources.strategy import schema_of

_NESTED: Final = ("allOf", "anyOf", "oneOf")
_PATHS: Final = ("specReplicasPath", "statusReplicasPath")


def check_form(definition: Object) -> None:
    """Raise ValueError, LookupError or TypeError for a malformed definition."""
    spec, names = definition["spec"], definition["status"]["acceptedNames"]
    for text in (spec["group"], spec["scope"], names["plural"], names["kind"]):
        _expect(text, str)
    versions = _expect(spec["versions"], list)
    if not any(each.get("storage") for each in versions):
        raise ValueError("no storage version")
    for version in versions:
        _expect(version["name"], str)
        _check_schema(schema_of(version))
        for each in version.get("additionalPrinterColumns") or ():
            for name in ("name", "type", "jsonPath"):
                _expect(each[name], str)
        for each in version.get("selectableFields") or ():
            Finder(_expect(each["jsonPath"], str))
        scale = (version.get("subresources") or {}).get("scale")
        if scale is not None:
            for name in _PATHS:
                Finder(_expect(scale[name], str))


def _expect(value: Any, kind: type) -> Any:  # noqa: ANN401 — of any type
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value


def _check_schema(schema: object) -> None:
    if not isinstance(schema, dict):
        raise TypeError(f"a schema is {type(schema).__name__}")
    for each in _expect(schema.get("properties") or {}, dict).values():
        _check_schema(each)
    items, extra = schema.get("items"), schema.get("additionalProperties")
    if items is not None:
        _check_schema(items)
    if extra is not None and not isinstance(extra, bool):
        _check_schema(extra)
    if "not" in schema:
        _check_schema(schema["not"])
    for name in _NESTED:
        for each in _expect(schema.get(name) or [], list):
            _check_schema(each)
