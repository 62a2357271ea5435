"""Pod conditions that the API server sets."""

from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object


def set_condition(
    status: Object, type_: str, value: str, now: str, reason: str = "", message: str = ""
) -> None:
    """Set a condition in a new list; its time stays if its status does. now: RFC 3339, UTC."""
    new = {"type": type_, "status": value, "lastProbeTime": None, "lastTransitionTime": now}
    if reason:
        new["reason"] = reason
    if message:
        new["message"] = message
    status["conditions"] = conditions.set_condition(status.get("conditions"), new)
