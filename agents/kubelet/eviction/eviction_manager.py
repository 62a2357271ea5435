"""Relieves a node under pressure: reports conditions, frees disk, and evicts one pod at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.kubelet.eviction import evictions
from kvstack.agents.kubelet.eviction.evictions import Measure, Shortage, amount_of
from kvstack.agents.kubelet.eviction.local_storage import used_by_pods
from kvstack.agents.kubelet.eviction.measures import disk_available, measures
from kvstack.agents.kubelet.eviction.pressures import EvictionOptions, Pressures
from kvstack.agents.kubelet.images.image_garbage import ImageGarbage
from kvstack.agents.kubelet.node_pods import NodePods
from kvstack.agents.kubelet.runtime.runtime import Usage
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock

HARD_GRACE_S: Final = 1.0
_MEMORY: Final = ("memory", "pids")
"""Signals that removing files does not help."""
_DISK: Final = "ephemeral-storage"
_DEFAULT_GRACE_S: Final = 30
_LEAVING_MAX_S: Final = 30.0
"""How long no other pod is evicted while the files of one are being removed."""


class EvictionManager:
    """Evicts pods of one kubelet."""

    def __init__(
        self,
        kubelet: NodePods,
        options: EvictionOptions,
        images: ImageGarbage,
        remove_ended: Callable[[], Awaitable[None]],
        clock: Clock,
        recorder: EventRecorder,
    ) -> None:
        """remove_ended: removes containers that have ended."""
        self._remove_ended = remove_ended
        self._kubelet = kubelet
        self._options = options
        self._images = images
        self._clock = clock
        self._recorder = recorder
        self._pressures = Pressures(options)
        self._leaving = ""  # uid of the last pod that was evicted for what it took of the disk
        self._leaving_until_s = 0.0

    def conditions(self) -> list[str]:
        """Return the conditions of the node that hold."""
        return self._pressures.conditions(self._clock.monotonic_s())

    async def relieve_disk(self) -> None:
        """Evict as `relieve` does, if the disk of pods is short; cheap if it is not."""
        hard = self._options.hard.get("nodefs.available")
        if hard is None:
            return
        left = await asyncio.to_thread(disk_available, self._kubelet.options.root)
        if left.available < amount_of(hard, left.capacity):
            await self.relieve()

    async def relieve(self) -> None:
        """Evict one pod if a resource is short, and report it; raises OSError."""
        if await self._is_leaving():
            return
        before = set(self.conditions())
        missing = await self._observe()
        if set(self.conditions()) != before:
            self._kubelet.node.look_again()
        if not missing:
            return
        shortage = missing[0]
        resource = evictions.RESOURCES[shortage.signal]
        text = f"Attempting to reclaim {resource}"
        self._recorder.record(self._kubelet.node.object, "Warning", "EvictionThresholdMet", text)
        if resource not in _MEMORY:
            await self._remove_ended()
            await self._images.remove_unused()
            if shortage.signal not in {each.signal for each in await self._observe()}:
                return
        await self._evict(shortage, resource)

    async def _observe(self) -> list[Shortage]:
        directory = await self._kubelet.runtime.image_directory() or self._kubelet.options.root
        found = await asyncio.to_thread(measures, self._kubelet.options.root, directory)
        limit_bytes = self._options.local_storage_bytes_max
        if limit_bytes:
            used_bytes = sum((await self._local_storage()).values())
            found[evictions.LOCAL_STORAGE] = Measure(max(limit_bytes - used_bytes, 0), limit_bytes)
        return self._pressures.observe(found, self._clock.monotonic_s())

    async def _local_storage(self) -> dict[str, int]:
        options = self._kubelet.options
        logs = options.logs or options.root / "logs"
        return await asyncio.to_thread(used_by_pods, options.root / "pods", logs)

    async def _is_leaving(self) -> bool:
        """Whether the disk of the last evicted pod is not freed yet."""
        if self._leaving and self._clock.monotonic_s() < self._leaving_until_s:
            return await asyncio.to_thread(self._kubelet.pod_directory(self._leaving).exists)
        return False

    async def _evict(self, shortage: Shortage, resource: str) -> None:
        usage = await self._kubelet.runtime.usage()
        used: dict[str, int] = {}
        for one in usage:
            uid = one.container.pod_uid
            used[uid] = used.get(uid, 0) + _amount(one, resource)
        if resource == _DISK:
            used = await self._local_storage()
        active = [each for each in self._kubelet.admitted() if self._may_go(each)]
        victim = evictions.first_to_go(active, used, shortage.signal)
        if victim is None:
            return
        uid = victim["metadata"]["uid"]
        by_name = _by_name(usage, uid, resource)
        text = evictions.message(shortage, victim, by_name)
        about = evictions.offenders(shortage, victim, by_name)
        self._recorder.record(victim, "Warning", "Evicted", text, annotations=about)
        self._kubelet.evictions[shortage.signal] += 1
        if resource == _DISK:
            self._leaving = uid
            self._leaving_until_s = self._clock.monotonic_s() + _LEAVING_MAX_S
        self._kubelet.end(uid, "Evicted", text, self._grace_s(victim, shortage), disrupts=True)

    def _grace_s(self, pod: Object, shortage: Shortage) -> float:
        if not shortage.is_soft:
            return HARD_GRACE_S
        own = pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
        return min(self._options.pod_grace_max_s, float(own))

    def _may_go(self, pod: Object) -> bool:
        record = self._kubelet.record_of(pod["metadata"]["uid"])
        if record is None or record.is_over or record.memory.has_failed or is_ended(pod):
            return False
        return not pod["metadata"].get("deletionTimestamp")


def _by_name(usage: Sequence[Usage], uid: str, resource: str) -> Mapping[str, int]:
    return {
        one.container.name: _amount(one, resource) for one in usage if one.container.pod_uid == uid
    }


def _amount(usage: Usage, resource: str) -> int:
    if resource == "memory":
        return usage.working_set_bytes
    if resource == "pids":
        return usage.processes
    return usage.files_inodes if resource == "inodes" else usage.files_bytes
