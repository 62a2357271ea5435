"""Removes unused images: while their disk is full, when they are old, or all of them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kvstack.agents.kubelet.eviction.evictions import Measure
from kvstack.agents.kubelet.runtime.runtime import Image, Runtime
from kvstack.component.clock import Clock


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """The policy of image garbage collection."""

    high_percent: int = 85
    """Above this much of the disk images are removed,"""
    low_percent: int = 80
    """down to this."""
    age_s: float = 120.0
    """The minimum age of an unused image before it is removed."""
    age_max_s: float = 0.0
    """The maximum age of an unused image; 0: none."""


class ImageGarbage:
    """The images of one node."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        options: ImageOptions,
        mounted: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """mounted: returns the names of images that are mounted as volumes."""
        self._mounted = mounted
        self._runtime = runtime
        self._clock = clock
        self._options = options
        self._used_s: dict[str, float] = {}

    async def collect(self, disk: Measure) -> bool:
        """Remove what is due; return whether the disk is as free as it should be then."""
        options, now_s = self._options, self._clock.now_s()
        unused = await self._unused()
        if options.age_max_s:
            old = [each for each in unused if now_s - self._used_s[each.id] > options.age_max_s]
            await self._remove(old)
            unused = [each for each in unused if each not in old]
        taken = 100 - disk.available * 100 // max(disk.capacity, 1)
        if taken < options.high_percent:
            return True
        wanted = (taken - options.low_percent) * disk.capacity // 100
        for image in unused:
            if wanted > 0 and now_s - self._used_s[image.id] >= options.age_s:
                await self._remove([image])
                wanted -= image.size_bytes
        return wanted <= 0

    async def remove_unused(self) -> int:
        """Remove all unused images; return their number."""
        unused = await self._unused()
        await self._remove(unused)
        return len(unused)

    async def _remove(self, images: Sequence[Image]) -> None:
        for each in images:
            await self._runtime.remove_image(each.id)
            self._used_s.pop(each.id, None)

    async def _unused(self) -> list[Image]:
        """Return the unused images, the least recently used first."""
        runtime, now_s = self._runtime, self._clock.now_s()
        images = await runtime.images()
        containers = [each for uid in runtime.pod_uids() for each in runtime.of_pod(uid)]
        used = {each.image_id for each in containers} | {each.image for each in containers}
        used.update(self._mounted())
        unused = []
        for image in images:
            if image.id in used or used.intersection(image.names):
                self._used_s[image.id] = now_s
                continue
            self._used_s.setdefault(image.id, now_s - self._options.age_s)
            if not image.is_pinned:
                unused.append(image)
        return sorted(unused, key=lambda each: self._used_s[each.id])
