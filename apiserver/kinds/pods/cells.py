"""Table rows of pods: NAME READY STATUS RESTARTS AGE and the wide columns."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.core.pod_status import condition_of, is_ended, is_ready
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import age, human_duration, parse_time

NONE: Final = "<none>"

_FINISHED: Final = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


class _ContainerCounts(NamedTuple):
    """Counts over container statuses."""

    restarts: int
    last_restart: float
    """When the last of them ended before its restart, seconds; 0: no restarts."""

    def plus(self, status: Object) -> "_ContainerCounts":
        ended = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
        last = float(parse_time(ended)[0]) if ended else 0.0
        restarts = self.restarts + status.get("restartCount", 0)
        return _ContainerCounts(restarts, max(self.last_restart, last))


_NOTHING: Final = _ContainerCounts(0, 0.0)


def cells(pod: Object, now: float) -> list[Any]:
    """Return the cells of the row."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {
        each.get("name", "") for each in spec.get("initContainers") or () if is_sidecar(each)
    }
    total = len(spec.get("containers") or ()) + len(sidecars)
    ready, reason, counted = _summary(pod, sidecars)
    restarts = str(counted.restarts)
    if counted.restarts and counted.last_restart:
        restarts = f"{restarts} ({human_duration(now - counted.last_restart)} ago)"
    addresses = status.get("podIPs")
    return [
        metadata.get("name", ""),
        f"{ready}/{total}",
        reason,
        restarts,
        age(metadata.get("creationTimestamp"), now),
        (addresses[0].get("ip") if addresses else "") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(pod, spec),
    ]


def row_conditions(pod: Object) -> list[Object]:
    """Return the conditions of the row: whether the pod has ended."""
    phase = (pod.get("status") or {}).get("phase", "")
    message = _FINISHED.get(phase)
    if message is None:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


def _summary(pod: Object, sidecars: set[str]) -> tuple[int, str, _ContainerCounts]:
    """Return the number of ready containers, the status as one word, and the restarts."""
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase", "")
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    init = _init_summary(pod, status.get("initContainerStatuses") or (), sidecars)
    ready, init_reason, counted, sidecars_counted = init
    initialized = condition_of(pod, "Initialized")
    if init_reason is None or (initialized is not None and initialized.get("status") == "True"):
        counted = sidecars_counted
        ready, reason, counted = _main_summary(pod, ready, init_reason or reason, counted)
    else:
        reason = init_reason
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif not is_ended(pod):
            reason = "Terminating"
    return ready, reason, counted


def _init_summary(
    pod: Object, statuses: Sequence[Object], sidecars: set[str]
) -> tuple[int, str | None, _ContainerCounts, _ContainerCounts]:
    """Return ready sidecars, the reason of waiting, all restarts, and those of sidecars."""
    ready = 0
    counted = of_sidecars = _NOTHING
    for position, status in enumerate(statuses):
        counted = counted.plus(status)
        is_one = status.get("name", "") in sidecars
        if is_one:
            of_sidecars = of_sidecars.plus(status)
        state = status.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended is not None and not ended.get("exitCode"):
            continue
        if is_one and status.get("started"):
            ready += bool(status.get("ready"))
            continue
        if ended is not None:
            reason = ended.get("reason") or _ended(ended)
        elif waiting is not None and waiting.get("reason") not in {None, "", "PodInitializing"}:
            reason = waiting["reason"]
        else:
            reason = f"{position}/{len((pod.get('spec') or {}).get('initContainers') or ())}"
        return ready, f"Init:{reason}", counted, of_sidecars
    return ready, None, counted, of_sidecars


def _main_summary(
    pod: Object, ready: int, reason: str, counted: _ContainerCounts
) -> tuple[int, str, _ContainerCounts]:
    is_running = False
    error = ""
    for status in reversed((pod.get("status") or {}).get("containerStatuses") or ()):
        counted = counted.plus(status)
        state = status.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if waiting is not None and waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = ended.get("reason") or _ended(ended)
            if ended.get("exitCode"):
                error = reason
        elif status.get("ready") and "running" in state:
            is_running = True
            ready += 1
    if reason == "Completed":
        if is_running and is_ready(pod):
            reason = "Running"
        elif error:
            reason = error
        elif is_running:
            reason = "NotReady"
    return ready, reason, counted


def _ended(ended: Object) -> str:
    signal = ended.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"


def _gates(pod: Object, spec: Object) -> str:
    gates = spec.get("readinessGates")
    if not gates:
        return NONE
    true = sum(
        (condition_of(pod, each.get("conditionType", "")) or {}).get("status") == "True"
        for each in gates
    )
    return f"{true}/{len(gates)}"
