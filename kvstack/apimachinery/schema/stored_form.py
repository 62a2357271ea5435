"""The form of an object after it was stored: empty lists and maps that are always written are null.

    as_stored({"rules": [], "metadata": {}}, cluster_role)   → {"rules": None, "metadata": {}}

Kubernetes stores built-in kinds as protobuf, which does not distinguish an empty list from none,
and answers writes with what it stored. Kinds that are stored as JSON keep theirs.

    without_empty({"spec": {"policies": []}}, autoscaler)   → {"spec": {}}

What is left out when it is empty is gone from all that Go writes, JSON as well.
"""

from collections.abc import Callable
from operator import is_not as _is_other
from typing import Any, Final, cast

from kvstack.apimachinery.schema.types import Field, Shape, Type

Change = Callable[[Any], None]
"""Changes a value of one type in place."""

_COLLECTIONS: Final = frozenset({Shape.LIST, Shape.MAP})
_COMPILED: Final = "stored form"


def as_stored(obj: dict[str, Any], type_: Type) -> dict[str, Any]:
    """Change an object, as `decode` makes them, into what reading it back would give."""
    change = _change_of(type_)
    if change is not None:
        change(obj)
    return obj


def without_empty(obj: dict[str, Any], type_: Type) -> dict[str, Any]:
    """Return an object without the empty lists and maps that Go leaves out; itself without any."""
    written: dict[str, Any] = _written(obj, type_)
    return written


def _written(value: Any, type_: Type) -> Any:  # noqa: ANN401 — of the type
    if isinstance(value, list):
        element = type_.element
        if element is None or type_.shape is Shape.MAP:
            return value
        found = [_written(each, element) for each in value]
        return found if any(map(_is_other, found, value)) else value
    if not isinstance(value, dict):
        return value
    if type_.shape is Shape.STRUCT:
        return _written_struct(value, type_)
    if type_.element is None:
        return value
    if type_.shape is not Shape.MAP:
        return _written(value, type_.element)  # the one of two types that an object is
    entries = {name: _written(each, type_.element) for name, each in value.items()}
    return entries if any(map(_is_other, entries.values(), value.values())) else value


def _written_struct(value: dict[str, Any], type_: Type) -> dict[str, Any]:
    find = type_.fields.get
    written: dict[str, Any] = {}
    is_changed = False
    for name, member in value.items():
        field = find(name)
        is_branch = isinstance(member, (list, dict))
        if is_branch and not member and field is not None and is_left_out_empty(field):
            is_changed = True
            continue
        written[name] = _written(member, field.type) if is_branch and field is not None else member
        is_changed = is_changed or written[name] is not member
    return written if is_changed else value


def is_left_out_empty(field: Field) -> bool:
    """Return whether a field is a list or map that is not written when it is empty."""
    may_be = field.omit_empty and not field.is_pointer
    return may_be and field.type.shape in _COLLECTIONS


def _change_of(type_: Type) -> Change | None:
    """Return what changes values of a type; None: they stay as they are."""
    if _COMPILED not in type_.compiled:
        needs_change = _reaches_emptied(type_, set())
        type_.compiled[_COMPILED] = _compile(type_) if needs_change else None
    return cast("Change | None", type_.compiled[_COMPILED])


def _is_emptied(field: Field) -> bool:
    is_written = not field.omit_empty and not field.is_pointer
    return is_written and field.type.shape in _COLLECTIONS


def _reaches_emptied(type_: Type, seen: set[Type]) -> bool:
    if type_ in seen:
        return False
    seen.add(type_)
    if type_.element is not None:
        return type_.shape is not Shape.RAW and _reaches_emptied(type_.element, seen)
    fields = type_.fields.values()
    return any(_is_emptied(each) or _reaches_emptied(each.type, seen) for each in fields)


def _compile(type_: Type) -> Change:
    if type_.shape is Shape.STRUCT:
        return _struct(type_)
    element = type_.element

    def change_all(value: Any) -> None:  # noqa: ANN401
        change = None if element is None else _change_of(element)
        if change is not None:
            for each in value.values() if type_.shape is Shape.MAP else value:
                if each is not None:
                    change(each)

    return change_all


def _struct(type_: Type) -> Change:
    emptied = [name for name, field in type_.fields.items() if _is_emptied(field)]
    below = [
        (name, field.type)
        for name, field in type_.fields.items()
        if _reaches_emptied(field.type, set())
    ]

    def change_members(value: dict[str, Any]) -> None:
        for name in emptied:
            if name in value and not value[name]:
                value[name] = None
        for name, of_member in below:
            member = value.get(name)
            if member:
                change = _change_of(of_member)
                if change is not None:
                    change(member)

    return change_members
