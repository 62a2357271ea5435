"""Pod garbage: pods that no other part of the cluster will remove.

ended pods beyond a number: those evicted first, then the oldest
deleted pods on nodes that are taken out of service
pods of nodes that are gone, once they have been for a while and the server says so, too
deleted pods that never got a node
"""

import math
from collections.abc import Generator, Iterable
from typing import Final

from typing_extensions import override

from kvstack.agents.client.built_in import NODES, PODS
from kvstack.agents.controllers.nodes.disruption_target import new_condition, status_patch
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.sweeps import Sweep
from kvstack.agents.reconcile.plan import (
    Delete,
    Get,
    Identity,
    Outcome,
    Step,
    View,
)
from kvstack.apimachinery.objects.core.node_status import is_ready
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import OUT_OF_SERVICE_TAINT

_GONE_S: Final = 40.0
_LIVE_PHASES: Final = frozenset(("Pending", "Running", "Unknown"))


class PodGarbageCollector(Sweep):
    """Deletes pods that are left over."""

    period_s = 20.0

    def __init__(self, ended_max: int) -> None:
        """ended_max: how many ended pods are kept; 0: all."""
        name = "pod-garbage-collector"
        self.identity: Identity = Identity(f"{name}-controller", name, name)
        super().__init__(PODS, NODES)
        self._ended_max = ended_max
        self._missing_s: dict[str, float] = {}
        """Since when nodes of pods are missing."""

    @override
    def sweep(self, view: View, now_s: float) -> Generator[Step, list[Outcome], None]:
        """Delete what is left over."""
        pods = view.list(PODS)
        failures: list[Exception] = []
        for found in (self._surplus(pods), _out_of_service(pods, view)):
            failures += yield from _remove_all(found, None, now_s)
        orphans = yield from self._orphans(pods, view, now_s)
        failures += yield from _remove_all(orphans, "PodGC: node no longer exists", now_s)
        unscheduled = [pod for pod in pods if is_deleting(pod) and not _node_of(pod)]
        failures += yield from _remove_all(unscheduled, None, now_s)
        if failures:
            raise failures[0]

    @override
    def rests_s(self) -> float:
        """Rest while no node is missing: all else is said by objects."""
        return 0.0 if self._missing_s else math.inf

    def _surplus(self, pods: Iterable[Object]) -> list[Object]:
        if self._ended_max <= 0:
            return []
        ended = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in _LIVE_PHASES]
        ended.sort(key=_age_order)
        return ended[: max(len(ended) - self._ended_max, 0)]

    def _orphans(
        self, pods: Iterable[Object], view: View, now_s: float
    ) -> Generator[Step, list[Outcome], list[Object]]:
        missing: dict[str, list[Object]] = {}
        for pod in pods:
            node = _node_of(pod)
            if node and view.get(NODES, node) is None:
                missing.setdefault(node, []).append(pod)
        self._missing_s = {node: self._missing_s.get(node, now_s) for node in missing}
        due = [node for node, since_s in self._missing_s.items() if now_s >= since_s + _GONE_S]
        outcomes = yield [Get(NODES, "", node) for node in due]
        return [
            pod
            for node, outcome in zip(due, outcomes, strict=True)
            if outcome.is_not_found
            for pod in missing[node]
        ]


def _node_of(pod: Object) -> str:
    name: str = pod["spec"].get("nodeName") or ""
    return name


def _age_order(pod: Object) -> tuple[bool, str, str]:
    meta = pod["metadata"]
    is_evicted = (pod.get("status") or {}).get("reason") == "Evicted"
    return not is_evicted, meta["creationTimestamp"], meta["name"]


def _out_of_service(pods: Iterable[Object], view: View) -> list[Object]:
    found = []
    for pod in pods:
        node = view.get(NODES, _node_of(pod)) if is_deleting(pod) else None
        if node is None:
            continue
        taints = node["spec"].get("taints") or ()
        if not is_ready(node) and any(taint["key"] == OUT_OF_SERVICE_TAINT for taint in taints):
            found.append(pod)
    return found


def _remove_all(
    pods: Iterable[Object], why: str | None, now_s: float
) -> Generator[Step, list[Outcome], list[Exception]]:
    """Delete pods; failures do not affect the others."""
    failures: list[Exception] = []
    for pod in pods:
        failure = yield from _remove(pod, why, now_s)
        failures += () if failure is None else (failure,)
    return failures


def _remove(
    pod: Object, why: str | None, now_s: float
) -> Generator[Step, list[Outcome], Exception | None]:
    status: Object = {}
    if not is_ended(pod):
        status["phase"] = "Failed"
    if why is not None:
        condition = new_condition(pod, "DeletionByPodGC", why, now_s)
        if condition is not None:
            status["conditions"] = [condition]
    if status:
        [outcome] = yield [status_patch(pod, status)]
        if outcome.error is not None:
            return None if outcome.is_not_found else outcome.error
    meta = pod["metadata"]
    [outcome] = yield [Delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace_s=0)]
    return None if outcome.is_not_found else outcome.error
