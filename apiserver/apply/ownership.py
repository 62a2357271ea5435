"""The fields of a configuration, and stored sets under changed types.

    {"data": {"a": "1"}, "spec": {"ports": [{"port": 80}]}}
    {"f:data": {"f:a": {}}, "f:spec": {"f:ports": {"k:{…}": {".": {}, "f:port": {}}}}}

A configuration owns its leaves and each item it names. It owns a map only if the map is empty or
null, or a member that no struct declares; and of an empty associative list it owns nothing.
"""

from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.types import Shape, Type
from kvstack.apiserver.apply.field_set import SELF, FieldSet, sort_level
from kvstack.apiserver.apply.path import FIELD
from kvstack.apiserver.apply.structure import (
    UNKNOWN,
    ItemError,
    Json,
    is_associative,
    is_granular,
    is_untyped,
    item_element,
    item_type,
    member_type,
    undeclared_type,
)

_STRUCT: Final = Shape.STRUCT
_MAP: Final = Shape.MAP
_LIST: Final = Shape.LIST
_UNKNOWN_ITEM: Final = "?"
"""Represents an item without its keys: the list is not empty, but nothing is owned."""


def fields_of(value: Object, type_: Type) -> FieldSet:
    """Return the set of the fields of a configuration."""
    owned: FieldSet = {}
    for name, member in value.items():
        is_declared = name in type_.fields
        below = _below(member, member_type(type_, name) or UNKNOWN)
        if below:
            owned[FIELD + name] = below if is_declared else {SELF: {}, **below}
        elif not is_declared or below is None or member is None or member == {}:
            owned[FIELD + name] = {}
    return sort_level(owned)


def with_named_fields(fields: FieldSet, type_: Type | None) -> FieldSet:
    """Return the set with each declared field that has members below as a member itself."""
    named: FieldSet = {}
    for element, node in fields.items():
        below = with_named_fields(node, _named_type(element, type_)) if node else node
        if below and SELF not in below and _is_named(element, type_):
            below = {SELF: {}, **below}
        named[element] = below
    return named


def fit_set(fields: FieldSet, type_: Type) -> FieldSet:
    """Return the set adapted to the current type: what became a leaf is owned as a whole.

    Sets are stored for long, and types change: between releases, or with a definition. Fields that
    the type does not have stay.
    """
    fit = fields
    declared = type_.fields
    for element, node in fields.items():
        if not node:
            continue
        field = declared.get(element[2:])
        below = field.type if field is not None else _type_at(element, type_)
        if below is None:
            continue
        fitting = _fitted_node(node, below)
        if fitting is not node:
            if fit is fields:
                fit = dict(fields)
            fit[element] = fitting
    return fit


def _below(value: Json, type_: Type) -> FieldSet | None:
    """Return what is owned below a value; None: it is a leaf."""
    if (value is None or isinstance(value, dict)) and is_granular(type_):
        return fields_of(value or {}, type_)
    if (value is None or isinstance(value, list)) and is_associative(type_):
        return _fields_of_items(value or [], type_)
    return None


def _fields_of_items(values: list[Json], type_: Type) -> FieldSet:
    items = item_type(type_)
    owned: FieldSet = {}
    for item in values:
        try:
            element = item_element(item, type_)
        except ItemError:
            element = _UNKNOWN_ITEM
        below = None if element in owned else _below(item, items)
        owned[element] = {SELF: {}, **below} if below else {}
    return sort_level(owned)


def _fitted_node(node: FieldSet, type_: Type) -> FieldSet:
    shape = type_.shape
    if shape is _STRUCT or shape is _MAP:
        if type_.map_type != "atomic":
            return fit_set(node, type_)
        return node if _is_all_unknown(type_) else {}
    if shape is _LIST:
        return fit_set(node, type_) if type_.list_type != "atomic" else {}
    return {} if is_untyped(type_) and not is_granular(type_) else node


def _is_all_unknown(type_: Type) -> bool:
    if type_.shape is _MAP:
        members = item_type(type_)
        return is_untyped(members) and is_granular(members)
    return not type_.fields and undeclared_type(type_) is UNKNOWN


def _is_named(element: str, type_: Type | None) -> bool:
    return type_ is not None and element.startswith(FIELD) and element[2:] in type_.fields


def _named_type(element: str, type_: Type | None) -> Type | None:
    """Return the type below a field or list item; None: it is schemaless."""
    is_other_item = type_ is not None and type_.shape is _LIST and element[0] != "k"
    return None if is_other_item else _type_at(element, type_)


def _type_at(element: str, type_: Type | None) -> Type | None:
    """Return the type below an element; None: there is none."""
    if type_ is None:
        return None
    if type_.shape is _LIST:
        return item_type(type_)
    if type_.shape is _STRUCT or type_.shape is _MAP:
        return member_type(type_, element[2:])
    return UNKNOWN if is_untyped(type_) else None
