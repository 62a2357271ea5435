"""A definition in upstream's internal form: what all versions share is reported at the top level.

    spec.versions[0].schema  with one version     → at "spec.validation"
    spec.versions[1].schema  of versions that differ → at "spec.versions[1].schema"

The same applies to subresources, columns and selectable fields. Versions print in errors without
shared parts.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_value

API: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"

_SHARED: Final = (
    ("schema", "CustomResourceValidation"),
    ("subresources", "CustomResourceSubresources"),
)
_SHARED_LISTS: Final = (
    ("additionalPrinterColumns", "CustomResourceColumnDefinition"),
    ("selectableFields", "SelectableField"),
)
_TOP_NAMES: Final = {"schema": "validation"}
"""Names at the top level, where they differ."""


class Part(NamedTuple):
    """One version, or the shared part of all versions."""

    name: str
    """Name of the version; of the shared part, that of the first."""
    path: str
    is_whole: bool
    fields: Object
    """`schema`, `subresources`, …, as far as present."""

    def path_of(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{_TOP_NAMES.get(name, name) if self.is_whole else name}"


class Layout(NamedTuple):
    """A spec split into parts."""

    versions: Sequence[Part]
    whole: Part

    def printed_versions(self, spec: Object) -> Any:  # noqa: ANN401 — as errors print it
        """Return the versions as errors print them."""
        stripped = [
            {
                name: value
                for name, value in version.items()
                if name in part.fields or name not in _ALL
            }
            for version, part in zip(spec.get("versions") or (), self.versions, strict=True)
        ]
        given = spec.get("versions")
        return internal_value(
            None if given is None else stripped, f"{API}.CustomResourceDefinitionVersion"
        )


_ALL: Final = frozenset(name for name, _ in (*_SHARED, *_SHARED_LISTS))


def layout_of(spec: Object) -> Layout:
    """Return the parts of a definition's spec."""
    versions = spec.get("versions") or []
    if not versions:
        return Layout((), Part("", "spec", True, {}))
    shared = {name for name in _ALL if _are_alike(name, [each.get(name) for each in versions])}
    first = versions[0]
    whole = {name: first[name] for name in shared if first.get(name) is not None}
    parts = [
        Part(
            version.get("name", ""),
            f"spec.versions[{position}]",
            False,
            {name: version[name] for name in _ALL - shared if version.get(name) is not None},
        )
        for position, version in enumerate(versions)
    ]
    return Layout(parts, Part(first.get("name", ""), "spec", True, whole))


def _are_alike(name: str, values: Sequence[Any]) -> bool:
    first = values[0]
    type_name = next((kind for each, kind in _SHARED if each == name), None)
    if type_name is None:
        return all((each or []) == (first or []) for each in values)
    return all(same(each, first, f"{API}.{type_name}") for each in values)
