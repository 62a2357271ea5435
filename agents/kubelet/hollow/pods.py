"""The simulation of a hollow pod, by its annotations and images.

    bound ─► running, ready ─► (0.5 s later, unless it restarts always) succeeded or failed
        └─► an image is missing: pending          └─► hollow/exit-code, restarted: crash loop

    hollow/ready: "false"             runs, but is not ready
    hollow/run: forever               does not end, whatever its restart policy
    hollow/exit-code: "3"             ends so
    hollow/finish-deletion: never     is not gone when it is deleted
    hollow/cpu, hollow/memory         what it seems to use (`loads`)
    image missing/…                   cannot be pulled

`next_step` says what to do with a pod now; it does nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from kvstack.agents.kubelet.hollow.hollow_runtime import MISSING, NAME
from kvstack.agents.kubelet.runtime.runtime import Container
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.core.pod_status import READY, is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time, parse_time

RUNS_S: Final = 0.5
"""How long a pod runs that ends."""

_READY: Final = "hollow/ready"
_RUN: Final = "hollow/run"
_EXIT_CODE: Final = "hollow/exit-code"
_FINISH_DELETION: Final = "hollow/finish-deletion"
_LOCALHOST: Final = "127.0.0.1"
_STARTED_FIRST: Final = ("PodReadyToStartContainers", "Initialized")
_READINESS: Final = (READY, "ContainersReady")


class Start(NamedTuple):
    """The pod begins: `starting_status` is to be written."""


class Finish(NamedTuple):
    """The pod has run as long as it should: `ended_status` is to be written."""


class SetReady(NamedTuple):
    """Its readiness is another: `ready_status` is to be written."""

    is_ready: bool


class Remove(NamedTuple):
    """The pod is to be deleted from the API."""


class Wait(NamedTuple):
    """Look again then."""

    seconds: float


Step: TypeAlias = Start | Finish | SetReady | Remove | Wait | None


def next_step(
    pod: Object,
    running_s: float | None,
    *,
    written_ready: bool | None,
    ready_after_s: float = 0.0,
) -> Step:
    """Return what to do with a bound pod now; None: nothing.

    running_s: for how long it runs, None: since before this process. written_ready: the readiness
    that was last written for it, None: before this process. ready_after_s: how long pods run
    before they are ready.
    """
    if pod["metadata"].get("deletionTimestamp"):
        return None if _annotation(pod, _FINISH_DELETION) == "never" else Remove()
    status = pod.get("status") or {}
    if is_ended(pod):
        return None  # a pod that has ended is never started again
    if not status.get("startTime"):
        return Start()
    if status.get("phase") != "Running" or is_crashing(pod):
        return None
    if ends(pod):
        rest_s = 0.0 if running_s is None else RUNS_S - running_s
        return Finish() if rest_s <= 0 else Wait(rest_s)
    wanted = wants_ready(pod)
    is_ready = says_ready(status) if written_ready is None else written_ready
    if wanted and not is_ready and running_s is not None and running_s < ready_after_s:
        return Wait(ready_after_s - running_s)
    return None if wanted == is_ready else SetReady(wanted)


def has_begun(pod: Object) -> bool:
    """Whether a pod was started, and is not to be deleted."""
    status = pod.get("status") or {}
    return bool(status.get("startTime")) and not pod["metadata"].get("deletionTimestamp")


def wants_ready(pod: Object) -> bool:
    """Whether a pod that runs is to be ready."""
    return _annotation(pod, _READY) != "false" and not is_crashing(pod)


def ends(pod: Object) -> bool:
    """Whether a running pod ends on its own."""
    return _restart_policy(pod) != "Always" and _annotation(pod, _RUN) != "forever"


def is_crashing(pod: Object) -> bool:
    """Whether a pod fails and is restarted repeatedly."""
    return exit_code(pod) != 0 and _restart_policy(pod) != "Never"


def exit_code(pod: Object) -> int:
    """Return the exit code of a pod's containers; an invalid one counts as 1."""
    text = _annotation(pod, _EXIT_CODE)
    if not text:
        return 0
    return int(text) if text.isdecimal() else 1


def is_on_host_network(pod: Object) -> bool:
    """Whether a pod uses the network of its node."""
    return bool(pod["spec"].get("hostNetwork"))


def containers_to_start(pod: Object) -> Iterator[tuple[Object, int | None]]:
    """Give the containers with which a pod begins; with exit codes: those that end at once."""
    spec = pod["spec"]
    for each in spec.get("initContainers") or ():
        yield each, None if is_sidecar(each) else 0
    if not _lacks_image(pod):
        code = exit_code(pod) if is_crashing(pod) else None
        yield from ((each, code) for each in spec["containers"])


def _lacks_image(pod: Object) -> bool:
    return any(each["image"].startswith(MISSING) for each in pod["spec"]["containers"])


def starting_status(
    pod: Object,
    host_ip: str,
    pod_ip: str,
    started: Mapping[str, Container],
    now_s: float,
    *,
    may_be_ready: bool = True,
) -> Object:
    """Return the status of a pod that has just begun; pod_ip: its own, if it has its own.

    started: what `containers_to_start` gave, by name. may_be_ready: else it becomes so later.
    """
    spec = pod["spec"]
    now = format_time(now_s)
    status: Object = {"startTime": now, "hostIP": host_ip, "hostIPs": [{"ip": host_ip}]}
    if _lacks_image(pod):
        containers = [_not_pulled(each) for each in spec["containers"]]
        phase, is_ready = "Pending", False
    elif is_crashing(pod):
        containers = [_crashed(pod, started[each["name"]]) for each in spec["containers"]]
        phase, is_ready = "Running", False
    else:
        phase, is_ready = "Running", wants_ready(pod) and may_be_ready
        containers = [
            _running(started[each["name"]], is_ready=is_ready) for each in spec["containers"]
        ]
    if phase == "Running":
        address = _LOCALHOST if is_on_host_network(pod) else pod_ip
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    inits = [_initialized(each, started[each["name"]]) for each in spec.get("initContainers") or ()]
    return {
        **status,
        "phase": phase,
        "conditions": [
            *(_condition(type_, "True", now) for type_ in _STARTED_FIRST),
            *_readiness(containers, now, is_ready=is_ready),
        ],
        "containerStatuses": containers,
        **({"initContainerStatuses": inits} if inits else {}),
    }


def ready_status(pod: Object, now_s: float, *, is_ready: bool) -> Object:
    """Return what changes with readiness."""
    now = format_time(now_s)
    containers = [
        {**each, "ready": is_ready} for each in pod["status"].get("containerStatuses") or ()
    ]
    return {
        "conditions": _readiness(containers, now, is_ready=is_ready),
        "containerStatuses": containers,
    }


def ended_status(pod: Object, now_s: float) -> Object:
    """Return the status of a pod that has ended."""
    code = exit_code(pod)
    now = format_time(now_s)
    status = pod["status"]
    is_good = code == 0
    reason = "PodCompleted" if is_good else "PodFailed"
    ended: Object = {
        "phase": "Succeeded" if is_good else "Failed",
        "conditions": [
            *([_condition("Initialized", "True", now, reason)] if is_good else ()),
            *(_condition(type_, "False", now, reason) for type_ in _READINESS),
        ],
        "containerStatuses": [
            _terminated(each, code, now) for each in status.get("containerStatuses") or ()
        ],
    }
    sidecars = sidecar_names(pod)
    if sidecars:
        ended["initContainerStatuses"] = [
            _terminated(each, 0, now) if each["name"] in sidecars else each
            for each in status.get("initContainerStatuses") or ()
        ]
    return ended


# Statuses of containers.


def _container(found: Container, **more: object) -> Object:
    return {
        "name": found.name,
        "image": found.image,
        "imageID": found.image_id,
        "containerID": f"{NAME}://{found.id}",
        "restartCount": found.attempt,
        **more,
    }


def _running(found: Container, *, is_ready: bool) -> Object:
    state = {"running": {"startedAt": format_time(found.started_s)}}
    return _container(found, ready=is_ready, started=True, state=state, lastState={})


def _initialized(container: Object, found: Container) -> Object:
    if is_sidecar(container):
        return _running(found, is_ready=True)
    state = {"terminated": _ended(found)}
    return _container(found, ready=True, started=False, state=state, lastState={})


def _crashed(pod: Object, container: Container) -> Object:
    name, pod_name = container.name, pod["metadata"]["name"]
    message = f"back-off 10s restarting failed container={name} pod={pod_name}"
    return _container(
        container,
        ready=False,
        started=False,
        restartCount=1,
        state={"waiting": {"reason": "CrashLoopBackOff", "message": message}},
        lastState={"terminated": _ended(container)},
    )


def _ended(found: Container) -> Object:
    started, finished = format_time(found.started_s), format_time(found.finished_s)
    return _end(found.exit_code, started, finished, f"{NAME}://{found.id}")


def _not_pulled(container: Object) -> Object:
    image = container["image"]
    waiting = {"reason": "ContainerCreating"}
    if image.startswith(MISSING):
        message = f'Back-off pulling image "{image}"'
        waiting = {"reason": "ImagePullBackOff", "message": message}
    return {
        "name": container["name"],
        "image": image,
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": {"waiting": waiting},
        "lastState": {},
    }


def _terminated(status: Object, code: int, now: str) -> Object:
    started = ((status.get("state") or {}).get("running") or {}).get("startedAt", now)
    ended = _end(code, started, now, status.get("containerID", ""))
    return {**status, "ready": False, "started": False, "state": {"terminated": ended}}


def _end(code: int, started: str, finished: str, container_id: str) -> Object:
    return {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": started,
        "finishedAt": finished,
        "containerID": container_id,
    }


# Conditions, and what pods say.


def _readiness(containers: Sequence[Object], now: str, *, is_ready: bool) -> list[Object]:
    if is_ready:
        return [_condition(type_, "True", now) for type_ in _READINESS]
    names = " ".join(each["name"] for each in containers)
    message = f"containers with unready status: [{names}]"
    return [_condition(type_, "False", now, "ContainersNotReady", message) for type_ in _READINESS]


def _condition(
    type_: str, value: str, now: str, reason: str | None = None, message: str | None = None
) -> Object:
    """Return a condition for a patch: what is None is taken away."""
    return {
        "type": type_,
        "status": value,
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def _annotation(pod: Object, name: str) -> str:
    found: str = (pod["metadata"].get("annotations") or {}).get(name, "")
    return found


def _restart_policy(pod: Object) -> str:
    policy: str = pod["spec"].get("restartPolicy", "Always")
    return policy


def says_ready(status: Object) -> bool:
    """Whether a status says that its pod is ready."""
    return conditions.is_true(status.get("conditions"), READY)


def running_containers(pod: Object) -> Iterator[tuple[str, int, str, float]]:
    """Give name, restarts, image and start (since 1970) of what runs, as the status says."""
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(kind) or ():
            started = ((each.get("state") or {}).get("running") or {}).get("startedAt")
            if started:
                moment = parse_time(started)
                yield each["name"], each["restartCount"], each["image"], float(moment.seconds)


def sidecar_names(pod: Object) -> frozenset[str]:
    """Return the names of the init containers that stay."""
    inits = pod["spec"].get("initContainers") or ()
    return frozenset(each["name"] for each in inits if is_sidecar(each))
