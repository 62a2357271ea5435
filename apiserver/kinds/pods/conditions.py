"""Pod conditions that the API server sets."""

from typing import Any

from kvstack.apimachinery.objects.core import conditions

Obj = dict[str, Any]


def set_condition(
    status: Obj, type_: str, value: str, now: str, reason: str = "", message: str = ""
) -> None:
    """Set a condition in a new list; its time stays if its status does. now: RFC 3339, UTC."""
    new = {"type": type_, "status": value, "lastProbeTime": None, "lastTransitionTime": now}
    if reason:
        new["reason"] = reason
    if message:
        new["message"] = message
    status["conditions"] = conditions.set_condition(status.get("conditions"), new)
