"""Warnings about definitions: unknown formats, sets of structs."""

from collections.abc import Iterator

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.text.string_formats import is_known
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema, everywhere


def definition_warnings(spec: Object, old: Object | None) -> list[str]:
    """Return the warnings of a spec, without those of the stored one."""
    warnings: list[str] = []
    for find in (_formats, _sets):
        before = set() if old is None else set(find(old))
        warnings += [each for each in find(spec) if each not in before]
    return warnings


def schemas_of(spec: Object) -> list[Schema]:
    """Return the schemas of a spec; one that all versions share counts once."""
    found: list[Schema] = []
    for version in spec.get("versions") or ():
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is not None and schema not in found:
            found.append(schema)
    return found


def _inner(spec: Object) -> Iterator[Schema]:
    for schema in schemas_of(spec):
        yield from everywhere(schema)


def _formats(spec: Object) -> list[str]:
    return [
        f"unrecognized format {quote(schema['format'])}"
        for schema in _inner(spec)
        if schema.get("format") and not is_known(schema["format"], schema.get("type", ""))
    ]


def _sets(spec: Object) -> list[str]:
    kinds: set[str] = set()
    for schema in _inner(spec):
        items = schema.get("items")
        if schema.get("x-kubernetes-list-type") == "set" and isinstance(items, dict):
            kinds.add(items.get("type", ""))
    return [
        f"x-kubernetes-list-type: set for items of type {quote(each)} is not supported by"
        " server-side apply or CEL validation rules"
        for each in sorted(kinds & {"array", "object"})
    ]
