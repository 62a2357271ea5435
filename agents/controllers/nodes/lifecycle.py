"""Node lifecycle: silent nodes become Unknown and are tainted, and their pods unready.

    every few seconds: heartbeats and Leases ─► conditions Unknown ─► NoExecute taints, at a rate
    at each change:    conditions ─► NoSchedule taints; labels of older names

Keys: `monitor` (all nodes), `taint` (the nodes that wait for a NoExecute taint), `node/<name>`,
`pod/<namespace>/<name>` (a pod that came to a node which is not ready).

Before a node is marked Unknown its Lease is read from the server: a watch that lags behind must not
empty nodes.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final

from typing_extensions import override

from kvstack.agents.client.built_in import LEASES, NODES, PODS
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.controllers.nodes.health import Health, with_unknown
from kvstack.agents.controllers.nodes.taints import (
    Taint,
    change_taints,
    has_taint,
    name_of,
    taints_of,
)
from kvstack.agents.controllers.nodes.zones import Change, Zones, counts, zone_of
from kvstack.agents.controllers.options import NodeLifecycleOptions
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Enqueue,
    Get,
    Identity,
    Index,
    Outcome,
    Patch,
    Plan,
    Record,
    Step,
    Update,
    View,
    Watch,
)
from kvstack.apimachinery.objects.core import conditions, pod_status
from kvstack.apimachinery.objects.core.node_status import READY, ready_condition
from kvstack.apimachinery.objects.core.tolerations import NO_EXECUTE, NO_SCHEDULE
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.apimachinery.well_known import (
    ARCH_LABEL,
    BETA_ARCH_LABEL,
    BETA_OS_LABEL,
    DISK_PRESSURE_TAINT,
    MEMORY_PRESSURE_TAINT,
    NETWORK_UNAVAILABLE_TAINT,
    NOT_READY_TAINT,
    OS_LABEL,
    PID_PRESSURE_TAINT,
    UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
)

PODS_OF_NODE: Final = "spec.nodeName"
_MONITOR: Final = "monitor"
_TAINT: Final = "taint"
_LEASE_NAMESPACE: Final = "kube-node-lease"

_NOT_READY: Final[Taint] = (NOT_READY_TAINT, NO_EXECUTE)
_UNREACHABLE: Final[Taint] = (UNREACHABLE_TAINT, NO_EXECUTE)
_BY_CONDITION: Final = {
    (READY, "False"): NOT_READY_TAINT,
    (READY, "Unknown"): UNREACHABLE_TAINT,
    ("MemoryPressure", "True"): MEMORY_PRESSURE_TAINT,
    ("DiskPressure", "True"): DISK_PRESSURE_TAINT,
    ("NetworkUnavailable", "True"): NETWORK_UNAVAILABLE_TAINT,
    ("PIDPressure", "True"): PID_PRESSURE_TAINT,
}
_MANAGED_KEYS: Final = frozenset((*_BY_CONDITION.values(), UNSCHEDULABLE_TAINT))
_OLD_LABELS: Final = {
    OS_LABEL: BETA_OS_LABEL,
    ARCH_LABEL: BETA_ARCH_LABEL,
}


def nodes_of_pod(pod: Object) -> tuple[str, ...]:
    """Return the node of a pod, for the index."""
    name = pod["spec"].get("nodeName")
    return (name,) if name else ()


class NodeLifecycle(BaseController):
    """Watches over nodes."""

    workers = 8
    indexes: Sequence[Index] = (Index(PODS, PODS_OF_NODE, nodes_of_pod),)
    reads: Sequence[ResourceType] = (LEASES,)

    def __init__(self, options: NodeLifecycleOptions) -> None:
        """options: how long nodes may be silent."""
        self.identity: Identity = Identity(
            "node-lifecycle-controller", "node-controller", "node-controller"
        )
        self.watches: Sequence[Watch] = (
            Watch(NODES, _keys_of_node),
            Watch(PODS, _keys_of_pod),
        )
        self._options = options
        self._health = Health(options)
        self._zones = Zones(options)
        self._known: dict[str, Object] = {}
        self._unmarked: set[str] = set()
        """Nodes that are not ready, with pods that could not be marked so."""

    @override
    def initial_keys(self) -> Iterable[str]:
        """Start with all nodes."""
        return (_MONITOR, _TAINT)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for a node, a pod, or all nodes."""
        if key == _MONITOR:
            rests_s = yield from self._monitor(view, now_s)
            return Again(self._options.monitor_period_s, is_routine=True, rests_s=rests_s)
        if key == _TAINT:
            return (yield from self._taint_waiting(view, now_s))
        what, _, name = key.partition("/")
        if what == "pod":
            yield from self._look_at_pod(name, view, now_s)
            return None
        node = view.get(NODES, name)
        if node is not None:
            yield from _keep_schedule_taints(node, now_s)
            yield from _keep_labels(node)
        return None

    # All nodes.

    def _monitor(self, view: View, now_s: float) -> Generator[Step, list[Outcome], float]:
        """Judge all nodes; return how long that would change nothing, unless objects change."""
        nodes = view.list(NODES)
        are_ready = True
        yield from self._meet(nodes, now_s)
        ready_by_zone: dict[str, list[bool]] = {}
        for node in nodes:
            judged = yield from self._judge(node, view, now_s)
            if judged is None:
                are_ready = False
                continue
            ready = ready_condition(judged)
            are_ready = are_ready and ready is not None and ready["status"] == "True"
            if counts(judged):
                is_ready = ready is not None and ready["status"] == "True"
                ready_by_zone.setdefault(zone_of(judged), []).append(is_ready)
        change = self._zones.judge(ready_by_zone, now_s)
        if change is Change.ALL_LOST:
            for node in nodes:
                yield from self._mark_reachable(node, now_s)
        elif change is Change.SOME_BACK:
            for node in nodes:
                self._health.give_time(node["metadata"]["name"], now_s)
        if any(zone.waiting for zone in self._zones.all()):
            yield [Enqueue((_TAINT,))]
        is_done = are_ready and change is Change.NONE
        return self._health.rests_s(now_s) if is_done else 0.0

    def _meet(self, nodes: Sequence[Object], now_s: float) -> Generator[Step, list[Outcome], None]:
        """Record events for new and removed nodes."""
        names = {node["metadata"]["name"]: node for node in nodes}
        for name, node in names.items():
            self._zones.of(node)
            if name not in self._known:
                self._known[name] = node
                yield [_node_event(node, "RegisteredNode", f"Registered Node {name} in Controller")]
                yield from self._mark_reachable(node, now_s)
        for name in self._known.keys() - names.keys():
            node = self._known.pop(name)
            self._health.forget(name)
            self._unmarked.discard(name)
            yield [_node_event(node, "RemovingNode", f"Removing Node {name} from Controller")]

    def _judge(
        self, node: Object, view: View, now_s: float
    ) -> Generator[Step, list[Outcome], Object | None]:
        """Return a node as it is now, with all that follows done; None: nothing is known of it."""
        name = node["metadata"]["name"]
        before = ready_condition(node)
        lease = view.get(LEASES, f"{_LEASE_NAMESPACE}/{name}")
        if self._health.is_silent(node, lease, now_s):
            try:
                is_confirmed = yield from self._has_no_newer_lease(name)
                if not is_confirmed:
                    return None
                node = yield from self._set_unknown(node, now_s)
            except (ApiError, UnreachableError):
                return None  # it is judged again soon, and nothing was decided
        ready = ready_condition(node)
        if ready is None:
            return node
        yield from self._follow_condition(node, ready["status"], now_s)
        was_ready = before is not None and before["status"] == "True"
        if ready["status"] != "True" and was_ready:
            text = f"Node {name} status is now: NodeNotReady"
            yield [Record(_about(node), "Normal", "NodeNotReady", text)]
            self._unmarked.add(name)
        if ready["status"] == "True":
            self._unmarked.discard(name)
        elif name in self._unmarked:
            pods = view.by_index(PODS, PODS_OF_NODE, name)
            if (yield from _mark_unready(pods, now_s)):
                self._unmarked.discard(name)
        return node

    def _has_no_newer_lease(self, name: str) -> Generator[Step, list[Outcome], bool]:
        [outcome] = yield [Get(LEASES, _LEASE_NAMESPACE, name)]
        if outcome.is_not_found:
            return True
        version: str = outcome.result()["metadata"]["resourceVersion"]
        return version == self._health.lease_version(name)

    def _set_unknown(self, node: Object, now_s: float) -> Generator[Step, list[Outcome], Object]:
        wanted = with_unknown(node, now_s)
        if ready_condition(wanted) == ready_condition(node):
            return node
        [outcome] = yield [Update(NODES, wanted, "status")]
        marked = outcome.result()
        self._health.record_unknown(marked)
        return marked

    def _follow_condition(
        self, node: Object, status: str, now_s: float
    ) -> Generator[Step, list[Outcome], None]:
        """Add or remove the taints of a node as its Ready condition says."""
        if status == "True":
            yield from self._mark_reachable(node, now_s)
            return
        wanted, other = _taint_for(status)
        if has_taint(node, other):
            yield from _try_taints(node, (wanted,), (other,), now_s)
        elif not has_taint(node, wanted):
            self._zones.of(node).waiting.setdefault(node["metadata"]["name"])

    def _mark_reachable(self, node: Object, now_s: float) -> Generator[Step, list[Outcome], None]:
        self._zones.of(node).waiting.pop(node["metadata"]["name"], None)
        if has_taint(node, _NOT_READY) or has_taint(node, _UNREACHABLE):
            yield from _try_taints(node, (), (_NOT_READY, _UNREACHABLE), now_s)

    def _taint_waiting(
        self, view: View, now_s: float
    ) -> Generator[Step, list[Outcome], Again | None]:
        """Taint the nodes whose turn it is; come back when it is the next one's."""
        waits: list[float] = []
        for zone in self._zones.all():
            for name in list(zone.waiting):
                node = view.get(NODES, name)
                ready = None if node is None else ready_condition(node)
                if node is None or ready is None or ready["status"] == "True":
                    del zone.waiting[name]
                    continue
                if not zone.take(now_s):
                    wait_s = zone.wait_s(now_s)
                    waits += () if wait_s is None else (wait_s,)
                    break
                wanted, other = _taint_for(ready["status"])
                if (yield from _try_taints(node, (wanted,), (other,), now_s)):
                    del zone.waiting[name]
                else:
                    waits.append(0.1)
        return Again(max(min(waits), 0.1)) if waits else None

    def _look_at_pod(
        self, key: str, view: View, now_s: float
    ) -> Generator[Step, list[Outcome], None]:
        """Mark a pod unready that was bound to a node which is."""
        pod = view.get(PODS, key)
        node = None if pod is None else view.get(NODES, pod["spec"].get("nodeName", ""))
        if pod is None or node is None or node["metadata"]["name"] not in self._known:
            return
        ready = ready_condition(node)
        if ready is not None and ready["status"] != "True":
            yield from _mark_unready([pod], now_s)


def _taint_for(status: str) -> tuple[Taint, Taint]:
    """Return the taint for a status of Ready that is not True, and the one that is not for it."""
    return (_NOT_READY, _UNREACHABLE) if status == "False" else (_UNREACHABLE, _NOT_READY)


def _try_taints(
    node: Object, added: Sequence[Taint], removed: Sequence[Taint], now_s: float
) -> Generator[Step, list[Outcome], bool]:
    """Change taints; False: it failed, and is retried in the next round."""
    try:
        yield from change_taints(node, added, removed, now_s)
    except (ApiError, UnreachableError):
        return False
    return True


def _about(node: Object) -> Object:
    """Return what events of a node are about; they are in the namespace `default`."""
    meta = node["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": meta["name"], "uid": meta["uid"]},
    }


def _node_event(node: Object, reason: str, text: str) -> Record:
    name = node["metadata"]["name"]
    return Record(_about(node), "Normal", reason, f"Node {name} event: {text}")


def _mark_unready(pods: Sequence[Object], now_s: float) -> Generator[Step, list[Outcome], bool]:
    """Set Ready of pods to False; return whether all could be."""
    changed = []
    for pod in pods:
        status = pod.get("status") or {}
        known = pod_status.condition_of(pod, pod_status.READY)
        if known is None or known["status"] == "False":
            continue
        new = {**known, "status": "False", "lastTransitionTime": format_time(now_s)}
        updated = conditions.replaced(status["conditions"], new)
        changed.append({**pod, "status": {**status, "conditions": updated}})
    outcomes = yield [Update(PODS, pod, "status") for pod in changed]
    yield [
        Record(pod, "Warning", "NodeNotReady", "Node is not ready")
        for pod, outcome in zip(changed, outcomes, strict=True)
        if not outcome.is_not_found
    ]
    return all(outcome.error is None or outcome.is_not_found for outcome in outcomes)


# One node.


def _keep_schedule_taints(node: Object, now_s: float) -> Generator[Step, list[Outcome], None]:
    """Keep NoSchedule taints as conditions are."""
    keys = [
        _BY_CONDITION[each["type"], each["status"]]
        for each in (node.get("status") or {}).get("conditions") or ()
        if (each["type"], each["status"]) in _BY_CONDITION
    ]
    if node["spec"].get("unschedulable"):
        keys.append(UNSCHEDULABLE_TAINT)
    known = [
        name_of(each)
        for each in taints_of(node)
        if each["effect"] == NO_SCHEDULE and each["key"] in _MANAGED_KEYS
    ]
    wanted = [(key, NO_SCHEDULE) for key in keys]
    added = [each for each in wanted if each not in known]
    removed = [each for each in known if each not in wanted]
    if added or removed:
        yield from change_taints(node, added, removed, now_s)


def _keep_labels(node: Object) -> Generator[Step, list[Outcome], None]:
    """Keep labels of older names like those that took their place."""
    labels = node["metadata"].get("labels") or {}
    changed = {
        old: labels[name]
        for name, old in _OLD_LABELS.items()
        if name in labels and labels.get(old) != labels[name]
    }
    if changed:
        body = {"metadata": {"labels": changed}}
        name = node["metadata"]["name"]
        [outcome] = yield [Patch(NODES, "", name, body, STRATEGIC_MERGE_PATCH)]
        outcome.result()


def _keys_of_node(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None:
        yield f"node/{key_of(new)}"


def _keys_of_pod(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is None or not new["spec"].get("nodeName"):
        return
    if old is None or old["spec"].get("nodeName") != new["spec"]["nodeName"]:
        yield f"pod/{key_of(new)}"
