"""The condition DisruptionAllowed of a disruption budget."""

from typing import Final

from kvstack.apimachinery.objects.core.conditions import set_condition
from kvstack.apimachinery.objects.json_object import Object

DISRUPTION_ALLOWED: Final = "DisruptionAllowed"


def set_disruption_allowed(status: Object, now: str) -> None:
    """Set the condition from the disruptionsAllowed of the status.

    The condition's time changes with its value. now: RFC 3339 in seconds, UTC.
    """
    is_allowed = status.get("disruptionsAllowed", 0) > 0
    new = {
        "type": DISRUPTION_ALLOWED,
        "status": "True" if is_allowed else "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": now,
        "reason": "SufficientPods" if is_allowed else "InsufficientPods",
        "message": "",
    }
    status["conditions"] = set_condition(status.get("conditions"), new)
