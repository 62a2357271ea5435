"""How a type divides a value into separately owned members and items.

    granular        a struct or map whose members are owned individually
    associative     a list of type `map` or `set`, whose items are owned individually
    all else        a leaf, owned as a whole: scalars, atomic lists, maps and structs

Schemaless content (`UNKNOWN`) is granular if it is a map and a leaf otherwise; a RawExtension is
always a leaf. null counts as an empty map or list.
"""

from typing import Any, Final, TypeAlias

from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.schema.types import NO_DEFAULT, Shape, Type
from kvstack.apiserver.apply.go_print import plain
from kvstack.apiserver.apply.path import key_element, name_element, value_element

_STRUCT: Final = Shape.STRUCT
_MAP: Final = Shape.MAP
_LIST: Final = Shape.LIST
_UNTYPED: Final = frozenset({Shape.RAW, Shape.FIELDS_V1, Shape.INT_OR_STRING})
_RAW_EXTENSION: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"

Json: TypeAlias = Any
"""A JSON value."""


UNKNOWN: Final = Type(Shape.RAW)
"""The type of schemaless content."""


class ItemError(ValueError):
    """An item of an associative list has no valid key; the text says why."""


def is_granular(type_: Type) -> bool:
    """Return whether the members of a map of this type are owned individually."""
    shape = type_.shape
    if shape is _STRUCT or shape is _MAP:
        return type_.map_type != "atomic"
    return shape in _UNTYPED and type_.name != _RAW_EXTENSION


def is_associative(type_: Type) -> bool:
    """Return whether the items of a list of this type are owned individually."""
    return type_.shape is _LIST and type_.list_type != "atomic"


def is_untyped(type_: Type) -> bool:
    """Return whether values of this type may be maps, lists and scalars alike."""
    return type_.shape in _UNTYPED


def member_type(type_: Type, name: str) -> Type | None:
    """Return the type of a member of a map-like type; None: there is no such field."""
    if type_.shape is _STRUCT:
        field = type_.fields.get(name)
        if field is not None:
            return field.type
        return undeclared_type(type_)
    return type_.element or UNKNOWN


def undeclared_type(type_: Type) -> Type | None:
    """Return the type of undeclared members of a struct; None: there are none."""
    if type_.additional is not None:
        return type_.additional
    return UNKNOWN if type_.preserves_unknown or not type_.fields else None


def item_type(type_: Type) -> Type:
    """Return the type of the items of a list."""
    return type_.element or UNKNOWN


def item_element(item: Json, type_: Type) -> str:
    """Return the path element of an item of an associative list. Raises ItemError."""
    if type_.list_type == "map":
        keys = type_.list_keys
        if len(keys) == 1 and isinstance(item, dict) and isinstance(item.get(keys[0]), str):
            return name_element(keys[0], item[keys[0]])
        return key_element(sorted(item_keys(item, type_)))
    if item is None:
        raise ItemError("associative list without keys has an element that's an explicit null")
    if isinstance(item, dict):
        raise ItemError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise ItemError("not supported: associative list with lists as elements")
    return value_element(item)


def item_keys(item: Json, type_: Type) -> list[tuple[str, Any]]:
    """Return names and values of the key fields of an item of a list of type `map`.

    An absent key has the default of the schema, or is left out if there is none.
    """
    if item is None:
        raise ItemError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise ItemError("associative list with keys may not have non-map elements")
    keys: list[tuple[str, Any]] = []
    for name in type_.list_keys:
        if name in item:
            keys.append((name, item[name]))
        else:
            field = item_type(type_).fields.get(name)
            if field is not None and field.default is not NO_DEFAULT:
                keys.append((name, field.default))
    if not keys:
        names = plain([quote(name) for name in type_.list_keys])
        raise ItemError(
            f"associative list with keys has an element that omits all key fields {names} "
            "(and doesn't have default values for any key fields)"
        )
    return keys
