"""Whether a value of one type may be used where another type is expected.

Type parameters of functions are resolved on the way and kept in a
dict. A trial that fails must not leave anything there, so trials work on a copy.
"""

from collections.abc import Sequence
from typing import TypeAlias

from kvstack.cel.checker.types import (
    DYN,
    DYN_KIND,
    LIST,
    MAP,
    NULL_KIND,
    OPAQUE,
    PARAM,
    TYPE,
    Type,
    make,
)

Mapping: TypeAlias = dict[Type, Type]
"""The types of type parameters."""


def are_assignable(mapping: Mapping, actual: Sequence[Type], expected: Sequence[Type]) -> bool:
    """Return whether values of the given types fit; the mapping learns from it if they do."""
    trial = dict(mapping)
    if len(actual) != len(expected):
        return False
    for one, other in zip(actual, expected, strict=True):
        if not _assignable(trial, one, other):
            return False
    mapping.update(trial)
    return True


def is_assignable(mapping: Mapping, actual: Type, expected: Type) -> bool:
    """Return whether a value of the given type fits."""
    return are_assignable(mapping, (actual,), (expected,))


def most_general(one: Type, other: Type) -> Type:
    """Return the more general of two types that fit."""
    return one if _is_as_general(one, other) else other


def substituted(mapping: Mapping, type_: Type, *, to_dyn: bool = False) -> Type:
    """Return a type without the parameters that are known; to_dyn: and without the others."""
    if not type_.is_open:
        return type_
    found = mapping.get(type_)
    if found is not None:
        return substituted(mapping, found, to_dyn=to_dyn)
    if type_.kind == PARAM:
        return DYN if to_dyn else type_
    inner = tuple(substituted(mapping, each, to_dyn=to_dyn) for each in type_.parameters)
    return make(type_.kind, type_.name, inner)


def _assignable(mapping: Mapping, one: Type, other: Type) -> bool:
    if other.kind == PARAM:
        fits, is_known = _substitutes(mapping, one, other)
        if fits or is_known:
            return fits
    if one.kind == PARAM:
        return _substitutes(mapping, other, one)[0]
    if one.is_dyn_or_error or other.is_dyn_or_error:
        return True
    if one.kind == NULL_KIND:
        return other.is_nullable or other.kind == NULL_KIND
    if other.kind == NULL_KIND:
        return one.is_nullable
    if one.kind == TYPE:
        return other.kind == TYPE
    if one.kind in {OPAQUE, LIST, MAP}:
        return (
            one.kind == other.kind
            and one.name == other.name
            and len(one.parameters) == len(other.parameters)
            and all(map(_assignable, [mapping] * 2, one.parameters, other.parameters))
        )
    return one is other


def _substitutes(mapping: Mapping, value: Type, param: Type) -> tuple[bool, bool]:
    """Return whether the parameter may be the type, and whether it is resolved already."""
    if value is param:
        return True, True
    substitute = mapping.get(param)
    if substitute is not None:
        if value is substitute:
            return True, True
        if not _assignable(mapping, value, substitute):
            return False, True
        general = most_general(value, substitute)
        if not _refers(mapping, param, general):
            mapping[param] = general
        return True, True
    if _refers(mapping, param, value):
        return False, False
    mapping[param] = value
    return True, False


def _refers(mapping: Mapping, param: Type, within: Type) -> bool:
    """Return whether the parameter is part of a type, which would then be endless."""
    if param is within:
        return True
    if within.kind == PARAM:
        known = mapping.get(within)
        return known is not None and _refers(mapping, param, known)
    return any(_refers(mapping, param, each) for each in within.parameters)


def _is_as_general(one: Type, other: Type) -> bool:
    if one.kind in {DYN_KIND, PARAM}:
        return True
    if other.kind in {DYN_KIND, PARAM} or one.kind != other.kind:
        return False
    if one.kind in {OPAQUE, LIST, MAP}:
        return one.name == other.name and all(map(_is_as_general, one.parameters, other.parameters))
    return one.kind == TYPE or one is other
