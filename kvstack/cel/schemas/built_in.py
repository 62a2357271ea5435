"""The types of built-in objects as expressions are checked against them.

type_, structs = declare_built_in(table.type_of(kind))
"""

from collections.abc import Iterator, Mapping
from typing import Final

from typing_extensions import override

from kvstack.apimachinery.schema.types import Shape
from kvstack.apimachinery.schema.types import Type as SchemaType
from kvstack.cel.checker.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
    struct,
)
from kvstack.cel.schemas.names import escaped

_PLAIN: Final = {
    Shape.STRING: STRING,
    Shape.INT32: INT,
    Shape.INT64: INT,
    Shape.FLOAT64: DOUBLE,
    Shape.BOOL: BOOL,
    Shape.BYTES: BYTES,
    Shape.TIME: TIMESTAMP,
    Shape.MICRO_TIME: TIMESTAMP,
    Shape.DURATION: STRING,
}


class _Structs(Mapping[str, Mapping[str, Type]]):
    """The fields of all types that were met; types may contain themselves."""

    def __init__(self) -> None:
        self._met: dict[str, SchemaType] = {}
        self._known: dict[str, Mapping[str, Type]] = {}

    def declare(self, type_: SchemaType | None) -> Type:
        """Return a type as the checker has it."""
        if type_ is None:
            return DYN
        if type_.shape is Shape.STRUCT:
            self._met[type_.name] = type_
            return struct(type_.name)
        if type_.shape is Shape.LIST:
            return list_of(self.declare(type_.element))
        if type_.shape is Shape.MAP:
            return map_of(STRING, self.declare(type_.element))
        return _PLAIN.get(type_.shape, DYN)

    @override
    def __getitem__(self, name: str) -> Mapping[str, Type]:
        found = self._known.get(name)
        if found is None:
            fields = self._met[name].fields.items()
            found = self._known[name] = {
                spelled: self.declare(each.type)
                for name, each in fields
                if (spelled := escaped(name)) is not None
            }
        return found

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._met)

    @override
    def __len__(self) -> int:
        return len(self._met)


def declare_built_in(type_: SchemaType) -> tuple[Type, Mapping[str, Mapping[str, Type]]]:
    """Return a type, and the fields of all types within it by their names."""
    structs = _Structs()
    return structs.declare(type_), structs
