"""The resource requests of a pod, as whole numbers: cpu in thousandths, all else in units.

    requests_of(pod)   → {"cpu": 500, "memory": 209715200, "example.com/gpu": 1}

Containers and sidecars run at once, other init containers before them one after the other
(objects/amounts.py); overhead comes on top. The pod's own resources stand in place of what its
containers ask. Scores, not filters, count a container that names no cpu as 100m and one that names
no memory as 200Mi (`defaulted`).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from kvstack.apimachinery.objects.amounts import add_to, needed_together, parsed, raise_to
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.core.pod_resources import (
    COMPUTE,
    is_huge_pages,
    is_pod_resource,
    is_sidecar,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import Quantity, parse

Amounts: TypeAlias = dict[str, int]

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

_PLAIN: Final = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))
_DEFAULTS: Final = {CPU: "100m", MEMORY: "209715200"}
_RESIZE_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"
_ATTACHABLE: Final = "attachable-volumes-"


def requests_of(
    pod: Object, *, defaulted: bool = False, pod_level: bool = True, placed: bool = False
) -> Amounts:
    """Return what a pod asks for.

    defaulted: containers without cpu or memory count as small ones. pod_level: the pod's own
    resources count. placed: what its node has given it so far counts where it is more.
    """
    spec = pod["spec"]
    own = (spec.get("resources") or {}).get("requests") if pod_level else None
    overhead = spec.get("overhead")
    containers = spec["containers"]
    has_status = placed and "containerStatuses" in (pod.get("status") or {})
    if len(containers) == 1 and not (spec.get("initContainers") or own or overhead or has_status):
        named = (containers[0].get("resources") or {}).get("requests") or {}
        if defaulted:
            named = {**_DEFAULTS, **named}
        return {name: amount_of(name, text) for name, text in named.items() if is_counted(name)}
    statuses = _statuses(pod) if has_status else {}
    defaults = _DEFAULTS if defaulted and not own else {}
    total = _containers(spec, statuses, defaults, is_refused=has_status and _is_refused(pod))
    for name, text in (own or {}).items():
        if is_pod_resource(name):
            total[name] = parse(text)
    if defaulted and own:
        for name, text in _DEFAULTS.items():
            total.setdefault(name, parse(text))
    add_to(total, parsed(overhead))
    return {name: _whole(name, amount) for name, amount in total.items() if is_counted(name)}


@lru_cache(maxsize=4096)
def amount_of(name: str, text: str) -> int:
    """Return an amount of a resource as a whole number, rounded up."""
    return _whole(name, parse(text))


@lru_cache(maxsize=1024)
def is_scalar(name: str) -> bool:
    """Whether a resource is an extended one, counted by name."""
    if is_huge_pages(name) or name.startswith(_ATTACHABLE):
        return True
    return "/" in name and not (name.startswith("requests.") and "kubernetes.io/" not in name)


def is_counted(name: str) -> bool:
    """Whether the scheduler counts a resource."""
    return name in _PLAIN or is_scalar(name)


def _whole(name: str, amount: Quantity) -> int:
    return amount.milli_value() if name == CPU else amount.value()


def _is_refused(pod: Object) -> bool:
    """Whether the node can never satisfy a pod's resize: then it does not count."""
    found = conditions.find(pod["status"].get("conditions") or (), _RESIZE_PENDING)
    return found is not None and found.get("reason") == _INFEASIBLE


def _containers(
    spec: Object,
    statuses: Mapping[str, Object],
    defaults: Mapping[str, str],
    *,
    is_refused: bool,
) -> dict[str, Quantity]:
    def requests(container: Object) -> dict[str, Quantity]:
        return _requests(container, statuses, defaults, is_refused=is_refused)

    return needed_together(
        (requests(each) for each in spec["containers"]),
        ((requests(each), is_sidecar(each)) for each in spec.get("initContainers") or ()),
    )


def _requests(
    container: Object,
    statuses: Mapping[str, Object],
    defaults: Mapping[str, str],
    *,
    is_refused: bool,
) -> dict[str, Quantity]:
    named = (container.get("resources") or {}).get("requests") or {}
    amounts = parsed({**defaults, **named} if defaults else named)
    status = statuses.get(container["name"])
    if status is not None:
        if is_refused:
            for name in COMPUTE:
                amounts.pop(name, None)
        raise_to(amounts, parsed(status.get("allocatedResources") or {}))
        raise_to(amounts, parsed((status.get("resources") or {}).get("requests") or {}))
    return amounts


def _statuses(pod: Object) -> dict[str, Object]:
    status = pod["status"]
    each = [*status.get("containerStatuses", ()), *(status.get("initContainerStatuses") or ())]
    return {one["name"]: one for one in each}
