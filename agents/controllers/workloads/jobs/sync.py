"""One sync of a Job: its end, the pods that it needs, and how they are counted.

SuccessCriteriaMet ─► all pods have ended ─► Complete
FailureTarget      ─► all pods have ended ─► Failed
"""

from collections.abc import Generator
from typing import TypeAlias

from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.workloads.jobs.counting import track
from kvstack.agents.controllers.workloads.jobs.pod_changes import delete_pods, manage
from kvstack.agents.controllers.workloads.jobs.reached import reached
from kvstack.agents.controllers.workloads.jobs.state import (
    SUCCESS_CRITERIA,
    SUSPENDED,
    JobState,
)
from kvstack.agents.reconcile.plan import Again, Outcome, Record, Step
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.times import format_time

Work: TypeAlias = Generator[Step, list[Outcome], None]


def sync_job(state: JobState) -> Generator[Step, list[Outcome], Again | None]:
    """Bring the Job a step further; raises what fails."""
    if not state.status.get("startTime") and not state.is_suspended:
        state.status["startTime"] = format_time(state.now_s)
    if state.is_indexed:
        state.read_indexes()
    state.finish = reached(state)
    if state.finish is not None:
        yield from _end_active(state)
    else:
        yield from _go_on(state)
    state.set_count("active", state.active_count)
    for name, count in (
        ("ready", state.ready_count),
        ("terminating", state.terminating_count),
    ):
        if state.status.get(name) != count:
            state.status[name] = count
            state.is_changed = True
    yield from track(state)
    if state.failure is not None:
        raise state.failure
    return Again(min(state.waits)) if state.waits else None


def _end_active(state: JobState) -> Work:
    """Delete all active pods; the Job ends only once that was done."""
    count = len(state.active)
    deleted = yield from delete_pods(state, state.active)
    if deleted != count:
        state.finish = None


def _go_on(state: JobState) -> Work:
    """Make or delete pods, and see whether the Job is done, suspended or resumed."""
    is_managed = not is_deleting(state.job)
    if is_managed:
        yield from manage(state)
    completions = state.spec.get("completions")
    wanted = 1 if completions is None else completions
    if state.succeeded >= wanted and state.active_count == 0:
        text = "Reached expected number of succeeded pods"
        state.finish = state.condition(SUCCESS_CRITERIA, "CompletionsReached", text)
    elif is_managed:
        yield from _mark_suspended(state)


def _mark_suspended(state: JobState) -> Work:
    before = state.status.get("conditions") or []
    condition = conditions.find(before, SUSPENDED)
    if state.is_suspended:
        new = state.condition(SUSPENDED, "JobSuspended", "Job suspended")
    else:
        new = state.condition(SUSPENDED, "JobResumed", "Job resumed", "False")
        if condition is None:
            return
    if condition is not None and condition["status"] == new["status"]:
        return
    state.status["conditions"] = conditions.replaced(before, new)
    state.is_changed = True
    if state.is_suspended:
        state.status.pop("startTime", None)
        yield [Record(state.job, "Normal", "Suspended", "Job suspended")]
    else:
        state.status["startTime"] = format_time(state.now_s)
        yield [Record(state.job, "Normal", "Resumed", "Job resumed")]
