"""Namespace deletion: deletes the contents of a namespace, then removes its finalizer.

    phase Terminating ─► pods ─► (none left) all other resources ─► conditions ─► finalize

Pods go first; nothing else is deleted while one is left. A group that discovery cannot see holds
the namespace: what is left of it is unknown. All reads are live.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from kvstack.agents.client.built_in import NAMESPACES, PODS
from kvstack.agents.client.discovery import Discovery
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.agents.reconcile.plan import (
    Again,
    BackOff,
    BaseController,
    Delete,
    DeleteCollection,
    Get,
    Identity,
    Later,
    ListLive,
    Outcome,
    Plan,
    Step,
    Update,
    View,
    Watch,
    discover,
    do,
)
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time

_FINALIZER: Final = "kubernetes"
_BEGUN_S: Final = 5.0
"""Deletion begins so long after the mark, so that every API server refuses new objects by then."""
_HELD_S: Final = 15
"""The estimate for objects that only finalizers keep."""
_UNSUPPORTED: Final = frozenset((HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED))

_DISCOVERY: Final = "NamespaceDeletionDiscoveryFailure"
_CONTENT: Final = "NamespaceDeletionContentFailure"
_REMAINING: Final = "NamespaceContentRemaining"
_FINALIZERS: Final = "NamespaceFinalizersRemaining"

_FINE: Final = {
    _DISCOVERY: ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    _CONTENT: (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    _REMAINING: ("ContentRemoved", "All content successfully removed"),
    _FINALIZERS: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""Conditions in their order, with reason and message where nothing is wrong."""


class NamespaceContentError(Exception):
    """Some contents of a namespace could not be deleted."""


class _Remaining(NamedTuple):
    """The remaining objects of one resource."""

    estimate_s: int
    items: int
    finalizers: Counter[str]
    error: str = ""


class _Progress:
    """The remaining contents of a namespace."""

    def __init__(self) -> None:
        self.estimate_s = 0
        self.counts: dict[ResourceType, int] = {}
        self.finalizers: Counter[str] = Counter()
        self.errors: list[str] = []
        self.is_only_pods = False

    def add(self, resource: ResourceType, left: _Remaining) -> None:
        """Add the remaining objects of a resource."""
        self.estimate_s = max(self.estimate_s, left.estimate_s)
        if left.error:
            self.errors.append(left.error)
        if left.items:
            self.counts[resource] = left.items
            self.finalizers.update(left.finalizers)


class NamespaceController(BaseController):
    """Deletes namespaces with all they have."""

    workers = 10
    back_off = BackOff(max_s=60.0)

    def __init__(self) -> None:
        """Watch namespaces."""
        self.identity: Identity = Identity(
            "namespace-controller", "namespace-controller", "namespace-controller"
        )
        self.watches: Sequence[Watch] = (Watch(NAMESPACES, _keys_of_namespace),)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one namespace."""
        namespace = yield from _read(key)
        if namespace is None or not is_deleting(namespace):
            return None
        namespace = yield from self._mark(namespace)
        if namespace is None or not (namespace.get("spec") or {}).get("finalizers"):
            return None
        estimate_s = yield from self._delete_content(namespace, now_s)
        if estimate_s > 0:
            return Again(estimate_s // 2 + 1)
        yield from self._finalize(namespace)
        return None

    def _mark(self, namespace: Object) -> Generator[Step, list[Outcome], Object | None]:
        """Set the phase; return the namespace as it is now, or None if it is gone."""
        while True:
            status = namespace.get("status") or {}
            if status.get("phase") == "Terminating":
                return namespace
            marked = {**namespace, "status": {**status, "phase": "Terminating"}}
            [outcome] = yield [Update(NAMESPACES, marked, "status")]
            if outcome.is_conflict:
                fresh = yield from _read(key_of(namespace))
                if fresh is None or not _is_same(fresh, namespace):
                    return None
                namespace = fresh
                continue
            return None if outcome.is_not_found else outcome.result()

    def _finalize(self, namespace: Object) -> Generator[Step, list[Outcome], None]:
        while True:
            rest = [each for each in namespace["spec"]["finalizers"] if each != _FINALIZER]
            spec = {**namespace["spec"], "finalizers": rest}
            meta = namespace["metadata"]
            body = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {name: meta[name] for name in ("name", "uid", "resourceVersion")},
                "spec": spec,
            }
            [outcome] = yield [Update(NAMESPACES, body, "finalize")]
            if outcome.is_conflict:
                fresh = yield from _read(meta["name"])
                if fresh is None or not _is_same(fresh, namespace):
                    return
                namespace = fresh
                continue
            if not outcome.is_not_found:
                outcome.result()
            return

    # Content.

    def _delete_content(
        self, namespace: Object, now_s: float
    ) -> Generator[Step, list[Outcome], int]:
        """Delete all there is; return in how many seconds what is left may be gone."""
        progress = _Progress()
        discovery = yield from discover()
        failure = discovery.failure_text() if discovery.failures else ""
        resources = [each for each in discovery.preferred("delete") if each.is_namespaced]
        if PODS in resources:
            left = yield from self._delete_all(PODS, namespace, discovery, now_s)
            progress.add(PODS, left)
            progress.is_only_pods = bool(left.items)
        if not progress.is_only_pods:
            for resource in resources:
                if resource != PODS:
                    left = yield from self._delete_all(resource, namespace, discovery, now_s)
                    progress.add(resource, left)
        yield from self._write_conditions(namespace, discovery, progress, now_s)
        errors = [*([failure] if failure else ()), *progress.errors]
        if errors:
            if progress.is_only_pods and progress.errors:
                name = namespace["metadata"]["name"]
                errors[-1] = f"failed to delete pods for namespace: {name}, err: {errors[-1]}"
            raise NamespaceContentError(", ".join(errors))
        return progress.estimate_s

    def _delete_all(
        self, resource: ResourceType, namespace: Object, discovery: Discovery, now_s: float
    ) -> Generator[Step, list[Outcome], _Remaining]:
        name = namespace["metadata"]["name"]
        estimate_s = 0
        try:
            if resource == PODS:
                estimate_s = yield from self._estimate(namespace, now_s)
            yield from self._delete_each(resource, name, discovery)
            [listed] = yield [ListLive(resource, name, metadata_only=True)]
            if listed.code in _UNSUPPORTED:
                return _Remaining(estimate_s, 0, Counter())
            items = listed.result()["items"]
        except (ApiError, UnreachableError) as error:
            return _Remaining(estimate_s, 0, Counter(), str(error))
        if not items:
            return _Remaining(0, 0, Counter())
        finalizers = Counter(
            each for item in items for each in item["metadata"].get("finalizers") or ()
        )
        if estimate_s or finalizers:
            return _Remaining(estimate_s or _HELD_S, len(items), finalizers)
        at = f"{resource.group}/{resource.version}, Resource={resource.name}"
        text = f"unexpected items still remain in namespace: {name} for gvr: {at}"
        return _Remaining(0, len(items), finalizers, text)

    def _delete_each(
        self, resource: ResourceType, namespace: str, found: Discovery
    ) -> Generator[Step, list[Outcome], None]:
        if "deletecollection" in found.verbs_of(resource):
            [outcome] = yield [DeleteCollection(resource, namespace, propagation="Background")]
            if outcome.code not in _UNSUPPORTED:
                outcome.result()
                return
        [listed] = yield [ListLive(resource, namespace, metadata_only=True)]
        if listed.code in _UNSUPPORTED:
            return
        outcomes = yield [
            Delete(resource, namespace, item["metadata"]["name"], propagation="Background")
            for item in listed.result()["items"]
        ]
        for outcome in outcomes:
            if outcome.code not in _UNSUPPORTED:
                outcome.result()

    def _estimate(self, namespace: Object, now_s: float) -> Generator[Step, list[Outcome], int]:
        """Return the longest grace of a pod, unless it has passed since the deletion."""
        listed = yield from do(ListLive(PODS, namespace["metadata"]["name"]))
        estimate_s = max(
            (
                pod["spec"].get("terminationGracePeriodSeconds") or 0
                for pod in listed["items"]
                if not is_ended(pod)
            ),
            default=0,
        )
        since_s = seconds_of(namespace["metadata"]["deletionTimestamp"]) or 0.0
        return 0 if now_s - since_s >= estimate_s else estimate_s

    # Conditions.

    def _write_conditions(
        self, namespace: Object, found: Discovery, progress: _Progress, now_s: float
    ) -> Generator[Step, list[Outcome], None]:
        status = namespace["status"]
        before = status.get("conditions") or []
        after = _with_conditions(before, _wrong(found, progress), now_s)
        if after == before:
            return
        updated = {**namespace, "status": {**status, "conditions": after}}
        # After a refusal another writer, or the next round, will do it.
        yield [Update(NAMESPACES, updated, "status")]


def _read(name: str) -> Generator[Step, list[Outcome], Object | None]:
    [outcome] = yield [Get(NAMESPACES, "", name)]
    return None if outcome.is_not_found else outcome.result()


def _is_same(left: Object, right: Object) -> bool:
    same: bool = left["metadata"]["uid"] == right["metadata"]["uid"]
    return same


def _wrong(found: Discovery, progress: _Progress) -> dict[str, tuple[str, str]]:
    """Return reason and message of the conditions that are True."""
    wrong: dict[str, tuple[str, str]] = {}
    if found.failures:
        count = len(found.failures)
        text = f"Discovery failed for some groups, {count} failing: {found.failure_text()}"
        wrong[_DISCOVERY] = ("DiscoveryFailed", text)
    if progress.errors:
        count = len(progress.errors)
        texts = ", ".join(sorted(progress.errors))
        text = f"Failed to delete all resource types, {count} remaining: {texts}"
        wrong[_CONTENT] = ("ContentDeletionFailed", text)
    if progress.is_only_pods:
        return wrong  # the counts are reported only once the other resources were tried
    if progress.counts:
        texts = ", ".join(
            sorted(
                f"{resource.name}.{resource.group} has {count} resource instances"
                for resource, count in progress.counts.items()
            )
        )
        wrong[_REMAINING] = ("SomeResourcesRemain", f"Some resources are remaining: {texts}")
    if progress.finalizers:
        texts = ", ".join(
            sorted(
                f"{name} in {count} resource instances"
                for name, count in progress.finalizers.items()
            )
        )
        text = f"Some content in the namespace has finalizers remaining: {texts}"
        wrong[_FINALIZERS] = ("SomeFinalizersRemain", text)
    return wrong


def _with_conditions(
    before: Sequence[Object], wrong: dict[str, tuple[str, str]], now_s: float
) -> list[Object]:
    after = list(before)
    for type_, fine in _FINE.items():
        status = "True" if type_ in wrong else "False"
        reason, message = wrong.get(type_, fine)
        new = {
            "type": type_,
            "status": status,
            "lastTransitionTime": format_time(now_s),
            "reason": reason,
            "message": message,
        }
        old = conditions.find(before, type_)
        names = ("status", "reason", "message")
        if old is None or any(old.get(name) != new[name] for name in names):
            after = conditions.set_condition(after, new)
    return after


def _keys_of_namespace(old: Object | None, new: Object | None, view: View) -> Iterable[Later]:
    if new is not None and is_deleting(new):
        yield Later(key_of(new), _BEGUN_S)
