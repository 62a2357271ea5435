"""The container statuses of a pod.

    seen = Seen(pod, history, memory, runtime)
    init_statuses(seen); regular_statuses(seen, is_over=False); ephemeral_statuses(seen)

The restart count of a container that is gone is taken from the pod's last status.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kvstack.agents.kubelet.pods.probes import is_ready, is_started
from kvstack.agents.kubelet.pods.restarts import (
    crash_loop_message,
    should_restart_init,
)
from kvstack.agents.kubelet.pods.worker import CRASH_LOOP, Memory, Waiting, begins_again
from kvstack.agents.kubelet.runtime.runtime import Container
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time

_MESSAGES_BYTES_MAX: Final = 12 << 10
"""The limit of all termination messages of a pod together."""
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


class Seen(NamedTuple):
    """The known state of a pod and its containers."""

    pod: Object
    history: Mapping[str, Sequence[Container]]
    """The containers of each name, oldest first."""
    memory: Memory
    runtime: str
    """Its name."""

    @property
    def has_begun(self) -> bool:
        """Whether a regular container was started, which is after the init containers."""
        return any(each["name"] in self.history for each in self.pod["spec"]["containers"])

    @property
    def waits_for(self) -> str:
        """Why a container was not started yet."""
        has_inits = bool(self.pod["spec"].get("initContainers"))
        return "PodInitializing" if has_inits else "ContainerCreating"

    def before(self, field: str) -> dict[str, Object]:
        """Return what a field of the pod's last status says of containers, by name."""
        status = self.pod.get("status") or {}
        return {each["name"]: each for each in status.get(field) or ()}


def init_statuses(seen: Seen) -> list[Object]:
    """Return the statuses of init containers and sidecars."""
    before = seen.before("initContainerStatuses")
    unseen = _INITIALIZED if seen.has_begun else None
    statuses = []
    for each in seen.pod["spec"].get("initContainers") or ():
        last = before.get(each["name"])
        if is_sidecar(each):
            status = _status(seen, each, last)
        else:
            status = _status(seen, each, last, unseen)
            ended = status["state"].get("terminated")
            status["ready"] = ended is not None and ended["exitCode"] == 0
        statuses.append(status)
    return statuses


def regular_statuses(seen: Seen, *, is_over: bool) -> list[Object]:
    """Return the statuses of regular containers; is_over: nothing of the pod runs, nor will."""
    before = seen.before("containerStatuses")
    # All containers of a finished pod have ended, including those that are gone.
    unseen = _MISSING if is_over and seen.has_begun else None
    regular = seen.pod["spec"]["containers"]
    return [_status(seen, each, before.get(each["name"]), unseen) for each in regular]


def ephemeral_statuses(seen: Seen) -> list[Object]:
    """Return the statuses of ephemeral containers."""
    before = seen.before("ephemeralContainerStatuses")
    ephemeral = seen.pod["spec"].get("ephemeralContainers") or ()
    return [_status(seen, each, before.get(each["name"])) for each in ephemeral]


def shorten_messages(statuses: Sequence[Object]) -> None:
    """Shorten termination messages to each container's share of the pod's limit."""
    share = _MESSAGES_BYTES_MAX // max(len(statuses), 1)
    for status in statuses:
        for name in ("state", "lastState"):
            ended = status[name].get("terminated") or {}
            if len(ended.get("message", "")) > share:
                status[name] = {"terminated": {**ended, "message": ended["message"][:share]}}


def _status(
    seen: Seen, container: Object, before: Object | None, unseen: Object | None = None
) -> Object:
    """Return the status of a container; unseen: how it ended if nothing is known of it."""
    if known := seen.history.get(container["name"], ()):
        own = _of_known(seen, container, known)
    else:
        own = _of_unknown(seen, container, before, unseen)
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": seen.waits_for}},
        "lastState": {},
        **_resources(container, seen.memory.resize.applied.get(container["name"])),
        **own,
    }


def _of_unknown(
    seen: Seen, container: Object, before: Object | None, unseen: Object | None
) -> Object:
    status: Object = {}
    if before is not None:
        status["restartCount"] = before.get("restartCount", 0)
        status["lastState"] = before.get("lastState") or {}
    waiting = _waiting_of(seen, container, None)
    if unseen:
        status["state"] = {"terminated": unseen}
    elif waiting is not None:
        status["state"] = {"waiting": _waiting(waiting.reason, waiting.message)}
    return status


def _of_known(seen: Seen, container: Object, known: Sequence[Container]) -> Object:
    last, results = known[-1], seen.memory.results
    status: Object = {
        "image": last.image,
        "imageID": last.image_id,
        "containerID": f"{seen.runtime}://{last.id}",
        "restartCount": last.attempt,
        "ready": is_ready(container, last, results),
        "started": is_started(container, last, results),
        "state": _state(last, seen.runtime),
    }
    if last.user is not None:
        status["user"] = {"linux": last.user.to_status()}
    if len(known) > 1:
        status["lastState"] = _state(known[-2], seen.runtime)
    waiting = _waiting_of(seen, container, last)
    if not last.is_running and waiting is not None:
        message = waiting.message
        if waiting.reason == CRASH_LOOP:
            message = crash_loop_message(seen.pod, container["name"], waiting.wait_s)
        status["lastState"] = status["state"]
        status["state"] = {"waiting": _waiting(waiting.reason, message)}
    return status


def _waiting_of(seen: Seen, container: Object, last: Container | None) -> Waiting | None:
    """Return why a container waits that is to start; None: it does not."""
    if not _starts_again(seen.pod, container, last, seen.memory):
        return None
    return seen.memory.waiting.get(container["name"])


def _starts_again(pod: Object, container: Object, last: Container | None, memory: Memory) -> bool:
    """Whether a stopped container will be started: only then is it waiting."""
    if memory.has_failed or pod["metadata"].get("deletionTimestamp"):
        return False
    if is_ended(pod):
        return False
    if last is None or last.is_running:
        return True
    is_init = any(each is container for each in pod["spec"].get("initContainers") or ())
    if is_init and not is_sidecar(container):
        return should_restart_init(pod, container, last.exit_code) or last.id in memory.earlier
    return begins_again(pod, container, last, memory) or last.id in memory.forgotten


def _resources(container: Object, applied: Object | None) -> Object:
    """Return what a container's status repeats of its specification.

    applied: what it runs with, if that is something else than it was given.
    """
    allocated = container.get("resources") or {}
    fields: Object = {"resources": allocated if applied is None else applied}
    if requests := allocated.get("requests"):
        fields["allocatedResources"] = requests
    mounts = []
    for each in container.get("volumeMounts") or ():
        shown = {"name": each["name"], "mountPath": each["mountPath"]}
        if each.get("readOnly"):
            shown |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
        mounts.append(shown)
    if mounts:
        fields["volumeMounts"] = mounts
    return fields


def _waiting(reason: str, message: str) -> Object:
    return {"reason": reason, "message": message} if message else {"reason": reason}


def _state(container: Container, runtime: str) -> Object:
    started = format_time(container.started_s)
    if container.is_running:
        return {"running": {"startedAt": started}}
    ended: Object = {
        "exitCode": container.exit_code,
        "reason": container.reason,
        "startedAt": started,
        "finishedAt": format_time(container.finished_s),
        "containerID": f"{runtime}://{container.id}",
    }
    if container.message:
        ended["message"] = container.message
    return {"terminated": ended}
