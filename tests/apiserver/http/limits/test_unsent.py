"""Answers that are not read: what they keep, what is made of them, and what one user may hold."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kvstack.apimachinery.attributes import PRIVILEGED, User
from kvstack.apiserver.http.answers import STREAM_BYTES
from kvstack.apiserver.http.limits import unsent
from kvstack.apiserver.http.limits.too_many import TooManyError
from kvstack.apiserver.http.limits.unsent import Unsent
from kvstack.apiserver.http.watches import watch_streams
from kvstack.apiserver.policy.flow_control.control import LEVELS, SCHEMAS, FlowControl
from kvstack.component.http.serving.answer import PIECE_BYTES
from tests.apiserver.http.limits.test_fair_queues import Everybody, turns
from tests.apiserver.policy.flow_control.test_control import level, schema, user
from tests.apiserver.policy.views import FakeView
from tests.apiserver.support.sites import Api, site
from tests.apiserver.support.virtual_time import run

MAPS = "/api/v1/namespaces/a/configmaps"
ALICE, BOB = User("alice"), User("bob")
LARGE = 100_000


def run_story(
    story: Callable[[Api, FlowControl], Awaitable[None]], *, seats: int = 40, reads_max: int = 0
) -> None:
    """Tell a story to a server where alice and bob share a level with queues."""

    async def main() -> None:
        async with site(seats=seats, reads_max=reads_max) as api:
            api.env.authorizer = Everybody()
            queues = api.site.queues
            assert queues is not None
            view = FakeView()
            view.put(LEVELS, level("l", 5))
            for name in ("alice", "bob"):
                rule = {"resources": ["configmaps"]}
                view.put(SCHEMAS, schema(name, 100, user(name), rule=rule))
            queues.control.follow(view)
            queues.control.refresh()
            await story(api, queues.control)

    run(main())


async def make(api: Api, name: str, size: int = LARGE) -> None:
    document = {"metadata": {"name": name}, "data": {"v": "x" * size}}
    answer = await api.ask("POST", MAPS, document)
    assert answer.status == 201


# What is kept until an answer is read.


def test_an_answer_keeps_its_seat_until_it_is_read() -> None:
    async def story(api: Api, control: FlowControl) -> None:
        await make(api, "c")
        found = control.levels["l"]
        kept, task = api.begin("GET", f"{MAPS}/c", token="alice-token", is_unread=True)
        await task
        assert kept.status == 200
        assert (found.in_use, api.site.api.in_flight.counts[False]) == (1, 1)
        assert api.site.unsent.of("alice") == len(kept.body)
        kept.read()
        assert (found.in_use, api.site.api.in_flight.counts[False]) == (0, 0)
        assert api.site.unsent.of("alice") == 0

    run_story(story)


def test_a_client_that_goes_gives_the_seat_back() -> None:
    async def story(api: Api, control: FlowControl) -> None:
        await make(api, "c")
        kept, task = api.begin("GET", f"{MAPS}/c", token="alice-token", is_unread=True)
        await task
        assert control.levels["l"].in_use == 1
        kept.answer.on_disconnect()
        assert control.levels["l"].in_use == 0
        assert api.site.unsent.bytes == 0

    run_story(story)


def test_who_does_not_read_leaves_seats_to_others() -> None:
    """Half of the level at most waits to be read; the rest of alice's wait, and bob's do not."""

    async def story(api: Api, control: FlowControl) -> None:
        await make(api, "c")
        found = control.levels["l"]
        path = f"{MAPS}/c"
        begun = [api.begin("GET", path, token="alice-token", is_unread=True) for _ in range(40)]
        await turns(20)
        assert found.in_use <= found.limit // 2
        assert found.waiting > 0
        for _ in range(10):
            other, task = api.begin("GET", path, token="bob-token")
            await turns()
            assert task.done(), "bob waits for alice"
            assert other.status == 200
        for kept, _ in begun:
            kept.is_unread = False
            kept.read()
        await asyncio.gather(*(task for _, task in begun))
        for kept, _ in begun:
            kept.read()
        assert found.is_idle
        assert api.site.unsent.bytes == 0

    run_story(story)


def test_an_answer_that_is_not_read_in_time_is_cut() -> None:
    async def story(api: Api, control: FlowControl) -> None:
        await make(api, "c")
        path = f"{MAPS}/c?timeout=10s"
        kept, task = api.begin("GET", path, token="alice-token", is_unread=True)
        await task
        kept.answer.waiting = None  # as the server has it, once the handler is done
        await asyncio.sleep(9)
        assert not kept.is_cut
        await asyncio.sleep(3)
        assert kept.is_cut
        await turns()
        assert control.levels["l"].in_use == 0

    run_story(story)


def test_without_fairness_one_user_has_half_of_what_may_be_in_flight() -> None:
    async def story(api: Api, _control: FlowControl) -> None:
        await make(api, "c")
        path = f"{MAPS}/c"
        begun = []
        for _ in range(4):
            begun.append(api.begin("GET", path, token="alice-token", is_unread=True))
            await turns()
        assert [kept.status for kept, _ in begun] == [200, 200, 429, 429]
        assert (await api.ask("GET", path, token="bob-token")).status == 200
        begun[0][0].read()
        assert (await api.ask("GET", path, token="alice-token")).status == 200

    run_story(story, reads_max=4)


# What is made as it is read.


@pytest.mark.parametrize("is_alone", [False, True])
def test_first_events_are_made_as_they_are_read(*, is_alone: bool) -> None:
    """Also what a watch catches up with. It has its seat, and other bytes come after, once each."""

    async def story(api: Api, control: FlowControl) -> None:
        names = [f"c{number:02}" for number in range(20)]
        old = (await api.ask("GET", MAPS)).json["metadata"]["resourceVersion"]
        for name in names:
            await make(api, name)
        found = control.levels["l"]
        query = f"&resourceVersion={old}" if is_alone else ""
        kept, task = api.begin("GET", f"{MAPS}?watch=1{query}", token="alice-token", is_unread=True)
        await turns()
        assert 0 < len(kept.body) <= STREAM_BYTES + 2 * LARGE
        assert found.in_use >= 1
        assert api.site.unsent.of("alice") == STREAM_BYTES
        await make(api, "later", 10)
        for _ in range(40):
            assert kept.unsent_bytes <= STREAM_BYTES + 2 * LARGE
            kept.read()
            await turns()
        assert [each["object"]["metadata"]["name"] for each in kept.lines] == [*names, "later"]
        assert (found.in_use, api.site.unsent.of("alice")) == (0, 0)
        await make(api, "latest", 10)
        await turns(20)
        assert kept.lines[-1]["object"]["metadata"]["name"] == "latest"
        kept.answer.close()
        await task

    run_story(story)


def test_a_large_list_is_made_as_it_is_read() -> None:
    async def story(api: Api, control: FlowControl) -> None:
        for number in range(20):
            await make(api, f"c{number:02}")
        kept, task = api.begin("GET", MAPS, token="alice-token", is_unread=True)
        await turns()
        assert 0 < len(kept.body) <= STREAM_BYTES + 2 * LARGE
        assert control.levels["l"].in_use >= 1
        for _ in range(40):
            kept.read()
            await turns()
        await task
        kept.read()
        assert len(kept.json["items"]) == 20
        assert control.levels["l"].is_idle
        assert api.site.unsent.bytes == 0

    run_story(story)


def test_a_list_that_takes_too_long_to_read_is_cut() -> None:
    """It is not ended as if it were whole."""

    async def story(api: Api, control: FlowControl) -> None:
        for number in range(20):
            await make(api, f"c{number:02}")
        path = f"{MAPS}?timeout=5s"
        kept, task = api.begin("GET", path, token="alice-token", is_unread=True)
        await asyncio.sleep(8)
        await task
        assert kept.is_cut
        assert control.levels["l"].is_idle

    run_story(story)


# What one user may hold.


def test_one_user_holds_a_share_and_is_refused_then() -> None:
    async def story(api: Api, _control: FlowControl) -> None:
        await make(api, "c")
        counted = api.site.unsent
        held = counted.hold(ALICE, counted.user_bytes_max)
        assert held is not None
        for path in (f"{MAPS}/c", MAPS, f"{MAPS}?watch=1"):
            refused = await api.ask("GET", path, token="alice-token")
            assert refused.status == 429
            assert refused.header("retry-after") == "1"
        assert (await api.ask("GET", f"{MAPS}/c", token="bob-token")).status == 200
        assert (await api.ask("GET", f"{MAPS}/c")).status == 200
        counted.release(held)
        assert (await api.ask("GET", f"{MAPS}/c", token="alice-token")).status == 200

    run_story(story)


def test_a_users_watches_that_are_too_far_behind_together_are_cut() -> None:
    """Those that are furthest behind; what streams of one selection are sent counts once."""

    async def story(api: Api, _control: FlowControl) -> None:
        counted = api.site.unsent
        begun = {}
        for name, query in (("a", "x=1"), ("b", "x=2"), ("b2", "x=2"), ("c", "x=3")):
            begun[name] = api.begin(
                "GET", f"{MAPS}?watch=1&labelSelector=!{query[0]}{query[2]}", token="alice-token"
            )
        await turns()
        part = counted.user_bytes_max // 4
        for name, size in (("a", part), ("b", part), ("b2", part), ("c", part)):
            begun[name][0].unsent_bytes = size
        await asyncio.sleep(watch_streams.LOOK_S * 2)
        assert counted.of("alice") == 3 * part
        assert not any(kept.is_cut for kept, _ in begun.values())
        begun["c"][0].unsent_bytes = 3 * part
        await asyncio.sleep(watch_streams.LOOK_S)
        assert [name for name, (kept, _) in begun.items() if kept.is_cut] == ["c"]
        for kept, _ in begun.values():
            kept.unsent_bytes = 0
        await asyncio.sleep(watch_streams.LOOK_S)
        assert counted.bytes == 0
        for kept, _ in begun.values():
            kept.answer.close()
        await asyncio.gather(*(task for _, task in begun.values()), return_exceptions=True)

    run_story(story)


def test_shared_bytes_count_once() -> None:
    counted = Unsent(800)
    shared = b"s" * 60
    several = [counted.hold(ALICE, 5, shared) for _ in range(4)]
    assert (counted.of("alice"), counted.bytes) == (80, 80)
    other = counted.hold(BOB, 1, shared)
    assert (counted.of("bob"), counted.bytes) == (61, 81)
    for each in [*several, other]:
        assert each is not None
        counted.release(each)
    assert (counted.of("alice"), counted.of("bob"), counted.bytes) == (0, 0, 0)


def test_a_share_is_smaller_when_much_is_held() -> None:
    """An eighth for each; once all is held, who holds little goes on."""
    counted = Unsent(6_400)
    admin = User("root", groups=(PRIVILEGED,))
    assert counted.hold(admin, 10_000) is None
    assert counted.bytes == 0
    counted.hold(ALICE, 799)
    counted.check(ALICE)
    counted.hold(ALICE, 1)
    with pytest.raises(TooManyError):
        counted.check(ALICE)
    counted.check(admin)
    counted.hold(BOB, 60)
    for number in range(7):
        counted.hold(User(f"u{number}"), 800)
    with pytest.raises(TooManyError):
        counted.check(BOB)
    counted.check(User("new"))
    counted.set_live("bob", 700)
    assert counted.of("bob") == 760
    counted.set_live("bob", 0)
    assert counted.of("bob") == 60


def test_the_bounds_are_those_of_the_documentation() -> None:
    assert unsent.UNSENT_BYTES_ALL // unsent.USER_SHARE == 64 << 20
    assert STREAM_BYTES == 3 * PIECE_BYTES
