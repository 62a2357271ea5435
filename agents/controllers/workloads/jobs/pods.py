"""Pods of a Job: templates and predicates.

Each has a finalizer until it is counted, so that none that ended is missed.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kvstack.agents.client.built_in import PODS
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.workloads.jobs import back_off
from kvstack.agents.controllers.workloads.jobs.failure_policy import verdict
from kvstack.agents.controllers.workloads.jobs.indexes import INDEX, index_of
from kvstack.agents.controllers.workloads.pod_rules import ActiveOrder, from_template
from kvstack.agents.reconcile.plan import Patch
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH

FINALIZER: Final = "batch.kubernetes.io/job-tracking"
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES: Final = "batch.kubernetes.io/job-index-ignored-failure-count"
_INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
_GENERATED_MAX: Final = 58


def is_indexed(job: Object) -> bool:
    """Whether each pod has a completion index."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def has_limit_per_index(job: Object) -> bool:
    """Whether failures are counted for each index."""
    return job["spec"].get("backoffLimitPerIndex") is not None


def is_suspended(job: Object) -> bool:
    """Whether a Job is suspended."""
    return bool(job["spec"].get("suspend"))


def replaces_failed_only(job: Object) -> bool:
    """Whether a pod is replaced only once it has ended."""
    return bool(job["spec"].get("podReplacementPolicy") == "Failed")


def is_tracked(pod: Object) -> bool:
    """Whether a pod is still to be counted."""
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def phase_of(pod: Object) -> str:
    """Return the phase of a pod."""
    phase: str = (pod.get("status") or {}).get("phase", "")
    return phase


def is_failed(pod: Object, job: Object) -> bool:
    """Whether a pod counts as failed: it has, or it is terminating and replaced at once."""
    phase = phase_of(pod)
    if phase == "Failed":
        return True
    if replaces_failed_only(job):
        return False
    return is_deleting(pod) and phase != "Succeeded"


def failures_of(pod: Object, *, with_ignored: bool = False) -> int:
    """Return how many pods of the same index failed before this one."""
    annotations = pod["metadata"].get("annotations") or {}
    names = (FAILURES, IGNORED_FAILURES) if with_ignored else (FAILURES,)
    return sum(_count(annotations.get(name, "")) for name in names)


def _count(text: str) -> int:
    is_number = text.isascii() and text.isdecimal()
    return int(text) if is_number and int(text) < 2**31 else 0


def without_finalizer(pod: Object) -> Patch:
    """Return the patch that lets a pod go."""
    meta = pod["metadata"]
    body = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
    return Patch(PODS, meta["namespace"], meta["name"], body, STRATEGIC_MERGE_PATCH)


def for_removal(job: Object, active: Sequence[Object], at_least: int) -> list[Object]:
    """Return the pods to delete: those that double an index, and as many others as need be."""
    removed: list[Object] = []
    left = list(active)
    if is_indexed(job):
        by_index: dict[int | None, list[Object]] = {}
        for pod in active:
            index = index_of(pod)
            known = index if index is not None and index < job["spec"]["completions"] else None
            by_index.setdefault(known, []).append(pod)
        removed = by_index.pop(None, [])
        left = []
        for pods in by_index.values():
            *doubled, kept = sorted(pods, key=ActiveOrder())
            removed += doubled
            left.append(kept)
    if len(removed) < at_least:
        removed += sorted(left, key=ActiveOrder())[: at_least - len(removed)]
    return removed


def last_failed_by_index(failed: Iterable[Object]) -> dict[int, Object]:
    """Return the pod of each index that failed last: it waits until it is replaced."""
    last: dict[int, Object] = {}
    for pod in failed:
        index = index_of(pod)
        if index is None:
            continue
        before = last.get(index)
        if before is None or (
            failures_of(before, with_ignored=True) <= failures_of(pod, with_ignored=True)
            and back_off.finished_s(before) <= back_off.finished_s(pod)
        ):
            last[index] = pod
    return last


def new_pod(job: Object) -> Object:
    """Return a new pod of a Job."""
    pod = from_template(job["spec"]["template"], job)
    finalizers = pod["metadata"].setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    return pod


def new_indexed_pod(job: Object, index: int, replaced: Object | None) -> Object:
    """Return a new pod of an index; replaced: the one that failed before."""
    pod = new_pod(job)
    meta = pod["metadata"]
    name = job["metadata"]["name"]
    suffix = f"-{index}-"
    meta["generateName"] = f"{name[: _GENERATED_MAX - len(suffix)]}{suffix}"
    annotations = meta.setdefault("annotations", {})
    annotations[INDEX] = str(index)
    meta["labels"][INDEX] = str(index)
    if has_limit_per_index(job):
        annotations.update(_failure_counts(job, replaced))
    spec = {**pod["spec"], "hostname": f"{name}-{index}"}
    for part in ("initContainers", "containers"):
        if spec.get(part):
            spec[part] = [_with_index(each) for each in spec[part]]
    pod["spec"] = spec
    return pod


def _failure_counts(job: Object, replaced: Object | None) -> dict[str, str]:
    """Return the annotations that say how many pods of an index failed."""
    failures = ignored = 0
    if replaced is not None:
        failures = failures_of(replaced)
        ignored = failures_of(replaced, with_ignored=True) - failures
        if verdict(job, replaced).is_counted:
            failures += 1
        else:
            ignored += 1
    counts = {FAILURES: str(failures)}
    if ignored:
        counts[IGNORED_FAILURES] = str(ignored)
    return counts


def _with_index(container: Object) -> Object:
    variables = container.get("env") or []
    if any(each["name"] == _INDEX_VARIABLE for each in variables):
        return container
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    return {**container, "env": [*variables, {"name": _INDEX_VARIABLE, "valueFrom": source}]}
