"""Conditions of pods: found and set by type."""

from typing import Any, Final

Obj = dict[str, Any]

_ENDED: Final = frozenset({"Succeeded", "Failed"})


def condition_of(pod: Obj, type_: str) -> Obj | None:
    """Return the condition of a type; None if the pod has none."""
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each.get("type") == type_:
            found: Obj = each
            return found
    return None


def is_ready(pod: Obj) -> bool:
    """Return whether the pod says that it can serve."""
    condition = condition_of(pod, "Ready")
    return condition is not None and condition.get("status") == "True"


def has_ended(pod: Obj) -> bool:
    """Return whether all containers of the pod have ended for good."""
    return (pod.get("status") or {}).get("phase") in _ENDED


def set_condition(
    status: Obj, type_: str, value: str, now: str, reason: str = "", message: str = ""
) -> None:
    """Set a condition in a new list; its time stays if the value does. now: RFC 3339, UTC."""
    condition = {"type": type_, "status": value, "lastProbeTime": None, "lastTransitionTime": now}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    conditions: list[Obj] = list(status.get("conditions") or ())
    for position, each in enumerate(conditions):
        if each.get("type") == type_:
            if each.get("status") == value:
                condition["lastTransitionTime"] = each.get("lastTransitionTime")
            conditions[position] = condition
            break
    else:
        conditions.append(condition)
    status["conditions"] = conditions
