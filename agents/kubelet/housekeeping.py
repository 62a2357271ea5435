"""Periodic work of a node: renews volumes, rotates logs, collects garbage, and evicts.

every 1 s     the disk of pods (evictions)
every 10 s    logs that are too long, what is short (evictions), disks of pods
every 60 s    ended containers but the newest, volumes of config maps, secrets and tokens
every 300 s   unused images, while their disk is full; logs of pods that are gone
"""

import asyncio
import gzip
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet.eviction import evictions
from kvstack.agents.kubelet.eviction.eviction_manager import HARD_GRACE_S, EvictionManager
from kvstack.agents.kubelet.eviction.measures import measures
from kvstack.agents.kubelet.images.image_garbage import ImageGarbage
from kvstack.agents.kubelet.node_pods import NodePods
from kvstack.agents.kubelet.pods.environment import ConfigurationError
from kvstack.agents.kubelet.pods.sandboxes import NodeSettings, image_volumes
from kvstack.agents.kubelet.runtime.process.layer_sizes import size_of
from kvstack.agents.kubelet.volumes.pod_volumes import VolumeError
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.kubelet.runtime.runtime import Container


_TICK_S: Final = 10
_EACH_MINUTE: Final = 6
_EACH_FIVE_MINUTES: Final = 30


class Housekeeping:
    """Cleans up after the pods of one kubelet."""

    def __init__(
        self,
        kubelet: NodePods,
        settings: NodeSettings,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        recorder: EventRecorder,
    ) -> None:
        self._kubelet = kubelet
        self._settings = settings
        self._clock = clock
        self._random = random
        self._logger = logger
        self._recorder = recorder
        self._options = kubelet.options.keeping
        self._images = ImageGarbage(
            kubelet.runtime, clock, self._options.images, self._mounted_images
        )
        self._evictions = EvictionManager(
            kubelet,
            self._options.evictions,
            self._images,
            lambda: self.remove_ended(keeps=0),
            clock,
            recorder,
        )

    def _mounted_images(self) -> set[str]:
        """Return the images that are volumes of pods."""
        pods = self._kubelet.admitted()
        return {each["reference"] for pod in pods for each in image_volumes(pod).values()}

    def pressures(self) -> list[str]:
        """Return the conditions of the node that hold."""
        return self._evictions.conditions()

    async def run(self) -> None:
        """Clean up until cancelled."""
        # Nodes that start together do not all do it at once.
        number = int(self._random() * _EACH_MINUTE)
        seconds = 0
        while True:
            await asyncio.sleep(1.0)
            seconds += 1
            try:
                if seconds % _TICK_S:
                    await self._evictions.relieve_disk()
                    continue
                number += 1
                await self.tick(number)
            except (ApiError, UnreachableError, OSError) as error:
                self._logger.warning("failed to clean up the node", error=str(error))

    async def tick(self, number: int) -> None:
        """Do the work of a tick; raises ApiError, UnreachableError, OSError."""
        await self._rotate_logs()
        await self._evictions.relieve()
        await self._check_disks()
        if number % _EACH_MINUTE == 0:
            await self.remove_ended()
            await self._renew_volumes()
        if number % _EACH_FIVE_MINUTES == 0:
            await self._remove_images()
            await self._remove_logs()

    # Volumes.

    async def _renew_volumes(self) -> None:
        for pod in self._kubelet.admitted():
            record = self._kubelet.record_of(pod["metadata"]["uid"])
            if record is None or not record.memory.has_sandbox or record.ending.is_set():
                continue
            try:
                await self._kubelet.renew_volumes(pod)
            except VolumeError as error:
                self._recorder.record(pod, "Warning", error.reason, str(error))
            except ConfigurationError as error:
                self._recorder.record(pod, "Warning", "FailedMount", str(error))

    async def _check_disks(self) -> None:
        """End pods that take more of the disk than they may."""
        for pod in self._kubelet.admitted():
            if not _has_disk_limits(pod) or is_ended(pod):
                continue
            uid = pod["metadata"]["uid"]
            directory = self._kubelet.pod_directory(uid)
            volumes, layers = await asyncio.to_thread(_disk_usage, directory, pod)
            text = evictions.over_local_limits(pod, volumes, layers)
            record = self._kubelet.record_of(uid)
            if text and record is not None and not record.memory.has_failed:
                self._recorder.record(pod, "Warning", "Evicted", text)
                self._kubelet.end(uid, "Evicted", text, HARD_GRACE_S, disrupts=False)

    # Containers, logs and images.

    async def remove_ended(self, keeps: int = 1) -> None:
        """Remove ended containers, but so many of the newest of each name.

        What a running pod still needs is kept.
        """
        runtime = self._kubelet.runtime
        for pod in self._kubelet.admitted():
            by_name: dict[str, list[Container]] = {}
            for each in runtime.of_pod(pod["metadata"]["uid"]):
                if not each.is_running:
                    by_name.setdefault(each.name, []).append(each)
            kept = max(keeps, 0 if is_ended(pod) else 1)
            for ended in by_name.values():
                for each in ended[: max(len(ended) - kept, 0)]:
                    await runtime.remove_container(each.id)

    async def _rotate_logs(self) -> None:
        runtime = self._kubelet.runtime
        for pod in self._kubelet.admitted():
            for each in runtime.of_pod(pod["metadata"]["uid"]):
                if each.is_running and await asyncio.to_thread(self._rotated, each.log):
                    await runtime.reopen_log(each.id)
                    await asyncio.to_thread(_compress_older, each.log)

    def _rotated(self, log: Path) -> bool:
        """Give a log that is too long another name; return whether that was done."""
        try:
            if log.stat().st_size < self._options.log_bytes_max:
                return False
        except FileNotFoundError:
            return False
        kept = max(self._options.log_files_max - 2, 0)
        older = sorted(log.parent.glob(f"{log.name}.*"))
        for each in older[: max(len(older) - kept, 0)]:
            each.unlink()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self._clock.now_s()))
        log.rename(log.with_name(f"{log.name}.{stamp}"))
        return True

    async def _remove_logs(self) -> None:
        """Remove the logs of pods that are gone."""
        known = {each["metadata"]["uid"] for each in self._kubelet.pods()}
        known |= set(self._kubelet.runtime.pod_uids())
        logs = Path(self._settings.logs)
        await asyncio.to_thread(self._kubelet.logs.remove_others, logs, known)
        await asyncio.to_thread(self._kubelet.links.clean)

    async def _remove_images(self) -> None:
        """Remove unused images that are due."""
        directory = await self._kubelet.runtime.image_directory() or self._kubelet.options.root
        found = await asyncio.to_thread(measures, self._kubelet.options.root, directory)
        if not await self._images.collect(found["imagefs.available"]):
            text = "Failed to garbage collect required amount of images."
            self._recorder.record(self._kubelet.node.object, "Warning", "FreeDiskSpaceFailed", text)


def _has_disk_limits(pod: Object) -> bool:
    spec = pod["spec"]
    if any((each.get("emptyDir") or {}).get("sizeLimit") for each in spec.get("volumes") or ()):
        return True
    return any(
        ((each.get("resources") or {}).get("limits") or {}).get("ephemeral-storage")
        for each in spec["containers"]
    )


def _disk_usage(directory: Path, pod: Object) -> tuple[dict[str, int], dict[str, int]]:
    """Return what emptyDirs and containers of a pod take, by name."""
    volumes = {
        each["name"]: size_of(
            directory / "volumes" / "kubernetes.io~empty-dir" / each["name"]
        ).bytes
        for each in pod["spec"].get("volumes") or ()
        if "emptyDir" in each and (each["emptyDir"] or {}).get("medium") != "Memory"
    }
    layers = {
        each["name"]: size_of(directory / "containers" / each["name"]).bytes
        for each in pod["spec"]["containers"]
    }
    return volumes, layers


def _compress_older(log: Path) -> None:
    """Compress all rotated logs but the newest, which may still be written to."""
    older = [each for each in sorted(log.parent.glob(f"{log.name}.*")) if each.suffix != ".gz"]
    for each in older[:-1]:
        with each.open("rb") as source, gzip.open(f"{each}.gz", "wb") as target:
            shutil.copyfileobj(source, target)
        each.unlink()
