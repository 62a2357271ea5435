"""Which images are removed."""

import asyncio
from collections.abc import Sequence
from typing import cast

from kvstack.agents.kubelet.eviction.evictions import Measure
from kvstack.agents.kubelet.images.image_garbage import ImageGarbage, ImageOptions
from kvstack.agents.kubelet.runtime.runtime import Container, Image, Runtime
from tests.support.clocks import HandClock


class Engine:
    """Images, and containers that use some of them."""

    def __init__(self, *names: str) -> None:
        self.held = [Image(name, [f"{name}:1"], 10, is_pinned=name == "pinned") for name in names]
        self.used: list[Container] = []

    async def images(self) -> Sequence[Image]:
        return list(self.held)

    def pod_uids(self) -> Sequence[str]:
        return ["u"]

    def of_pod(self, uid: str) -> Sequence[Container]:
        assert uid == "u"
        return self.used

    async def remove_image(self, image_id: str) -> None:
        self.held = [each for each in self.held if each.id != image_id]

    def uses(self, *names: str) -> None:
        self.used = [Container(each, "u", each, 0, f"{each}:1", each, 0.0) for each in names]

    @property
    def names(self) -> list[str]:
        return [each.id for each in self.held]


def garbage(engine: Engine, clock: HandClock, options: ImageOptions) -> ImageGarbage:
    return ImageGarbage(cast("Runtime", engine), clock, options)


def test_the_least_recently_used_go_while_the_disk_is_full() -> None:
    async def story() -> None:
        engine, clock = Engine("old", "late", "used", "pinned"), HandClock(1e9)
        images = garbage(engine, clock, ImageOptions())
        engine.uses("late", "used")
        assert await images.collect(Measure(50, 100))
        assert engine.names == ["old", "late", "used", "pinned"]
        engine.uses("used")
        clock.now += 60
        # 90 of 100 are taken, and it is to be 80; what was used until a minute ago stays.
        assert await images.collect(Measure(10, 100))
        assert engine.names == ["late", "used", "pinned"]
        assert not await images.collect(Measure(10, 100))
        clock.now += 120
        assert await images.collect(Measure(10, 100))
        assert engine.names == ["used", "pinned"]

    asyncio.run(story())


def test_old_ones_go_though_there_is_room() -> None:
    async def story() -> None:
        engine, clock = Engine("idle", "used", "pinned"), HandClock(1e9)
        images = garbage(engine, clock, ImageOptions(age_max_s=1000.0))
        engine.uses("idle", "used")
        await images.collect(Measure(90, 100))
        engine.uses("used")
        clock.now += 1000
        await images.collect(Measure(90, 100))
        assert engine.names == ["idle", "used", "pinned"]
        clock.now += 1
        await images.collect(Measure(90, 100))
        assert engine.names == ["used", "pinned"]

    asyncio.run(story())


def test_all_that_are_unused_go_when_the_node_is_short() -> None:
    async def story() -> None:
        engine = Engine("a", "b", "used", "pinned")
        engine.uses("used")
        assert await garbage(engine, HandClock(1e9), ImageOptions()).remove_unused() == 2
        assert engine.names == ["used", "pinned"]

    asyncio.run(story())
