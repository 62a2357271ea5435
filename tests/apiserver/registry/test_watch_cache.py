"""The copy of the cluster: loading, following, and what happens when the store fails."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.registry.reads import ListOptions
from kvstack.apiserver.registry.selection import Selection
from kvstack.apiserver.registry.watch_cache import BehindError
from kvstack.apiserver.registry.window import Change
from kvstore.client.errors import UnavailableError
from kvstore.client.values import Compacted, Interrupted, Resumed
from tests.apiserver.support.registries import World, world
from tests.apiserver.support.virtual_time import run

LONG_S = 60.0


def run_story(story: Callable[[World], Awaitable[None]]) -> None:
    """Run a story in a world of its own."""

    async def main() -> None:
        async with world() as found:
            await story(found)

    run(main())


def keys(world: World) -> list[str]:
    """Return the keys of the ConfigMaps in the copy."""
    return [each.key for each in world.config_maps.between()]


def test_changes_arrive_once_and_in_order() -> None:
    """Listeners see every change with what was there before."""

    async def story(world: World) -> None:
        seen: list[tuple[str, int | None, int | None]] = []

        def listen(changes: Sequence[Change]) -> None:
            for each in changes:
                before = each.previous.revision if each.previous else None
                now = each.record.revision if each.record else None
                seen.append((each.key, before, now))

        world.config_maps.listeners.append(listen)
        made = await world.create("x")
        await world.registry.writes.replace(
            world.config_maps, made, {**made.parse(), "data": {"k": "2"}}
        )
        await world.settle()
        now = world.config_maps.get("a/x")
        assert now is not None
        await world.registry.writes.delete(world.config_maps, now)
        await world.settle()
        assert seen == [("a/x", None, 2), ("a/x", 2, 3), ("a/x", 3, None)]
        assert keys(world) == []

    run_story(story)


def test_a_store_that_is_not_reached_at_the_start() -> None:
    """Until everything was read there are no answers, not even of any state."""

    async def main() -> None:
        async with world(is_loaded=False) as found:
            found.store.failing = UnavailableError("nobody there")
            await asyncio.sleep(1)
            with pytest.raises(ApiError) as caught:
                await found.registry.reads.list(
                    found.config_maps, Selection(), ListOptions(revision=0)
                )
            assert caught.value.code == 429
            found.store.failing = None
            await found.registry.watch_cache.reach(1, LONG_S)
            assert found.registry.watch_cache.is_loaded

    run(main())


def test_what_changes_while_the_watch_is_broken_is_not_lost() -> None:
    """After an error everything is read anew; listeners are told the differences."""

    async def story(world: World) -> None:
        await world.create("x")
        await world.settle()
        resets: list[int] = []
        world.config_maps.on_reset.append(lambda: resets.append(1))
        world.store.break_watches(UnavailableError("broken"))
        await world.create("y")
        with pytest.raises(BehindError):
            await world.registry.watch_cache.reach(99, 2)
        assert keys(world) == ["a/x", "a/y"]
        assert resets == [1]

    run_story(story)


def test_changes_that_the_store_gave_up_while_they_were_not_read() -> None:
    """Compaction under the watch: everything is read anew."""

    async def story(world: World) -> None:
        await world.create("x")
        await world.settle()
        (watch,) = world.store._watches
        watch.push(Compacted(9))
        watch.finish(None)
        world.store._watches.clear()
        await world.create("y")
        await world.registry.watch_cache.reach(3, LONG_S)
        assert keys(world) == ["a/x", "a/y"]
        assert "compacted" in " ".join(world.log.lines)

    run_story(story)


def test_a_store_that_was_restored_to_an_older_state() -> None:
    """Nobody who asks for the present gets what is not there any more."""

    async def story(world: World) -> None:
        await world.create("x")
        await world.create("y")
        await world.settle()
        world.store.restore(2)
        page = await world.registry.reads.list(world.config_maps, Selection(), ListOptions())
        assert ([each.key for each in page.records], page.revision) == (["a/x"], 2)

    run_story(story)


def test_a_store_that_is_older_without_a_word() -> None:
    """The question for the present shows it, before the watch does."""

    async def story(world: World) -> None:
        await world.create("x")
        await world.create("y")
        await world.settle()
        watches = list(world.store._watches)
        world.store._watches.clear()
        world.store.restore(2)
        assert watches
        page = await world.registry.reads.list(world.config_maps, Selection(), ListOptions())
        assert [each.key for each in page.records] == ["a/x"]

    run_story(story)


def test_an_interruption_is_no_end() -> None:
    """The watch goes on by itself; any state is served meanwhile."""

    async def story(world: World) -> None:
        await world.create("x")
        await world.settle()
        (watch,) = world.store._watches
        watch.push(Interrupted("no leader"))
        await asyncio.sleep(0)
        assert world.registry.watch_cache.is_interrupted
        page = await world.registry.reads.list(
            world.config_maps, Selection(), ListOptions(revision=0)
        )
        assert len(page.records) == 1
        watch.push(Resumed(2))
        await asyncio.sleep(0)
        assert not world.registry.watch_cache.is_interrupted

    run_story(story)


def test_a_store_that_stalls() -> None:
    """Who asks for the present waits with it, and is answered when it goes on."""

    async def story(world: World) -> None:
        await world.create("x")
        world.store.stalled = asyncio.Event()
        waiting = asyncio.create_task(world.registry.reads.get(world.config_maps, "a/x"))
        await asyncio.sleep(1)
        assert not waiting.done()
        world.store.stalled.set()
        found = await waiting
        assert found is not None

    run_story(story)


def test_those_who_wait_are_cancelled_at_the_end() -> None:
    """A registry that is closed leaves nobody waiting."""

    async def main() -> None:
        async with world() as found:
            waiting = asyncio.create_task(found.registry.watch_cache.reach(99, LONG_S))
            await asyncio.sleep(0.1)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(main())


def test_a_collection_joins_while_the_copy_follows() -> None:
    """It has what was stored before, what changes while it is read, and what comes later."""

    async def story(world: World) -> None:
        await world.create("before")
        known = world.config_maps
        world.registry.watch_cache.leave(known)
        assert keys(world) == []
        await world.create("unseen")
        joining = asyncio.ensure_future(world.registry.watch_cache.join(known))
        await world.create("meanwhile")
        await joining
        await world.create("later")
        await world.settle()
        assert keys(world) == ["a/before", "a/later", "a/meanwhile", "a/unseen"]

    run_story(story)
