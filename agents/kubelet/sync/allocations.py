"""The cpu and memory that are allocated to each pod of the node, and their in-place resize.

    pod = await allocations.look(pod, record)       the pod as the node counts and runs it
    after_s = await allocations.apply(pod, record)  its containers get what is allocated

`pods/resizes` has the rule. The allocation is written into a file in the pod's directory before it
is applied, so that a restarted kubelet goes on from there. A deferred resize is tried again when
another pod ends or shrinks, the highest priority first.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Final

import orjson

from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.kubelet.node_pods import NodePods
from kvstack.agents.kubelet.pods.resizes import (
    DEFERRED,
    ERROR,
    Note,
    Resize,
    changed,
    is_same,
    resources_of,
    restarts,
    with_resources,
)
from kvstack.agents.kubelet.pods.sandboxes import (
    NodeSettings,
    cgroup_of,
    containers_of,
    limits_of,
    pod_limits,
    qos_of,
    quantity,
)
from kvstack.agents.kubelet.runtime.runtime import Container, Limits, UpdateError
from kvstack.agents.kubelet.sync.pod_admission import PodAdmission
from kvstack.agents.kubelet.sync.pod_sync import PodRecord
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.core.quality_of_service import CLASSES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

FILE: Final = "resources.json"
_RETRY_S: Final = 10.0
_AGAIN_S: Final = 180.0
"""So long a pod waits at most until it is looked for room again."""


class Allocations:
    """The allocated resources of a kubelet's pods."""

    def __init__(
        self,
        kubelet: NodePods,
        admission: PodAdmission,
        recorder: EventRecorder,
        clock: Clock,
        logger: Logger,
        settings: NodeSettings,
        again: Callable[[str], None],
    ) -> None:
        """again: look at a pod, by its uid, soon."""
        self._kubelet = kubelet
        self._admission = admission
        self._recorder = recorder
        self._clock = clock
        self._logger = logger
        self._settings = settings
        self._again = again
        self._deferred: dict[str, tuple[int, int, float]] = {}

    async def look(self, pod: Object, record: PodRecord) -> Object:
        """Return a pod with what it was given; it is given what it asks for if there is room."""
        resize = record.memory.resize
        if resize.allocated is None:
            await self._begin(pod, record, resize)
        allocated = resize.allocated or {}
        is_ending = pod["metadata"].get("deletionTimestamp") or record.memory.has_failed
        if is_ending or is_ended(pod):
            self._deferred.pop(record.uid, None)
            return with_resources(pod, allocated)
        desired = resources_of(pod)
        if desired == allocated or is_same(desired, allocated):
            resize.pending = None
            self._deferred.pop(record.uid, None)
            return pod
        refused = self._admission.resize_refusal(pod)
        if refused is not None:
            self._wait(pod, record, Note(*refused))
            return with_resources(pod, allocated)
        self._deferred.pop(record.uid, None)
        running = {each.name for each in self._running(record)}
        for name, before in allocated.items():
            if name in running and changed(before, desired.get(name, before)):
                resize.applied.setdefault(name, before)
        resize.allocated, resize.pending, resize.progress = desired, None, Note()
        await self._save(record)
        self._event(pod, "Normal", "ResizeStarted", "Pod resize started")
        return pod

    async def apply(self, pod: Object, record: PodRecord) -> float | None:
        """Give containers that run what is allocated; return when to look again."""
        resize = record.memory.resize
        later_s = _AGAIN_S if record.uid in self._deferred else None
        if resize.progress is None:
            return later_s
        running = {each.name: each for each in self._running(record)}
        begun = [each for each in self._kubelet.runtime.of_pod(record.uid) if not each.is_running]
        ended = {each.name for each in begun if each.id not in resize.restarting}
        for name in (resize.applied.keys() - running.keys()) & ended:
            del resize.applied[name]  # it has stopped
        try:
            await self._update(pod, resize, running)
        except UpdateError as error:
            note = Note(ERROR, str(error))
            if resize.progress != note:
                self._event(pod, "Warning", "ResizeError", "Pod resize error", str(error))
            resize.progress = note
            return _RETRY_S
        if not resize.applied:
            resize.progress = None
            resize.restarting.clear()
            await self._save(record)
            self._event(pod, "Normal", "ResizeCompleted", "Pod resize completed")
            self._retry()
        return later_s

    def forget(self, uid: str) -> None:
        """Give the room of a pod that is over to others."""
        self._deferred.pop(uid, None)
        self._retry()

    def _retry(self) -> None:
        """Look at the pods that wait for room, the most important first."""
        for uid in sorted(self._deferred, key=lambda each: self._deferred[each]):
            self._again(uid)

    def _wait(self, pod: Object, record: PodRecord, note: Note) -> None:
        resize = record.memory.resize
        if note.reason == DEFERRED:
            if record.uid not in self._deferred:
                resize.deferred_s = self._clock.monotonic_s()
            priority = pod["spec"].get("priority") or 0
            order = (-priority, CLASSES.index(qos_of(pod)), resize.deferred_s)
            self._deferred[record.uid] = order
        else:
            self._deferred.pop(record.uid, None)
        if resize.pending is None or resize.pending.reason != note.reason:
            text = f"Pod resize {note.reason}"
            self._event(pod, "Warning", f"Resize{note.reason}", text, note.message)
        resize.pending = note

    def _running(self, record: PodRecord) -> Sequence[Container]:
        return [each for each in self._kubelet.runtime.of_pod(record.uid) if each.is_running]

    # What is done.

    async def _update(self, pod: Object, resize: Resize, running: dict[str, Container]) -> None:
        """Give containers other limits that need not start anew for it; UpdateError.

        The pod as a whole is never narrower than its containers: first it gets the wider of both
        limits, and its new ones at the end.
        """
        live = [
            each
            for each in containers_of(pod)
            if each["name"] in resize.applied
            and each["name"] in running
            and not restarts(each, resize.applied[each["name"]])
        ]
        if not live:
            return
        runtime, settings = self._kubelet.runtime, self._settings
        limits = {each["name"]: limits_of(pod, each, settings.memory_bytes) for each in live}
        smaller = {
            each["name"]: limits[each["name"]].memory_bytes
            for each in live
            if _memory(each) < _memory({"resources": resize.applied[each["name"]]})
        }
        await self._check_use(smaller, running)
        before = pod_limits(with_resources(pod, resize.applied), settings.pids_max)
        after = pod_limits(pod, settings.pids_max)
        cgroup = cgroup_of(pod, settings.cgroup_root)
        await runtime.limit_pod(cgroup, _wider(before, after))
        for name, each in limits.items():
            await runtime.update(running[name].id, each)
            del resize.applied[name]
        await runtime.limit_pod(cgroup, after)

    async def _check_use(self, limits: dict[str, int], running: dict[str, Container]) -> None:
        """Refuse smaller limits of memory that are below what is used: the kernel would kill."""
        usage = await self._kubelet.runtime.usage() if limits else ()
        used = {each.container.id: each.memory_bytes for each in usage}
        for name, limit in limits.items():
            now = used.get(running[name].id, 0)
            if now >= limit:
                raise UpdateError(
                    f'cannot decrease memory limits: attempting to set container "{name}" memory '
                    f"limit ({limit}) below current usage ({now})"
                )

    # What is kept.

    def _path(self, uid: str) -> Path:
        return self._kubelet.pod_directory(uid) / FILE

    async def _begin(self, pod: Object, record: PodRecord, resize: Resize) -> None:
        """Allocate what a pod asks for, or what an earlier kubelet allocated."""
        kept = await asyncio.to_thread(self._read, record.uid)
        if kept is not None:
            resize.allocated, resize.applied = kept
            resize.progress = Note() if resize.applied else None
            return
        resize.allocated = resources_of(pod)
        if not is_ended(pod):
            await self._save(record)

    def _read(self, uid: str) -> tuple[dict[str, Object], dict[str, Object]] | None:
        path = self._path(uid)
        try:
            found = orjson.loads(path.read_bytes())
            return dict(found["allocated"]), dict(found["applied"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            # The pod is given what it asks for, as one that is seen for the first time.
            self._logger.warning("allocations cannot be read", path=str(path), error=str(error))
            return None

    async def _save(self, record: PodRecord) -> None:
        resize = record.memory.resize
        data = orjson.dumps({"allocated": resize.allocated, "applied": resize.applied})
        await asyncio.to_thread(_write, self._path(record.uid), data)

    def _event(self, pod: Object, type_: str, reason: str, text: str, error: str = "") -> None:
        summary: Object = {
            "containers": [
                {"name": each["name"], "resources": each.get("resources") or {}}
                for each in pod["spec"]["containers"]
            ],
            "generation": pod["metadata"].get("generation", 1),
            **({"error": error} if error else {}),
        }
        message = f"{text}: {json.dumps(summary, separators=(',', ':'))}"
        self._recorder.record(pod, type_, reason, message)


def _memory(container: Object) -> float:
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return inf if limit is None else quantity(limit)


def _wider(one: Limits, other: Limits) -> Limits:
    """Return limits that hold for both; 0 is none."""

    def wider(first: int, second: int) -> int:
        return max(first, second) if first and second else 0

    return replace(
        other,
        cpu_shares=max(one.cpu_shares, other.cpu_shares),
        cpu_quota_us=wider(one.cpu_quota_us, other.cpu_quota_us),
        memory_bytes=wider(one.memory_bytes, other.memory_bytes),
    )


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.touch(mode=0o600)
    new.write_bytes(data)
    new.replace(path)
