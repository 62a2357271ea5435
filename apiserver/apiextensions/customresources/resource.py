"""The row of one version of a custom resource: properties, hooks, and converter.

A cluster may have a thousand definitions and use ten. What discovery needs is known from the start;
type, hooks, columns and all else that depends on the schema are made on first use, from the
definition, which is read again for that and not kept.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from typing_extensions import override

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.resource import (
    CUSTOM_PATCHES,
    Column,
    Kind,
    Resource,
    Selectable,
    Storage,
    Subresource,
    no_components,
)
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.kinds.strategy import Strategy


class Converter(Protocol):
    """Converts objects of a definition between its versions by more than apiVersion."""

    def find(self, obj: Object, api_version: str) -> Object | None:
        """Return an object in a version, if it is in that version or held."""
        ...

    def hold(self, obj: Object, api_version: str) -> Awaitable[bytes]:
        """Convert an object, and hold the result until it is released; raises ApiError."""
        ...

    def release(self, held: bytes) -> None:
        """Drop a held result."""
        ...

    def convert(self, objects: Sequence[Object], api_version: str) -> Awaitable[list[Object]]:
        """Return objects in a version; raises ApiError."""
        ...


class CompiledSchema(NamedTuple):
    """What depends on the schema of a version."""

    type: Type
    strategy: Strategy
    columns: Sequence[Column]
    selectable: Selectable


_MADE: Final = CompiledSchema._fields
_SCALE: Final = Kind("autoscaling", "v1", "Scale")


class CustomResource(Resource):
    """One version of a custom resource."""

    __slots__ = ("_make", "converter", "is_served", "strategy", "versions")

    strategy: Strategy

    def __init__(
        self,
        kind: Kind,
        names: Object,
        storage: Storage,
        make: Callable[[], CompiledSchema],
        *,
        is_namespaced: bool,
        verbs: tuple[str, ...],
        parts: Mapping[str, tuple[str, ...]],
        fingerprint: str,
    ) -> None:
        """make: returns what depends on the schema.

        names: the accepted ones. parts: the verbs of each subresource. fingerprint: changes with
        any property.
        """
        self.group = kind.group
        self.version = kind.version
        self.name = names["plural"]
        self.kind = kind
        self.singular = names.get("singular", "")
        self.is_namespaced = is_namespaced
        self.verbs = verbs
        self.short_names = tuple(names.get("shortNames") or ())
        self.categories = tuple(names.get("categories") or ())
        self.subresources = {name: _Part(self, name, below) for name, below in parts.items()}
        self.storage = storage
        self.storage_version_hash = ""
        self.returns_deleted = False
        self.patches = CUSTOM_PATCHES
        self.is_custom = True
        self.component = ""
        self.components = no_components
        self.deprecation = ""
        self.is_served = True
        self.converter: Converter | None = None
        self.versions: Mapping[str, CustomResource] = {}
        """All versions of the definition by `apiVersion`, also unserved ones."""
        self.fingerprint = fingerprint
        self._make: Final = make

    @override
    def __repr__(self) -> str:
        """Return a text without compiling the schema."""
        return f"CustomResource({self.qualified_name}, {self.version})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Compile the schema; called for attributes that are not set yet."""
            if name not in _MADE:
                raise AttributeError(name)
            for each, value in zip(_MADE, self._make(), strict=True):
                setattr(self, each, value)
            return getattr(self, name)


@cache
def _scale_type() -> Type | None:
    return load().type_of(_SCALE)


@cache
def _scale_columns() -> tuple[Column, ...]:
    """Return the columns of a Scale."""
    workload = load().resource("apps", "v1", "deployments")
    assert workload is not None, "Deployments are built in"
    return tuple(workload.subresources["scale"].columns)


class _Part(Subresource):
    """A subresource: with the type and columns of its resource, or those of a Scale."""

    __slots__ = ("_row",)

    def __init__(self, row: CustomResource, name: str, verbs: tuple[str, ...]) -> None:
        # The base is frozen.
        kind = _SCALE if name == "scale" else row.kind
        for each, value in (("name", name), ("kind", kind), ("verbs", verbs), ("_row", row)):
            object.__setattr__(self, each, value)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Return an attribute that depends on the schema."""
            if name not in ("type", "columns"):
                raise AttributeError(name)
            if self.kind != _SCALE:
                return getattr(self._row, name)
            return _scale_type() if name == "type" else _scale_columns()
