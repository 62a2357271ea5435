"""The Job controller: its triggers; finalizers of pods without a Job are removed.

default/sum            a Job
pod:default/sum-x7f2k  a pod that may have lost its Job
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kvstack.agents.client.built_in import JOBS, PODS
from kvstack.agents.client.object_store import key_of, split_key
from kvstack.agents.controllers.ownership import (
    CONTROLLER_INDEX,
    Claim,
    OwnerKeys,
    claim,
    controller_of,
    controller_values,
    orphans_value,
)
from kvstack.agents.controllers.workloads.jobs import pods as job_pods
from kvstack.agents.controllers.workloads.jobs.back_off import NO_FAILURES
from kvstack.agents.controllers.workloads.jobs.back_off import Record as Failures
from kvstack.agents.controllers.workloads.jobs.state import JobState, is_finished
from kvstack.agents.controllers.workloads.jobs.sync import sync_job
from kvstack.agents.reconcile.plan import (
    BackOff,
    BaseController,
    Identity,
    Index,
    Later,
    Plan,
    Record,
    View,
    Watch,
)
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.json_object import Object

_BATCH_S: Final = 1.0
"""Events of pods are gathered so long."""
_ORPHAN: Final = "pod:"
_OWN_NAME: Final = "kubernetes.io/job-controller"
_MODES: Final = frozenset(("", "Indexed", "NonIndexed"))
"""The completion modes that this controller implements; a newer API server may have others."""
_UNKNOWN_MODE: Final = "Skipped Job sync because completion mode is unknown"


class JobController(BaseController):
    """Keeps Jobs."""

    identity = Identity("job-controller", "job-controller", "job-controller")
    back_off = BackOff(base_s=1.0, max_s=60.0, has_bucket=False)
    indexes: Sequence[Index] = (Index(PODS, CONTROLLER_INDEX, controller_values),)

    def __init__(self) -> None:
        """Start with no failures."""
        self._owners = OwnerKeys(JOBS)
        self.watches: Sequence[Watch] = (
            Watch(JOBS, self._keys_of_job),
            Watch(PODS, self._keys_of_pod),
        )
        self._failures: dict[str, Failures] = {}

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one Job, or one pod that may have lost its Job."""
        if key.startswith(_ORPHAN):
            yield from _let_go(view.get(PODS, key.removeprefix(_ORPHAN)), view)
            return None
        job = view.get(JOBS, key)
        if job is None or is_finished(job):
            self._failures.pop(key, None)
            return None
        spec = job["spec"]
        if _is_of_another(job):
            return None
        if spec.get("completionMode", "") not in _MODES:
            yield [Record(job, "Warning", "UnknownCompletionMode", _UNKNOWN_MODE)]
            return None
        namespace, _ = split_key(key)
        candidates = (
            *view.by_index(PODS, CONTROLLER_INDEX, job["metadata"]["uid"]),
            *view.by_index(PODS, CONTROLLER_INDEX, orphans_value(namespace)),
        )
        selector = labels.from_object(spec.get("selector"))
        what = Claim(PODS, JOBS, job, selector, (job_pods.FINALIZER,))
        pods = yield from claim(what, candidates)
        state = JobState(job, pods, self._failures.get(key, NO_FAILURES), now_s)
        try:
            return (yield from sync_job(state))
        finally:
            self._failures[key] = state.failures

    def _keys_of_job(
        self, old: Object | None, new: Object | None, view: View
    ) -> Iterator[str | Later]:
        job = new or old or {}
        key = key_of(job)
        if new is None or is_finished(new):
            yield key
            for pod in view.by_index(PODS, CONTROLLER_INDEX, job["metadata"]["uid"]):
                if job_pods.is_tracked(pod):
                    yield _ORPHAN + key_of(pod)
        elif old is not None and _generation(old) == _generation(new):
            yield Later(key, _BATCH_S)
        else:
            yield key

    def _keys_of_pod(
        self, old: Object | None, new: Object | None, view: View
    ) -> Iterable[str | Later]:
        keys: list[str | Later] = [Later(key, _BATCH_S) for key in self._owners(old, new, view)]
        if new is not None and job_pods.is_tracked(new) and _has_no_job(new, view):
            keys.append(_ORPHAN + key_of(new))
        return keys


def _generation(job: Object) -> int:
    generation: int = job["metadata"].get("generation", 0)
    return generation


def _is_of_another(job: Object) -> bool:
    """Whether another controller manages a Job."""
    return job["spec"].get("managedBy") not in (None, _OWN_NAME)


def _has_no_job(pod: Object, view: View) -> bool:
    """Whether no controller will count a pod."""
    reference = controller_of(pod)
    if reference is None:
        return True
    if reference["kind"] != JOBS.kind:
        return False
    job = view.get(JOBS, f"{pod['metadata']['namespace']}/{reference['name']}")
    if job is None or job["metadata"]["uid"] != reference["uid"]:
        return True
    return is_finished(job) and not _is_of_another(job)


def _let_go(pod: Object | None, view: View) -> Plan:
    """Remove the finalizer of a pod that no controller will count."""
    if pod is None or not job_pods.is_tracked(pod) or not _has_no_job(pod, view):
        return None
    [outcome] = yield [job_pods.without_finalizer(pod)]
    if outcome.error is not None and not outcome.is_not_found:
        raise outcome.error
    return None
