"""Get and list with every meaning of resourceVersion, pages, and what the store has forgotten."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kvstack.apimachinery.objects import fields, labels
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.registry import continue_token
from kvstack.apiserver.registry.compaction import Compaction
from kvstack.apiserver.registry.reads import EXACT, NOT_OLDER_THAN, ListOptions, Page
from kvstack.apiserver.registry.selection import Selection
from kvstore.client.errors import UnavailableError
from tests.apiserver.support.registries import World, world
from tests.apiserver.support.virtual_time import run

ALL = Selection()
IN_A = Selection("a/")


def run_story(story: Callable[[World], Awaitable[None]]) -> None:
    """Run a story in a world of its own."""

    async def main() -> None:
        async with world() as found:
            await story(found)

    run(main())


async def listed(world: World, selection: Selection = ALL, **options: object) -> Page:
    """Return a list of ConfigMaps."""
    asked = ListOptions()._replace(**options)  # type: ignore[arg-type]
    return await world.registry.reads.list(world.config_maps, selection, asked)


def names(page: Page) -> list[str]:
    """Return the keys of a page."""
    return [each.key for each in page.records]


async def refused(waiting: Awaitable[object]) -> ApiError:
    """Return the error of what has to fail."""
    with pytest.raises(ApiError) as caught:
        await waiting
    return caught.value


def test_a_read_of_the_present_sees_what_was_just_written() -> None:
    """No read without a resourceVersion is older than the store was when it began."""

    async def story(world: World) -> None:
        made = await world.create("x")
        found = await world.registry.reads.get(world.config_maps, "a/x")
        assert found is not None
        assert found.revision == made.revision
        page = await listed(world)
        assert (names(page), page.revision) == (["a/x"], made.revision)

    run_story(story)


def test_any_state_is_answered_without_the_store() -> None:
    """resourceVersion 0 asks nobody, and has no pages."""

    async def story(world: World) -> None:
        for each in ("x", "y", "z"):
            await world.create(each)
        await world.settle()
        world.store.failing = UnavailableError("gone")
        before = len(world.store.calls)
        page = await listed(world, revision=0, limit=1)
        assert (names(page), page.continue_token) == (["a/x", "a/y", "a/z"], "")
        assert await world.registry.reads.get(world.config_maps, "a/x", 0) is not None
        assert len(world.store.calls) == before

    run_story(story)


@pytest.mark.parametrize(
    ("options", "keys", "revision"),
    [
        ({}, ["a/x", "a/y", "a/z"], 4),
        ({"revision": 2}, ["a/x", "a/y", "a/z"], 4),
        ({"revision": 2, "match": NOT_OLDER_THAN}, ["a/x", "a/y", "a/z"], 4),
        ({"revision": 0, "match": NOT_OLDER_THAN}, ["a/x", "a/y", "a/z"], 4),
        ({"revision": 3, "match": EXACT}, ["a/x", "a/y"], 3),
        ({"revision": 3, "limit": 1}, ["a/x"], 3),
        ({"revision": 2, "limit": 2, "match": NOT_OLDER_THAN}, ["a/x", "a/y"], 4),
        ({"limit": 2}, ["a/x", "a/y"], 4),
    ],
)
def test_combinations(options: dict[str, Any], keys: list[str], revision: int) -> None:
    """Which state is listed, of three objects that came at 2, 3 and 4."""

    async def story(world: World) -> None:
        for each in ("x", "y", "z"):
            await world.create(each)
        await world.settle()
        page = await listed(world, **options)
        assert (names(page), page.revision) == (keys, revision)

    run_story(story)


def test_pages_are_of_the_state_of_the_first() -> None:
    """What changes between pages is not seen; the rest is counted."""

    async def story(world: World) -> None:
        for each in ("v", "x", "z"):
            await world.create(each)
        first = await listed(world, IN_A, limit=1)
        assert (names(first), first.remaining) == (["a/v"], 2)
        await world.create("w")
        gone = await world.registry.reads.get(world.config_maps, "a/z")
        assert gone is not None
        await world.registry.writes.delete(world.config_maps, gone)
        await world.settle()
        second = await listed(world, IN_A, limit=1, continue_token=first.continue_token)
        third = await listed(world, IN_A, limit=1, continue_token=second.continue_token)
        assert (names(second), names(third)) == (["a/x"], ["a/z"])
        assert (second.revision, third.revision) == (first.revision, first.revision)
        assert (third.continue_token, third.remaining) == ("", None)

    run_story(story)


def test_a_token_of_the_present_goes_on_with_what_is_there() -> None:
    """A token with revision -1, as expired ones are answered with."""

    async def story(world: World) -> None:
        for each in ("v", "x"):
            await world.create(each)
        token = continue_token.after(continue_token.LATEST, "v")
        await world.create("w")
        page = await listed(world, IN_A, limit=5, continue_token=token)
        assert names(page) == ["a/w", "a/x"]

    run_story(story)


def test_expired_pages_can_be_gone_on_with() -> None:
    """The token of the 410 has revision -1 and begins where the page would have."""

    async def story(world: World) -> None:
        for each in ("v", "x"):
            await world.create(each)
        first = await listed(world, IN_A, limit=1)
        collection = world.config_maps
        collection.window.since = world.store.revision + 1  # memory has forgotten
        await world.create("w")
        await world.settle()
        world.store.compacted = world.store.revision
        error = await refused(listed(world, IN_A, limit=1, continue_token=first.continue_token))
        assert (error.code, error.reason) == (410, "Expired")
        token = error.status["metadata"]["continue"]
        assert continue_token.decode(token).revision == continue_token.LATEST
        assert names(await listed(world, IN_A, limit=5, continue_token=token)) == ["a/w", "a/x"]

    run_story(story)


def test_states_that_memory_has_forgotten_come_from_the_store() -> None:
    """Exact lists, also in pages, with the objects as they were."""

    async def story(world: World) -> None:
        made = await world.create("x")
        await world.create("y")
        await world.registry.writes.delete(world.config_maps, made)
        await world.settle()
        world.config_maps.window.since = world.store.revision
        page = await listed(world, revision=3, match=EXACT, limit=1)
        assert (names(page), page.revision, page.remaining) == (["a/x"], 3, 1)
        rest = await listed(world, limit=1, continue_token=page.continue_token)
        assert (names(rest), rest.revision) == (["a/y"], 3)

    run_story(story)


def test_states_that_the_store_has_forgotten() -> None:
    """Exact lists of them are 410."""

    async def story(world: World) -> None:
        for each in ("x", "y", "z"):
            await world.create(each)
        await world.settle()
        world.config_maps.window.since = world.store.revision
        world.store.compacted = 4
        error = await refused(listed(world, revision=2, match=EXACT))
        assert error.status["message"] == "The resourceVersion for the provided list is too old."

    run_story(story)


@pytest.mark.parametrize("options", [{"revision": 99}, {"revision": 99, "match": EXACT}])
def test_states_of_the_future(options: dict[str, Any]) -> None:
    """They are waited for, three seconds."""

    async def story(world: World) -> None:
        error = await refused(listed(world, **options))
        assert (error.code, error.status["message"]) == (
            504,
            "Timeout: Too large resource version: 99, current: 1",
        )
        assert asyncio.get_running_loop().time() == pytest.approx(3, abs=0.1)

    run_story(story)


def test_a_state_that_comes_while_it_is_waited_for() -> None:
    """A get that is not older than N waits for N."""

    async def story(world: World) -> None:
        waiting = asyncio.create_task(world.registry.reads.get(world.config_maps, "a/x", 2))
        await asyncio.sleep(0.5)
        await world.create("x")
        found = await waiting
        assert found is not None
        assert found.revision == 2

    run_story(story)


def test_reads_of_the_present_fail_with_the_store() -> None:
    """There is no stale answer to who asks for the present."""

    async def story(world: World) -> None:
        await world.create("x")
        world.store.failing = UnavailableError("no leader")
        for waiting in (listed(world), world.registry.reads.get(world.config_maps, "a/x")):
            error = await refused(waiting)
            assert (error.code, error.reason) == (500, "ServerTimeout")

    run_story(story)


def test_selections() -> None:
    """Labels, namespaces and names."""

    async def story(world: World) -> None:
        await world.create("x", labels={"app": "web"})
        await world.create("y", labels={"app": "db"})
        await world.create("x", "b", labels={"app": "web"})
        for namespace, label, field, expected in (
            ("", "app=web", "", ["a/x", "b/x"]),
            ("a", "app in (web,db)", "", ["a/x", "a/y"]),
            ("", "", "metadata.namespace=b", ["b/x"]),
            ("a", "", "metadata.name=y", ["a/y"]),
            ("", "", "metadata.name=x", ["a/x", "b/x"]),
            ("", "!app", "", []),
        ):
            selection = Selection.of(
                world.config_maps, namespace, labels.parse(label), fields.parse(field)
            )
            assert names(await listed(world, selection)) == expected

    run_story(story)


def test_pages_of_a_selection_have_no_count() -> None:
    """How many are still to come is not known where a selector decides."""

    async def story(world: World) -> None:
        for number in range(6):
            await world.create(f"c{number}", labels={"odd": str(number % 2)})
        selection = Selection.of(world.config_maps, "", labels.parse("odd=1"), fields.parse(""))
        page = await listed(world, selection, limit=2)
        assert (names(page), page.remaining) == (["a/c1", "a/c3"], None)
        rest = await listed(world, selection, limit=2, continue_token=page.continue_token)
        assert (names(rest), rest.continue_token) == (["a/c5"], "")

    run_story(story)


def test_what_was_compacted_is_not_read_from_memory_either() -> None:
    """Continue tokens and exact lists expire with the store's history; the oldest state stays."""

    async def story(world: World) -> None:
        for name in ("x", "y", "z"):
            await world.create(name)
        first = await listed(world, limit=1)
        other = await world.create("later", namespace="b")
        compaction = Compaction(
            world.store,
            world.registry.times,
            world.clock,
            on_compacted=world.registry.watch_cache.note_compaction,
        )
        await compaction.round()
        oldest = world.store.revision
        page = await listed(world, limit=1, continue_token=first.continue_token)
        assert (names(page), page.revision) == (["a/y"], first.revision)
        await compaction.round()
        assert world.store.compacted == oldest > other.revision
        await world.settle()
        error = await refused(listed(world, limit=1, continue_token=first.continue_token))
        assert (error.code, error.reason) == (410, "Expired")
        token = error.status["metadata"]["continue"]
        rest = await listed(world, limit=2, continue_token=token)
        assert names(rest) == ["a/y", "a/z"]
        error = await refused(listed(world, revision=first.revision, match=EXACT))
        assert (error.code, error.reason) == (410, "Expired")
        at_oldest = await listed(world, revision=oldest, match=EXACT)
        assert names(at_oldest) == ["a/x", "a/y", "a/z", "b/later"]

    run_story(story)


def test_what_cannot_be_read_spoils_lists() -> None:
    """Objects of another program's making: a StorageReadError with a cause for each."""

    async def story(world: World) -> None:
        await world.create("good")
        await world.store.put(b"/registry/configmaps/a/bad", b"\x00\x01")
        await world.store.put(b"/registry/configmaps/a/worse", b"{")
        revision = world.store.revision - 1
        error = await refused(listed(world))
        assert (error.code, error.reason) == (500, "StorageReadError")
        details = error.status["details"]
        assert (details["name"], details["kind"]) == ("list", "configmaps")
        first, second = details["causes"]
        assert (first["reason"], first["field"]) == (
            "UnexpectedServerResponse",
            "/registry/configmaps/a/bad",
        )
        assert first["message"].startswith(
            "StorageError: corrupt object, Code: 7, Key: /registry/configmaps/a/bad,"
            " ResourceVersion: 0, AdditionalErrorMsg: object not decodable"
            f" revision={revision}: "
        )
        assert second["field"] == "/registry/configmaps/a/worse"
        assert error.status["message"] == (
            "failed to read one or more configmaps from the storage: "
            f"{first['message']} (and 1 more)"
        )
        past = await refused(listed(world, revision=revision, match=EXACT))
        assert len(past.status["details"]["causes"]) >= 1

    run_story(story)


def test_a_list_without_what_cannot_be_read_is_answered() -> None:
    """Only lists whose range has an unreadable object fail."""

    async def story(world: World) -> None:
        await world.create("good", namespace="b")
        await world.store.put(b"/registry/configmaps/a/bad", b"\x00\x01")
        assert names(await listed(world, Selection("b/"))) == ["b/good"]
        assert (await refused(listed(world, IN_A))).reason == "StorageReadError"

    run_story(story)


def test_the_error_of_a_list_names_a_hundred_objects() -> None:
    """Then it says that there are more."""

    async def story(world: World) -> None:
        for number in range(120):
            await world.store.put(b"/registry/configmaps/a/bad%03d" % number, b"\x00\x01")
        causes = (await refused(listed(world))).status["details"]["causes"]
        assert len(causes) == 101
        assert causes[-1] == {
            "reason": "FieldValueTooMany",
            "message": "too many errors, the list is truncated",
        }

    run_story(story)
