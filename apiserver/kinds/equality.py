"""Semantic equality: quantities compare as numbers, empty lists and bytes as absent.

    same({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1073741824"}}, REQUIREMENTS)  → True

Both values were decoded by their type, so equal ones are nearly always equal as JSON; only others
are compared member by member.
"""

from functools import cache
from typing import Any, Final

from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.schema.load import built_in_types
from kvstack.apimachinery.schema.types import Shape, Type

_EMPTY_IS_ABSENT: Final = frozenset((Shape.LIST, Shape.MAP, Shape.BYTES))


def same(left: object, right: object, type_name: str) -> bool:
    """Return whether two values of the named type are semantically equal."""
    return left == right or same_of(left, right, _type(type_name))


def same_of(left: object, right: object, type_: Type) -> bool:
    """Return whether two values of the type are semantically equal."""
    return _same(left, right, type_)


@cache
def _type(name: str) -> Type:
    return built_in_types()[name]


def _same(left: Any, right: Any, type_: Type) -> bool:  # noqa: ANN401 — of the type
    if left == right:
        return True
    shape = type_.shape
    if shape in _EMPTY_IS_ABSENT and not left and not right:
        return True
    if left is None or right is None:
        return False
    if shape is Shape.STRUCT:
        fields = type_.fields
        return all(
            name in fields and _same(left.get(name), right.get(name), fields[name].type)
            for name in left.keys() | right.keys()
        )
    element = type_.element
    if shape is Shape.LIST and element is not None:
        return len(left) == len(right) and all(
            _same(mine, other, element) for mine, other in zip(left, right, strict=True)
        )
    if shape is Shape.MAP and element is not None:
        return left.keys() == right.keys() and all(
            _same(left[key], right[key], element) for key in left
        )
    return shape is Shape.QUANTITY and parse(left) == parse(right)
