"""The delay before a Job creates pods after failures: longer with each one.

    record = after(Record(0, None), succeeded=[], failed=[pod])
    remaining_s(record, now_s)   → 10, 20, 40 … 600 seconds since the last failure

A success ends the wait.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kvstack.agents.controllers.workloads.pod_rules import ready_condition, seconds_of
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.json_object import Object

_FIRST_S: Final = 10.0
_MAX_S: Final = 600.0
_DOUBLINGS_MAX: Final = 6


class Record(NamedTuple):
    """The failures of a Job."""

    failures: int
    """Since the last success."""
    last_s: float
    """The time of the last failure."""


NO_FAILURES: Final = Record(0, 0.0)


def after(record: Record, succeeded: Iterable[Object], failed: Iterable[Object]) -> Record:
    """Return a record with pods that have ended."""
    failures = sorted(map(finished_s, failed))
    successes = sorted(map(finished_s, succeeded))
    if not successes:
        if not failures:
            return record
        return Record(record.failures + len(failures), failures[-1])
    later = [moment for moment in failures if moment > successes[-1]]
    return Record(len(later), later[-1]) if later else NO_FAILURES


def remaining_s(record: Record, now_s: float) -> float:
    """Return how long to wait still."""
    if not record.failures:
        return 0.0
    doubled: int = 1 << min(record.failures - 1, _DOUBLINGS_MAX)
    wait_s = min(_FIRST_S * doubled, _MAX_S)
    return max(wait_s - (now_s - record.last_s), 0.0)


def finished_s(pod: Object) -> float:
    """Return when a pod ended, as far as its status shows."""
    ended_s = _containers_finished_s(pod)
    if ended_s is not None:
        return ended_s
    condition = ready_condition(pod)
    if condition is not None and condition.get("status") == "False":
        ended_s = seconds_of(condition.get("lastTransitionTime"))
        if ended_s is not None:
            return ended_s
    meta = pod["metadata"]
    deleted_s = seconds_of(meta.get("deletionTimestamp"))
    if deleted_s is not None:
        return deleted_s - float(meta.get("deletionGracePeriodSeconds") or 0)
    return seconds_of(meta.get("creationTimestamp")) or 0.0


def _containers_finished_s(pod: Object) -> float | None:
    """Return when the last container ended; None: one has not, or its status does not show it."""
    status = pod.get("status") or {}
    sidecars = {
        each["name"] for each in pod["spec"].get("initContainers") or () if is_sidecar(each)
    }
    containers = [
        *(status.get("containerStatuses") or ()),
        *(each for each in status.get("initContainerStatuses") or () if each["name"] in sidecars),
    ]
    moments = [
        seconds_of(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for each in containers
    ]
    known = [moment for moment in moments if moment is not None]
    return max(known) if known and len(known) == len(moments) else None
