"""The quality of service of a pod: what its node may take away first.

Guaranteed   every container limits cpu and memory, and asks for as much
BestEffort   no container asks for any
Burstable    everything else
"""

from typing import Final

from kvstack.apimachinery.objects.core.pod_resources import (
    COMPUTE,
    LIMITS,
    REQUESTS,
    amounts,
    is_pod_resource,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import ZERO

GUARANTEED: Final = "Guaranteed"
BURSTABLE: Final = "Burstable"
BEST_EFFORT: Final = "BestEffort"
CLASSES: Final = (GUARANTEED, BURSTABLE, BEST_EFFORT)
"""The classes, those first that a node takes away last."""


def quality_of(pod: Object, *, limited: bool = False) -> str:
    """Return the class in the pod's status, or the one of its spec.

    limited: an unset request is what the limit is, as in specs that met no API server's defaults.
    """
    given: str = (pod.get("status") or {}).get("qosClass") or ""
    return given or computed_quality(pod.get("spec") or {}, limited=limited)


def computed_quality(spec: Object, *, limited: bool = False) -> str:
    """Return the class that a spec makes of its pod."""
    resources = spec.get("resources")
    if resources and _has_pod_resources(resources):
        return _class_of(resources, limited=limited)
    known = ""
    for name in ("initContainers", "containers"):
        for container in spec.get(name) or ():
            one = _class_of(container.get("resources") or {}, limited=limited)
            if one == BURSTABLE or known not in {"", one}:
                return BURSTABLE
            known = one
    return known or BEST_EFFORT


def _has_pod_resources(resources: Object) -> bool:
    names = (resources.get(REQUESTS) or {}).keys() | (resources.get(LIMITS) or {}).keys()
    return any(is_pod_resource(name) for name in names)


def _class_of(resources: Object, *, limited: bool) -> str:
    requests = amounts(resources, REQUESTS, limited=limited)
    limits = amounts(resources, LIMITS)
    recorded = ""
    for name in COMPUTE:
        request = requests.get(name, ZERO)
        if request != limits.get(name, ZERO):
            return BURSTABLE
        one = GUARANTEED if request.sign else BEST_EFFORT
        if recorded not in {"", one}:
            return BURSTABLE
        recorded = one
    return recorded
