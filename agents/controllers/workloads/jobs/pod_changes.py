"""Creates and deletes pods of a Job, as many as it needs."""

from collections.abc import Generator, Sequence
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import PODS
from kvstack.agents.controllers.workloads.jobs import back_off
from kvstack.agents.controllers.workloads.jobs import pods as job_pods
from kvstack.agents.controllers.workloads.jobs.back_off import Record as Failures
from kvstack.agents.controllers.workloads.jobs.state import JobState, indexes_of
from kvstack.agents.controllers.workloads.pod_rules import is_terminating
from kvstack.agents.reconcile.plan import Create, Delete, Outcome, Record, SlowStart, Step
from kvstack.apimachinery.objects.core.pod_status import is_ready
from kvstack.apimachinery.objects.json_object import Object

Work: TypeAlias = Generator[Step, list[Outcome], None]

_CHANGES_MAX: Final = 500
_BATCH_S: Final = 1.0


def manage(state: JobState) -> Work:
    """Create or delete pods until the desired number is active."""
    if state.is_suspended:
        going = job_pods.for_removal(state.job, state.active, len(state.active))
        yield from delete_pods(state, going, is_let_go=True)
        return
    desired = _desired_active(state)
    surplus = max(state.active_count - desired, 0)
    going = job_pods.for_removal(state.job, state.active, surplus)[:_CHANGES_MAX]
    if going:
        yield from delete_pods(state, going, is_let_go=True)
        return
    is_waiting = job_pods.replaces_failed_only(state.job)
    missing = desired - state.active_count - (state.terminating_count if is_waiting else 0)
    if missing > 0:
        yield from _create(state, min(missing, _CHANGES_MAX))


def _desired_active(state: JobState) -> int:
    """Return how many pods are to be active."""
    parallelism: int = state.spec.get("parallelism", 1)
    completions = state.spec.get("completions")
    if completions is None:
        return state.active_count if state.succeeded > 0 else parallelism
    missing: int = completions - state.succeeded
    return max(min(missing, parallelism), 0)


def _create(state: JobState, count: int) -> Work:
    if not job_pods.has_limit_per_index(state.job):
        wait_s = back_off.remaining_s(state.new_failures, state.now_s)
        if wait_s > 0:
            state.waits.append(max(wait_s, _BATCH_S))
            return
    pods = _new_indexed_pods(state, count) if state.is_indexed else None
    if pods is None:
        pods = [job_pods.new_pod(state.job)] * count
    namespace = state.job["metadata"]["namespace"]
    outcomes = yield SlowStart([Create(PODS, namespace, pod) for pod in pods])
    records = []
    for outcome in outcomes:
        if outcome.is_skipped:
            continue
        if outcome.error is None:
            state.active_count += 1
            text = f"Created pod: {outcome.result()['metadata']['name']}"
            records.append(Record(state.job, "Normal", "SuccessfulCreate", text))
        elif not outcome.is_namespace_terminating:
            text = f"Error creating: {outcome.error}"
            records.append(Record(state.job, "Warning", "FailedCreate", text))
            state.failure = state.failure or outcome.error
    yield records


def _new_indexed_pods(state: JobState, count: int) -> list[Object]:
    """Return pods of the first indexes that have none, as far as they need not wait."""
    taken = state.completed | (state.failed_indexes or set()) | indexes_of(state.active)
    if job_pods.replaces_failed_only(state.job):
        taken |= indexes_of([pod for pod in state.pods if is_terminating(pod)])
    free = [index for index in range(state.spec["completions"]) if index not in taken][:count]
    pods: list[Object] = []
    waits: list[float] = []
    for index in free:
        replaced = state.waiting_for_successor.get(index)
        if replaced is not None:
            failures = Failures(
                job_pods.failures_of(replaced, with_ignored=True) + 1,
                back_off.finished_s(replaced),
            )
            wait_s = back_off.remaining_s(failures, state.now_s)
            if wait_s > 0:
                waits.append(wait_s)
                continue
        pods.append(job_pods.new_indexed_pod(state.job, index, replaced))
    if waits:
        state.waits.append(max(min(waits), _BATCH_S))
    return pods


def delete_pods(
    state: JobState, going: Sequence[Object], *, is_let_go: bool = False
) -> Generator[Step, list[Outcome], int]:
    """Delete pods and return how many are gone; is_let_go: they are no longer counted."""
    if is_let_go:
        patches = [job_pods.without_finalizer(pod) for pod in going if job_pods.is_tracked(pod)]
        for outcome in (yield patches):
            if outcome.error is not None and not outcome.is_not_found:
                state.failure = state.failure or outcome.error
    outcomes = yield [
        Delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in going
    ]
    deleted = 0
    records = []
    for pod, outcome in zip(going, outcomes, strict=True):
        name = pod["metadata"]["name"]
        if outcome.error is None:
            text = f"Deleted pod: {name}"
            records.append(Record(state.job, "Normal", "SuccessfulDelete", text))
        elif not outcome.is_not_found:
            text = f"Error deleting: {outcome.error}"
            records.append(Record(state.job, "Warning", "FailedDelete", text))
            state.failure = state.failure or outcome.error
            continue
        deleted += 1
        state.ready_count -= is_ready(pod)
    state.active_count -= deleted
    state.terminating_count += deleted
    yield records
    return deleted
