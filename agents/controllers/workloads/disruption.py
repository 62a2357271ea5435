"""PodDisruptionBudgets: how many pods may be evicted now.

    default/web        a budget: its pods counted, its status written
    pod:default/web-1  a pod under several budgets, or with a disruption that did not come

What is expected of pods their owners say: the sum of the scales of all owners, each counted once.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kvstack.agents.client.built_in import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.controllers.ownership import controller_of, is_deleting, own_key
from kvstack.agents.controllers.served_kinds import ServedKinds, UnknownKindError
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Get,
    Identity,
    Later,
    Outcome,
    Plan,
    Record,
    Step,
    Update,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.core.pod_status import is_ended, is_ready
from kvstack.apimachinery.objects.int_or_string import IntOrStringError, scaled
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.times import format_time

_POD: Final = "pod:"
_TIMEOUT_S: Final = 120.0
"""A pod that was to be evicted and is still there counts again then."""
_ALLOWED: Final = "DisruptionAllowed"
_TARGET: Final = "DisruptionTarget"
_BY_KUBELET: Final = "TerminationByKubelet"
_NO_SUCH_PATH: Final = "the server could not find the requested resource"
_SCALED: Final = (REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS)
_GROUPS: Final = {"extensions": "apps"}


class ScaleError(Exception):
    """The expected number of pods is unknown; the message is upstream's."""


class DisruptionController(BaseController):
    """Keeps the status of budgets."""

    identity = Identity("disruption-controller", "disruption-controller", "controllermanager")
    reads: Sequence[ResourceType] = (*_SCALED, DEPLOYMENTS)
    workers = 1

    def __init__(self) -> None:
        self.watches: Sequence[Watch] = (
            Watch(POD_DISRUPTION_BUDGETS, own_key),
            Watch(PODS, self._keys_of_pod),
        )
        self._now_s = 0.0
        self._kinds = ServedKinds()

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one budget, or one pod."""
        self._now_s = max(self._now_s, now_s)
        if key.startswith(_POD):
            return (yield from _look_at_pod(view.get(PODS, key.removeprefix(_POD)), view, now_s))
        budget = view.get(POD_DISRUPTION_BUDGETS, key)
        if budget is None:
            return None
        try:
            return (yield from _sync(budget, _SyncInput(view, self._kinds, now_s)))
        except (ApiError, UnreachableError, ScaleError, labels.SelectorError) as error:
            if isinstance(error, ApiError) and error.is_conflict:
                raise
            yield from _fail_safe(budget, error, now_s)
            return None

    def _keys_of_pod(
        self, old: Object | None, new: Object | None, view: View
    ) -> Iterator[str | Later]:
        pod = new or old or {}
        budgets = _budgets_of(pod, view)
        yield from map(key_of, budgets)
        if new is not None and old is not None and _labels_of(old) != _labels_of(new):
            yield from map(key_of, _budgets_of(old, view))  # they have one less, maybe
        if new is None:
            return
        wait_s = _stale_in_s(new, self._now_s)
        if len(budgets) > 1:
            yield _POD + key_of(new)
        elif wait_s is not None:
            yield Later(_POD + key_of(new), wait_s)


def _labels_of(pod: Object) -> Object:
    found: Object = pod["metadata"].get("labels") or {}
    return found


def _budgets_of(pod: Object, view: View) -> list[Object]:
    meta = pod["metadata"]
    budgets = []
    for budget in view.list(POD_DISRUPTION_BUDGETS, meta["namespace"]):
        try:
            selector = labels.from_object(budget["spec"].get("selector"))
        except labels.SelectorError:
            continue  # its own sync says so
        if selector.matches(_labels_of(pod)):
            budgets.append(budget)
    return sorted(budgets, key=key_of)


class _SyncInput(NamedTuple):
    """The input of a sync."""

    view: View
    kinds: ServedKinds
    now_s: float


# Budgets.


def _sync(budget: Object, world: _SyncInput) -> Plan:
    view, now_s = world.view, world.now_s
    namespace = budget["metadata"]["namespace"]
    selector = labels.from_object(budget["spec"].get("selector"))
    pods = [pod for pod in view.list(PODS, namespace) if selector.matches(_labels_of(pod))]
    if not pods:
        yield [Record(budget, "Normal", "NoPods", "No matching pods found")]
    try:
        expected, desired, has_bare = yield from _expected(budget, pods, world)
    except (ApiError, UnreachableError, ScaleError) as error:
        text = f"Failed to calculate the number of expected pods: {error}"
        yield [Record(budget, "Warning", "CalculateExpectedPodCountFailed", text)]
        raise
    if has_bare:
        text = (
            "Pods selected by this PodDisruptionBudget (selector:"
            f" {labels.struct_text(budget['spec']['selector'])}) were found to be unmanaged. As a"
            " result, the status of the PDB cannot be calculated correctly, which may result in"
            " undefined behavior. To account for these pods please set"
            ' ".spec.minAvailable" field of the PDB to an integer value.'
        )
        yield [Record(budget, "Warning", "UnmanagedPods", text)]
    disrupted = yield from _disrupted(budget, pods, now_s)
    healthy = sum(
        is_ready(pod) and not is_deleting(pod) and pod["metadata"]["name"] not in disrupted
        for pod in pods
    )
    allowed = max(healthy - desired, 0) if expected > 0 else 0
    status: Object = {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    yield from _write(budget, status, now_s)
    waits = [(seconds_of(text) or 0.0) + _TIMEOUT_S - now_s for text in disrupted.values()]
    return Again(min(waits)) if waits else None


def _expected(
    budget: Object, pods: Sequence[Object], world: _SyncInput
) -> Generator[Step, list[Outcome], tuple[int, int, bool]]:
    """Return how many pods are expected, how many must be healthy, and whether any has no owner."""
    spec = budget["spec"]
    least = spec.get("minAvailable")
    most = spec.get("maxUnavailable")
    if most is None and isinstance(least, int):
        return len(pods), least, False
    if most is None and least is None:
        return 0, 0, False
    expected, has_bare = yield from _scale_of_all(pods, world)
    try:
        if most is not None:
            missing = scaled(most, expected, round_up=True)
            return expected, max(expected - missing, 0), has_bare
        return expected, scaled(least, expected, round_up=True), has_bare
    except IntOrStringError as error:
        raise ScaleError(str(error)) from None


def _scale_of_all(
    pods: Sequence[Object], world: _SyncInput
) -> Generator[Step, list[Outcome], tuple[int, bool]]:
    """Return the sum of the scales of all owners, and whether a pod has none."""
    scales: dict[str, int] = {}
    seen: set[str] = set()
    has_bare = False
    for pod in pods:
        reference = controller_of(pod)
        if reference is None:
            has_bare = True
            continue
        if reference["uid"] in seen:
            continue
        seen.add(reference["uid"])
        namespace = pod["metadata"]["namespace"]
        found = _known_scale(reference, namespace, world.view)
        if found is None:
            found = yield from _served_scale(reference, namespace, world)
        if found is None:
            raise ScaleError(f"found no controllers for pod {quote(pod['metadata']['name'])}")
        scales[found[0]] = found[1]
    return sum(scales.values()), has_bare


def _known_scale(reference: Object, namespace: str, view: View) -> tuple[str, int] | None:
    """Return uid and scale of a built-in owner; of a Deployment's ReplicaSet, the Deployment's."""
    owner = _owner(reference, namespace, _SCALED, view)
    if owner is None:
        return None
    above = controller_of(owner)
    is_replica_set = owner["kind"] == REPLICA_SETS.kind
    if is_replica_set and above is not None and above["kind"] == DEPLOYMENTS.kind:
        owner = _owner(above, namespace, (DEPLOYMENTS,), view)
        if owner is None:
            return None
    return owner["metadata"]["uid"], owner["spec"].get("replicas", 1)


def _owner(
    reference: Object, namespace: str, resources: Iterable[ResourceType], view: View
) -> Object | None:
    group = reference["apiVersion"].rpartition("/")[0]
    group = _GROUPS.get(group, group)
    for resource in resources:
        if resource.kind == reference["kind"] and resource.group == group:
            owner = view.get(resource, f"{namespace}/{reference['name']}")
            if owner is not None and owner["metadata"]["uid"] == reference["uid"]:
                return owner
    return None


def _served_scale(
    reference: Object, namespace: str, world: _SyncInput
) -> Generator[Step, list[Outcome], tuple[str, int] | None]:
    """Return uid and scale of an owner as the server has it; None: it does not exist."""
    version, kind = reference["apiVersion"], reference["kind"]
    try:
        resource = yield from world.kinds.resource_of(version, kind, world.now_s)
    except UnknownKindError as error:
        raise ScaleError(str(error)) from None
    [outcome] = yield [Get(resource, namespace, reference["name"], "scale")]
    if outcome.is_not_found:
        if _NO_SUCH_PATH in str(outcome.error):
            name = f"{resource.name}.{resource.group}" if resource.group else resource.name
            raise ScaleError(f"{name} does not implement the scale subresource")
        return None
    scale = outcome.result()
    if scale["metadata"].get("uid") != reference["uid"]:
        return None
    return reference["uid"], (scale.get("spec") or {}).get("replicas", 0)


def _disrupted(
    budget: Object, pods: Sequence[Object], now_s: float
) -> Generator[Step, list[Outcome], dict[str, str]]:
    """Return the pods whose eviction was granted and that are about to go, with its time."""
    deletion_times: dict[str, str] = (budget.get("status") or {}).get("disruptedPods") or {}
    namespace = budget["metadata"]["namespace"]
    left: dict[str, str] = {}
    for pod in pods:
        name = pod["metadata"]["name"]
        if name not in deletion_times or is_deleting(pod):
            continue
        if (seconds_of(deletion_times[name]) or 0.0) + _TIMEOUT_S <= now_s:
            # Upstream names the namespace twice.
            text = f"Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't"
            yield [Record(pod, "Warning", "NotDeleted", text)]
        else:
            left[name] = deletion_times[name]
    return left


def _write(budget: Object, counts: Object, now_s: float) -> Generator[Step, list[Outcome], None]:
    before = budget.get("status") or {}
    status = {**counts, "observedGeneration": budget["metadata"].get("generation", 0)}
    is_allowed = counts["disruptionsAllowed"] > 0
    reason = "SufficientPods" if is_allowed else "InsufficientPods"
    status["conditions"] = _with_allowed(before, status, (reason, ""), now_s)
    if status != before:
        yield from do(Update(POD_DISRUPTION_BUDGETS, {**budget, "status": status}, "status"))


def _fail_safe(
    budget: Object, error: Exception, now_s: float
) -> Generator[Step, list[Outcome], None]:
    """Allow no disruption while nothing is known."""
    before = budget.get("status") or {}
    status = {**before, "disruptionsAllowed": 0}
    status["conditions"] = _with_allowed(before, status, ("SyncFailed", str(error)), now_s)
    if status != before:
        yield from do(Update(POD_DISRUPTION_BUDGETS, {**budget, "status": status}, "status"))


def _with_allowed(
    before: Object, status: Object, why: tuple[str, str], now_s: float
) -> list[Object]:
    """Return the conditions with the one that says so; why: reason and message."""
    reason, message = why
    new: Object = {
        "type": _ALLOWED,
        "status": "True" if status["disruptionsAllowed"] > 0 else "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": format_time(now_s),
        "reason": reason,
        "message": message,
    }
    return conditions.set_condition(before.get("conditions"), new)


# Pods.


def _look_at_pod(pod: Object | None, view: View, now_s: float) -> Plan:
    """Report several budgets, and revoke a disruption that did not happen."""
    if pod is None:
        return None
    budgets = _budgets_of(pod, view)
    meta = pod["metadata"]
    if len(budgets) > 1:
        text = (
            f'Pod "{meta["namespace"]}"/"{meta["name"]}" matches multiple PodDisruptionBudgets. '
            f' Chose "{budgets[0]["metadata"]["name"]}" arbitrarily.'
        )
        yield [Record(pod, "Warning", "MultiplePodDisruptionBudgets", text)]
    wait_s = _stale_in_s(pod, now_s)
    if wait_s is None:
        return None
    if wait_s > 0:
        return Again(wait_s)
    status = pod["status"]
    now = format_time(now_s)
    new = {"type": _TARGET, "status": "False", "lastProbeTime": None, "lastTransitionTime": now}
    if meta.get("generation"):
        new["observedGeneration"] = meta["generation"]
    updated = conditions.replaced(status["conditions"], new)
    yield from do(Update(PODS, {**pod, "status": {**status, "conditions": updated}}, "status"))
    return None


def _stale_in_s(pod: Object, now_s: float) -> float | None:
    """Return in how many seconds a pod's disruption is taken back; None: there is none."""
    if is_deleting(pod) or is_ended(pod):
        return None
    found = conditions.find((pod.get("status") or {}).get("conditions"), _TARGET)
    if found is None or found["status"] != "True" or found.get("reason") == _BY_KUBELET:
        return None
    since_s = seconds_of(found.get("lastTransitionTime")) or 0.0
    return max(since_s + _TIMEOUT_S - now_s, 0.0)
