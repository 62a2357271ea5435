"""What a pod's status says: phase, conditions, statuses of containers.

A status is made anew each time from the pod and its containers; what others own of it is kept by
who writes it. Times of transitions stay while their conditions do.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kvstack.agents.client.timing import time_text
from kvstack.agents.kubelet.pods.probes import is_ready, is_started
from kvstack.agents.kubelet.pods.restarts import should_restart, should_restart_init
from kvstack.agents.kubelet.pods.sandboxes import qos_of
from kvstack.agents.kubelet.pods.worker import CRASH_LOOP, Memory, is_sidecar, newest
from kvstack.agents.kubelet.runtime.runtime import Container
from kvstack.apiserver.objects import durations

Object: TypeAlias = dict[str, Any]

_ENDED: Final = ("Succeeded", "Failed")
_DISRUPTION: Final = "DisruptionTarget"
_RESTARTING: Final = "AllContainersRestarting"
_OWN_CONDITIONS: Final = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
)


def status_of(
    pod: Object,
    containers: Sequence[Container],
    memory: Memory,
    host_ip: str,
    runtime: str,
    now_s: float,
    *,
    pod_ip: str = "",
    is_over: bool = False,
) -> Object:
    """Return the status of a pod that was admitted; is_over: nothing runs, and nothing will.

    pod_ip: of the pod; empty: it has none yet, or it had one and is over.
    """
    spec, old = pod["spec"], pod.get("status") or {}
    history: dict[str, list[Container]] = {}
    for each in containers:
        history.setdefault(each.name, []).append(each)
    waits_for = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
    has_begun = any(each["name"] in history for each in spec["containers"])
    initialized = _INITIALIZED if has_begun else None
    inits = [
        _container(
            pod,
            each,
            history,
            memory,
            old.get("initContainerStatuses"),
            runtime,
            waits_for,
            None if is_sidecar(each) else initialized,
        )
        for each in spec.get("initContainers") or ()
    ]
    # Of a pod that is over each container has ended, also one that nobody knows of any more.
    missing = _MISSING if is_over and has_begun else None
    before = old.get("containerStatuses")
    regular = [
        _container(pod, each, history, memory, before, runtime, waits_for, missing)
        for each in spec["containers"]
    ]
    _shorten_messages([*inits, *regular])
    for each, status in zip(spec.get("initContainers") or (), inits, strict=True):
        if not is_sidecar(each):
            ended = status["state"].get("terminated")
            status["ready"] = ended is not None and ended["exitCode"] == 0
    if old.get("phase") in _ENDED:
        phase = old["phase"]
    elif memory.has_failed:
        phase = "Failed" if is_over else old.get("phase", "Pending")
    else:
        phase = _phase(pod, newest(containers), memory, is_over=is_over)
    now = time_text(now_s)
    found: Object = {
        "phase": phase,
        "observedGeneration": pod["metadata"].get("generation", 1),
        "startTime": old.get("startTime") or now,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "conditions": _conditions(
            pod, phase, inits, regular, memory, old.get("conditions") or (), now
        ),
        "containerStatuses": sorted(regular, key=lambda each: each["name"]),
    }
    if address := pod_ip or old.get("podIP", ""):
        found |= {"podIP": address, "podIPs": [{"ip": address}]}
    if inits:
        found["initContainerStatuses"] = inits
    if ephemeral := spec.get("ephemeralContainers"):
        before = old.get("ephemeralContainerStatuses")
        found["ephemeralContainerStatuses"] = [
            _container(pod, each, history, memory, before, runtime, waits_for) for each in ephemeral
        ]
    if memory.reason:
        found |= {"reason": memory.reason, "message": memory.message}
    return found


def refused_status(pod: Object, reason: str, message: str, now_s: float) -> Object:
    """Return the status of a pod that the node does not take."""
    old = pod.get("status") or {}
    return {
        "phase": "Failed",
        "observedGeneration": pod["metadata"].get("generation", 1),
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "qosClass": qos_of(pod),
        "startTime": old.get("startTime") or time_text(now_s),
    }


# Containers.

_MESSAGES_BYTES_MAX: Final = 12 << 10
"""Of the last words of all containers of a pod together."""
_INITIALIZED: Final = {
    "exitCode": 0,
    "reason": "Completed",
    "message": (
        "Unable to get init container status from container runtime and pod has been initialized, "
        "treat it as exited normally"
    ),
}
_MISSING: Final = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
}


def _shorten_messages(statuses: Sequence[Object]) -> None:
    """Let no container say more than its share of what a pod may say."""
    share = _MESSAGES_BYTES_MAX // max(len(statuses), 1)
    for status in statuses:
        for name in ("state", "lastState"):
            ended = status[name].get("terminated") or {}
            if len(ended.get("message", "")) > share:
                status[name] = {"terminated": {**ended, "message": ended["message"][:share]}}


def _container(
    pod: Object,
    container: Object,
    history: Mapping[str, Sequence[Container]],
    memory: Memory,
    old: Iterable[Object] | None,
    runtime: str,
    waits_for: str,
    unseen: Object | None = None,
) -> Object:
    """Return the status of a container; unseen: how it ended if nothing is known of it."""
    name = container["name"]
    known = history.get(name, ())
    last = known[-1] if known else None
    waiting = memory.waiting.get(name) if _starts_again(pod, container, last, memory) else None
    found: Object = {
        "name": name,
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": waits_for}},
        "lastState": {},
        **_resources(container),
    }
    if last is None:
        before = next((each for each in old or () if each["name"] == name), None)
        if before is not None:
            found["restartCount"] = before.get("restartCount", 0)
            found["lastState"] = before.get("lastState") or {}
        if unseen:
            found["state"] = {"terminated": unseen}
            return found
        if waiting is not None:
            found["state"] = {"waiting": _waiting(waiting.reason, waiting.message)}
        return found
    found |= {
        "image": last.image,
        "imageID": last.image_id,
        "containerID": f"{runtime}://{last.id}",
        "restartCount": last.attempt,
        "ready": is_ready(container, last, memory.results),
        "started": is_started(container, last, memory.results),
        "state": _state(last, runtime),
    }
    if last.user is not None:
        found["user"] = {"linux": last.user.shown()}
    if len(known) > 1:
        found["lastState"] = _state(known[-2], runtime)
    if not last.is_running and waiting is not None:
        message = waiting.message
        if waiting.reason == CRASH_LOOP:
            message = crash_loop_message(pod, name, waiting.wait_s)
        found["lastState"] = found["state"]
        found["state"] = {"waiting": _waiting(waiting.reason, message)}
    return found


def _starts_again(pod: Object, container: Object, last: Container | None, memory: Memory) -> bool:
    """Whether a container that does not run is to: only then it waits."""
    if memory.has_failed or pod["metadata"].get("deletionTimestamp"):
        return False
    if (pod.get("status") or {}).get("phase") in _ENDED:
        return False
    if last is None or last.is_running:
        return True
    is_init = any(each is container for each in pod["spec"].get("initContainers") or ())
    if is_init and not is_sidecar(container):
        return should_restart_init(pod, container, last.exit_code) or last.id in memory.earlier
    return should_restart(pod, container, last.exit_code) or last.id in memory.forgotten


def _resources(container: Object) -> Object:
    """Return what a container's status repeats of its specification."""
    found: Object = {}
    if resources := container.get("resources"):
        found["resources"] = resources
        if requests := resources.get("requests"):
            found["allocatedResources"] = requests
    mounts = []
    for each in container.get("volumeMounts") or ():
        shown = {"name": each["name"], "mountPath": each["mountPath"]}
        if each.get("readOnly"):
            shown |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
        mounts.append(shown)
    if mounts:
        found["volumeMounts"] = mounts
    return found


def crash_loop_text(pod: Object, name: str) -> str:
    """Return what an event says of a container that waits to be started again."""
    meta = pod["metadata"]
    owner = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
    return f"Back-off restarting failed container {name} in pod {owner}"


def crash_loop_message(pod: Object, name: str, wait_s: float) -> str:
    """Return what is said of a container that waits to be started again."""
    meta = pod["metadata"]
    wait = durations.text(int(wait_s * 1e9))
    owner = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
    return f"back-off {wait} restarting failed container={name} pod={owner}"


def _waiting(reason: str, message: str) -> Object:
    return {"reason": reason, "message": message} if message else {"reason": reason}


def _state(container: Container, runtime: str) -> Object:
    started = time_text(container.started_s)
    if container.is_running:
        return {"running": {"startedAt": started}}
    ended: Object = {
        "exitCode": container.exit_code,
        "reason": container.reason,
        "startedAt": started,
        "finishedAt": time_text(container.finished_s),
        "containerID": f"{runtime}://{container.id}",
    }
    if container.message:
        ended["message"] = container.message
    return {"terminated": ended}


# Phase.


def _phase(pod: Object, known: Mapping[str, Container], memory: Memory, *, is_over: bool) -> str:
    spec = pod["spec"]
    started = [known[each["name"]] for each in spec["containers"] if each["name"] in known]
    is_initialized = bool(started)
    for init in spec.get("initContainers") or ():
        found = known.get(init["name"])
        if is_sidecar(init):
            if found is None and not is_initialized:
                return _pending_or_over(is_over=is_over)
        elif not is_initialized and (found is None or found.is_running or found.exit_code):
            return _pending_or_over(is_over=is_over)
    if len(started) < len(spec["containers"]):
        return _pending_or_over(is_over=is_over)
    if any(each.is_running for each in started):
        return "Running"
    by_name = {each["name"]: each for each in spec["containers"]}
    if not is_over and any(
        should_restart(pod, by_name[each.name], each.exit_code) for each in started
    ):
        return "Running"
    if not is_over and _sidecar_runs(spec, known):
        return "Running"
    return "Failed" if any(each.exit_code for each in started) else "Succeeded"


def _pending_or_over(*, is_over: bool) -> str:
    return "Failed" if is_over else "Pending"


def _sidecar_runs(spec: Object, known: Mapping[str, Container]) -> bool:
    names = [each["name"] for each in spec.get("initContainers") or () if is_sidecar(each)]
    return any(name in known and known[name].is_running for name in names)


# Conditions.


def _conditions(
    pod: Object,
    phase: str,
    inits: Sequence[Object],
    regular: Sequence[Object],
    memory: Memory,
    old: Iterable[Object],
    now: str,
) -> list[Object]:
    spec = pod["spec"]
    has_started = any("containerID" in each for each in regular)
    incomplete = []
    if not has_started:
        for init, status in zip(spec.get("initContainers") or (), inits, strict=True):
            is_done = status["started"] if is_sidecar(init) else status["ready"]
            if not is_done:
                incomplete.append(status["name"])
    sidecars = zip(spec.get("initContainers") or (), inits, strict=True)
    beside = [status for init, status in sidecars if is_sidecar(init)]
    unready = [each["name"] for each in (*beside, *regular) if not each["ready"]]
    if phase in _ENDED:
        over = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        readiness: tuple[str, str, str] = ("False", over, "")
    elif unready:
        names = " ".join(unready)
        message = f"containers with unready status: [{names}]"
        readiness = ("False", "ContainersNotReady", message)
    else:
        readiness = ("True", "", "")
    initialized = ("True", "PodCompleted" if phase == "Succeeded" else "", "")
    if incomplete and phase != "Succeeded":
        names = " ".join(incomplete)
        message = f"containers with incomplete status: [{names}]"
        initialized = ("False", "ContainersNotInitialized", message)
    sandbox = ("True", "", "")
    if not memory.has_sandbox:
        message = "pod sandbox is not ready" if memory.had_sandbox else "no pod sandbox exists"
        sandbox = ("False", "PodSandboxNotReady", message)
    values = (
        sandbox,
        initialized,
        _gated(pod, readiness, old),
        readiness,
        ("True", "", ""),
    )
    before = {each["type"]: each for each in old}
    generation = pod["metadata"].get("generation", 1)
    found = list(zip(_OWN_CONDITIONS, values, strict=True))
    if memory.is_disrupted:
        found.insert(0, (_DISRUPTION, ("True", "TerminationByKubelet", memory.message)))
    if memory.is_restarting_all or _RESTARTING in before:
        is_so = ("True", "RestartAllContainersStarted", "container exited with restart policy rule")
        found.append((_RESTARTING, is_so if memory.is_restarting_all else ("False", "", "")))
    return [_condition(type_, value, before.get(type_), generation, now) for type_, value in found]


def _gated(
    pod: Object, readiness: tuple[str, str, str], old: Iterable[Object]
) -> tuple[str, str, str]:
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
    type_: str, value: tuple[str, str, str], before: Object | None, generation: int, now: str
) -> Object:
    """Return a condition for a patch: what is None is taken away."""
    status, reason, message = value
    since = now
    if before is not None and before["status"] == status:
        since = before.get("lastTransitionTime") or now
    return {
        "type": type_,
        "status": status,
        "observedGeneration": generation,
        "lastProbeTime": None,
        "lastTransitionTime": since,
        "reason": reason or None,
        "message": message or None,
    }
