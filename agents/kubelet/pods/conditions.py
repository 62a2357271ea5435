"""The conditions of a pod; their transition times stay while their status does."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from kvstack.agents.kubelet.pods import resizes
from kvstack.agents.kubelet.pods.worker import Memory
from kvstack.apimachinery.objects.core.conditions import transition_time
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.core.pod_status import ENDED_PHASES
from kvstack.apimachinery.objects.json_object import Object

_Value: TypeAlias = tuple[str, str, str]
"""Status, reason, message."""

_TRUE: Final = ("True", "", "")
_DISRUPTION: Final = "DisruptionTarget"
_RESTARTING: Final = "AllContainersRestarting"
_OWN_CONDITIONS: Final = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
)


def conditions_of(
    pod: Object,
    phase: str,
    inits: Sequence[Object],
    regular: Sequence[Object],
    memory: Memory,
    now: str,
) -> list[Object]:
    """Return the conditions of a pod; inits, regular: statuses of its containers."""
    old = (pod.get("status") or {}).get("conditions") or ()
    before = {each["type"]: each for each in old}
    readiness = _readiness(pod, phase, inits, regular)
    values = (
        _sandbox(memory),
        _initialized(pod, phase, inits, regular),
        _gated(pod, readiness, old),
        readiness,
        _TRUE,
    )
    found: list[tuple[str, _Value]] = list(zip(_OWN_CONDITIONS, values, strict=True))
    if memory.is_disrupted:
        found.insert(0, (_DISRUPTION, ("True", "TerminationByKubelet", memory.message)))
    if memory.is_restarting_all or _RESTARTING in before:
        is_so = ("True", "RestartAllContainersStarted", "container exited with restart policy rule")
        found.append((_RESTARTING, is_so if memory.is_restarting_all else ("False", "", "")))
    resized = [(type_, ("True", *fields)) for type_, fields in resizes.conditions_of(memory.resize)]
    found[:0] = resized
    generation = pod["metadata"].get("generation", 1)
    return [_condition(type_, value, before.get(type_), generation, now) for type_, value in found]


def _sandbox(memory: Memory) -> _Value:
    if memory.has_sandbox:
        return _TRUE
    message = "pod sandbox is not ready" if memory.had_sandbox else "no pod sandbox exists"
    return "False", "PodSandboxNotReady", message


def _initialized(
    pod: Object, phase: str, inits: Sequence[Object], regular: Sequence[Object]
) -> _Value:
    if phase == "Succeeded":
        return "True", "PodCompleted", ""
    if any("containerID" in each for each in regular):
        return _TRUE
    incomplete = [
        status["name"]
        for init, status in zip(pod["spec"].get("initContainers") or (), inits, strict=True)
        if not status["started" if is_sidecar(init) else "ready"]
    ]
    if not incomplete:
        return _TRUE
    message = f"containers with incomplete status: [{' '.join(incomplete)}]"
    return "False", "ContainersNotInitialized", message


def _readiness(
    pod: Object, phase: str, inits: Sequence[Object], regular: Sequence[Object]
) -> _Value:
    """Return whether all containers that are to run are ready."""
    if phase in ENDED_PHASES:
        return "False", "PodCompleted" if phase == "Succeeded" else "PodFailed", ""
    specified = zip(pod["spec"].get("initContainers") or (), inits, strict=True)
    sidecars = [status for init, status in specified if is_sidecar(init)]
    unready = [each["name"] for each in (*sidecars, *regular) if not each["ready"]]
    if not unready:
        return _TRUE
    message = f"containers with unready status: [{' '.join(unready)}]"
    return "False", "ContainersNotReady", message


def _gated(pod: Object, readiness: _Value, old: Iterable[Object]) -> _Value:
    """Return readiness of a pod: its containers', and what its readiness gates ask for."""
    gates = [each["conditionType"] for each in pod["spec"].get("readinessGates") or ()]
    if readiness[0] != "True" or not gates:
        return readiness
    values = {each["type"]: each["status"] for each in old}
    missing = []
    for gate in gates:
        if gate not in values:
            missing.append(
                f'corresponding condition of pod readiness gate "{gate}" does not exist.'
            )
        elif values[gate] != "True":
            missing.append(
                f'the status of pod readiness gate "{gate}" is not "True", but {values[gate]}'
            )
    if not missing:
        return readiness
    return ("False", "ReadinessGatesNotReady", ", ".join(missing))


def _condition(
    type_: str, value: _Value, before: Object | None, generation: int, now: str
) -> Object:
    """Return a condition for a patch: what is None is taken away."""
    status, reason, message = value
    return {
        "type": type_,
        "status": status,
        "observedGeneration": generation,
        "lastProbeTime": None,
        "lastTransitionTime": transition_time(before, status, now),
        "reason": reason or None,
        "message": message or None,
    }
