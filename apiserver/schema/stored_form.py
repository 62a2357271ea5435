"""What becomes of an object by being stored: empty lists and maps that are always written are null.

    as_stored({"rules": [], "metadata": {}}, cluster_role)   → {"rules": None, "metadata": {}}

Kubernetes stores built-in kinds as protobuf, which does not tell an empty list from none, and
answers writes with what it stored. Kinds that are stored as JSON keep theirs.
"""

from collections.abc import Callable
from typing import Any, Final, cast

from kvstack.apiserver.schema.types import Field, Shape, Type

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


def _change_of(type_: Type) -> Change | None:
    """Return what changes values of a type; None: they stay as they are."""
    if _COMPILED not in type_.compiled:
        needs_change = _reaches_emptied(type_, set())
        type_.compiled[_COMPILED] = _made(type_) if needs_change else None
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


def _made(type_: Type) -> Change:
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
