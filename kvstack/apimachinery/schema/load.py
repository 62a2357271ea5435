"""Loading the table from the data file of the package.

The file (see `generate/compiler.py` for its form) is read at once; types and rows are built from
its arrays at their first use.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from typing_extensions import override

from kvstack.apimachinery.schema.resource import (
    BY_NAME,
    FALLBACK_COLUMNS,
    UNKNOWN_LABEL,
    Column,
    Kind,
    Resource,
    Selectable,
    Storage,
    Subresource,
)
from kvstack.apimachinery.schema.table import Priority, Table
from kvstack.apimachinery.schema.types import NO_DEFAULT, Field, Shape, Type

DATA: Final = Path(__file__).resolve().parent / "data" / "kubernetes.json"

POINTER: Final = 1
OMITS: Final = 2
REQUIRED: Final = 4
EMBEDDED: Final = 8

_SHAPES: Final = {shape.value: shape for shape in Shape}
_NO_EXTRA: Final[dict[str, Any]] = {}


def load() -> Table:
    """Return a table of the built-in kinds; types and rows are shared, rows added to it are not."""
    return _built_in().table()


def built_in_types() -> Mapping[str, Type]:
    """Return the types of the built-in kinds, by their names in OpenAPI v3; costs nothing."""
    return _built_in().types


@cache
def built_in_type(kind: Kind) -> Type:
    """Return the type of a built-in kind of objects or bodies; KeyError for an unknown kind."""
    found = _built_in().table().type_of(kind)
    if found is None:
        raise KeyError(kind)
    return found


def enum_values(name: str, field: str) -> tuple[str, ...]:
    """Return the values of an enumeration, sorted: a field's, or those in its list or map.

    name: of a built-in type in OpenAPI v3. Raises KeyError (there is no such type or field) or
    ValueError (it is no enumeration).
    """
    type_ = built_in_types()[name].fields[field].type
    while type_.element is not None:
        type_ = type_.element
    if not type_.enum:
        raise ValueError(f"{name}: the field {field} is not an enumeration")
    return type_.enum


def enum_in_order(name: str, field: str, *order: str) -> tuple[str, ...]:
    """Return the values of an enumeration in the order in which upstream's errors list them.

    Raises ValueError if these are not its values, and what enum_values does.
    """
    if sorted(order) != sorted(values := enum_values(name, field)):
        raise ValueError(f"{name}: the values of the field {field} are {values}, not {order}")
    return order


class _Contents(NamedTuple):
    types: Mapping[str, Type]
    kinds: dict[Kind, str]
    rows: list[Resource]
    priorities: dict[str, Priority]

    def table(self) -> Table:
        return Table(self.types, self.kinds, self.rows, self.priorities)


@cache
def _built_in() -> _Contents:
    return _read(DATA.read_bytes())


def _read(data: bytes) -> _Contents:
    tables = orjson.loads(data)
    types = _Types(tables["nodes"], tables["names"])
    kinds = {Kind(group, version, kind): name for group, version, kind, name in tables["kinds"]}
    rows = [_resource(row, types, kinds) for row in tables["resources"]]
    priorities = {name: Priority(*each) for name, each in tables["priorities"].items()}
    return _Contents(types, kinds, rows, priorities)


class _Types(Mapping[str, Type]):
    """Types by name, each built once, with all it refers to."""

    __slots__ = ("_built", "_names", "_nodes")

    def __init__(self, nodes: list[list[Any]], names: dict[str, int]) -> None:
        self._nodes = nodes
        self._names = names
        self._built: dict[int, Type] = {}

    @override
    def __getitem__(self, name: str) -> Type:
        return self._type(self._names[name])

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    @override
    def __len__(self) -> int:
        return len(self._names)

    def _type(self, index: int) -> Type:
        built = self._built.get(index)
        if built is None:
            shape, go_kind, *rest = self._nodes[index]
            built = self._built[index] = Type(_SHAPES[shape])
            built.go_kind = go_kind
            if built.shape is Shape.STRUCT:
                self._fill_struct(built, *rest)
            elif built.shape in {Shape.LIST, Shape.MAP}:
                self._fill_collection(built, *rest)
            elif rest:
                self._fill_leaf(built, *rest)
        return built

    def _fill_leaf(
        self, type_: Type, name: str, other: int | str = "", enum: Sequence[str] = ()
    ) -> None:
        type_.name = name
        type_.enum = tuple(enum)
        if isinstance(other, int):
            type_.element = self._type(other)
        elif other:
            type_.openapi = {"x-kubernetes-list-type": other}

    def _fill_collection(
        self,
        type_: Type,
        element: int,
        list_type: str = "",
        list_keys: list[str] | None = None,
        map_type: str = "",
        message: str = "",
    ) -> None:
        type_.element = self._type(element)
        type_.list_type = list_type or "atomic"
        type_.list_keys = tuple(list_keys or ())
        type_.map_type = map_type or "granular"
        type_.message = message
        declared: dict[str, object] = {}
        if list_keys:
            declared["x-kubernetes-list-map-keys"] = list_keys
        if list_type:
            declared["x-kubernetes-list-type"] = list_type
        if map_type:
            declared["x-kubernetes-map-type"] = map_type
        type_.openapi = declared

    def _fill_struct(
        self,
        type_: Type,
        name: str,
        is_message: int,
        map_type: str,
        fields: list[list[Any]],
        embedded: Sequence[tuple[int, int]] = (),
        extra: dict[str, Any] = _NO_EXTRA,
    ) -> None:
        type_.name = name
        type_.message = _message(name) if is_message else ""
        type_.map_type = map_type or "granular"
        type_.fields = {row[0]: self._field(*row) for row in fields}
        declared: dict[str, object] = {}
        if "kinds" in extra:
            declared["x-kubernetes-group-version-kind"] = [
                {"group": group, "kind": kind, "version": version}
                for group, version, kind in extra["kinds"]
            ]
        if map_type:
            declared["x-kubernetes-map-type"] = map_type
        if "unions" in extra:
            declared["x-kubernetes-unions"] = extra["unions"]
        type_.openapi = declared
        type_.embedded = tuple((number, self._type(index)) for number, index in embedded)

    def _field(
        self,
        name: str,
        go_name: str,
        index: int,
        number: int = 0,
        flags: int = 0,
        extra: dict[str, Any] = _NO_EXTRA,
    ) -> Field:
        field = Field(name, self._type(index))
        field.go_name = go_name
        field.number = number
        field.is_pointer = bool(flags & POINTER)
        field.omit_empty = bool(flags & OMITS)
        field.required = bool(flags & REQUIRED)
        field.inline = bool(flags & EMBEDDED)
        if extra:
            field.default = extra.get("default", NO_DEFAULT)
            field.patch_strategies = frozenset(extra.get("strategy", "").split(",")) - {""}
            field.patch_merge_key = extra.get("merge_key", "")
            field.embedded_in = tuple(extra.get("embeds", ()))
        return field


def _message(name: str) -> str:
    """Return the protobuf name of a type: `k8s.io.api.core.v1.Pod` of `io.k8s.api.core.v1.Pod`."""
    top, second, rest = name.split(".", 2)
    return f"{second}.{top}.{rest}".replace("-", "_")


def _resource(row: dict[str, Any], types: _Types, kinds: dict[Kind, str]) -> Resource:
    group, version = row["group"], row["version"]
    kind = Kind(row.get("kind_group", group), row.get("kind_version", version), row["kind"])
    subresources = (_subresource(each, group, version, types, kinds) for each in row["below"])
    return Resource(
        group=group,
        version=version,
        name=row["resource"],
        kind=kind,
        singular=row["singular"],
        is_namespaced=row["namespaced"],
        verbs=tuple(row["verbs"]),
        type=types[kinds[kind]],
        short_names=tuple(row.get("shortNames", ())),
        categories=tuple(row.get("categories", ())),
        subresources={each.name: each for each in subresources},
        storage=_storage(row),
        storage_version_hash=row.get("storageVersionHash", ""),
        columns=_columns(row),
        selectable=_selectable(row),
        returns_deleted=row.get("returnsDeleted", False),
    )


def _subresource(
    row: dict[str, Any], group: str, version: str, types: _Types, kinds: dict[Kind, str]
) -> Subresource:
    kind = Kind(row.get("group", group), row.get("version", version), row["kind"])
    name = kinds.get(kind)
    type_ = None if name is None else types[name]
    return Subresource(row["name"], kind, tuple(row["verbs"]), type_, _columns(row))


def _columns(row: dict[str, Any]) -> tuple[Column, ...]:
    return tuple(Column(**each) for each in row["columns"]) or FALLBACK_COLUMNS


def _storage(row: dict[str, Any]) -> Storage | None:
    stored = row["storage"]
    if not stored:
        return None
    group = stored.get("group", row["group"])
    is_json = stored.get("encoding") == "json"
    return Storage(group, stored["version"], row["kind"], stored["prefix"], is_json)


def _selectable(row: dict[str, Any]) -> Selectable:
    if "selectable" not in row:
        return BY_NAME
    found = row["selectable"]
    kind = f"{row['group']}/{row['version']}, Kind={row['kind']}"
    text = found.get("text", UNKNOWN_LABEL).replace("{kind}", kind)
    return Selectable(tuple(found["fields"]), found.get("aliases", {}), text)
