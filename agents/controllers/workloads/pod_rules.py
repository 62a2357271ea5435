"""Common rules of workload controllers: which pods count, pods from templates, deletion order.

Shapes: pods are plain objects; times are seconds since 1970.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from kvstack.agents.controllers.ownership import controller_reference, is_deleting
from kvstack.agents.reconcile.plan import ForeseenError
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.core.pod_status import (
    ENDED_PHASES,
    READY,
    condition_of,
    is_ended,
    is_ready,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_dns_subdomain
from kvstack.apimachinery.objects.times import parse_time
from kvstack.apimachinery.well_known import DELETION_COST_ANNOTATION

SortKey: TypeAlias = tuple[Any, ...]

_PHASE_ORDER: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
_NANOSECONDS: Final = 1e9
_NOTHING: Final[Object] = {}


class NoLabelsError(ForeseenError):
    """A template without labels makes no pods."""

    def __init__(self) -> None:
        super().__init__("unable to create pods, no labels")


def seconds_of(text: str | None) -> float | None:
    """Return the seconds since 1970 of a time of an object; None: there is none."""
    if not text:
        return None
    moment = parse_time(text)
    return moment.seconds + moment.nanoseconds / _NANOSECONDS


def is_active(pod: Object) -> bool:
    """Whether a pod runs, or is to run."""
    return not is_ended(pod) and not is_deleting(pod)


def is_terminating(pod: Object) -> bool:
    """Whether a pod was deleted and still runs."""
    return not is_ended(pod) and is_deleting(pod)


def ready_condition(pod: Object) -> Object | None:
    """Return the condition Ready."""
    return condition_of(pod, READY)


def ready_since_s(pod: Object) -> float | None:
    """Return since when a pod is as ready, or not, as it is."""
    condition = ready_condition(pod)
    return None if condition is None else seconds_of(condition.get("lastTransitionTime"))


def is_available(pod: Object, min_ready_s: int, now_s: float) -> bool:
    """Whether a pod has been ready for long enough."""
    if not is_ready(pod):
        return False
    if not min_ready_s:
        return True
    since_s = ready_since_s(pod)
    return since_s is not None and since_s + min_ready_s <= now_s


def active_pods(pods: Iterable[Object]) -> list[Object]:
    """Return the pods that run, or are to run: `is_active` of many."""
    return [
        pod
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
        and (pod.get("status") or _NOTHING).get("phase") not in ENDED_PHASES
    ]


def count_ready(pods: Iterable[Object], min_ready_s: int, now_s: float) -> tuple[int, int]:
    """Return how many pods are ready, and how many available: `is_available` of many."""
    ready = available = 0
    for pod in pods:
        for condition in (pod.get("status") or _NOTHING).get("conditions") or ():
            if condition["type"] == READY:
                if condition["status"] == "True":
                    ready += 1
                    available += not min_ready_s or is_available(pod, min_ready_s, now_s)
                break
    return ready, available


def next_available_s(pods: Iterable[Object], min_ready_s: int, now_s: float) -> float | None:
    """Return in how many seconds the next of the ready pods becomes available; None: none will."""
    waits = [
        since_s + min_ready_s - now_s
        for pod in pods
        if is_ready(pod) and (since_s := ready_since_s(pod)) is not None
    ]
    return min((wait_s for wait_s in waits if wait_s > 0), default=None)


def from_template(template: Mapping[str, Any], owner: Object) -> Object:
    """Return a new pod of a template, owned by its maker; raises NoLabelsError."""
    meta = template.get("metadata") or {}
    if not meta.get("labels"):
        raise NoLabelsError
    name = owner["metadata"]["name"]
    prefix = f"{name}-"
    made: Object = {"generateName": name if name_is_dns_subdomain(prefix, True) else prefix}
    made["labels"] = dict(meta["labels"])
    if meta.get("annotations"):
        made["annotations"] = dict(meta["annotations"])
    if meta.get("finalizers"):
        made["finalizers"] = list(meta["finalizers"])
    made["ownerReferences"] = [controller_reference(owner)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template["spec"]}


class DeletionOrder:
    """Sorts pods of a ReplicaSet: first those whose end costs least. A key function."""

    def __init__(self, related_on_node: Mapping[str, int], now_s: float) -> None:
        """related_on_node: how many active pods of related ReplicaSets each node has."""
        self._related_on_node = related_on_node
        self._now_s = now_s

    def __call__(self, pod: Object) -> SortKey:
        """Return the key of a pod."""
        meta, spec = pod["metadata"], pod["spec"]
        status = pod.get("status") or {}
        node = spec.get("nodeName") or ""
        ready = is_ready(pod)
        uid = meta.get("uid", "")
        ready_age = self._age(ready_since_s(pod)) if ready else ()
        return (
            bool(node),
            _PHASE_ORDER.get(status.get("phase", ""), 0),
            ready,
            _deletion_cost(pod),
            -self._related_on_node.get(node, 0),
            ready_age,
            *(-count for count in _restarts(pod)),
            self._age(seconds_of(meta.get("creationTimestamp"))),
            uid,
        )

    def _age(self, since_s: float | None) -> SortKey:
        """Return the key of a moment: newer first, those of about the same age as equal."""
        if since_s is None:
            return (-2,)
        age_ns = (self._now_s - since_s) * _NANOSECONDS
        return (math.floor(math.log2(age_ns)) if age_ns >= 1 else -1,)


def _deletion_cost(pod: Object) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST_ANNOTATION, "0")
    try:
        cost = int(text)
    except ValueError:
        return 0
    return cost if -(2**31) <= cost < 2**31 else 0


def _restarts(pod: Object) -> tuple[int, int]:
    """Return the most restarts of a container, and of a sidecar."""
    status = pod.get("status") or {}
    sidecars = {
        container["name"]
        for container in pod["spec"].get("initContainers") or ()
        if is_sidecar(container)
    }
    regular = [each.get("restartCount", 0) for each in status.get("containerStatuses") or ()]
    side = [
        each.get("restartCount", 0)
        for each in status.get("initContainerStatuses") or ()
        if each["name"] in sidecars
    ]
    return max(regular, default=0), max(side, default=0)


class ActiveOrder:
    """Sorts active pods of a Job: first those whose end costs least. A key function."""

    def __call__(self, pod: Object) -> SortKey:
        """Return the key of a pod."""
        meta, spec = pod["metadata"], pod["spec"]
        ready = is_ready(pod)
        since_s = ready_since_s(pod) if ready else None
        return (
            bool(spec.get("nodeName")),
            _PHASE_ORDER.get((pod.get("status") or {}).get("phase", ""), 0),
            ready,
            0.0 if since_s is None else -since_s,
            *(-count for count in _restarts(pod)),
            -(seconds_of(meta.get("creationTimestamp")) or 0.0),
        )
