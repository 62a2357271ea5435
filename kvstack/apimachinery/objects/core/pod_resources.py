"""A pod's resource requests and limits.

    pod_requests(spec)   → {"cpu": Quantity("500m"), "memory": Quantity("1Gi")}

Containers and sidecars run at once, other init containers one after the other, each beside the
sidecars that were started before it (objects/amounts.py). cpu, memory and huge pages that the pod
itself names stand in place of what its containers come to, resource by resource. Overhead comes on
top; of limits, only where there is one.

    limited   an unset request is what the limit is, as in specs that met no API server's defaults
"""

from collections.abc import Mapping
from typing import Any, Final

from kvstack.apimachinery.objects.amounts import Amounts, add_to, needed_together, parsed

Obj = Mapping[str, Any]

REQUESTS: Final = "requests"
LIMITS: Final = "limits"
COMPUTE: Final = ("cpu", "memory")
"""The resources that decide a pod's quality of service, and that can be resized."""
HUGE_PAGES_PREFIX: Final = "hugepages-"


def is_native(name: str) -> bool:
    """Return whether Kubernetes itself defines the resource."""
    return "/" not in name or "kubernetes.io/" in name


def is_huge_pages(name: str) -> bool:
    """Return whether the resource is pages of memory of one larger size."""
    return name.startswith(HUGE_PAGES_PREFIX)


def is_pod_resource(name: str) -> bool:
    """Return whether a whole pod may ask for the resource."""
    return name in COMPUTE or is_huge_pages(name)


def is_sidecar(init_container: Obj) -> bool:
    """Return whether an init container keeps running beside the others."""
    return bool(init_container.get("restartPolicy") == "Always")


def amounts(resources: Obj | None, member: str, *, limited: bool = False) -> Amounts:
    """Return the requests or limits of a container, a claim or a pod."""
    resources = resources or {}
    named = parsed(resources.get(member))
    return {**parsed(resources.get(LIMITS)), **named} if limited else named


def aggregate(spec: Obj, member: str, *, limited: bool = False) -> Amounts:
    """Return what all containers need together; member: REQUESTS or LIMITS."""
    return needed_together(
        (
            amounts(container.get("resources"), member, limited=limited)
            for container in spec.get("containers") or ()
        ),
        (
            (amounts(container.get("resources"), member, limited=limited), is_sidecar(container))
            for container in spec.get("initContainers") or ()
        ),
    )


def pod_total(spec: Obj, member: str, *, limited: bool = False) -> Amounts:
    """Return the requests or limits of a pod without its overhead."""
    total = aggregate(spec, member, limited=limited)
    resources = spec.get("resources")
    for name, amount in amounts(resources, member).items():
        if is_pod_resource(name):
            total[name] = amount
    if limited:
        for name, amount in amounts(resources, LIMITS).items():
            if is_pod_resource(name):
                total.setdefault(name, amount)
    return total


def pod_requests(spec: Obj, *, limited: bool = False) -> Amounts:
    """Return the requests of a pod with its overhead."""
    total = pod_total(spec, REQUESTS, limited=limited)
    add_to(total, parsed(spec.get("overhead")))
    return total


def pod_limits(spec: Obj) -> Amounts:
    """Return the limits of a pod; overhead counts where there is a limit."""
    total = pod_total(spec, LIMITS)
    for name, amount in parsed(spec.get("overhead")).items():
        known = total.get(name)
        if known is not None and known.sign:
            total[name] = known + amount
    return total
