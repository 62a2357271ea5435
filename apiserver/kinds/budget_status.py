"""The condition of a disruption budget that says whether pods may be evicted."""

from typing import Any, Final

Obj = dict[str, Any]

DISRUPTION_ALLOWED: Final = "DisruptionAllowed"


def set_disruption_allowed(status: Obj, now: str) -> None:
    """Set the condition by the disruptions that a budget's status allows.

    The condition's time changes with its value. now: RFC 3339 in seconds, UTC.
    """
    is_allowed = status.get("disruptionsAllowed", 0) > 0
    condition = {
        "type": DISRUPTION_ALLOWED,
        "status": "True" if is_allowed else "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": now,
        "reason": "SufficientPods" if is_allowed else "InsufficientPods",
        "message": "",
    }
    conditions: list[Obj] = list(status.get("conditions") or ())
    for position, each in enumerate(conditions):
        if each.get("type") == DISRUPTION_ALLOWED:
            if each.get("status") == condition["status"]:
                condition["lastTransitionTime"] = each.get("lastTransitionTime")
            conditions[position] = condition
            break
    else:
        conditions.append(condition)
    status["conditions"] = conditions
