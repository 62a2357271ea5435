"""What the server tells of itself: slow requests, watches, what is being deleted, revisions."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from typing_extensions import override

from kvstack.apiserver.http.pages import debug_pages
from kvstack.apiserver.http.slow_requests import KEPT_MAX, PATH_CHARACTERS_MAX, SLOW_NS
from kvstack.apiserver.verbs import stages
from kvstack.component.clock import Clock
from kvstack.component.units import SECOND_NS
from tests.apiserver.support.sites import Api, site
from tests.apiserver.support.virtual_time import run

MAPS = "/api/v1/namespaces/a/configmaps"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
PAGES = [*debug_pages.PATHS, "/at"]


def run_story(story: Callable[[Api], Awaitable[None]]) -> None:
    async def main() -> None:
        async with site() as api:
            await story(api)

    run(main())


async def page(api: Api, path: str) -> Any:
    answer = await api.ask("GET", path)
    assert answer.status == 200, answer.body
    assert answer.header("cache-control") == "no-store"
    return answer.json


@pytest.mark.parametrize("path", PAGES)
def test_the_pages_are_for_whom_rbac_lets_and_are_not_listed(path: str) -> None:
    async def story(api: Api) -> None:
        assert (await api.ask("GET", path, token="user-token")).status in (401, 403)
        assert (await api.ask("POST", path)).status == 405
        assert path not in (await api.ask("GET", "/")).json["paths"]

    run_story(story)


def test_a_slow_request_is_reported_by_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(api: Api) -> None:
        create = api.world.registry.writes.create

        async def slowly(*arguments: Any, **options: Any) -> Any:
            await asyncio.sleep(2)
            return await create(*arguments, **options)

        monkeypatch.setattr(api.world.registry.writes, "create", slowly)
        await api.ask("POST", MAPS, MAP)
        await api.ask("GET", f"{MAPS}/x")
        found = await page(api, debug_pages.SLOW_REQUESTS)
        assert found["thresholdMs"] == SLOW_NS / 1e6
        assert found["count"] == 1
        (slow,) = found["requests"]
        assert (slow["method"], slow["path"], slow["code"]) == ("POST", MAPS, 201)
        assert (slow["user"], slow["userAgent"]) == ("admin", "tests/1")
        assert next(iter(slow["stagesMs"])) == stages.STORE
        assert slow["stagesMs"][stages.STORE] == pytest.approx(2000, abs=50)
        assert sum(slow["stagesMs"].values()) == pytest.approx(slow["tookMs"], abs=1)

    run_story(story)


def test_slow_requests_are_bounded_in_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(api: Api) -> None:
        read = api.world.registry.reads.get

        async def slowly(*arguments: Any) -> Any:
            await asyncio.sleep(1)
            return await read(*arguments)

        monkeypatch.setattr(api.world.registry.reads, "get", slowly)
        for _ in range(KEPT_MAX + 5):
            await api.ask("GET", f"{MAPS}/{'x' * 1000}")
        found = await page(api, debug_pages.SLOW_REQUESTS)
        assert found["count"] == KEPT_MAX + 5
        assert len(found["requests"]) == KEPT_MAX
        assert len(found["requests"][0]["path"]) == PATH_CHARACTERS_MAX
        assert next(iter(found["requests"][0]["stagesMs"])) == stages.READING

    run_story(story)


def test_stages_inside_others_count_once() -> None:
    class SetClock(Clock):
        now_ns = 0

        @override
        def monotonic_ns(self) -> int:
            return self.now_ns

        @override
        def unix_ms(self) -> int:
            return 0

    clock, spent = SetClock(), dict[str, int]()

    async def store() -> None:
        clock.now_ns += 3 * SECOND_NS

    async def verb() -> None:
        clock.now_ns += SECOND_NS
        await stages.timed(clock, spent, stages.STORE, store())

    async def fails() -> None:
        clock.now_ns += SECOND_NS
        raise OSError

    asyncio.run(stages.timed(clock, spent, stages.READING, verb()))
    assert spent == {stages.STORE: 3 * SECOND_NS, stages.READING: SECOND_NS}
    with pytest.raises(OSError):  # noqa: PT011 - it is that of this test
        asyncio.run(stages.timed(clock, spent, stages.READING, fails()))
    assert spent[stages.READING] == 2 * SECOND_NS
    assert stages.split(7 * SECOND_NS, spent)[stages.PROCESSING] == 2 * SECOND_NS


def test_watches_are_reported_by_resource_and_who_does_not_read() -> None:
    async def story(api: Api) -> None:
        unread, first = api.begin("GET", f"{MAPS}?watch=1", is_unread=True)
        _, second = api.begin("GET", f"{MAPS}?watch=1")
        await asyncio.sleep(1)
        await api.ask("POST", MAPS, MAP)
        await asyncio.sleep(1)
        found = await page(api, debug_pages.WATCHES)
        assert found["streams"] == 2
        (maps,) = [each for each in found["resources"] if each["resource"] == "configmaps"]
        # Both are of one selection and form: what they are sent is written once.
        assert (maps["streams"], maps["groups"], maps["events"]) == (2, 1, 2)
        (behind,) = found["behind"]
        assert (behind["user"], behind["agent"]) == ("admin", "tests/1")
        assert (behind["resource"], behind["namespace"]) == ("configmaps", "a")
        assert behind["unsent_bytes"] == found["unsentBytes"] == unread.unsent_bytes > 0
        assert found["revision"] == api.world.store.revision
        assert found["delayMs"] is not None
        for each in (first, second):
            each.cancel()
        await asyncio.gather(first, second, return_exceptions=True)

    run_story(story)


def test_what_is_being_deleted_is_reported_with_what_it_waits_for() -> None:
    async def story(api: Api) -> None:
        held = {"name": "held", "finalizers": ["example.com/a", "example.com/b"]}
        text = {"data": {"deletionTimestamp": "no"}}  # which is none
        await api.ask("POST", MAPS, {**MAP, "metadata": held})
        await api.ask("POST", MAPS, {**MAP, **text})
        assert (await page(api, debug_pages.TERMINATING))["count"] == 0
        await api.ask("DELETE", f"{MAPS}/held")
        found = await page(api, debug_pages.TERMINATING)
        assert found["count"] == 1
        assert found["finalizers"] == {"example.com/a": 1, "example.com/b": 1}
        (ending,) = found["objects"]
        assert (ending["resource"], ending["namespace"], ending["name"]) == (
            "configmaps",
            "a",
            "held",
        )
        assert ending["finalizers"] == held["finalizers"]
        assert ending["deletionTimestamp"].endswith("Z")

    run_story(story)


def test_revisions_are_reported_by_time() -> None:
    async def story(api: Api) -> None:
        await asyncio.sleep(5)
        before = (await page(api, "/at"))["now"]
        made = await api.ask("POST", MAPS, MAP)
        revision = int(made.json["metadata"]["resourceVersion"])
        await asyncio.sleep(30)
        found = await page(api, f"/at?from={before}")
        assert found["oldest"] <= before < found["now"]
        assert found["revision"] >= revision
        assert any(first <= revision <= last for _, first, last in found["notes"])
        # The state before a note's time can be asked for.
        assert (await api.ask("GET", f"/at/{before}{MAPS}/x")).status == 404
        assert (await api.ask("GET", f"/at/{found['now']}{MAPS}/x")).status == 200
        earlier = await page(api, f"/at?from=2001-01-01T00:00:00Z&to={before}")
        assert all(last < revision for _, _, last in earlier["notes"])
        wrong = await api.ask("GET", "/at?from=yesterday")
        assert wrong.status == 400
        assert '"yesterday"' in wrong.json["message"]

    run_story(story)
