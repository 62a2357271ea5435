"""ReplicaSet and ReplicationController: as many pods as their spec says.

    claim pods ─► create or delete the difference ─► status

One controller serves both kinds; a `ReplicaKind` says in what they differ. A pod that has ended is
no longer counted: it is replaced, and left for the pod garbage collector.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

from kvstack.agents.client.built_in import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS
from kvstack.agents.client.object_store import split_key
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.ownership import (
    CONTROLLER_INDEX,
    Claim,
    OwnerKeys,
    SharedLabels,
    claim,
    controller_of,
    controller_values,
    is_deleting,
    orphans_value,
    own_key,
)
from kvstack.agents.controllers.workloads.pod_rules import (
    DeletionOrder,
    NoLabelsError,
    active_pods,
    count_ready,
    from_template,
    is_active,
    is_terminating,
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
)
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector, SelectorError
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time

_BURST: Final = 500
_FAILURE: Final = "ReplicaFailure"


@dataclass(frozen=True, slots=True)
class ReplicaKind:
    """The differences of ReplicaSets and ReplicationControllers."""

    resource: ResourceType
    identity: Identity
    has_label_selector: bool
    """Else the selector is a map of labels."""
    counts_terminating: bool

    def selector(self, obj: Object) -> Selector:
        """Return the selector of an object; raises SelectorError."""
        selector = obj["spec"].get("selector")
        if self.has_label_selector:
            return labels.from_object(selector)
        return labels.from_map(selector) if selector else labels.NOTHING


REPLICA_SET: Final = ReplicaKind(
    REPLICA_SETS,
    Identity("replicaset-controller", "replicaset-controller", "replicaset-controller"),
    has_label_selector=True,
    counts_terminating=True,
)
REPLICATION_CONTROLLER: Final = ReplicaKind(
    REPLICATION_CONTROLLERS,
    Identity(
        "replicationcontroller-controller", "replication-controller", "replication-controller"
    ),
    has_label_selector=False,
    counts_terminating=False,
)


class ReplicaController(BaseController):
    """Keeps the number of pods."""

    def __init__(self, kind: ReplicaKind) -> None:
        self.identity: Identity = kind.identity
        self._kind = kind
        self._resource = kind.resource
        self.watches: Sequence[Watch] = (
            Watch(kind.resource, own_key),
            Watch(PODS, OwnerKeys(kind.resource, kind.selector)),
        )
        self.indexes = (
            Index(PODS, CONTROLLER_INDEX, controller_values),
            Index(kind.resource, CONTROLLER_INDEX, controller_values),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one set."""
        owner = view.get(self._resource, key)
        if owner is None:
            return None
        try:
            selector = self._kind.selector(owner)
        except SelectorError:
            return None  # nothing but a change of its spec could help
        namespace, _ = split_key(key)
        uid = owner["metadata"]["uid"]
        owned = view.by_index(PODS, CONTROLLER_INDEX, uid)
        orphans = view.by_index(PODS, CONTROLLER_INDEX, orphans_value(namespace))
        what = Claim(PODS, self._resource, owner, selector)
        active = yield from claim(what, active_pods((*owned, *orphans)))
        failure: tuple[str, Exception] | None = None
        if not is_deleting(owner):
            failure = yield from self._manage(owner, active, view, now_s)
        terminating = [
            pod
            for pod in owned
            if is_deleting(pod)
            and is_terminating(pod)
            and selector.matches(pod["metadata"].get("labels") or {})
        ]
        status = self._status(owner, active, len(terminating), failure, now_s)
        written = yield from self._write_status(owner, status)
        if failure is not None:
            raise failure[1]
        return self._again(written, active, now_s)

    # Pods.

    def _manage(
        self, owner: Object, active: Sequence[Object], view: View, now_s: float
    ) -> Generator[Step, list[Outcome], tuple[str, Exception] | None]:
        """Create or delete the difference; return what failed: a reason and the error."""
        surplus = len(active) - _replicas(owner)
        if surplus < 0:
            return (yield from self._create(owner, min(-surplus, _BURST)))
        if surplus > 0:
            related = self._related_on_nodes(owner, view)
            victims = sorted(active, key=DeletionOrder(related, now_s))[: min(surplus, _BURST)]
            return (yield from self._delete(owner, victims))
        return None

    def _create(
        self, owner: Object, count: int
    ) -> Generator[Step, list[Outcome], tuple[str, Exception] | None]:
        try:
            pod = from_template(owner["spec"]["template"], owner)
        except NoLabelsError as error:
            return "FailedCreate", error
        namespace = owner["metadata"]["namespace"]
        outcomes = yield SlowStart([Create(PODS, namespace, pod)] * count)
        yield [
            Record(owner, "Normal", "SuccessfulCreate", f"Created pod: {_name(outcome)}")
            if outcome.error is None
            else Record(owner, "Warning", "FailedCreate", f"Error creating: {outcome.error}")
            for outcome in outcomes
            if not outcome.is_skipped and not outcome.is_namespace_terminating
        ]
        for outcome in outcomes:
            if outcome.error is not None and not outcome.is_namespace_terminating:
                return "FailedCreate", outcome.error
        return None

    def _delete(
        self, owner: Object, victims: Sequence[Object]
    ) -> Generator[Step, list[Outcome], tuple[str, Exception] | None]:
        outcomes = yield [
            Delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in victims
        ]
        first: tuple[str, Exception] | None = None
        records = []
        for pod, outcome in zip(victims, outcomes, strict=True):
            if outcome.error is None:
                name = pod["metadata"]["name"]
                records.append(Record(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {name}"))
            elif not outcome.is_not_found:
                text = f"Error deleting: {outcome.error}"
                records.append(Record(owner, "Warning", "FailedDelete", text))
                first = first or ("FailedDelete", outcome.error)
        yield records
        return first

    def _related_on_nodes(self, owner: Object, view: View) -> Counter[str]:
        """Return how many active pods of sets with the same controller each node has."""
        reference = controller_of(owner)
        related = [owner]
        if reference is not None:
            related = list(view.by_index(self._resource, CONTROLLER_INDEX, reference["uid"]))
        count: Counter[str] = Counter()
        for each in related:
            for pod in view.by_index(PODS, CONTROLLER_INDEX, each["metadata"]["uid"]):
                if is_active(pod):
                    count[pod["spec"].get("nodeName", "")] += 1
        return count

    # Status.

    def _status(
        self,
        owner: Object,
        active: Sequence[Object],
        terminating: int,
        failure: tuple[str, Exception] | None,
        now_s: float,
    ) -> Object:
        spec = owner["spec"]
        template_labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        min_ready_s = spec.get("minReadySeconds") or 0
        status: Object = dict(owner.get("status") or {})
        ready, available = count_ready(active, min_ready_s, now_s)
        counts = {
            "replicas": len(active),
            "fullyLabeledReplicas": sum(
                map(SharedLabels(lambda own: template_labels.items() <= own.items()), active)
            ),
            "readyReplicas": ready,
            "availableReplicas": available,
        }
        for name, count in counts.items():
            if count or name == "replicas":
                status[name] = count
            else:
                status.pop(name, None)
        if self._kind.counts_terminating:
            status["terminatingReplicas"] = terminating
        condition = conditions.find(status.get("conditions"), _FAILURE)
        if failure is not None and condition is None:
            new = {
                "type": _FAILURE,
                "status": "True",
                "lastTransitionTime": format_time(now_s),
                "reason": failure[0],
                "message": str(failure[1]),
            }
            status["conditions"] = conditions.with_condition(status.get("conditions"), new)
        elif failure is None and condition is not None:
            rest = conditions.without(status["conditions"], _FAILURE)
            status.pop("conditions")
            if rest:
                status["conditions"] = rest
        return status

    def _write_status(
        self, owner: Object, status: Object
    ) -> Generator[Step, list[Outcome], Object]:
        """Write a status that differs; after a conflict the set is read again."""
        meta = owner["metadata"]
        generation = meta.get("generation", 0)
        if status == (owner.get("status") or {}) and status.get("observedGeneration") == generation:
            return owner
        status["observedGeneration"] = generation
        try:
            return (yield from do(Update(self._resource, {**owner, "status": status}, "status")))
        except ApiError as error:
            if not error.is_conflict:
                raise
        fresh = yield from do(Get(self._resource, meta["namespace"], meta["name"]))
        return (yield from do(Update(self._resource, {**fresh, "status": status}, "status")))

    @staticmethod
    def _again(owner: Object, active: Sequence[Object], now_s: float) -> Again | None:
        """Look again when a ready pod becomes available."""
        min_ready_s = owner["spec"].get("minReadySeconds") or 0
        if not min_ready_s:
            return None
        wait_s = next_available_s(active, min_ready_s, now_s)
        return None if wait_s is None else Again(wait_s)


def _replicas(owner: Object) -> int:
    replicas: int | None = owner["spec"].get("replicas")
    return 1 if replicas is None else replicas


def _name(outcome: Outcome) -> str:
    name: str = outcome.result()["metadata"]["name"]
    return name
