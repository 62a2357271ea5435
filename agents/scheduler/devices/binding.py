"""Conditions of devices that must be met before a pod is bound, such as a device being attached."""

from typing import Final

from kvstack.agents.scheduler.snapshot.devices import allocation_of, results_of
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import parse_time

TIMEOUT_S: Final = 600.0
"""The default timeout of conditions."""


def is_ready(claim: Object) -> bool:
    """Whether all conditions of a claim's devices are met."""
    return all(
        (found := conditions.find(_conditions(claim, result), name)) is not None
        and found.get("status") == "True"
        for result in results_of(allocation_of(claim))
        for name in result.get("bindingConditions") or ()
    )


def has_failed(claim: Object) -> str:
    """Return what has failed of a claim's devices; empty: nothing."""
    for result in results_of(allocation_of(claim)):
        if not result.get("bindingConditions"):
            continue
        for name in result.get("bindingFailureConditions") or ():
            found = conditions.find(_conditions(claim, result), name)
            if found is not None and found.get("status") == "True":
                meta = claim["metadata"]
                return (
                    f"device binding failed: claim={meta['name']},"
                    f' reason={found.get("reason", "")}, message="{found.get("message", "")}"'
                )
    return ""


def has_timed_out(claim: Object, now_s: float, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether conditions have timed out; now_s: seconds since 1970."""
    allocation = allocation_of(claim)
    begun = (allocation or {}).get("allocationTimestamp")
    if not begun or is_ready(claim):
        return False
    return parse_time(begun).seconds + timeout_s < now_s


def _conditions(claim: Object, result: Object) -> list[Object] | None:
    """Return the conditions of a device."""
    for each in claim["status"].get("devices") or ():
        if all(
            each.get(name) == result[name] for name in ("driver", "pool", "device")
        ) and each.get("shareID") == result.get("shareID"):
            found: list[Object] | None = each.get("conditions")
            return found
    return None
