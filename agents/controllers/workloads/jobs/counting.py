"""Counts ended pods of a Job once each, removes their finalizers, and finishes the Job.

uid among the uncounted ─► status written ─► finalizer removed ─► counted ─► status written
"""

from collections.abc import Generator
from typing import TypeAlias

from kvstack.agents.client.built_in import JOBS
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.workloads.jobs import indexes
from kvstack.agents.controllers.workloads.jobs import pods as job_pods
from kvstack.agents.controllers.workloads.jobs.failure_policy import verdict
from kvstack.agents.controllers.workloads.jobs.state import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA,
    JobState,
)
from kvstack.agents.controllers.workloads.jobs.tracking import UNCOUNTED_MAX
from kvstack.agents.reconcile.plan import Outcome, Record, Step, Update, do
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object

Work: TypeAlias = Generator[Step, list[Outcome], None]


def track(state: JobState) -> Work:
    """Count ended pods, remove their finalizers, and finish the Job when all are counted."""
    tracked = {pod["metadata"]["uid"] for pod in state.pods if job_pods.is_tracked(pod)}
    state.is_changed |= state.uncounted.count(tracked)
    leaving = _newly_counted(state)
    is_full = len(state.uncounted) >= UNCOUNTED_MAX
    if state.is_indexed:
        _tell_indexes(state)
    _tell_target(state)
    yield from _write(state)
    outcomes = yield [job_pods.without_finalizer(pod) for pod in leaving]
    error: Exception | None = None
    for pod, outcome in zip(leaving, outcomes, strict=True):
        if outcome.error is None or outcome.is_not_found:
            tracked.discard(pod["metadata"]["uid"])
        else:
            error = error or outcome.error
    state.is_changed |= state.uncounted.count(tracked)
    if error is not None:
        yield from _write(state)
        raise error
    is_over = not is_full and _tell_end(state)
    yield from _write(state)
    if is_over:
        yield _end_events(state)


def _newly_counted(state: JobState) -> list[Object]:
    """Put ended pods among those to be counted; return the pods that may go."""
    leaving: list[Object] = []
    uncounted = {name: set(state.uncounted.of(name)) for name in ("succeeded", "failed")}
    new_indexes = 0
    for pod in state.pods:
        uid = pod["metadata"]["uid"]
        has_failed = job_pods.is_failed(pod, state.job)
        if not job_pods.is_tracked(pod) or not _may_leave(state, pod, has_failed=has_failed):
            continue
        leaving.append(pod)
        if job_pods.phase_of(pod) == "Succeeded" and uid not in uncounted["failed"]:
            if state.is_indexed:
                index = indexes.index_of(pod)
                new_indexes += state.is_valid(pod) and index not in state.completed_before
            elif uid not in uncounted["succeeded"]:
                state.uncounted.add("succeeded", uid)
                state.is_changed = True
        elif (
            (has_failed or state.ends_in_failure)
            and uid not in uncounted["failed"]
            and state.is_valid(pod)
            and verdict(state.job, pod).is_counted
        ):
            state.uncounted.add("failed", uid)
            state.is_changed = True
        if new_indexes + len(state.uncounted) >= UNCOUNTED_MAX:
            break
    state.is_changed |= new_indexes > 0
    return leaving


def _may_leave(state: JobState, pod: Object, *, has_failed: bool) -> bool:
    if is_deleting(state.job) or state.finish is not None or job_pods.phase_of(pod) == "Succeeded":
        return True
    if not has_failed:
        return False
    # The last failed pod of an index stays until its successor has its counts.
    index = indexes.index_of(pod)
    waiting = None if index is None else state.waiting_for_successor.get(index)
    return waiting is None or waiting["metadata"]["uid"] != pod["metadata"]["uid"]


def _tell_indexes(state: JobState) -> None:
    state.set_count("succeeded", len(state.completed))
    completed = indexes.text(state.completed)
    if completed != state.status.get("completedIndexes", ""):
        state.is_changed = True
        state.status["completedIndexes"] = completed
    if state.failed_indexes is not None:
        failed = indexes.text(state.failed_indexes)
        if failed != state.status.get("failedIndexes"):
            state.is_changed = True
            state.status["failedIndexes"] = failed


def _tell_target(state: JobState) -> None:
    """Set the condition of the coming end of a Job, before its pods have ended."""
    finish = state.finish
    if finish is None:
        return
    before = state.status.get("conditions") or []
    if finish["type"] == FAILURE_TARGET:
        state.status["conditions"] = [*before, finish]
        state.is_changed = True
        state.finish = state.condition(FAILED, finish["reason"], finish["message"])
    elif finish["type"] == SUCCESS_CRITERIA:
        if not conditions.is_true(before, SUCCESS_CRITERIA):
            state.status["conditions"] = [*before, finish]
            state.is_changed = True
        state.finish = state.condition(COMPLETE, finish["reason"], finish["message"])


def _tell_end(state: JobState) -> bool:
    """Set the condition of the end of a Job, if all of its pods have ended."""
    if state.finish is None or len(state.uncounted) or state.terminating_count > 0:
        return False
    known = state.status.get("conditions") or []
    state.status["conditions"] = conditions.replaced(known, state.finish)
    if state.finish["type"] == COMPLETE:
        state.status["completionTime"] = state.finish["lastTransitionTime"]
    state.is_changed = True
    return True


def _end_events(state: JobState) -> list[Record]:
    assert state.finish is not None
    if state.finish["type"] != COMPLETE:
        reason, message = state.finish["reason"], state.finish["message"]
        return [Record(state.job, "Warning", reason, message)]
    records = [Record(state.job, "Normal", "Completed", "Job completed")]
    completions = state.spec.get("completions")
    if completions is not None and state.status.get("succeeded", 0) > completions:
        text = "Too many succeeded pods running after completion count reached"
        records.insert(0, Record(state.job, "Warning", "TooManySucceededPods", text))
    return records


def _write(state: JobState) -> Work:
    if not state.is_changed:
        return
    changed = {**state.job, "status": dict(state.status)}
    state.job = yield from do(Update(JOBS, changed, "status"))
    state.is_changed = False
    state.failures = state.new_failures
