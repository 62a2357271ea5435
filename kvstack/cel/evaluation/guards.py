"""Run-time checks that a value has the type of an overload, where it is not known statically."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from kvstack.cel.checker.functions import Overload
from kvstack.cel.checker.types import DYN, DYN_KIND, LIST, MAP, PARAM, Type
from kvstack.cel.evaluation.operators import type_value
from kvstack.cel.values import ObjectValue

Guard: TypeAlias = Callable[[Any], bool]

_NAMES: Final = {
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "null": "null_type",
}


def guard_of(type_: Type) -> Guard | None:
    """Return a function that recognizes values of a type; None: every value is one."""
    if type_.kind in {PARAM, DYN_KIND}:
        return None
    if type_.kind == LIST:
        return _list_guard(type_.parameters[0])
    if type_.kind == MAP:
        return lambda value: type(value) is dict or type(value) is ObjectValue
    name = _NAMES.get(type_.name, type_.name)
    return lambda value: type_value(value).name == name


def _list_guard(items: Type) -> Guard:
    inner = guard_of(items)
    if inner is None:
        return lambda value: isinstance(value, list)
    # As upstream only the first item is looked at.
    return lambda value: isinstance(value, list) and (not value or inner(value[0]))


def guards_of(overload: Overload, argument_types: Sequence[Type] = ()) -> list[tuple[int, Guard]]:
    """Return what must be asked of arguments whose types are known as far as given."""
    guards: list[tuple[int, Guard]] = []
    known = argument_types or [DYN] * len(overload.arguments)
    for position, (wanted, each) in enumerate(zip(overload.arguments, known, strict=True)):
        if _is_known(each):
            continue
        guard = guard_of(wanted)
        if guard is not None:
            guards.append((position, guard))
    return guards


def _is_known(type_: Type) -> bool:
    if type_.kind in {DYN_KIND, PARAM}:
        return False
    return type_.kind != LIST or _is_known(type_.parameters[0])
