"""Type checks of values, with the error texts of an apply.

    .spec.replicas: expected numeric (int or float), got string
    errors:
      .spec.ports: duplicate entries for key [port=80,protocol="TCP"]
      .spec.bogus: field not declared in schema

Types are distinguished only as far as ownership requires: a number is a number, a quantity any
scalar. null fits every type. Of undeclared members of a struct only the first is reported, and
nothing else below that struct. Formats, ranges and required fields are not checked.
"""

from typing import Any, Final, NamedTuple

from kvstack.apimachinery.schema.types import Shape, Type
from kvstack.apiserver.apply.go_print import plain, syntax, type_name
from kvstack.apiserver.apply.path import key_text, value_text
from kvstack.apiserver.apply.structure import (
    ItemError,
    Json,
    is_associative,
    item_element,
    item_keys,
    item_type,
    undeclared_type,
)

_STRUCT: Final = Shape.STRUCT
_MAP: Final = Shape.MAP
_LIST: Final = Shape.LIST
_STRING: Final = Shape.STRING
_SCALARS: Final = frozenset({str, int, float, bool})
_ANYTHING: Final = frozenset({*_SCALARS, dict, list})
_FITTING: Final = {
    Shape.STRUCT: frozenset({dict}),
    Shape.MAP: frozenset({dict}),
    Shape.LIST: frozenset({list}),
    Shape.STRING: frozenset({str}),
    Shape.BYTES: frozenset({str}),
    Shape.DURATION: frozenset({str}),
    Shape.INT32: frozenset({int, float}),
    Shape.INT64: frozenset({int, float}),
    Shape.FLOAT64: frozenset({int, float}),
    Shape.BOOL: frozenset({bool}),
    Shape.TIME: _SCALARS,
    Shape.MICRO_TIME: _SCALARS,
    Shape.QUANTITY: _SCALARS,
    Shape.INT_OR_STRING: _ANYTHING,
    Shape.RAW: _ANYTHING,
    Shape.FIELDS_V1: _ANYTHING,
}


class TypeMismatch(NamedTuple):
    """A type error and its path."""

    path: str
    detail: str


def mismatches(value: Json, type_: Type, *, allows_duplicates: bool = False) -> list[TypeMismatch]:
    """Return all type errors of a value.

    allows_duplicates: whether associative lists may have duplicate items.
    """
    return _Checking(allows_duplicates=allows_duplicates).value(value, type_)


def summary(found: list[TypeMismatch]) -> str:
    """Return the type errors as one text."""
    texts = [f"{each.path}: {each.detail}" if each.path else each.detail for each in found]
    return texts[0] if len(texts) == 1 else "\n  ".join(["errors:", *texts])


class _Checking:
    __slots__ = ("_allows_duplicates",)

    def __init__(self, *, allows_duplicates: bool) -> None:
        self._allows_duplicates = allows_duplicates

    def value(self, value: Json, type_: Type) -> list[TypeMismatch]:
        if value is None:
            return []
        shape, kind = type_.shape, type(value)
        if kind is str and shape is _STRING:
            return []
        if kind is dict and (shape is _STRUCT or shape is _MAP):
            return self._members(value, type_)
        if kind is list and shape is _LIST:
            return self._items(value, type_)
        return [] if kind in _FITTING[shape] else [TypeMismatch("", _unexpected(value, shape))]

    def _members(self, value: dict[str, Any], type_: Type) -> list[TypeMismatch]:
        fields = type_.fields
        others = undeclared_type(type_) if type_.shape is _STRUCT else item_type(type_)
        if others is None:
            for name in value:
                if name not in fields:
                    return [TypeMismatch(f".{name}", "field not declared in schema")]
        type_errors: list[TypeMismatch] = []
        for name, member in value.items():
            field = fields.get(name)
            below = self.value(member, field.type if field is not None else others or type_)
            if below:
                type_errors += [TypeMismatch(f".{name}{path}", detail) for path, detail in below]
        return type_errors

    def _items(self, value: list[Any], type_: Type) -> list[TypeMismatch]:
        mismatches: list[TypeMismatch] = []
        items = item_type(type_)
        seen: set[str] = set()
        for index, item in enumerate(value):
            name = f"[{index}]"
            if is_associative(type_):
                try:
                    element = item_element(item, type_)
                except ItemError as error:
                    return [*mismatches, TypeMismatch("", f"element {index}: {error}")]
                name = _item_text(item, type_)
                if element in seen and not self._allows_duplicates:
                    mismatches.append(TypeMismatch("", f"duplicate entries for key {name}"))
                seen.add(element)
            below = self.value(item, items)
            if below:
                mismatches += [TypeMismatch(f"{name}{path}", detail) for path, detail in below]
        return mismatches


def _item_text(item: Json, type_: Type) -> str:
    if type_.list_type == "map":
        return key_text(dict(sorted(item_keys(item, type_))))
    return value_text(item)


def _unexpected(value: object, shape: Shape) -> str:
    fitting = _FITTING[shape]
    if dict in fitting:
        return f"expected map, got &{{{plain(value)}}}"
    if list in fitting:
        return f"expected list, got &{{{plain(value)}}}"
    if int not in fitting and bool in fitting:
        return f"expected boolean, got &{{{plain(value)}}}"
    if bool in fitting:
        return f"expected any scalar, got &{{{plain(value)}}}"
    if int in fitting:
        return f"expected numeric (int or float), got {type_name(value)}"
    return f"expected string, got &value.valueUnstructured{{Value:{syntax(value)}}}"
