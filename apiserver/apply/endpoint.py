"""An endpoint for server-side apply: a resource or subresource at one version.

    Endpoint(deployment, "apps/v1", "Deployment", reset_fields=(("status",),))
    Endpoint(scale, "autoscaling/v1", "Scale", subresource="scale")

It is made once and serves every request. It holds the type and version of the objects that are
written there, and the paths that a write there never owns, including everything below.

A manager may have written at another version. What it owns is then compared on objects converted to
that version: `convert(object, api_version)` returns the object there and its type, or None if the
kind is not served at that version, in which case the manager is dropped. The object names its own
version, and may be a merged one that is not decoded. `convert` may raise `ConversionError`: an
update then keeps the entries unchanged, an apply fails. Without it there is no other version.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.types import Type
from kvstack.apimachinery.schema.zeros import zero
from kvstack.apiserver.apply.comparison import is_same, reaches_untyped
from kvstack.apiserver.apply.everything import Everything, created_of
from kvstack.apiserver.apply.field_set import (
    ANY,
    FieldSet,
    matching,
    of_paths,
    pattern_of,
    recursive_difference,
)
from kvstack.apiserver.apply.path import FIELD

Convert: TypeAlias = Callable[[Object, str], tuple[Object, Type] | None]


class ConversionError(Exception):
    """An object could not be converted to another version; the text says why."""


class Versioned(NamedTuple):
    """An object, its type, and the version of both."""

    obj: Object
    type: Type
    api_version: str


class Endpoint:
    """A resource or subresource at one version."""

    __slots__ = (
        "_only",
        "_reset",
        "api_version",
        "checks_versions",
        "convert",
        "created",
        "is_strict",
        "kind",
        "subresource",
        "type",
        "zero",
    )

    def __init__(
        self,
        type_: Type,
        api_version: str,
        kind: str,
        *,
        subresource: str = "",
        reset_fields: Sequence[tuple[str, ...]] = (),
        owned_fields: Sequence[tuple[str, ...]] = (),
        convert: Convert | None = None,
        checks_versions: bool = False,
    ) -> None:
        """type_: of the objects written here; a Scale for `scale`.

        reset_fields, owned_fields: as a Strategy has them.
        checks_versions: whether an object may not fit its type at another version.
        """
        self.checks_versions: Final = checks_versions
        self.type: Final = type_
        self.api_version: Final = api_version
        self.kind: Final = kind
        self.subresource: Final = subresource
        self.convert: Final = convert
        self.is_strict: Final = reaches_untyped(type_)
        """Whether objects may hold schemaless content."""
        self.zero: Final[Object] = zero(type_)()
        """An object with only the fields that are always written."""
        self.created: Final[Everything] = created_of(type_, self.zero, is_same)
        """Finds the fields of a new object beyond `zero`; raises ItemError."""
        self._reset: Final = of_paths(*(_elements(each) for each in reset_fields))
        self._only: Final = pattern_of(*(_elements(each) for each in owned_fields))

    def owned(self, fields: FieldSet) -> FieldSet:
        """Return the part of a set that a write here may own."""
        if self._only:
            fields = matching(fields, self._only)
        return recursive_difference(fields, self._reset) if self._reset else fields

    def versioned(self, obj: Object) -> Versioned:
        """Return an object of this endpoint's version, with its type."""
        return Versioned(obj, self.type, self.api_version)

    def at_version(self, versioned: Versioned, api_version: str) -> Versioned | None:
        """Return an object at another version; None: its kind has no such version.

        Raises ConversionError.
        """
        if api_version == versioned.api_version:
            return versioned
        converted = None if self.convert is None else self.convert(versioned.obj, api_version)
        return None if converted is None else Versioned(*converted, api_version)


def _elements(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([name if name == ANY else FIELD + name for name in path])


class Versions:
    """An object at every required version, converted once to each."""

    __slots__ = ("_endpoint", "_found", "_own")

    def __init__(self, endpoint: Endpoint, obj: Object) -> None:
        """obj: at the version of the endpoint."""
        self._endpoint = endpoint
        self._own = endpoint.versioned(obj)
        self._found: dict[str, Versioned | None] = {endpoint.api_version: self._own}

    def at(self, api_version: str) -> Versioned | None:
        """Return the object at a version; None: its kind has no such version.

        Raises ConversionError.
        """
        if api_version not in self._found:
            self._found[api_version] = self._endpoint.at_version(self._own, api_version)
        return self._found[api_version]
