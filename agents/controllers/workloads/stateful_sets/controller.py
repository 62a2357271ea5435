"""The StatefulSet controller: its triggers, revisions and status."""

from collections.abc import Generator, Sequence
from typing import Final

from kvstack.agents.client.built_in import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
)
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
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
from kvstack.agents.controllers.workloads.pod_rules import is_available, next_available_s
from kvstack.agents.controllers.workloads.stateful_sets import pods
from kvstack.agents.controllers.workloads.stateful_sets.replicas import ClaimError, Replicas
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Create,
    Get,
    Identity,
    Index,
    Outcome,
    Plan,
    Retry,
    Step,
    Update,
    View,
    Watch,
    do,
    do_all,
)
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.core.pod_status import is_ready
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector
from kvstack.apimachinery.objects.status import ApiError

_HASH_LABEL: Final = "controller.kubernetes.io/hash"
_COUNTS: Final = (
    "replicas",
    "readyReplicas",
    "availableReplicas",
    "currentReplicas",
    "updatedReplicas",
)
_ALWAYS_THERE: Final = frozenset(("replicas", "availableReplicas"))


class StatefulSetController(BaseController):
    """Keeps pods with ordinals."""

    identity = Identity(
        "statefulset-controller", "statefulset-controller", "statefulset-controller"
    )
    watches: Sequence[Watch] = (
        Watch(STATEFUL_SETS, own_key),
        Watch(PODS, OwnerKeys(STATEFUL_SETS)),
    )
    reads: Sequence[ResourceType] = (CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS)
    indexes: Sequence[Index] = (
        Index(PODS, CONTROLLER_INDEX, controller_values),
        Index(CONTROLLER_REVISIONS, CONTROLLER_INDEX, controller_values),
    )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one StatefulSet."""
        stateful_set = view.get(STATEFUL_SETS, key)
        if stateful_set is None:
            return None
        selector = labels.from_object(stateful_set["spec"]["selector"])
        what = Claim(CONTROLLER_REVISIONS, STATEFUL_SETS, stateful_set, selector)
        known = history.candidates(view, stateful_set, selector)
        revisions = history.ordered((yield from claim(what, known)))
        members = yield from _members(stateful_set, selector, view)
        update, collisions = yield from _update_revision(stateful_set, revisions)
        named = (stateful_set.get("status") or {}).get("currentRevision")
        current = next((each for each in revisions if each["metadata"]["name"] == named), update)
        replicas = Replicas(stateful_set, (current, update), members, view, now_s)
        failure: Exception | None = None
        if not is_deleting(stateful_set):
            try:
                yield from replicas.run()
            except (ApiError, UnreachableError, ClaimError) as error:
                failure = error
        status = _status(stateful_set, (current, update), members, now_s)
        status["collisionCount"] = collisions
        if replicas.deleted:
            left = status.get("currentReplicas", 0) - replicas.deleted
            _set_count(status, "currentReplicas", max(left, 0))
        yield from _write_status(stateful_set, _complete(stateful_set, status))
        live = {each["metadata"]["name"] for each in (current, update)}
        live.update(map(pods.revision_of, members))
        limit = stateful_set["spec"].get("revisionHistoryLimit", 10)
        yield from do_all(history.surplus(revisions, live, limit))
        if failure is not None:
            raise failure
        if replicas.waits_for_claims:
            return Retry("claims of earlier pods are still there")
        return _again(stateful_set, status, members, now_s)


def _members(
    stateful_set: Object, selector: Selector, view: View
) -> Generator[Step, list[Outcome], list[Object]]:
    meta = stateful_set["metadata"]
    owned = view.by_index(PODS, CONTROLLER_INDEX, meta["uid"])
    orphans = view.by_index(PODS, CONTROLLER_INDEX, orphans_value(meta["namespace"]))
    candidates = [
        pod
        for pod in (*owned, *orphans)
        if controller_of(pod) is not None or pods.parent_and_ordinal(pod)[0] == meta["name"]
    ]
    mine = yield from claim(Claim(PODS, STATEFUL_SETS, stateful_set, selector), candidates)
    return [pod for pod in mine if pods.parent_and_ordinal(pod)[0] == meta["name"]]


def _update_revision(
    stateful_set: Object, revisions: Sequence[Object]
) -> Generator[Step, list[Outcome], tuple[Object, int]]:
    """Return the revision of the template, made or numbered anew if need be, and collisions."""
    collisions: int = (stateful_set.get("status") or {}).get("collisionCount", 0)
    data = history.data_of(stateful_set["spec"]["template"])
    equal = [each for each in revisions if history.is_same(each["data"], data)]
    if equal and equal[-1] is revisions[-1]:
        return revisions[-1], collisions
    number = history.next_number(revisions)
    if equal:
        renumbered = {**equal[-1], "revision": number}
        return (yield from do(Update(CONTROLLER_REVISIONS, renumbered))), collisions
    namespace = stateful_set["metadata"]["namespace"]
    while True:
        hashed = history.data_hash(data, collisions)
        made = history.new_revision(stateful_set, hashed, _HASH_LABEL, data, number)
        [outcome] = yield [Create(CONTROLLER_REVISIONS, namespace, made)]
        if not outcome.is_conflict:
            return outcome.result(), collisions
        name = made["metadata"]["name"]
        found = yield from do(Get(CONTROLLER_REVISIONS, namespace, name))
        if history.is_same(found["data"], data):
            return found, collisions
        collisions += 1


def _status(
    stateful_set: Object,
    revisions: tuple[Object, Object],
    members: Sequence[Object],
    now_s: float,
) -> Object:
    meta = stateful_set["metadata"]
    min_ready_s = stateful_set["spec"].get("minReadySeconds", 0)
    current, update = (each["metadata"]["name"] for each in revisions)
    before = stateful_set.get("status") or {}
    created = [pod for pod in members if pods.is_created(pod)]
    ready = [pod for pod in created if pod["status"]["phase"] == "Running" and is_ready(pod)]
    staying = [pods.revision_of(pod) for pod in created if not is_deleting(pod)]
    status: Object = {
        "observedGeneration": meta.get("generation", 0),
        "currentRevision": current,
        "updateRevision": update,
    }
    if "conditions" in before:
        status["conditions"] = before["conditions"]
    counts = (
        len(created),
        len(ready),
        sum(is_available(pod, min_ready_s, now_s) for pod in ready),
        staying.count(current),
        staying.count(update),
    )
    for name, count in zip(_COUNTS, counts, strict=True):
        _set_count(status, name, count)
    return status


def _set_count(status: Object, name: str, count: int) -> None:
    if count or name in _ALWAYS_THERE:
        status[name] = count
    else:
        status.pop(name, None)


def _complete(stateful_set: Object, status: Object) -> Object:
    """Return a status in which a finished rolling update is the current revision."""
    replicas = pods.replicas_of(stateful_set)
    counts = ("updatedReplicas", "readyReplicas", "replicas")
    strategy = stateful_set["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "RollingUpdate" and all(
        status.get(name, 0) == replicas for name in counts
    ):
        _set_count(status, "currentReplicas", status.get("updatedReplicas", 0))
        status["currentRevision"] = status["updateRevision"]
    return status


def _write_status(stateful_set: Object, status: Object) -> Generator[Step, list[Outcome], None]:
    """Write a status that differs; after a conflict the set is read again."""
    before = stateful_set.get("status") or {}
    names = (*_COUNTS, "currentRevision", "updateRevision", "conditions")
    is_newer = status["observedGeneration"] > before.get("observedGeneration", 0)
    if not is_newer and all((status.get(name) or 0) == (before.get(name) or 0) for name in names):
        return
    [outcome] = yield [Update(STATEFUL_SETS, {**stateful_set, "status": status}, "status")]
    if outcome.is_conflict:
        meta = stateful_set["metadata"]
        fresh = yield from do(Get(STATEFUL_SETS, meta["namespace"], meta["name"]))
        yield from do(Update(STATEFUL_SETS, {**fresh, "status": status}, "status"))
        return
    outcome.result()


def _again(
    stateful_set: Object, status: Object, members: Sequence[Object], now_s: float
) -> Again | None:
    """Look again when a ready pod becomes available."""
    min_ready_s = stateful_set["spec"].get("minReadySeconds", 0)
    if not min_ready_s or status.get("readyReplicas", 0) == status.get("availableReplicas", 0):
        return None
    wait_s = next_available_s(members, min_ready_s, now_s)
    return Again(float(min_ready_s) if wait_s is None else wait_s)
