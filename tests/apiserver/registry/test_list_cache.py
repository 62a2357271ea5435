"""Lists that are kept for who asks for the same: good until something changes, and few."""

import random
from collections.abc import Sequence

from kvstack.apiserver.registry.list_cache import (
    ASKED_MAX,
    RECORDS_MAX,
    CachedList,
    ListCache,
    ListRange,
)
from kvstack.apiserver.registry.reads import ListOptions, Page
from kvstack.apiserver.registry.record import Record
from tests.apiserver.registry.test_reads import ALL, IN_A, listed, names, run_story
from tests.apiserver.support.registries import World


def records(*keys: str, size: int = 10) -> list[Record]:
    return [Record(each, 1, b"{", b"x" * size, -1) for each in keys]


def keep(
    list_cache: ListCache, list_range: ListRange, found: Sequence[Record]
) -> CachedList | None:
    return list_cache.keep(list_range, list(found), len(found), is_cut=False)


def test_what_is_asked_for_twice_is_kept_until_something_changes() -> None:
    async def story(world: World) -> None:
        list_cache, place = ListCache(), ListRange(world.config_maps, "", None, 0)
        found = records("a/x", "a/y")
        assert keep(list_cache, place, found) is None, "once is not enough"
        cached = keep(list_cache, place, found)
        assert cached is not None
        assert cached.items() == b"{xxxxxxxxxx,{xxxxxxxxxx"
        assert list_cache.find(place) is cached
        assert list_cache.find(place._replace(limit=1)) is None
        await world.create("x")
        await world.settle()
        assert list_cache.find(place) is None
        assert not len(list_cache)
        assert keep(list_cache, place, found) is None, "nobody has asked for what is there now"
        assert keep(list_cache, place, found) is not None

    run_story(story)


def test_lists_that_changed_are_dropped_when_nobody_asks_for_them() -> None:
    async def story(world: World) -> None:
        list_cache = ListCache()
        place = ListRange(world.config_maps, "", None, 0)
        for _ in range(2):
            keep(list_cache, place, records("a/x"))
        list_cache.forget_changed()
        assert len(list_cache) == 1
        await world.create("x")
        await world.settle()
        list_cache.forget_changed()
        assert not len(list_cache)

    run_story(story)


def test_they_are_few_and_small() -> None:
    async def story(world: World) -> None:
        list_cache = ListCache(bytes_max=100)
        places = [ListRange(world.config_maps, str(number), None, 0) for number in range(6)]
        for place in places:
            for _ in range(2):
                keep(list_cache, place, records("a/x", size=25))
        assert [list_cache.find(each) is not None for each in places] == [False] * 2 + [True] * 4
        keep(list_cache, places[0], records("a/x", size=25))
        keep(list_cache, places[0], records("a/x", size=25))
        assert list_cache.find(places[2]) is None, "the one that was not used for the longest"
        assert list_cache.find(places[3]) is not None
        for found in ([], records("a/x", size=26), records(*map(str, range(RECORDS_MAX + 1)))):
            for _ in range(3):
                assert keep(list_cache, ListRange(world.config_maps, "b", None, 0), found) is None
        for number in range(ASKED_MAX):
            keep(list_cache, ListRange(world.config_maps, "c", None, number), records("a/x"))
        assert (
            keep(list_cache, ListRange(world.config_maps, "c", None, 0), records("a/x")) is not None
        )
        keep(list_cache, ListRange(world.config_maps, "d", None, 0), records("a/x"))
        keep(list_cache, ListRange(world.config_maps, "d", None, 1), records("a/x"))
        assert keep(list_cache, ListRange(world.config_maps, "c", None, 1), records("a/x")) is None

    run_story(story)


def test_lists_are_what_they_were_without() -> None:
    """Asked for again and again while things change, they are those of who keeps nothing."""

    async def story(world: World) -> None:
        chance = random.Random(1)
        shared = 0
        for step in range(60):
            if chance.random() < 0.4:
                await world.create(f"n{step}", chance.choice("abc"))
            selection = chance.choice((ALL, IN_A))
            limit = chance.choice((0, 1, 3, 50))
            page = await listed(world, selection, limit=limit)
            shared += page.cached is not None
            assert page._replace(cached=None) == await anew(world, limit, page, selection is IN_A)
            if page.continue_token:
                rest = await listed(world, selection, continue_token=page.continue_token)
                everything = await listed(world, selection)
                assert names(page) + names(rest) == names(everything)
                assert page.remaining == len(rest.records)
        assert shared > 10

    async def anew(world: World, limit: int, page: Page, is_in_a: bool) -> Page:  # noqa: FBT001
        """Return the same list of a revision, from a selection that nothing is kept of."""
        selection = IN_A if is_in_a else ALL
        extent = world.config_maps.between_at(page.revision, selection.start, selection.end)
        found = list(extent.records)
        if not limit or len(found) <= limit:
            return Page(found, page.revision)
        return Page(found[:limit], page.revision, page.continue_token, len(found) - limit)

    run_story(story)


def test_the_past_is_not_what_is_kept() -> None:
    async def story(world: World) -> None:
        first = await world.create("x")
        await world.create("y")
        for _ in range(3):
            assert names(await listed(world)) == ["a/x", "a/y"]
        options = ListOptions(first.revision, "Exact")
        past = await world.registry.reads.list(world.config_maps, ALL, options)
        assert names(past) == ["a/x"]
        assert past.cached is None

    run_story(story)
