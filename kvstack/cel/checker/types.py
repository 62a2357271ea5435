"""Types of expressions.

    parse_type("map(string, list(A))")  → a map of strings to lists of a type parameter A
    str(list_of(INT))                   → list(int)

Equal types are one object, so `is` compares them; struct types are one by their name alone, and
their fields are known elsewhere. Parameters of functions are types of kind PARAM.
"""

from functools import cache
from typing import Final

from typing_extensions import override

DYN_KIND: Final = "dyn"
ERROR_KIND: Final = "!error!"
NULL_KIND: Final = "null"
LIST: Final = "list"
MAP: Final = "map"
STRUCT: Final = "struct"
OPAQUE: Final = "opaque"
PARAM: Final = "param"
TYPE: Final = "type"

_SCALARS: Final = ("bool", "int", "uint", "double", "duration", "timestamp")
_NULLABLE: Final = frozenset((OPAQUE, STRUCT, "duration", "timestamp"))


class Type:
    """A type; made by the functions of this module."""

    __slots__ = ("_text", "is_open", "kind", "name", "parameters")

    def __init__(self, kind: str, name: str, parameters: "tuple[Type, ...]") -> None:
        """Make a type."""
        self.kind: Final = kind
        self.name: Final = name
        self.parameters: Final = parameters
        self.is_open: Final[bool] = kind == PARAM or any(each.is_open for each in parameters)
        """Whether it contains type parameters."""
        text = ", ".join(map(str, parameters))
        self._text = f"{name}({text})" if parameters else name

    @override
    def __str__(self) -> str:
        """Return it as errors print it."""
        return self._text

    @property
    def is_dyn_or_error(self) -> bool:
        """Whether its values may have any type."""
        return self.kind in {DYN_KIND, ERROR_KIND}

    @property
    def is_optional(self) -> bool:
        """Whether its values are optional."""
        return self.kind == OPAQUE and self.name == "optional_type"

    @property
    def is_scalar(self) -> bool:
        """Whether all values have the same size."""
        return self.kind in _SCALARS or (self.is_optional and self.parameters[0].is_scalar)

    @property
    def is_nullable(self) -> bool:
        """Whether null is a value of it."""
        return self.kind in _NULLABLE


@cache
def make(kind: str, name: str, parameters: tuple[Type, ...] = ()) -> Type:
    """Return the type of a kind."""
    return Type(kind, name, parameters)


DYN: Final = make(DYN_KIND, "dyn")
ERROR: Final = make(ERROR_KIND, "!error!")
NULL: Final = make(NULL_KIND, "null")
BOOL: Final = make("bool", "bool")
INT: Final = make("int", "int")
UINT: Final = make("uint", "uint")
DOUBLE: Final = make("double", "double")
STRING: Final = make("string", "string")
BYTES: Final = make("bytes", "bytes")
DURATION: Final = make("duration", "duration")
TIMESTAMP: Final = make("timestamp", "timestamp")
ANY_TYPE: Final = make(TYPE, "type")

NAMED: Final = {
    str(each): each
    for each in (
        DYN, NULL, BOOL, INT, UINT, DOUBLE, STRING, BYTES, DURATION, TIMESTAMP, ANY_TYPE,
    )
}  # fmt: skip


def list_of(items: Type) -> Type:
    """Return the type of lists."""
    return make(LIST, "list", (items,))


def map_of(keys: Type, values: Type) -> Type:
    """Return the type of maps."""
    return make(MAP, "map", (keys, values))


def optional_of(value: Type) -> Type:
    """Return the type of values that may be absent."""
    return make(OPAQUE, "optional_type", (value,))


def type_of(value: Type) -> Type:
    """Return the type of a type as a value."""
    return make(TYPE, "type", (value,))


def struct(name: str) -> Type:
    """Return a type with fields."""
    return make(STRUCT, name)


def opaque(name: str) -> Type:
    """Return a type without fields."""
    return make(OPAQUE, name)


def parameter(name: str) -> Type:
    """Return the text of a type in a function's signature."""
    return make(PARAM, name)


_OPAQUE_NAMES: Final = frozenset(("net.IP", "net.CIDR"))
_MAKERS: Final = {"list": (LIST, "list"), "map": (MAP, "map"), "type": (TYPE, "type")}


def parse_type(text: str) -> Type:
    """Return the type of a text; one capital letter is a parameter, names with dots are structs."""
    found, rest = _parse(text.strip())
    assert not rest, text
    return found


def _parse(text: str) -> tuple[Type, str]:
    end = 0
    while end < len(text) and text[end] not in "(), ":
        end += 1
    name, rest = text[:end], text[end:]
    parameters: list[Type] = []
    if rest.startswith("("):
        while not rest.startswith(")"):
            inner, rest = _parse(rest[1:].lstrip())
            parameters.append(inner)
            rest = rest.lstrip()
        rest = rest[1:]
    if parameters:
        kind, name = _MAKERS.get(name, (OPAQUE, "optional_type"))
        return make(kind, name, tuple(parameters)), rest
    if name in NAMED:
        return NAMED[name], rest
    if len(name) == 1:
        return parameter(name), rest
    return (opaque(name) if name in _OPAQUE_NAMES else struct(name)), rest
