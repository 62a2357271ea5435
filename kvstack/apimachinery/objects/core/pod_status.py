"""Facts from a pod's status: whether it is ready, and whether it has ended."""

from typing import Final

from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object

ENDED_PHASES: Final = frozenset(("Succeeded", "Failed"))
"""The phases of pods whose containers have all ended for good; Unknown is not among them."""
READY: Final = "Ready"


def condition_of(pod: Object, type_: str) -> Object | None:
    """Return the condition of a type; None: the pod has none."""
    return conditions.find((pod.get("status") or {}).get("conditions"), type_)


def is_ready(pod: Object) -> bool:
    """Return whether the pod is Ready."""
    return conditions.is_true((pod.get("status") or {}).get("conditions"), READY)


def is_ended(pod: Object) -> bool:
    """Return whether all containers of the pod have ended for good."""
    return (pod.get("status") or {}).get("phase") in ENDED_PHASES
