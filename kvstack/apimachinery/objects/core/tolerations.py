"""Taints of nodes and devices, and whether a toleration tolerates one.

    tolerates({"key": "gpu", "operator": "Exists"}, Taint("gpu", "a100", "NoSchedule"))   → True

An empty effect or key fits every one. Equal (which is meant by no operator) compares values; Gt and
Lt compare whole numbers, the taint's with the toleration's. A value that is not a number fits none,
nor does an operator that is not known.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_decimal_integer
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"


class Taint(NamedTuple):
    """A taint without the time when it was added."""

    key: str
    value: str
    effect: str


def taint_of(obj: Object) -> Taint:
    """Return a taint of a node's spec, or of a device."""
    return Taint(obj["key"], obj.get("value") or "", obj["effect"])


def taints_of(node: Object) -> tuple[Taint, ...]:
    """Return the taints of a node."""
    return tuple(taint_of(taint) for taint in (node.get("spec") or {}).get("taints") or ())


def tolerates(toleration: Object, taint: Taint) -> bool:
    """Return whether a toleration tolerates a taint."""
    effect, key = toleration.get("effect"), toleration.get("key")
    if (effect and effect != taint.effect) or (key and key != taint.key):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    value: str = toleration.get("value") or ""
    if operator == "Equal":
        return value == taint.value
    if operator not in ("Gt", "Lt"):
        return False
    bound, number = _number(value), _number(taint.value)
    if bound is None or number is None:
        return False
    return number > bound if operator == "Gt" else number < bound


def is_tolerated(taint: Taint, tolerations: Iterable[Object]) -> bool:
    """Return whether one of several tolerations tolerates a taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def _number(text: str) -> int | None:
    """Return a whole number of 64 bits in its plain form; None if it is not one."""
    if check_decimal_integer(text):
        return None
    try:
        return parse_int(text)
    except NumberError:
        return None
