"""Taints of nodes, and which of them pods tolerate."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

Object: TypeAlias = dict[str, Any]

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"


class Taint(NamedTuple):
    """A taint."""

    key: str
    value: str
    effect: str


UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)


def taints_of(node: Object) -> tuple[Taint, ...]:
    """Return the taints of a node."""
    return tuple(
        Taint(each["key"], each.get("value") or "", each["effect"])
        for each in node.get("spec", {}).get("taints") or ()
    )


def tolerates(toleration: Object, taint: Taint) -> bool:
    """Whether a toleration covers a taint."""
    effect, key = toleration.get("effect"), toleration.get("key")
    if (effect and effect != taint.effect) or (key and key != taint.key):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and (toleration.get("value") or "") == taint.value


def is_tolerated(taint: Taint, tolerations: Iterable[Object]) -> bool:
    """Whether one of a pod's tolerations covers a taint."""
    return any(tolerates(each, taint) for each in tolerations)


def keeps_away(taints: Iterable[Taint], tolerations: Iterable[Object]) -> bool:
    """Whether a taint that is not tolerated forbids a node."""
    return any(
        taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not is_tolerated(taint, tolerations)
        for taint in taints
    )
