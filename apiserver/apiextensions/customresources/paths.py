"""Values at paths of definitions: columns, selectable fields, Scale.

Finder(".spec.containers[0].name").first(obj)   → "web", or None if there is nothing
"""

from collections.abc import Callable, Iterable
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from kvstack.apimachinery.objects.text import json_path
from kvstack.apimachinery.objects.text.json_path import (
    Field,
    Filter,
    Literal,
    Recursive,
    Slice,
    Step,
    Text,
    Union,
    Wildcard,
)

Value = Any
"""A JSON value."""

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


class Finder:
    """Finds values by the JSONPath of printer columns."""

    def __init__(self, path: str) -> None:
        """path: such as `.spec.replicas`; raises JsonPathError."""
        self._actions = [
            each for each in json_path.parse(f"{{{path}}}") if not isinstance(each, Text)
        ]

    def first(self, obj: Value, default: Value = None) -> Value:
        """Return the first value at the path, the default if there is nothing."""
        for steps in self._actions:
            for value in _walk([obj], steps):
                return value
        return default


def _walk(values: list[Value], steps: Iterable[Step]) -> list[Value]:
    for step in steps:
        values = [found for value in values for found in _take(value, step)]
    return values


def _take(value: Value, step: Step) -> list[Value]:
    """Return the values that one step selects from a value."""
    match step:
        case Text(text):
            return [text]
        case Literal(literal):
            return [literal]
        case Field(name):
            if not name:
                return [value]
            return [value[name]] if isinstance(value, dict) and name in value else []
        case Wildcard():
            return _members(value)
        case Recursive():
            return _below(value)
        case Slice(start, end, stride):
            return value[slice(start, end, stride)] if isinstance(value, list) else []
        case Union(choices):
            return [found for each in choices for found in _walk([value], each)]
        case Filter():
            return [each for each in _members(value) if _holds(each, step)]
        case _:
            return []


def _members(value: Value) -> list[Value]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list) else []


def _below(value: Value) -> list[Value]:
    found = [value]
    for each in _members(value):
        found += _below(each)
    return found


def _holds(value: Value, condition: Filter) -> bool:
    left = _walk([value], condition.left)
    if condition.operator == "exists":
        return bool(left)
    right = _walk([value], condition.right)
    compare = _COMPARE.get(condition.operator)
    if not left or not right or compare is None:
        return False
    try:
        return bool(compare(left[0], right[0]))
    except TypeError:
        return False
