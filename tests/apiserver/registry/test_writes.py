"""Writes: one transaction each, that holds what was seen to be still so; shared leases."""

import asyncio
from collections.abc import Awaitable, Callable

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.registry.leases import OBJECTS_MAX
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.writes import Also, Raced
from tests.apiserver.support.registries import World, config_map, world
from tests.apiserver.support.virtual_time import run

EVENTS = GroupResource("", "events")
HOUR_S = 3600


def run_story(story: Callable[[World], Awaitable[None]]) -> None:
    """Run a story in a world of its own."""

    async def main() -> None:
        async with world() as found:
            await story(found)

    run(main())


def test_only_one_creates() -> None:
    """The other learns what is there."""

    async def story(world: World) -> None:
        made = await world.create("x")
        again = await world.registry.writes.create(world.config_maps, "a/x", config_map("x"))
        assert isinstance(again, Raced)
        assert again.current is not None
        assert again.current.revision == made.revision
        assert not again.is_other

    run_story(story)


def test_only_what_was_seen_is_replaced() -> None:
    """A second writer gets what the first has stored."""

    async def story(world: World) -> None:
        seen = await world.create("x")
        writes, collection = world.registry.writes, world.config_maps
        first = await writes.replace(collection, seen, config_map("x", labels={"a": "1"}))
        second = await writes.replace(collection, seen, config_map("x", labels={"a": "2"}))
        assert isinstance(first, Record)
        assert isinstance(second, Raced)
        assert second.current is not None
        assert second.current.labels == {"a": "1"}
        gone = await writes.delete(collection, seen)
        assert isinstance(gone, Raced)

    run_story(story)


def test_the_last_state_has_the_revision_of_its_end() -> None:
    """As the answer of a delete and its watch event have it."""

    async def story(world: World) -> None:
        seen = await world.create("x")
        gone = await world.registry.writes.delete(world.config_maps, seen)
        assert isinstance(gone, Record)
        assert gone.parse()["metadata"]["resourceVersion"] == str(world.store.revision)

    run_story(story)


def test_the_next_writer_guesses_what_was_just_stored() -> None:
    """Before the watch has brought it, also that it is gone."""

    async def story(world: World) -> None:
        made = await world.create("x")
        assert world.config_maps.get("a/x") is None
        assert world.config_maps.guess("a/x") is made
        await world.registry.writes.delete(world.config_maps, made)
        assert world.config_maps.guess("a/x") is None
        await world.settle()
        assert world.config_maps.get("a/x") is None

    run_story(story)


def test_another_key_of_the_transaction() -> None:
    """It is written with the object, or neither is."""

    async def story(world: World) -> None:
        writes, key = world.registry.writes, b"/registry/ranges/serviceips"
        also = [Also(key, 0, b"one")]
        made = await writes.create(world.config_maps, "a/x", config_map("x"), also=also)
        assert isinstance(made, Record)
        assert (await world.store.get(key)).kv is not None
        raced = await writes.create(world.config_maps, "a/y", config_map("y"), also=also)
        assert isinstance(raced, Raced)
        assert raced.is_other
        assert (await world.store.get(b"/registry/configmaps/a/y")).kv is None

    run_story(story)


def test_leases_are_shared() -> None:
    """A lease is granted for longer than asked, and used until it is too short or full."""

    async def story(world: World) -> None:
        writes, collection = world.registry.writes, world.registry.collection(EVENTS)

        async def event(name: str) -> int:
            obj = {**config_map(name), "kind": "Event"}
            made = await writes.create(collection, f"a/{name}", obj, ttl_s=HOUR_S)
            assert isinstance(made, Record)
            return made.lease

        first = await event("e")
        assert world.store.leases == {first: HOUR_S + 60}
        await asyncio.sleep(59)
        assert await event("f") == first
        await asyncio.sleep(2)
        second = await event("g")
        assert second != first
        for number in range(OBJECTS_MAX - 1):
            assert await event(f"h{number}") == second
        assert await event("i") != second

    run_story(story)


def test_what_a_lease_takes_away_is_deleted() -> None:
    """The watch brings the end of it."""

    async def story(world: World) -> None:
        writes = world.registry.writes
        made = await writes.create(world.config_maps, "a/x", config_map("x"), ttl_s=HOUR_S)
        assert isinstance(made, Record)
        await world.settle()
        await world.store.lease_revoke(made.lease)
        await world.settle()
        assert world.config_maps.get("a/x") is None

    run_story(story)
