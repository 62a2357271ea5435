"""Comparison of two values of one type, as sets of fields.

    {"replicas": 1, "paused": true}  →  {"replicas": 2, "suspend": false}
    modified .replicas    removed .paused    added .suspend

A leaf that is in both but differs is modified. What is in one only is added or removed with all
that is below, including maps, lists and items on the way. Absent, null and empty are three
different leaves; but beside a map or list with members only these count. A duplicate item of an
associative list is one leaf.

Numbers are compared as numbers, all else strictly: true is not 1. Types that cannot hold both use
Python's equality; `reaches_untyped` is computed once per type.
"""

from typing import Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.types import Shape, Type
from kvstack.apiserver.apply.everything import everything_of, items_by_element
from kvstack.apiserver.apply.field_set import SELF, FieldSet, sort_level
from kvstack.apiserver.apply.path import FIELD
from kvstack.apiserver.apply.structure import (
    UNKNOWN,
    Json,
    is_associative,
    is_granular,
    is_untyped,
    item_type,
    member_type,
    undeclared_type,
)

_ABSENT: Final = object()
_NONE: Final[list[Json]] = []


class Comparison(NamedTuple):
    """What the second value has in addition, different, and no longer."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet


def compare(live: Json, new: Json, type_: Type, *, is_strict: bool = True) -> Comparison:
    """Return the comparison of two maps of a type; is_strict: the type reaches untyped content.

    Raises ItemError.
    """
    walk = _Comparing(is_strict=is_strict)
    result = Comparison({}, {}, {})
    walk.members(live or {}, new or {}, type_, result)
    return Comparison(*(sort_level(each) for each in result))


def everything(value: Json, type_: Type) -> FieldSet:
    """Return the level of a value that only one side has: itself and all below.

    Raises ItemError.
    """
    return everything_of(type_)(value)


def is_same(left: Json, right: Json) -> bool:
    """Return whether two JSON values are equal; 1 equals 1.0, but not true."""
    return bool(left == right) and (
        _canonical_bytes(left) == _canonical_bytes(right) or _have_same_kinds(left, right)
    )


def reaches_untyped(type_: Type) -> bool:
    """Return whether a value of this type may hold content without a schema."""
    seen: set[Type] = set()
    waiting: list[Type | None] = [type_]
    while waiting:
        each = waiting.pop()
        if each is None or each in seen:
            continue
        seen.add(each)
        if each.shape is Shape.RAW or _is_open(each):
            return True
        waiting += [each.element, each.additional]
        waiting += [field.type for field in each.fields.values()]
    return False


class _Comparing:
    __slots__ = ("_is_strict",)

    def __init__(self, *, is_strict: bool) -> None:
        self._is_strict = is_strict

    def members(self, live: Object, new: Object, type_: Type, into: Comparison) -> None:
        """Compare two maps, one of which has members."""
        is_strict = self._is_strict
        for name, value in new.items():
            old = live.get(name, _ABSENT)
            if old == value and (not is_strict or is_same(old, value)):
                continue
            below = member_type(type_, name) or UNKNOWN
            if old is _ABSENT:
                into.added[FIELD + name] = everything(value, below)
            else:
                self._differing(FIELD + name, old, value, below, into)
        for name, old in live.items():
            if name not in new:
                below = member_type(type_, name) or UNKNOWN
                into.removed[FIELD + name] = everything(old, below)

    def _items(self, live: list[Json], new: list[Json], type_: Type, into: Comparison) -> None:
        """Compare two associative lists, one of which has items."""
        items = item_type(type_)
        before, after = items_by_element(live, type_), items_by_element(new, type_)
        for element in before | after:
            olds, values = before.get(element, _NONE), after.get(element, _NONE)
            if olds == values and (not self._is_strict or is_same(olds, values)):
                continue
            if len(olds) == 1 and len(values) == 1:
                self._differing(element, olds[0], values[0], items, into)
            elif len(olds) > 1 and len(values) > 1:
                into.modified[element] = {}
            else:
                # A unique item is owned with all below; a duplicate one is a leaf.
                if olds:
                    into.removed[element] = {} if len(olds) > 1 else everything(olds[0], items)
                if values:
                    into.added[element] = {} if len(values) > 1 else everything(values[0], items)

    def _differing(
        self, element: str, old: Json, value: Json, type_: Type, into: Comparison
    ) -> None:
        """Compare two values that differ."""
        if _are_maps(old, value) and is_granular(type_):
            below = Comparison({}, {}, {})
            self.members(old or {}, value or {}, type_, below)
            _attach(element, below, into)
        elif _are_lists(old, value) and is_associative(type_):
            below = Comparison({}, {}, {})
            self._items(old or [], value or [], type_, below)
            _attach(element, below, into)
        else:
            into.modified[element] = {}
            if is_untyped(type_) and is_granular(type_):
                _change_of_kind(element, old, value, type_, into)


def _change_of_kind(element: str, old: Json, value: Json, type_: Type, into: Comparison) -> None:
    """Handle a schemaless map that replaced another kind of value, or was replaced."""
    if isinstance(old, dict) and old:
        into.removed[element] = _below(everything(old, type_))
    if isinstance(value, dict) and value:
        into.added[element] = _below(everything(value, type_))


def _below(level: FieldSet) -> FieldSet:
    return {element: node for element, node in level.items() if element != SELF}


def _attach(element: str, below: Comparison, into: Comparison) -> None:
    for level, target in zip(below, into, strict=True):
        if level:
            target[element] = sort_level(level)


def _are_maps(old: Json, value: Json) -> bool:
    """Return whether both are maps, null counting as empty, and one has members."""
    return (
        (old is None or isinstance(old, dict))
        and (value is None or isinstance(value, dict))
        and bool(old or value)
    )


def _are_lists(old: Json, value: Json) -> bool:
    return (
        (old is None or isinstance(old, list))
        and (value is None or isinstance(value, list))
        and bool(old or value)
    )


def _is_open(type_: Type) -> bool:
    # A built-in struct without fields is empty once decoded.
    return type_.shape is Shape.STRUCT and not type_.message and undeclared_type(type_) is UNKNOWN


def _canonical_bytes(value: Json) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _have_same_kinds(left: Json, right: Json) -> bool:
    """Return whether two equal values have booleans at the same positions."""
    match left:
        case dict():
            return all(_have_same_kinds(each, right[name]) for name, each in left.items())
        case list():
            return all(map(_have_same_kinds, left, right))
        case _:
            return isinstance(left, bool) == isinstance(right, bool)
