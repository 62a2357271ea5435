"""The scope of an expression: variables, functions, types and their fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kvstack.cel.checker.functions import Functions
from kvstack.cel.checker.types import (
    ANY_TYPE,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    opaque,
    optional_of,
    struct,
    type_of,
)

Structs: TypeAlias = Mapping[str, Mapping[str, Type]]
"""The fields of types by their names."""

_NAMED: Final = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "google.protobuf.Duration": DURATION,
    "google.protobuf.Timestamp": TIMESTAMP,
    "int": INT,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "net.CIDR": opaque("net.CIDR"),
    "net.IP": opaque("net.IP"),
    "null_type": NULL,
    "optional_type": optional_of(DYN),
    "string": STRING,
    "type": ANY_TYPE,
    "uint": UINT,
}
"""Types that expressions name as values."""
_MESSAGES: Final = {
    "google.protobuf.ListValue": list_of(DYN),
    "google.protobuf.Struct": map_of(STRING, DYN),
    "google.protobuf.Value": DYN,
}
"""Types that expressions can make, and what they are."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Scope:
    """The declarations around an expression."""

    functions: Functions
    variables: Mapping[str, Type] = field(default_factory=dict)
    structs: Structs = field(default_factory=dict)

    def identifier(self, name: str) -> Type | None:
        """Return the type of a name; None: it is not declared."""
        found = self.variables.get(name)
        if found is not None:
            return found
        named = _NAMED.get(name) or _MESSAGES.get(name)
        if named is not None:
            return type_of(named)
        return type_of(struct(name)) if name in self.structs else None

    def field(self, type_name: str, name: str) -> Type | None:
        """Return the type of a field; None if it does not exist."""
        return self.structs.get(type_name, {}).get(name)
