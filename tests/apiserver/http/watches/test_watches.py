"""Watches: where they begin, what they tell, how they end."""

import asyncio
import gzip
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kvstack.apiserver.http.watches import watch_streams
from kvstack.apiserver.http.watches.watch_streams import UNSENT_BYTES_MAX
from kvstore.client.errors import UnavailableError
from tests.apiserver.support.sites import Api, KeptAnswer, site
from tests.apiserver.support.virtual_time import run

MAPS = "/api/v1/namespaces/a/configmaps"
ALL_MAPS = "/api/v1/configmaps"
META = "g=meta.k8s.io;v=v1"


def run_story(story: Callable[[Api], Awaitable[None]]) -> None:
    """Tell a story to an API of its own."""

    async def main() -> None:
        async with site() as api:
            await story(api)

    run(main())


async def make(api: Api, name: str, namespace: str = "a", **labels: str) -> str:
    """Make a ConfigMap; return its resourceVersion."""
    body = {"metadata": {"name": name, "labels": labels}}
    made = await api.ask("POST", f"/api/v1/namespaces/{namespace}/configmaps", body)
    assert made.status == 201
    version: str = made.json["metadata"]["resourceVersion"]
    return version


async def relabel(api: Api, name: str, **labels: str | None) -> None:
    """Change the labels of a ConfigMap."""
    await api.ask(
        "PATCH",
        f"{MAPS}/{name}",
        {"metadata": {"labels": labels}},
        content_type="application/merge-patch+json",
    )


async def settled(api: Api, *tasks: asyncio.Task[None]) -> None:
    """Let what happened reach the watches."""
    await api.world.settle()
    for _ in range(20):
        await asyncio.sleep(0)
    assert all(not each.done() for each in tasks)


def types_and_names(kept: KeptAnswer) -> list[tuple[str, str]]:
    """Return types and names of the events of a stream."""
    return [(each["type"], each["object"]["metadata"].get("name", "")) for each in kept.lines]


def test_from_now_on() -> None:
    """With what is there first, since no resourceVersion was given."""

    async def story(api: Api) -> None:
        await make(api, "x")
        kept, task = api.begin("GET", f"{MAPS}?watch=1")
        await settled(api, task)
        await make(api, "y")
        await make(api, "z", "b")
        await relabel(api, "x", a="1")
        await api.ask("DELETE", f"{MAPS}/y")
        await settled(api, task)
        assert types_and_names(kept) == [
            ("ADDED", "x"), ("ADDED", "y"), ("MODIFIED", "x"), ("DELETED", "y"),
        ]  # fmt: skip
        revisions = [int(each["object"]["metadata"]["resourceVersion"]) for each in kept.lines]
        assert revisions == sorted(set(revisions))

    run_story(story)


def test_from_a_list_on() -> None:
    """Nothing is missed, nothing is told twice."""

    async def story(api: Api) -> None:
        await make(api, "x")
        listed = (await api.ask("GET", MAPS)).json
        version = listed["metadata"]["resourceVersion"]
        await make(api, "y")
        kept, task = api.begin("GET", f"{MAPS}?watch=1&resourceVersion={version}")
        await make(api, "z")
        await settled(api, task)
        assert types_and_names(kept) == [("ADDED", "y"), ("ADDED", "z")]

    run_story(story)


def test_from_a_revision_that_only_the_store_remembers() -> None:
    """Memory has forgotten it; the history of the store has not."""

    async def story(api: Api) -> None:
        version = await make(api, "x")
        await relabel(api, "x", a="1")
        await make(api, "y")
        await api.world.settle()
        window = api.world.config_maps.window
        window._changes.clear()
        window.since = api.world.store.revision
        kept, task = api.begin("GET", f"{MAPS}?watch=1&resourceVersion={version}")
        await settled(api, task)
        await make(api, "z")
        await settled(api, task)
        assert types_and_names(kept) == [("MODIFIED", "x"), ("ADDED", "y"), ("ADDED", "z")]

    run_story(story)


def test_from_a_revision_that_nobody_remembers() -> None:
    """An event with the 410, and the end."""

    async def story(api: Api) -> None:
        await make(api, "x")
        await make(api, "y")
        await make(api, "z")
        await api.world.settle()
        api.world.config_maps.window.since = 4
        api.world.store.compacted = 4
        kept = await api.ask("GET", f"{MAPS}?watch=1&resourceVersion=2")
        (event,) = kept.lines
        assert (kept.status, event["type"], event["object"]["code"]) == (200, "ERROR", 410)
        assert event["object"]["message"] == "too old resource version: 2 (3)"
        assert kept.is_over

    run_story(story)


def test_from_the_future() -> None:
    """It waits."""

    async def story(api: Api) -> None:
        kept, task = api.begin("GET", f"{MAPS}?watch=1&resourceVersion=3")
        await make(api, "x")
        await make(api, "y")
        await settled(api, task)
        await make(api, "z")
        await settled(api, task)
        assert types_and_names(kept) == [("ADDED", "z")]

    run_story(story)


def test_initial_events_and_their_end() -> None:
    """What is there in order, a bookmark that says so, then what changes."""

    async def story(api: Api) -> None:
        for name in ("z", "x"):
            await make(api, name)
        query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        kept, task = api.begin("GET", f"{MAPS}?{query}&allowWatchBookmarks=true")
        await settled(api, task)
        assert types_and_names(kept) == [("ADDED", "x"), ("ADDED", "z"), ("BOOKMARK", "")]
        bookmark = kept.lines[-1]["object"]
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert bookmark["metadata"]["resourceVersion"] == str(api.world.store.revision)
        quiet, other = api.begin("GET", f"{MAPS}?{query}")
        await settled(api, other)
        assert types_and_names(quiet) == [("ADDED", "x"), ("ADDED", "z")]

    run_story(story)


@pytest.mark.parametrize("version", ["", "&resourceVersion=", "&resourceVersion=0"])
def test_a_watch_from_now_tells_the_end_of_its_initial_events(version: str) -> None:
    """A watch without a revision is one with initial events, so bookmarks include their end."""

    async def story(api: Api) -> None:
        await make(api, "x")
        kept, task = api.begin("GET", f"{MAPS}?watch=1&allowWatchBookmarks=true{version}")
        await settled(api, task)
        assert types_and_names(kept) == [("ADDED", "x"), ("BOOKMARK", "")]
        bookmark = kept.lines[-1]["object"]["metadata"]
        assert bookmark["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert bookmark["resourceVersion"] == str(api.world.store.revision)
        without, other = api.begin("GET", f"{MAPS}?watch=1{version}")
        await settled(api, other)
        assert types_and_names(without) == [("ADDED", "x")]

    run_story(story)


def test_a_path_below_watch_is_not_defaulted() -> None:
    """Without the parameter `watch` there is no bookmark, as upstream."""

    async def story(api: Api) -> None:
        await make(api, "x")
        path = MAPS.replace("/api/v1/", "/api/v1/watch/")
        kept, task = api.begin("GET", f"{path}?allowWatchBookmarks=true")
        await settled(api, task)
        assert types_and_names(kept) == [("ADDED", "x")]

    run_story(story)


def test_bookmarks() -> None:
    """Each minute if there is anything new, and shortly before the end."""

    async def story(api: Api) -> None:
        version = await make(api, "x")
        kept, task = api.begin(
            "GET",
            f"{MAPS}?watch=1&resourceVersion={version}&allowWatchBookmarks=1&timeoutSeconds=100",
        )
        await make(api, "y", "b")
        await asyncio.sleep(70)
        assert [each["type"] for each in kept.lines] == ["BOOKMARK"]
        await make(api, "z", "b")
        await asyncio.sleep(40)
        assert task.done()
        versions = [each["object"]["metadata"]["resourceVersion"] for each in kept.lines]
        assert len(versions) == 2
        assert int(versions[0]) < int(versions[1])

    run_story(story)


def test_selectors() -> None:
    """Objects come into sight and go out of it."""

    async def story(api: Api) -> None:
        kept, task = api.begin("GET", f"{ALL_MAPS}?watch=1&labelSelector=a%3D1")
        await settled(api, task)
        await make(api, "x")
        await relabel(api, "x", a="1")
        await relabel(api, "x", a="1", b="2")
        await relabel(api, "x", a=None)
        await relabel(api, "x", b="3")
        await settled(api, task)
        assert types_and_names(kept) == [("ADDED", "x"), ("MODIFIED", "x"), ("DELETED", "x")]
        assert kept.lines[-1]["object"]["metadata"]["labels"] == {"a": "1", "b": "2"}

    run_story(story)


@pytest.mark.parametrize(
    "target",
    [
        f"{MAPS}?watch=1&fieldSelector=metadata.name%3Dx",
        f"{ALL_MAPS}?watch=1&fieldSelector=metadata.name%3Dx,metadata.namespace%3Da",
        "/api/v1/watch/namespaces/a/configmaps/x",
    ],
)
def test_one_object(target: str) -> None:
    """By a selector of fields, or the old path."""

    async def story(api: Api) -> None:
        kept, task = api.begin("GET", target)
        await settled(api, task)
        for namespace, name in (("a", "y"), ("b", "x"), ("a", "x")):
            await make(api, name, namespace)
        await settled(api, task)
        assert types_and_names(kept) == [("ADDED", "x")]
        assert kept.lines[0]["object"]["metadata"]["namespace"] == "a"

    run_story(story)


def test_tables() -> None:
    """Columns come with the first event alone."""

    async def story(api: Api) -> None:
        kept, task = api.begin("GET", f"{MAPS}?watch=1", accept=f"application/json;as=Table;{META}")
        await settled(api, task)
        await make(api, "x")
        await make(api, "y")
        await settled(api, task)
        tables = [each["object"] for each in kept.lines]
        assert [bool(each["columnDefinitions"]) for each in tables] == [True, False]
        assert [each["rows"][0]["cells"][0] for each in tables] == ["x", "y"]

    run_story(story)


def test_metadata_alone_and_protobuf() -> None:
    """Each form is written for all that want it."""

    async def story(api: Api) -> None:
        partial, one = api.begin(
            "GET", f"{MAPS}?watch=1", accept=f"application/json;as=PartialObjectMetadata;{META}"
        )
        binary, two = api.begin(
            "GET", f"{MAPS}?watch=1", accept="application/vnd.kubernetes.protobuf"
        )
        await settled(api, one, two)
        await make(api, "x")
        await settled(api, one, two)
        (event,) = partial.lines
        assert event["object"]["kind"] == "PartialObjectMetadata"
        assert binary.header("content-type") == "application/vnd.kubernetes.protobuf;stream=watch"
        assert int.from_bytes(binary.body[:4]) == len(binary.body) - 4
        refused = await api.ask("GET", f"{MAPS}?watch=1", accept="application/yaml")
        assert refused.status == 406

    run_story(story)


def test_watches_of_the_same_share_their_bytes() -> None:
    """An event is written once for a form, however many watch."""

    async def story(api: Api) -> None:
        written: list[bytes] = []

        def write_all(answers: Any, data: bytes, limit: int) -> list[Any]:
            answers = list(answers)
            written.append(data)
            assert len(answers) == 50
            return [each for each in answers if each.write_now(data) > limit]

        api.site.watches.write_all = write_all
        streams = [api.begin("GET", f"{MAPS}?watch=1") for _ in range(50)]
        await settled(api, *(task for _, task in streams))
        await make(api, "x")
        await settled(api)
        assert len(written) == 1
        assert {kept.body for kept, _ in streams} == {written[0]}
        assert api.site.watches.event_counts() == {api.world.config_maps.resource: 50}

    run_story(story)


def test_a_slow_reader_is_ended() -> None:
    """Others are not held up by it."""

    async def story(api: Api) -> None:
        slow, one = api.begin("GET", f"{MAPS}?watch=1")
        quick, two = api.begin("GET", f"{MAPS}?watch=1")
        await settled(api, one, two)
        slow.unsent_bytes = UNSENT_BYTES_MAX + 1
        await make(api, "x")
        await settled(api, two)
        assert one.done()
        assert slow.is_over
        await make(api, "y")
        await settled(api, two)
        assert types_and_names(quick) == [("ADDED", "x"), ("ADDED", "y")]
        assert api.site.watches.count == 1

    run_story(story)


def test_watches_end_when_everything_is_read_anew() -> None:
    """Their clients begin where they were."""

    async def story(api: Api) -> None:
        kept, task = api.begin("GET", f"{MAPS}?watch=1")
        await settled(api, task)
        await make(api, "x")
        await settled(api, task)
        api.world.store.break_watches(UnavailableError("broken"))
        await asyncio.sleep(1)
        assert task.done()
        assert (types_and_names(kept), kept.is_over) == ([("ADDED", "x")], True)
        assert api.site.watches.count == 0

    run_story(story)


def test_watches_end_in_their_time() -> None:
    """That which they ask for, or one to two times the least."""

    async def story(api: Api) -> None:
        short, one = api.begin("GET", f"{MAPS}?watch=1&timeoutSeconds=3")
        long, two = api.begin("GET", f"{MAPS}?watch=1")
        await asyncio.sleep(2)
        assert not one.done()
        await asyncio.sleep(2)
        assert short.is_over
        await asyncio.sleep(1790)
        assert not two.done()
        await asyncio.sleep(1810)
        assert long.is_over

    run_story(story)


def test_refusals_before_a_stream_begins() -> None:
    """They are answers as any other."""

    async def story(api: Api) -> None:
        for query, status in (
            ("labelSelector=a+b%21", 400),
            ("sendInitialEvents=true", 422),
            ("resourceVersion=x", 500),
        ):
            assert (await api.ask("GET", f"{MAPS}?watch=1&{query}")).status == status
        denied = await api.ask("GET", f"{MAPS}?watch=1", token="bob-token")
        assert denied.status == 403

    run_story(story)


def test_initial_events_are_sent_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes meanwhile comes after them."""
    monkeypatch.setattr(watch_streams, "CHUNK_RECORDS", 2)

    async def story(api: Api) -> None:
        for number in range(7):
            await make(api, f"c{number}")
        kept, task = api.begin("GET", f"{MAPS}?watch=1")
        await make(api, "d")
        await settled(api, task)
        assert [name for _, name in types_and_names(kept)] == [
            *(f"c{each}" for each in range(7)),
            "d",
        ]

    run_story(story)


LIST_WATCH = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"


def test_only_a_watch_that_serves_as_a_list_marks_its_end() -> None:
    async def story(api: Api) -> None:
        version = await make(api, "x")
        await make(api, "y")
        listing, first = api.begin("GET", f"{MAPS}?{LIST_WATCH}&allowWatchBookmarks=true")
        after = f"resourceVersion={version}"
        plain, second = api.begin("GET", f"{MAPS}?watch=1&allowWatchBookmarks=true&{after}")
        await settled(api, first, second)
        assert [each["type"] for each in listing.lines] == ["ADDED", "ADDED", "BOOKMARK"]
        assert [each["type"] for each in plain.lines] == ["ADDED"]

    run_story(story)


def test_a_watch_that_serves_as_a_list_is_compressed() -> None:
    """Each time something is sent it is a member of its own, so that a client need not wait."""

    async def story(api: Api) -> None:
        await make(api, "x")
        query = f"{LIST_WATCH}&allowWatchBookmarks=true"
        packed, first = api.begin("GET", f"{MAPS}?{query}", accept_encoding="gzip")
        plain, second = api.begin("GET", f"{MAPS}?{query}")
        other, third = api.begin("GET", f"{MAPS}?watch=1", accept_encoding="gzip")
        await settled(api, first, second, third)
        assert packed.header("content-encoding") == "gzip"
        assert packed.header("vary") == "Accept-Encoding"
        assert gzip.decompress(packed.body) == plain.body
        sent = len(packed.body)
        flushed = packed.body[: packed.body.rindex(b"\x00\x00\xff\xff") + 4]
        # All of it is there before the member ends, which is where Go's readers wait for the next.
        assert zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(flushed).endswith(b"}}}\n")
        await make(api, "y")
        await settled(api, first, second, third)
        assert gzip.decompress(packed.body[sent:]) in plain.body
        assert gzip.decompress(packed.body) == plain.body
        assert not other.header("content-encoding")
        assert types_and_names(other) == [("ADDED", "x"), ("ADDED", "y")]

    run_story(story)


def test_what_was_sent_to_all_is_not_kept() -> None:
    """The window holds twenty thousand changes; their events are as long as the objects."""

    async def story(api: Api) -> None:
        kept, task = api.begin("GET", f"{MAPS}?watch=1")
        await settled(api, task)
        window = api.world.config_maps.window
        since = window.since
        await make(api, "x")
        await relabel(api, "x", a="b")
        await settled(api, task)
        assert types_and_names(kept) == [("ADDED", "x"), ("MODIFIED", "x")]
        assert [each.encodings for each in window.after(since)] == [None, None]
        past, other = api.begin("GET", f"{MAPS}?watch=1&resourceVersion={since}")
        await settled(api, other)
        assert types_and_names(past) == types_and_names(kept)
        for each in (task, other):
            each.cancel()
        await asyncio.wait([task, other])

    run_story(story)
