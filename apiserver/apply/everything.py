"""The fields of a completely new value, by functions that are compiled from a type.

    everything_of(container)({"name": "web", "env": []})   → {".": {}, "f:env": {}, "f:name": {}}
    created_of(deployment, zero)({"spec": {"replicas": 1}})   → {"f:spec": {"f:replicas": {}}}

Most comparisons of creates and updates are of such values, and consulting the type for every member
took longer than the traversal. Each level is in the order of `path.in_order`.
"""

from collections.abc import Callable
from typing import Final, cast

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.recurring import RECURRING, RecentResults, key_of
from kvstack.apimachinery.schema.types import Shape, Type
from kvstack.apiserver.apply.field_set import SELF, FieldSet
from kvstack.apiserver.apply.path import FIELD, in_order, keys_element, name_element
from kvstack.apiserver.apply.structure import (
    UNKNOWN,
    Json,
    is_associative,
    is_granular,
    item_element,
    item_type,
    member_type,
)

Everything = Callable[[Json], FieldSet]
Element = Callable[[Json], str]

_EVERYTHING: Final = "fields of a value"
_ELEMENT: Final = "element of an item"
_BRANCHES: Final = frozenset((dict, list))
_PLAIN: Final = frozenset((str, int))
_ABSENT: Final = object()


def everything_of(type_: Type) -> Everything:
    """Return the function that computes the level of a new value of a type: itself and all below.

    The function raises ItemError.
    """
    walk = cast("Everything | None", type_.compiled.get(_EVERYTHING))
    if walk is None:
        if is_granular(type_):
            walk = _of_struct(type_) if type_.shape is Shape.STRUCT else _of_map(type_)
        elif is_associative(type_):
            walk = _of_list(type_)
        else:
            walk = _of_leaf
        type_.compiled[_EVERYTHING] = walk
    return walk


def element_of(type_: Type) -> Element:
    """Return the function that computes the path element of an item of an associative list.

    The function raises ItemError.
    """
    found = cast("Element | None", type_.compiled.get(_ELEMENT))
    if found is None:
        found = type_.compiled[_ELEMENT] = _element_of(type_)
    return found


def items_by_element(values: list[Json], type_: Type) -> dict[str, list[Json]]:
    """Return the items of an associative list by element, duplicates together.

    Raises ItemError.
    """
    element_of_item = element_of(type_)
    items: dict[str, list[Json]] = {}
    for item in values:
        element = element_of_item(item)
        if element in items:
            items[element].append(item)
        else:
            items[element] = [item]
    return items


def created_of(type_: Type, zero: Object, is_same: Callable[[Json, Json], bool]) -> Everything:
    """Return the function that computes what a create sets: the difference from an empty object.

    zero: the fields that are always written, with their values. The function raises ItemError.
    """
    below = {
        name: _created_member(member_type(type_, name) or UNKNOWN, value, is_same)
        for name, value in zero.items()
    }

    def walk(value: Json) -> FieldSet:
        level: FieldSet = {}
        for name in sorted(value):
            member = value[name]
            special = below.get(name)
            if special is not None:
                node = special(member)
                if node is not None:
                    level[FIELD + name] = node
            elif type(member) in _BRANCHES:
                level[FIELD + name] = everything_of(member_type(type_, name) or UNKNOWN)(member)
            else:
                level[FIELD + name] = {}
        return level

    return walk


def _created_member(
    type_: Type, zero: Json, is_same: Callable[[Json, Json], bool]
) -> Callable[[Json], FieldSet | None]:
    """Return the function for a member that is always written; None: it has its zero value."""
    inner: Everything | None = None
    if is_granular(type_) and (zero is None or isinstance(zero, dict)):
        inner = created_of(type_, zero or {}, is_same)
        if type_.name in RECURRING:
            inner = _recurring(inner)

    def walk(value: Json) -> FieldSet | None:
        if zero == value and is_same(zero, value):
            return None
        kind = type(value)
        if inner is not None and (kind is dict or value is None) and (zero or value):
            return inner(value or {}) or None
        if kind is list and value and zero is None and is_associative(type_):
            level = everything_of(type_)(value)
            return {element: node for element, node in level.items() if element != SELF}
        return {}

    return walk


def _recurring(walk: Everything) -> Everything:
    """Return the function that keeps recent levels; sets share their parts anyway."""
    levels = RecentResults[FieldSet]()

    def recall(value: Json) -> FieldSet:
        key = key_of(value)
        level = levels.get(key)
        if level is None:
            level = walk(value)
            levels.put(key, level)
        return level

    return recall


def _of_leaf(_value: Json) -> FieldSet:
    return {}


def _of_struct(type_: Type) -> Everything:
    fields = type_.fields
    member_functions: dict[str, Everything] = {}

    def walk(value: Json) -> FieldSet:
        if not value or type(value) is not dict:
            return {}
        level: FieldSet = {SELF: {}}
        for name in sorted(value):
            member = value[name]
            if type(member) not in _BRANCHES:
                level[FIELD + name] = {}  # most members: their type need not be consulted
                continue
            below = member_functions.get(name)
            if below is None:
                below = everything_of(member_type(type_, name) or UNKNOWN)
                if name in fields:
                    member_functions[name] = below
            level[FIELD + name] = below(member)
        return level

    return walk


def _of_map(type_: Type) -> Everything:
    """Maps and schemaless content, which contains only schemaless content."""
    element = type_.element

    def walk(value: Json) -> FieldSet:
        if not value or type(value) is not dict:
            return {}
        below = everything_of(element or UNKNOWN)
        level: FieldSet = {SELF: {}}
        for name in sorted(value):
            member = value[name]
            level[FIELD + name] = below(member) if type(member) in _BRANCHES else {}
        return level

    return walk


def _of_list(type_: Type) -> Everything:
    items = item_type(type_)

    def walk(value: Json) -> FieldSet:
        if not value or type(value) is not list:
            return {}
        below = everything_of(items)
        found = items_by_element(value, type_)
        level: FieldSet = {SELF: {}}
        for element in in_order(found) if len(found) > 1 else found:
            same = found[element]
            level[element] = below(same[0]) if len(same) == 1 else {}
        return level

    return walk


def _element_of(type_: Type) -> Element:
    names = tuple(sorted(type_.list_keys))
    if type_.list_type != "map" or not names:
        return lambda item: item_element(item, type_)
    if len(names) == 1:
        (name,) = names

        def by_name(item: Json) -> str:
            value = item.get(name) if type(item) is dict else None
            return name_element(name, value) if type(value) is str else item_element(item, type_)

        return by_name

    def by_names(item: Json) -> str:
        if type(item) is dict:
            values = tuple([item.get(name, _ABSENT) for name in names])
            if all(map(_PLAIN.__contains__, map(type, values))):
                return keys_element(names, values)
        return item_element(item, type_)

    return by_names
