"""The DaemonSet controller: its triggers, its sync and its status.

revision of the template ─► pods where they should be ─► rollout ─► old revisions ─► status
"""

from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final

from kvstack.agents.client.built_in import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.controllers.nodes.lifecycle import PODS_OF_NODE, nodes_of_pod
from kvstack.agents.controllers.ownership import (
    CONTROLLER_INDEX,
    Claim,
    OwnerKeys,
    claim,
    controller_of,
    controller_values,
    is_deleting,
    orphans_value,
    own_key,
)
from kvstack.agents.controllers.workloads import history
from kvstack.agents.controllers.workloads.daemon_sets import revisions, rollout
from kvstack.agents.controllers.workloads.daemon_sets.placement import (
    Placement,
    for_node,
    node_of,
    with_tolerations,
)
from kvstack.agents.controllers.workloads.history import REVISION_LABEL
from kvstack.agents.controllers.workloads.pod_rules import (
    NoLabelsError,
    from_template,
    is_available,
    next_available_s,
)
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Create,
    Delete,
    Get,
    Identity,
    Index,
    Outcome,
    Plan,
    Record,
    SlowStart,
    Step,
    Update,
    View,
    Watch,
    do,
    do_all,
)
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.core.pod_status import is_ended, is_ready
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError

_SELECTING_ALL: Final = "This daemon set is selecting all pods. A non-empty selector is required."
_GENERATION_ANNOTATION: Final = "deprecated.daemonset.template.generation"
_GENERATION_LABEL: Final = "pod-template-generation"
_BURST: Final = 250
_FAILED_MIN_S: Final = 1.0
_FAILED_MAX_S: Final = 900.0
_COUNTS: Final = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberMisscheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
)
_ALWAYS_THERE: Final = frozenset(
    ("desiredNumberScheduled", "currentNumberScheduled", "numberMisscheduled", "numberReady")
)


class DaemonSetController(BaseController):
    """Keeps a pod on every node that suits."""

    identity = Identity("daemonset-controller", "daemon-set-controller", "daemonset-controller")
    reads: Sequence[ResourceType] = (CONTROLLER_REVISIONS,)
    indexes: Sequence[Index] = (
        Index(PODS, CONTROLLER_INDEX, controller_values),
        Index(PODS, PODS_OF_NODE, nodes_of_pod),
        Index(CONTROLLER_REVISIONS, CONTROLLER_INDEX, controller_values),
    )
    workers = 2

    def __init__(self) -> None:
        """Start with no failures."""
        self.watches: Sequence[Watch] = (
            Watch(DAEMON_SETS, own_key),
            Watch(PODS, OwnerKeys(DAEMON_SETS)),
            Watch(NODES, _keys_of_node),
        )
        self._failed = _FailedPods()

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one DaemonSet."""
        daemon_set = view.get(DAEMON_SETS, key)
        if daemon_set is None:
            self._failed.forget(key)
            return None
        if daemon_set["spec"].get("selector") == {}:
            yield [Record(daemon_set, "Warning", "SelectingAll", _SELECTING_ALL)]
            return None
        if is_deleting(daemon_set):
            return None
        selector = labels.from_object(daemon_set["spec"]["selector"])
        meta = daemon_set["metadata"]
        candidates = (
            *view.by_index(PODS, CONTROLLER_INDEX, meta["uid"]),
            *view.by_index(PODS, CONTROLLER_INDEX, orphans_value(meta["namespace"])),
        )
        known = history.candidates(view, daemon_set, labels.EVERYTHING)
        what = Claim(CONTROLLER_REVISIONS, DAEMON_SETS, daemon_set, selector)
        owned = yield from claim(what, known)
        pods = yield from claim(Claim(PODS, DAEMON_SETS, daemon_set, selector), candidates)
        current, old, pods = yield from revisions.find(daemon_set, owned, pods)
        sync = _Sync(daemon_set, revisions.hash_of(current), pods, view.list(NODES), now_s)
        failure: Exception | None = None
        again_s: float | None = None
        try:
            again_s = yield from sync.manage(self._failed, key)
            strategy = daemon_set["spec"].get("updateStrategy") or {}
            # What was changed just now must be seen before more is replaced.
            if strategy.get("type") == "RollingUpdate" and not sync.has_changed:
                yield from sync.roll()
            limit = daemon_set["spec"].get("revisionHistoryLimit", 10)
            yield from do_all(revisions.surplus(old, pods, limit))
        except (ApiError, UnreachableError, NoLabelsError) as error:
            failure = error
        yield from sync.write_status()
        if failure is not None:
            raise failure
        return sync.again(again_s)


class _FailedPods:
    """The delay before failed pods are replaced: longer with each failure."""

    def __init__(self) -> None:
        # By key and node: when the last was replaced, and how long to wait since then.
        self._known: dict[tuple[str, int, str], tuple[float, float]] = {}

    def wait_s(self, key: str, generation: int, node: str, now_s: float) -> float:
        """Return how long a failed pod is to be left; 0: it may go, which counts as a failure."""
        last_s, delay_s = self._known.get((key, generation, node), (0.0, 0.0))
        since_s = now_s - last_s
        if since_s < delay_s:
            return delay_s
        longer_s = min(delay_s * 2, _FAILED_MAX_S) if since_s < 2 * _FAILED_MAX_S else 0.0
        self._known[key, generation, node] = (now_s, max(longer_s, _FAILED_MIN_S))
        return 0.0

    def forget(self, key: str) -> None:
        """Forget the failures of a DaemonSet that is gone."""
        for known in [each for each in self._known if each[0] == key]:
            del self._known[known]


class _Sync:
    """One DaemonSet, while its pods are brought a step further."""

    def __init__(
        self,
        daemon_set: Object,
        hashed: str,
        pods: Sequence[Object],
        nodes: Sequence[Object],
        now_s: float,
    ) -> None:
        self._set = daemon_set
        self._hash = hashed
        self._now_s = now_s
        self._min_ready_s: int = daemon_set["spec"].get("minReadySeconds", 0)
        placement = Placement(daemon_set["spec"]["template"])
        self._decisions = {node["metadata"]["name"]: placement.on(node) for node in nodes}
        self._generation = _template_generation(daemon_set)
        self.has_changed = False
        """Whether pods were created or deleted."""
        self._pods: defaultdict[str, list[Object]] = defaultdict(list)
        for pod in sorted(pods, key=_age):
            node = node_of(pod)
            if node and not (is_ended(pod) and is_deleting(pod)):
                self._pods[node].append(pod)

    # Pods where they should be.

    def manage(self, failed: _FailedPods, key: str) -> Generator[Step, list[Outcome], float | None]:
        """Make missing pods and delete those that are too many; return when to look again."""
        needing: list[str] = []
        deletions: list[Object] = []
        records: list[Record] = []
        waits: list[float] = []
        observed = (self._set.get("status") or {}).get("observedGeneration", 0)
        for node, decision in self._decisions.items():
            pods = self._pods.get(node, [])
            staying = [pod for pod in pods if not is_deleting(pod)]
            if decision.should_run and not pods:
                needing.append(node)
            elif decision.may_stay:
                running = [pod for pod in staying if not is_ended(pod)]
                for pod in (each for each in staying if is_ended(each)):
                    if pod["status"]["phase"] == "Failed":
                        wait_s = failed.wait_s(key, observed, node, self._now_s)
                        if wait_s:
                            waits.append(wait_s)
                            continue
                    records.append(self._ended(pod, node))
                    deletions.append(pod)
                deletions += self._too_many(running)
                if not running and decision.should_run and rollout.allows_surge(self._set):
                    needing.append(node)
            else:
                deletions += staying
        for node, pods in self._pods.items():
            if node not in self._decisions:
                deletions += [pod for pod in pods if not pod["spec"].get("nodeName")]
        yield records
        yield from self._change(deletions, needing)
        return min(waits, default=None)

    def _ended(self, pod: Object, node: str) -> Record:
        name = key_of(pod)
        if pod["status"]["phase"] == "Failed":
            text = f"Found failed daemon pod {name} on node {node}, will try to kill it"
            return Record(self._set, "Warning", "FailedDaemonPod", text)
        text = f"Found succeeded daemon pod {name} on node {node}, will try to delete it"
        return Record(self._set, "Normal", "SucceededDaemonPod", text)

    def _too_many(self, running: Sequence[Object]) -> list[Object]:
        """Return the pods of a node that are too many; the oldest stay."""
        if not rollout.allows_surge(self._set):
            return list(running[1:])
        if len(running) <= 1:
            return []
        new = [pod for pod in running if self._has_hash(pod)]
        old = [pod for pod in running if not self._has_hash(pod)]
        too_many = [*new[1:], *old[1:]]
        if new and old:
            is_up = is_available(new[0], self._min_ready_s, self._now_s)
            if is_up or not is_ready(old[0]):
                too_many.append(old[0])
        return too_many

    def _has_hash(self, pod: Object) -> bool:
        found = (pod["metadata"].get("labels") or {}).get(REVISION_LABEL)
        return bool(found == self._hash)

    def _is_updated(self, pod: Object) -> bool:
        found = (pod["metadata"].get("labels") or {}).get(_GENERATION_LABEL)
        return self._has_hash(pod) or (self._generation != "" and found == self._generation)

    # Pods of another template.

    def roll(self) -> Generator[Step, list[Outcome], None]:
        """Replace pods of an old template, as many as may be."""
        should_run = frozenset(
            node for node, decision in self._decisions.items() if decision.should_run
        )
        pods = {node: each for node, each in self._pods.items() if each}
        nodes = rollout.Nodes(
            {**dict.fromkeys(should_run - pods.keys(), ()), **pods},
            should_run,
            frozenset(
                pod["metadata"]["uid"]
                for each in pods.values()
                for pod in each
                if self._is_updated(pod)
            ),
            self._min_ready_s,
            self._now_s,
        )
        changes = rollout.replaced(nodes, rollout.limits(self._set, len(should_run)))
        yield from self._change(changes.deletions, changes.nodes)

    # Writing.

    def _change(
        self, deletions: Sequence[Object], nodes: Sequence[str]
    ) -> Generator[Step, list[Outcome], None]:
        """Create pods on nodes and delete pods; raises the first error."""
        namespace = self._set["metadata"]["namespace"]
        self.has_changed = self.has_changed or bool(deletions or nodes)
        failed: Exception | None = None
        records: list[Record] = []
        if nodes:
            creations = [Create(PODS, namespace, pod) for pod in self._new_pods(nodes[:_BURST])]
            for outcome in (yield SlowStart(creations)):
                if outcome.is_skipped or outcome.is_namespace_terminating:
                    continue
                if outcome.error is None:
                    text = f"Created pod: {outcome.result()['metadata']['name']}"
                    records.append(Record(self._set, "Normal", "SuccessfulCreate", text))
                else:
                    text = f"Error creating: {outcome.error}"
                    records.append(Record(self._set, "Warning", "FailedCreate", text))
                    failed = failed or outcome.error
        going = deletions[:_BURST]
        outcomes = yield [Delete(PODS, namespace, pod["metadata"]["name"]) for pod in going]
        for pod, outcome in zip(going, outcomes, strict=True):
            if outcome.error is None:
                text = f"Deleted pod: {pod['metadata']['name']}"
                records.append(Record(self._set, "Normal", "SuccessfulDelete", text))
            elif not outcome.is_not_found:
                text = f"Error deleting: {outcome.error}"
                records.append(Record(self._set, "Warning", "FailedDelete", text))
                failed = failed or outcome.error
        yield records
        if failed is not None:
            raise failed

    def _new_pods(self, nodes: Iterable[str]) -> Iterable[Object]:
        pod = from_template(self._set["spec"]["template"], self._set)
        pod["metadata"]["labels"][REVISION_LABEL] = self._hash
        if self._generation:
            pod["metadata"]["labels"][_GENERATION_LABEL] = self._generation
        spec = with_tolerations(pod["spec"])
        for node in nodes:
            yield {**pod, "spec": for_node(spec, node)}

    # Status.

    def write_status(self) -> Generator[Step, list[Outcome], None]:
        """Write a status that differs; after a conflict the set is read again."""
        before = self._set.get("status") or {}
        meta = self._set["metadata"]
        generation = meta.get("generation", 0)
        counts = dict(zip(_COUNTS, self._counts(), strict=True))
        self._is_waiting = counts["numberReady"] != counts["numberAvailable"]
        if before.get("observedGeneration", 0) >= generation and all(
            before.get(name, 0) == count for name, count in counts.items()
        ):
            return
        told = {name: count for name, count in counts.items() if count or name in _ALWAYS_THERE}
        rest = {name: value for name, value in before.items() if name not in _COUNTS}
        status = {**rest, **told, "observedGeneration": generation}
        [outcome] = yield [Update(DAEMON_SETS, {**self._set, "status": status}, "status")]
        if not outcome.is_conflict:
            outcome.result()
            return
        fresh = yield from do(Get(DAEMON_SETS, meta["namespace"], meta["name"]))
        yield from do(Update(DAEMON_SETS, {**fresh, "status": status}, "status"))

    def _counts(self) -> tuple[int, ...]:
        """Return the counts of _COUNTS; of several pods on a node the oldest counts."""
        desired = current = misplaced = ready = updated = available = 0
        for node, decision in self._decisions.items():
            pods = self._pods.get(node) or ()
            if not decision.should_run:
                misplaced += bool(pods)
                continue
            desired += 1
            if not pods:
                continue
            current += 1
            first = pods[0]
            ready += is_ready(first)
            available += is_available(first, self._min_ready_s, self._now_s)
            updated += self._is_updated(first)
        return desired, current, misplaced, ready, updated, available, desired - available

    def again(self, failed_s: float | None) -> Again | None:
        """Look again when a ready pod becomes available, or a failed one may be replaced."""
        waits = [] if failed_s is None else [failed_s]
        if self._min_ready_s and self._is_waiting:
            pods = [pod for each in self._pods.values() for pod in each]
            wait_s = next_available_s(pods, self._min_ready_s, self._now_s)
            waits.append(float(self._min_ready_s) if wait_s is None else wait_s)
        return Again(min(waits)) if waits else None


def _keys_of_node(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    """Wake the DaemonSets whose decision about a node, or count of it, may be another now."""
    if new is None:
        # Its pods go with it; those that were not bound are to be deleted.
        return [key_of(each) for each in view.list(DAEMON_SETS)]
    if old is not None and _placing(old) == _placing(new):
        return []
    owners = map(controller_of, view.by_index(PODS, PODS_OF_NODE, new["metadata"]["name"]))
    there = {owner["uid"] for owner in owners if owner is not None}
    keys = []
    for daemon_set in view.list(DAEMON_SETS):
        decision = Placement(daemon_set["spec"]["template"]).on(new)
        is_there = daemon_set["metadata"]["uid"] in there
        misplaced = (daemon_set.get("status") or {}).get("numberMisscheduled", 0)
        if is_there:
            is_concerned = not decision.may_stay or misplaced > 0
        else:
            is_concerned = decision.should_run
        if is_concerned:
            keys.append(key_of(daemon_set))
    return keys


def _placing(node: Object) -> tuple[Any, Any]:
    """Return what of a node decides about pods."""
    return node["metadata"].get("labels"), (node.get("spec") or {}).get("taints")


def _template_generation(daemon_set: Object) -> str:
    """Return the deprecated number of the template; empty: there is none."""
    text: str = (daemon_set["metadata"].get("annotations") or {}).get(_GENERATION_ANNOTATION, "")
    return text if text.lstrip("-").isdecimal() else ""


def _age(pod: Object) -> tuple[bool, str, str]:
    """Return the sort key of pods of a node: bound ones first, then the older."""
    meta = pod["metadata"]
    is_bound = bool(pod["spec"].get("nodeName"))
    return not is_bound, meta.get("creationTimestamp", ""), meta["name"]
