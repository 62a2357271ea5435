"""Times and revisions: notes, their keys in the store, compaction by rounds and by age."""

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from kvstack.apiserver.registry import compaction, time_index
from kvstack.apiserver.registry.compaction import Compaction
from kvstack.apiserver.registry.time_index import PREFIX, TimeIndex, TooOldError
from kvstore.client.errors import UnavailableError
from kvstore.client.values import prefix_end
from tests.apiserver.support.registries import World, world
from tests.apiserver.support.virtual_time import run

MINUTE_S = 60


def run_story(story: Callable[[World], Awaitable[None]]) -> None:
    """Run a story in a world of its own."""

    async def main() -> None:
        async with world() as found:
            await asyncio.sleep(5)
            await story(found)

    run(main())


async def stranger(world: World) -> TimeIndex:
    """Return the index of a server that has taken no notes of its own."""
    found = TimeIndex(world.store, world.registry.watch_cache, world.clock, world.log)
    world.registry.watch_cache.on_load.pop()
    world.registry.watch_cache.on_change.pop()
    return found


async def keys(world: World) -> list[bytes]:
    """Return the keys of the notes in the store."""
    return [each.key for each in (await world.store.range(PREFIX, prefix_end(PREFIX))).kvs]


def test_times_between_changes() -> None:
    """The state of a time is that before the first change after it."""

    async def story(world: World) -> None:
        moments: list[tuple[int, int]] = []
        for name in ("x", "y", "z"):
            made = await world.create(name)
            await asyncio.sleep(20)
            moments.append((world.clock.unix_ms(), made.revision))
        others = await stranger(world)
        for index in (world.registry.times, others):
            for unix_ms, revision in moments:
                found = await index.revision_at(unix_ms)
                page = await world.registry.history.read(world.config_maps, "", None, found, 0)
                assert max(each.revision for each in page.records) == revision

    run_story(story)


def test_nothing_is_written_while_nothing_changes() -> None:
    """A cluster that rests stays at its revision."""

    async def story(world: World) -> None:
        await world.create("x")
        await asyncio.sleep(MINUTE_S)
        revision = world.store.revision
        await asyncio.sleep(10 * MINUTE_S)
        assert world.store.revision == revision

    run_story(story)


def test_changes_in_a_row_are_one_key_in_ten_seconds() -> None:
    """A note a second, a key a slot."""

    async def story(world: World) -> None:
        for number in range(100):
            await world.create(f"c{number}")
            await asyncio.sleep(0.2)
        await asyncio.sleep(20)
        found = await world.store.range(PREFIX, prefix_end(PREFIX))
        assert len(found.kvs) <= 4
        notes = [each for kv in found.kvs for each in orjson.loads(kv.value)]
        assert len(notes) <= 25
        assert notes == sorted(notes)

    run_story(story)


def test_times_before_all_notes() -> None:
    """They are unknown, and the oldest that is known can be told."""

    async def story(world: World) -> None:
        await world.create("x")
        await asyncio.sleep(MINUTE_S)
        times = world.registry.times
        oldest_ms = await times.oldest_ms()
        assert oldest_ms is not None
        with pytest.raises(TooOldError):
            await times.revision_at(oldest_ms - 1)
        assert await times.revision_at(oldest_ms) == 1

    run_story(story)


def test_clocks_that_go_back() -> None:
    """Notes do not."""

    async def story(world: World) -> None:
        await world.create("x")
        await asyncio.sleep(2)
        world.clock.jumped_ms = -3_600_000
        await world.create("y")
        await asyncio.sleep(2)
        notes = list(world.registry.times._notes)
        assert [each.unix_ms for each in notes] == sorted(each.unix_ms for each in notes)

    run_story(story)


def test_notes_that_cannot_be_written_are_written_later() -> None:
    """The store was away for a while."""

    async def story(world: World) -> None:
        await world.create("x")
        world.store.failing = UnavailableError("no leader")
        await asyncio.sleep(30)
        assert "failed to record times of revisions" in world.log.lines
        world.store.failing = None
        await asyncio.sleep(30)
        assert len(await keys(world)) == 1

    run_story(story)


def test_a_gap_between_servers_has_the_state_before_it() -> None:
    """What changed while nobody took notes is not told as if it had been there before."""

    async def main() -> None:
        async with world() as first:
            await first.create("x")
            await asyncio.sleep(MINUTE_S)
            first.registry._tasks[1].cancel()
            await asyncio.sleep(MINUTE_S)
            gap_ms = first.clock.unix_ms()
            await first.create("y")
            second = TimeIndex(first.store, first.registry.watch_cache, first.clock, first.log)
            second._loaded(first.store.revision)
            taking = asyncio.create_task(second.run())
            await asyncio.sleep(MINUTE_S)
            found = await second.revision_at(gap_ms)
            page = await first.registry.history.read(first.config_maps, "", None, found, 0)
            assert [each.key for each in page.records] == ["a/x"]
            taking.cancel()

    run(main())


def test_rounds_of_compaction() -> None:
    """The first marks, the next gives up what was before the mark; the loser takes over."""

    async def story(world: World) -> None:
        def server() -> Compaction:
            return Compaction(
                world.store,
                world.registry.times,
                world.clock,
                on_compacted=lambda revision: told_of.append(revision),
            )

        told_of: list[int] = []
        one, two = server(), server()
        await world.create("x")
        await one.round()
        assert world.store.compacted == 0
        await two.round()  # it has lost
        marked = world.store.revision
        await world.create("y")
        await one.round()
        assert world.store.compacted == marked
        assert told_of == [0, marked]
        await two.round()
        assert world.store.compacted == marked
        assert told_of == [0, marked, marked]  # who has lost knows it, too
        kv = (await world.store.get(compaction.KEY)).kv
        assert kv is not None
        assert (kv.version, kv.value) == (2, str(marked).encode())

    run_story(story)


def test_a_history_is_kept() -> None:
    """As long as it is to be, and notes as long as they are needed."""

    async def story(world: World) -> None:
        rounds = Compaction(world.store, world.registry.times, world.clock, history_s=30 * MINUTE_S)
        for number in range(60):
            await world.create(f"c{number}")
            await asyncio.sleep(MINUTE_S)
            await rounds.round()
        now_ms = world.clock.unix_ms()
        for minutes, expected in ((29, 31), (10, 50), (1, 59)):
            found = await world.registry.times.revision_at(now_ms - minutes * MINUTE_S * 1000)
            page = await world.registry.history.read(world.config_maps, "", None, found, 0)
            assert len(page.records) == expected
        others = await stranger(world)
        with pytest.raises(TooOldError):
            await others.revision_at(now_ms - 40 * MINUTE_S * 1000)
        assert 28 <= len(await keys(world)) <= 32

    run_story(story)


def test_keys_sort_as_their_times() -> None:
    """For three hundred thousand years."""
    assert time_index._key(9) < time_index._key(10) < time_index._key(10**11)
