"""The status of a Deployment: counts of its ReplicaSets, and the conditions.

counted(deployment, new, sets, now_s)           counts, Available
with_progress(deployment, new, sets, status, …)  and Progressing, ReplicaFailure
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kvstack.agents.controllers.workloads.deployments.counts import bounds, total_size
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time

AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
REPLICA_FAILURE: Final = "ReplicaFailure"

NEW_SET_CREATED: Final = "NewReplicaSetCreated"
FOUND_NEW_SET: Final = "FoundNewReplicaSet"
SET_UPDATED: Final = "ReplicaSetUpdated"
NEW_SET_AVAILABLE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"
PAUSED: Final = "DeploymentPaused"
RESUMED: Final = "DeploymentResumed"
SET_CREATE_ERROR: Final = "ReplicaSetCreateError"

_NO_LIMIT: Final = 2**31 - 1


def condition(type_: str, status: str, reason: str, message: str, now_s: float) -> Object:
    """Return a new condition."""
    now = format_time(now_s)
    return {
        "type": type_,
        "status": status,
        "lastUpdateTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def deadline_s(deployment: Object) -> int | None:
    """Return how long progress may be lacking; None: for ever."""
    seconds: int | None = deployment["spec"].get("progressDeadlineSeconds")
    return None if seconds == _NO_LIMIT else seconds


def history_limit(deployment: Object) -> int | None:
    """Return how many old ReplicaSets are kept; None: all."""
    limit: int | None = deployment["spec"].get("revisionHistoryLimit")
    return None if limit == _NO_LIMIT else limit


def progressing(status: Object) -> Object | None:
    """Return the condition Progressing."""
    return conditions.find(status.get("conditions"), PROGRESSING)


def with_condition(status: Object, new: Object) -> Object:
    """Return a status with one condition set."""
    return {**status, "conditions": conditions.with_condition(status.get("conditions"), new)}


def without_condition(status: Object, type_: str) -> Object:
    """Return a status without a condition."""
    rest = conditions.without(status.get("conditions"), type_)
    without = {name: value for name, value in status.items() if name != "conditions"}
    return {**without, "conditions": rest} if rest else without


def counted(deployment: Object, new: Object | None, sets: Sequence[Object], now_s: float) -> Object:
    """Return the status that counts and availability make; other conditions stay."""
    before = deployment.get("status") or {}
    available = _sum(sets, "availableReplicas")
    counts = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": _sum(sets, "replicas"),
        "updatedReplicas": _sum([new] if new is not None else (), "replicas"),
        "readyReplicas": _sum(sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(total_size(sets) - available, 0),
    }
    status: Object = {name: count for name, count in counts.items() if count}
    terminating = _terminating(sets)
    if terminating is not None:
        status["terminatingReplicas"] = terminating
    for name in ("collisionCount", "conditions"):
        if name in before:
            status[name] = before[name]
    if available >= bounds(deployment).least_available:
        state = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        state = (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    return with_condition(status, condition(AVAILABLE, *state, now_s))


def is_complete(deployment: Object, status: Object) -> bool:
    """Whether all replicas have the new template and are available, and nothing else is left."""
    replicas = bounds(deployment).replicas
    counts = ("updatedReplicas", "replicas", "availableReplicas")
    return all(status.get(name, 0) == replicas for name in counts) and status.get(
        "observedGeneration", 0
    ) >= deployment["metadata"].get("generation", 0)


def with_progress(
    deployment: Object, new: Object | None, sets: Sequence[Object], status: Object, now_s: float
) -> Object:
    """Return a status with what a rollout says of its progress."""
    before = deployment.get("status") or {}
    current = progressing(before)
    if deadline_s(deployment) is None:
        status = without_condition(status, PROGRESSING)
    elif not _is_done(status, current):
        status = _with_advance(deployment, new, status, now_s)
    for replica_set in (*([new] if new is not None else ()), *sets):
        known = (replica_set.get("status") or {}).get("conditions")
        if failure := conditions.find(known, REPLICA_FAILURE):
            return with_condition(status, _of_set(failure))
    return without_condition(status, REPLICA_FAILURE)


def is_timed_out(deployment: Object, status: Object, now_s: float) -> bool:
    """Whether progress has been lacking for too long."""
    limit_s = deadline_s(deployment)
    current = progressing(status)
    if limit_s is None or current is None or current["reason"] == NEW_SET_AVAILABLE:
        return False
    if current["reason"] == TIMED_OUT:
        return True
    since_s = seconds_of(current.get("lastUpdateTime")) or 0.0
    return since_s + limit_s < now_s


def until_deadline_s(deployment: Object, status: Object, now_s: float) -> float | None:
    """Return in how many seconds the deadline is to be checked; None: never."""
    limit_s = deadline_s(deployment)
    current = progressing(status)
    if limit_s is None or current is None or current["reason"] == TIMED_OUT:
        return None
    if is_complete(deployment, status):
        return None
    since_s = seconds_of(current.get("lastUpdateTime")) or 0.0
    # Times of objects are whole seconds.
    return max(since_s + limit_s - now_s, 0.0) + 1.0


def _is_done(status: Object, current: Object | None) -> bool:
    return (
        status.get("replicas", 0) == status.get("updatedReplicas", 0)
        and current is not None
        and current["reason"] == NEW_SET_AVAILABLE
    )


def _with_advance(deployment: Object, new: Object | None, status: Object, now_s: float) -> Object:
    before = deployment.get("status") or {}
    if new is None:
        what = f'Deployment "{deployment["metadata"]["name"]}"'
    else:
        what = f'ReplicaSet "{new["metadata"]["name"]}"'
    if is_complete(deployment, status):
        message = f"{what} has successfully progressed."
        done = condition(PROGRESSING, "True", NEW_SET_AVAILABLE, message, now_s)
        return with_condition(status, done)
    if _has_advanced(before, status):
        # Replaced even if the reason stays: lastUpdateTime is that of the last progress.
        moved = condition(PROGRESSING, "True", SET_UPDATED, f"{what} is progressing.", now_s)
        current = progressing(before)
        if current is not None and current["status"] == "True":
            moved["lastTransitionTime"] = current["lastTransitionTime"]
        rest = conditions.without(status.get("conditions"), PROGRESSING)
        return {**status, "conditions": [*rest, moved]}
    if is_timed_out(deployment, status, now_s):
        message = f"{what} has timed out progressing."
        late = condition(PROGRESSING, "False", TIMED_OUT, message, now_s)
        return with_condition(status, late)
    return status


def _has_advanced(before: Object, after: Object) -> bool:
    def old_replicas(status: Object) -> int:
        count: int = status.get("replicas", 0) - status.get("updatedReplicas", 0)
        return count

    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old_replicas(after) < old_replicas(before) or any(
        after.get(name, 0) > before.get(name, 0) for name in grown
    )


def _of_set(failure: Object) -> Object:
    """Return the condition of a Deployment that a ReplicaSet's makes."""
    return {
        "type": failure["type"],
        "status": failure["status"],
        "lastUpdateTime": failure.get("lastTransitionTime"),
        "lastTransitionTime": failure.get("lastTransitionTime"),
        "reason": failure.get("reason", ""),
        "message": failure.get("message", ""),
    }


def _sum(sets: Iterable[Object], name: str) -> int:
    return sum((each.get("status") or {}).get(name, 0) for each in sets)


def _terminating(sets: Iterable[Object]) -> int | None:
    """Return the number of terminating pods; None: not every ReplicaSet reports it."""
    count = 0
    for each in sets:
        status = each.get("status") or {}
        if "terminatingReplicas" in status:
            count += status["terminatingReplicas"]
        elif status.get("observedGeneration"):
            return None
    return count
