"""The class of service of a pod: what its node may take away first.

Guaranteed   every container limits cpu and memory, and asks for as much
BestEffort   no container asks for any
Burstable    everything else
"""

from typing import Any, Final

from kvstack.apiserver.kinds.pods.resources import COMPUTE, is_pod_resource
from kvstack.apiserver.objects.quantity import ZERO, Quantity, parse

Obj = dict[str, Any]

GUARANTEED: Final = "Guaranteed"
BURSTABLE: Final = "Burstable"
BEST_EFFORT: Final = "BestEffort"


def quality_of(pod: Obj) -> str:
    """Return the class that the pod was given, or that its spec makes it."""
    given: str = (pod.get("status") or {}).get("qosClass") or ""
    return given or computed_quality(pod.get("spec") or {})


def computed_quality(spec: Obj) -> str:
    """Return the class that a spec makes of its pod."""
    resources = spec.get("resources")
    if resources and _has_pod_resources(resources):
        return _class_of(resources)
    found = ""
    for name in ("initContainers", "containers"):
        for container in spec.get(name) or ():
            one = _class_of(container.get("resources") or {})
            if one == BURSTABLE or found not in {"", one}:
                return BURSTABLE
            found = one
    return found or BEST_EFFORT


def _has_pod_resources(resources: Obj) -> bool:
    names = (resources.get("requests") or {}).keys() | (resources.get("limits") or {}).keys()
    return any(is_pod_resource(each) for each in names)


def _class_of(resources: Obj) -> str:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    found = ""
    for name in COMPUTE:
        request, limit = _amount(requests, name), _amount(limits, name)
        if request != limit:
            return BURSTABLE
        one = GUARANTEED if request.sign else BEST_EFFORT
        if found not in {"", one}:
            return BURSTABLE
        found = one
    return found


def _amount(amounts: dict[str, str], name: str) -> Quantity:
    return parse(amounts[name]) if name in amounts else ZERO
