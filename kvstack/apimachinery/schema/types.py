"""The types of objects: what fields a struct has, how lists merge, how values are written.

    Deployment ── spec ──► DeploymentSpec ── template ──► PodTemplateSpec ── spec ──► PodSpec …

Each `Type` is one node of a shared graph; built-in kinds and custom resources are made of the same
nodes. What a field or list means to patches, to server-side apply, to protobuf and to decoding all
is here, so that each of them is one walk over object and type.

A type is immutable once its loader has returned it (structs refer to one another in circles, so it
is filled in after it was made).
"""

from __future__ import annotations

from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping


class Shape(Enum):
    """The kind of value that a type describes."""

    STRUCT = auto()
    MAP = auto()
    LIST = auto()
    STRING = auto()
    INT32 = auto()
    INT64 = auto()
    FLOAT64 = auto()
    BOOL = auto()
    BYTES = auto()
    """base64 text in JSON."""
    TIME = auto()
    """metav1.Time: RFC 3339 to the second; null or absent when zero."""
    MICRO_TIME = auto()
    DURATION = auto()
    QUANTITY = auto()
    INT_OR_STRING = auto()
    FIELDS_V1 = auto()
    RAW = auto()
    """Any JSON, kept as it came: RawExtension, apiextensions.JSON, untyped content."""


_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class Type:
    """One type; which members mean something depends on `shape`."""

    __slots__ = (
        "additional",
        "compiled",
        "element",
        "embedded",
        "enum",
        "fields",
        "go_kind",
        "list_keys",
        "list_type",
        "map_type",
        "message",
        "name",
        "openapi",
        "preserves_unknown",
        "shape",
    )

    def __init__(self, shape: Shape, name: str = "") -> None:
        """Make a type without members; the loader fills them in."""
        self.shape: Shape = shape
        self.name: str = name
        """As in OpenAPI v3: `io.k8s.api.core.v1.Container`; empty for types without a name."""
        self.fields: Mapping[str, Field] = {}
        """For a struct: its fields by JSON name, in the order of writing."""
        self.element: Type | None = None
        """The type of a list's items, a map's values, or an object in RAW, if known."""
        self.list_type: str = "atomic"
        """`atomic`, `set` or `map`, as server-side apply merges it."""
        self.list_keys: tuple[str, ...] = ()
        """For a list of type `map`: the fields that identify an item."""
        self.map_type: str = "granular"
        """For a struct or map: `granular` or `atomic`."""
        self.message: str = ""
        """For a struct: its protobuf message, `k8s.io.api.core.v1.Container`; empty if none.

        A list that protobuf wraps in a message of its own (field 1, `items`) has one, too."""
        self.embedded: tuple[tuple[int, Type], ...] = ()
        """For a struct: the embedded structs, which are inlined in JSON, and their numbers in the
        message, where each stays a message."""
        self.go_kind: str = ""
        """Its Go name in `json: cannot unmarshal … of type …`: `v1.DeploymentSpec`."""
        self.enum: tuple[str, ...] = ()
        """For a string: the enum values in OpenAPI; decoding accepts any."""
        self.openapi: Mapping[str, object] = _NOTHING
        """The other keywords of its OpenAPI schema, and declared extensions."""
        self.compiled: dict[str, object] = {}
        """Values computed from the type, by the computing function; dropped with the type."""
        self.additional: Type | None = None
        """For a struct of a custom resource: the type of members that are not in `fields`."""
        self.preserves_unknown: bool = False
        """For a struct of a custom resource: whether undeclared members are kept."""

    @override
    def __repr__(self) -> str:
        """Return shape and name."""
        return f"Type({self.shape.name}, {self.name!r})"


class Field:
    """One field of a struct."""

    __slots__ = (
        "default",
        "embedded_in",
        "go_name",
        "inline",
        "is_pointer",
        "name",
        "number",
        "omit_empty",
        "patch_merge_key",
        "patch_strategies",
        "required",
        "type",
    )

    def __init__(self, name: str, type_: Type) -> None:
        """Make a field with nothing but a name and a type; the loader fills in the rest."""
        self.name: str = name
        """Its JSON name."""
        self.go_name: str = name
        """Its name in Go's struct, as error texts print values of internal types."""
        self.type: Type = type_
        self.is_pointer: bool = False
        """Whether an explicit zero (0, false, "", {}) differs from absence and is kept."""
        self.omit_empty: bool = True
        """Whether its zero value is left out when written; otherwise it is always written."""
        self.required: bool = False
        self.inline: bool = False
        """Whether it is a field of an embedded struct."""
        self.embedded_in: tuple[str, ...] = ()
        """The Go names of the structs between, outermost first: `("VolumeSource",)`."""
        self.default: object = NO_DEFAULT
        """The default the schema declares (plain JSON)."""
        self.patch_strategies: frozenset[str] = frozenset()
        """The strategies of strategic merge patch: `merge`, `replace`, `retainKeys`."""
        self.patch_merge_key: str = ""
        self.number: int = 0
        """Its number in the protobuf message; 0: not in it."""

    @override
    def __repr__(self) -> str:
        """Return name and type."""
        return f"Field({self.name!r}, {self.type!r})"


class _NoDefault:
    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = _NoDefault()
