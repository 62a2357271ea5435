"""Taint eviction: pods that do not tolerate their node's NoExecute taints are deleted.

A pod that tolerates all of them for a time is deleted when the shortest of these times has passed
since that was first seen, unless the taints go before. A time that runs is not begun anew.

Keys: `node/<name>` (its taints changed), `pod/<namespace>/<name>`.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final, NamedTuple

from kvstack.agents.client.built_in import NODES, PODS
from kvstack.agents.client.object_store import key_of, split_key
from kvstack.agents.controllers.nodes.disruption_target import new_condition, status_patch
from kvstack.agents.controllers.nodes.lifecycle import PODS_OF_NODE, nodes_of_pod
from kvstack.agents.controllers.nodes.taints import taints_of
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Delete,
    Enqueue,
    Get,
    Identity,
    Index,
    Outcome,
    Plan,
    Record,
    Step,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects.core.tolerations import NO_EXECUTE, taint_of, tolerates
from kvstack.apimachinery.objects.json_object import Object

_REASON: Final = "TaintManagerEviction"


class _Eviction(NamedTuple):
    """A pod that is to be deleted."""

    at_s: float
    is_recorded: bool = False
    is_done: bool = False


class TaintEviction(BaseController):
    """Deletes pods that do not tolerate taints."""

    workers = 8
    indexes: Sequence[Index] = (Index(PODS, PODS_OF_NODE, nodes_of_pod),)

    def __init__(self) -> None:
        name = "taint-eviction-controller"
        self.identity: Identity = Identity(name, "node-controller", name)
        self.watches: Sequence[Watch] = (
            Watch(NODES, _keys_of_node),
            Watch(PODS, _keys_of_pod),
        )
        self._evictions: dict[str, _Eviction] = {}

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for a node or a pod."""
        what, _, name = key.partition("/")
        if what == "node":
            pods = view.by_index(PODS, PODS_OF_NODE, name)
            yield [Enqueue(tuple(f"pod/{key_of(pod)}" for pod in pods))]
            return None
        pod = view.get(PODS, name)
        if pod is None:
            yield from self._cancel(name)
            return None
        return (yield from self._look_at(name, pod, view, now_s))

    def _look_at(
        self, key: str, pod: Object, view: View, now_s: float
    ) -> Generator[Step, list[Outcome], Again | None]:
        scheduled = self._evictions.get(key)
        if scheduled is not None and scheduled.is_done and is_deleting(pod):
            return None
        node = view.get(NODES, pod["spec"].get("nodeName") or "")
        if node is None:
            return None if scheduled is None else (yield from self._when_due(key, scheduled, now_s))
        taints = [each for each in taints_of(node) if each["effect"] == NO_EXECUTE]
        tolerated_s = _tolerated_s(pod, taints) if taints else None
        if tolerated_s is None:
            yield from self._cancel(key)
            return None
        if tolerated_s <= 0:
            if scheduled is None or not scheduled.is_recorded:
                yield from self._cancel(key)
                self._evictions[key] = scheduled = _Eviction(now_s)
            return (yield from self._when_due(key, scheduled, now_s))
        if scheduled is None or scheduled.is_done:
            self._evictions[key] = scheduled = _Eviction(now_s + tolerated_s)
        return (yield from self._when_due(key, scheduled, now_s))

    def _when_due(
        self, key: str, eviction: _Eviction, now_s: float
    ) -> Generator[Step, list[Outcome], Again | None]:
        if eviction.is_done:
            return None
        if eviction.at_s > now_s:
            return Again(eviction.at_s - now_s)
        if not eviction.is_recorded:
            self._evictions[key] = eviction._replace(is_recorded=True)
            yield [_pod_event(key, f"Marking for deletion Pod {key}")]
        yield from _evict(*split_key(key), now_s)
        self._evictions[key] = eviction._replace(is_recorded=True, is_done=True)
        return None

    def _cancel(self, key: str) -> Generator[Step, list[Outcome], None]:
        eviction = self._evictions.pop(key, None)
        if eviction is not None and not eviction.is_recorded:
            yield [_pod_event(key, f"Cancelling deletion of Pod {key}")]


def _tolerated_s(pod: Object, taints: Iterable[Object]) -> float | None:
    """Return how long a pod tolerates taints; 0: not at all, None: for ever."""
    shortest: float | None = None
    for taint in taints:
        plain, tolerations = taint_of(taint), pod["spec"].get("tolerations") or ()
        fitting = next((each for each in tolerations if tolerates(each, plain)), None)
        if fitting is None:
            return 0.0
        seconds = fitting.get("tolerationSeconds")
        if seconds is not None:
            shortest = max(min(seconds, seconds if shortest is None else shortest), 0)
    return shortest


def _evict(namespace: str, name: str, now_s: float) -> Generator[Step, list[Outcome], None]:
    [found] = yield [Get(PODS, namespace, name)]
    if found.is_not_found:
        return
    pod = found.result()
    text = "Taint manager: deleting due to NoExecute taint"
    condition = new_condition(pod, "DeletionByTaintManager", text, now_s)
    if condition is not None:
        yield from do(status_patch(pod, {"conditions": [condition]}))
    [outcome] = yield [Delete(PODS, namespace, name, uid=pod["metadata"]["uid"])]
    if not outcome.is_not_found:
        outcome.result()


def _pod_event(key: str, text: str) -> Record:
    namespace, name = split_key(key)
    meta = {"namespace": namespace, "name": name}
    return Record({"apiVersion": "v1", "kind": "Pod", "metadata": meta}, "Normal", _REASON, text)


def _keys_of_node(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is None:
        return
    before, after = (
        [each for each in taints_of(node) if each["effect"] == NO_EXECUTE] if node else None
        for node in (old, new)
    )
    if before != after:
        yield f"node/{key_of(new)}"


def _keys_of_pod(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if old is not None and new is not None:
        left, right = old["spec"], new["spec"]
        if all(left.get(name) == right.get(name) for name in ("tolerations", "nodeName")):
            return
    yield f"pod/{key_of(new or old or {})}"
