"""What a whole pod asks of its node: containers added up, or what the pod says, plus overhead."""

from collections.abc import Mapping
from typing import Any, Final

from kvstack.apiserver.kinds.pods.resources import aggregate, is_pod_resource
from kvstack.apiserver.objects.amounts import Amounts, add_to, parsed

Obj = Mapping[str, Any]

REQUESTS: Final = "requests"
LIMITS: Final = "limits"


def amounts(resources: Obj | None, member: str) -> Amounts:
    """Return the requests or limits of a container, a claim or a pod."""
    return parsed((resources or {}).get(member))


def pod_total(spec: Obj, member: str) -> Amounts:
    """Return the requests or limits of a pod without its overhead."""
    said = amounts(spec.get("resources"), member)
    own = {name: amount for name, amount in said.items() if is_pod_resource(name)}
    return {**aggregate(dict(spec), member), **own}


def pod_requests(spec: Obj) -> Amounts:
    """Return the requests of a pod with its overhead."""
    total = pod_total(spec, REQUESTS)
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
