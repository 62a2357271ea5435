"""What a pod's status says of it: whether it serves, and whether it is over."""

from typing import Any, Final, TypeAlias

from kvstack.apimachinery.objects.core import conditions

Object: TypeAlias = dict[str, Any]

ENDED_PHASES: Final = frozenset(("Succeeded", "Failed"))
"""Of pods all of whose containers have ended for good; Unknown is none of them."""
READY: Final = "Ready"


def condition_of(pod: Object, type_: str) -> Object | None:
    """Return the condition of a type; None: the pod has none."""
    return conditions.find((pod.get("status") or {}).get("conditions"), type_)


def is_ready(pod: Object) -> bool:
    """Whether the pod says that it can serve."""
    return conditions.is_true((pod.get("status") or {}).get("conditions"), READY)


def is_ended(pod: Object) -> bool:
    """Whether all containers of the pod have ended for good."""
    return (pod.get("status") or {}).get("phase") in ENDED_PHASES
