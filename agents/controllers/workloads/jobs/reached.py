"""Whether a Job is to end, and why."""

from kvstack.agents.controllers.workloads.jobs import indexes
from kvstack.agents.controllers.workloads.jobs import pods as job_pods
from kvstack.agents.controllers.workloads.jobs.failure_policy import verdict
from kvstack.agents.controllers.workloads.jobs.state import (
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA,
    JobState,
)
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object


def reached(state: JobState) -> Object | None:
    """Return the condition of a Job that is to end."""
    found = state.status.get("conditions")
    if conditions.is_true(found, SUCCESS_CRITERIA):
        return conditions.find(found, SUCCESS_CRITERIA)
    target = conditions.find(found, FAILURE_TARGET)
    if target is not None and target["status"] == "True":
        return state.condition(FAILED, target["reason"], target["message"])
    for pod in state.pods if state.spec.get("podFailurePolicy") else ():
        if job_pods.is_failed(pod, state.job):
            message = verdict(state.job, pod).message
            if message:
                return state.condition(FAILURE_TARGET, "PodFailurePolicy", message)
    return _past_limit(state) or (_past_indexes(state) if state.is_indexed else None)


def _past_limit(state: JobState) -> Object | None:
    limit = state.spec.get("backoffLimit", 6)
    if state.failed > limit or _restarts_are_past(state, limit):
        text = "Job has reached the specified backoff limit"
        return state.condition(FAILURE_TARGET, "BackoffLimitExceeded", text)
    deadline_s = state.spec.get("activeDeadlineSeconds")
    started_s = seconds_of(state.status.get("startTime"))
    if deadline_s is None or state.is_suspended or started_s is None:
        return None
    left_s = started_s + deadline_s - state.now_s
    if left_s > 0:
        state.waits.append(left_s)
        return None
    text = "Job was active longer than specified deadline"
    return state.condition(FAILURE_TARGET, "DeadlineExceeded", text)


def _restarts_are_past(state: JobState, limit: int) -> bool:
    """Whether containers that are restarted in place have exceeded the limit."""
    if state.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        container.get("restartCount", 0)
        for pod in state.pods
        if job_pods.phase_of(pod) in ("Running", "Pending")
        for part in ("initContainerStatuses", "containerStatuses")
        for container in pod["status"].get(part) or ()
    )
    return bool(restarts >= limit if limit else restarts > 0)


def _past_indexes(state: JobState) -> Object | None:
    failed = state.failed_indexes
    completions = state.spec["completions"]
    if failed is not None:
        most = state.spec.get("maxFailedIndexes")
        if most is not None and len(failed) > most:
            text = "Job has exceeded the specified maximal number of failed indexes"
            return state.condition(FAILURE_TARGET, "MaxFailedIndexesExceeded", text)
        if failed and len(failed) + len(state.completed) >= completions:
            text = "Job has failed indexes"
            return state.condition(FAILURE_TARGET, "FailedIndexes", text)
    policy = state.spec.get("successPolicy") or {}
    for number, rule in enumerate(policy.get("rules") or ()):
        if _meets(state, rule, completions):
            text = f"Matched rules at index {number}"
            return state.condition(SUCCESS_CRITERIA, "SuccessPolicy", text)
    return None


def _meets(state: JobState, rule: Object, completions: int) -> bool:
    count = rule.get("succeededCount")
    if rule.get("succeededIndexes") is None:
        return count is not None and len(state.completed) >= count
    wanted = indexes.parse(rule["succeededIndexes"], completions)
    met = len(wanted & state.completed)
    return bool(wanted) and (met == len(wanted) or (count is not None and met >= count))
