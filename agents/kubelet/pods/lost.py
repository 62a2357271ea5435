"""Containers of an earlier kubelet of which only the API's status is left."""

from collections.abc import Iterator
from typing import Final

from kvstack.agents.kubelet.runtime.runtime import Container
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import parse_time

_KILLED: Final = 137
_LOST: Final = "ContainerStatusUnknown"
_MESSAGE: Final = (
    "The container could not be located when the pod was deleted.  The container used to be Running"
)


def lost_containers(pod: Object, now_s: float) -> list[Container]:
    """Return the containers in a pod's status, all of them ended."""
    return list(_lost(pod, now_s))


def _lost(pod: Object, now_s: float) -> Iterator[Container]:
    status = pod.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        for container_status in status.get(field) or ():
            state = container_status.get("state") or {}
            ended = state.get("terminated") or (container_status.get("lastState") or {}).get(
                "terminated"
            )
            running = state.get("running")
            if not container_status.get("containerID") or (ended is None and running is None):
                continue
            container = Container(
                container_status["containerID"].partition("://")[2],
                pod["metadata"]["uid"],
                container_status["name"],
                container_status.get("restartCount", 0),
                container_status["image"],
                container_status.get("imageID", ""),
                _seconds((running or ended or {}).get("startedAt"), now_s),
                is_running=False,
            )
            if running is not None:
                container.exit_code, container.reason = _KILLED, _LOST
                container.message, container.finished_s = _MESSAGE, now_s
            elif ended is not None:
                container.exit_code, container.reason = ended["exitCode"], ended.get("reason", "")
                container.message = ended.get("message", "")
                container.finished_s = _seconds(ended.get("finishedAt"), now_s)
            yield container


def _seconds(text: str | None, now_s: float) -> float:
    return float(parse_time(text).seconds) if text else now_s
