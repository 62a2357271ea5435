"""Conditions of statuses: found by type, replaced with times that move only when they should."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]


def find(conditions: Iterable[Object] | None, type_: str) -> Object | None:
    """Return the condition of a type."""
    for condition in conditions or ():
        if condition.get("type") == type_:
            return condition
    return None


def is_true(conditions: Iterable[Object] | None, type_: str) -> bool:
    """Whether a condition is there and True."""
    condition = find(conditions, type_)
    return condition is not None and condition.get("status") == "True"


def without(conditions: Iterable[Object] | None, type_: str) -> list[Object]:
    """Return all conditions but that of a type."""
    return [condition for condition in conditions or () if condition.get("type") != type_]


def with_condition(conditions: Sequence[Object] | None, new: Object) -> list[Object]:
    """Return the conditions with one set: the same status and reason change nothing.

    lastTransitionTime stays while the status does. The condition moves to the end, as upstream's
    setters of workloads have it.
    """
    old = find(conditions, new["type"])
    if old is not None:
        if old["status"] == new["status"] and old.get("reason") == new.get("reason"):
            return list(conditions or ())
        if old["status"] == new["status"]:
            new = {**new, "lastTransitionTime": old.get("lastTransitionTime")}
    return [*without(conditions, new["type"]), new]
