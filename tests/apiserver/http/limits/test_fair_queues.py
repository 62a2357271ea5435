"""Priority and fairness over HTTP: who goes on, who waits, who is refused, and what is told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kvstack.apimachinery.attributes import Attributes
from kvstack.apiserver.policy.flow_control.control import LEVELS, SCHEMAS, FlowControl
from kvstack.apiserver.policy.interfaces import Decision
from tests.apiserver.policy.flow_control.test_control import level, schema, user
from tests.apiserver.policy.views import FakeView
from tests.apiserver.support.sites import Api, KeptAnswer, site
from tests.apiserver.support.virtual_time import run

MAPS = "/api/v1/namespaces/a/configmaps"
FLOW = "x-kubernetes-pf-flowschema-uid"
LEVEL = "x-kubernetes-pf-prioritylevel-uid"


class Everybody:
    """An authorizer that allows everything."""

    def authorize(self, attributes: Attributes) -> Decision:
        return Decision(allowed=True)


def run_story(story: Callable[[Api, FlowControl], Awaitable[None]], seats: int) -> None:
    """Tell a story to a server where alice and bob share a level with queues."""

    async def main() -> None:
        async with site(seats=seats) as api:
            api.env.authorizer = Everybody()
            queues = api.site.queues
            assert queues is not None
            view = FakeView()
            view.put(LEVELS, level("l", 5))
            for name in ("alice", "bob"):
                rule = {"resources": ["configmaps"]}
                view.put(SCHEMAS, schema(name, 100, user(name), rule=rule))
            queues.control.follow(view)
            await story(api, queues.control)

    run(main())


def begin(api: Api, who: str, count: int = 1) -> list[tuple[KeptAnswer, asyncio.Task[None]]]:
    return [api.begin("GET", MAPS, token=f"{who}-token") for _ in range(count)]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_answers_say_what_they_were_counted_as() -> None:
    async def story(api: Api, _control: FlowControl) -> None:
        answer = await api.ask("GET", MAPS, token="alice-token")
        assert (answer.header(FLOW), answer.header(LEVEL)) == ("alice-uid", "l-uid")
        admin = await api.ask("GET", MAPS)
        assert admin.status == 200
        assert [name for name, _ in admin.headers].count("X-Kubernetes-Pf-Flowschema-Uid") == 1

    run_story(story, 20)


def test_a_flood_waits_and_others_do_not() -> None:
    """The flood fills its seats and queues; administrators and others go on meanwhile."""

    async def story(api: Api, control: FlowControl) -> None:
        stall = api.world.store.stalled = asyncio.Event()
        flood = begin(api, "alice", 30)
        await turns()
        assert control.levels["l"].waiting > 0
        refused = [kept for kept, task in flood if task.done()]
        assert refused
        assert {each.status for each in refused} == {429}
        assert refused[0].body == b"Too many requests, please try again later.\n"
        assert int(refused[0].header("retry-after")) >= 1
        assert refused[0].header(FLOW) == "alice-uid"
        healthy = await api.ask("GET", "/version")
        assert healthy.status == 200, "an administrator was kept waiting"
        other = begin(api, "bob")
        await turns()
        stall.set()
        await asyncio.gather(*(task for _, task in [*flood, *other]))
        assert other[0][0].status == 200
        assert {kept.status for kept, _ in flood} == {200, 429}
        assert all(each.is_idle for each in control.levels.values())

    run_story(story, 4)


def test_who_waits_too_long_is_refused() -> None:
    async def story(api: Api, control: FlowControl) -> None:
        stall = api.world.store.stalled = asyncio.Event()
        flood = begin(api, "alice", 8)
        await turns()
        waiting = control.levels["l"].waiting
        assert waiting
        await asyncio.sleep(14.9)
        assert control.levels["l"].waiting == waiting
        await asyncio.sleep(0.2)
        assert control.levels["l"].waiting == 0
        stall.set()
        await asyncio.gather(*(task for _, task in flood))
        counts = control.counts["l", "alice"]
        assert counts.rejected["time-out"] == waiting
        assert [kept.status for kept, _ in flood].count(429) == sum(counts.rejected.values())

    run_story(story, 4)


def test_a_client_that_goes_leaves_its_queue() -> None:
    async def story(api: Api, control: FlowControl) -> None:
        stall = api.world.store.stalled = asyncio.Event()
        flood = begin(api, "alice", 8)
        await turns()
        level_ = control.levels["l"]
        for _, task in flood:
            task.cancel()
        await asyncio.gather(*(task for _, task in flood), return_exceptions=True)
        assert level_.is_idle
        assert level_.in_use == level_.waiting_seats == 0
        stall.set()
        ((kept, task),) = begin(api, "alice")
        await task
        assert kept.status == 200

    run_story(story, 4)


def test_a_watch_takes_a_seat_until_it_has_begun() -> None:
    async def story(api: Api, control: FlowControl) -> None:
        stall = api.world.store.stalled = asyncio.Event()
        _, watch = api.begin(
            "GET", f"{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            token="alice-token",
        )  # fmt: skip
        await turns()
        level_ = control.levels["l"]
        assert level_.in_use == 1
        stall.set()
        await turns(20)
        assert level_.in_use == 0
        assert not watch.done()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        assert level_.is_idle

    run_story(story, 20)


def test_pages_and_metrics_tell_what_is_going_on() -> None:
    async def story(api: Api, _control: FlowControl) -> None:
        stall = api.world.store.stalled = asyncio.Event()
        flood = begin(api, "alice", 30)
        await turns()
        root = "/debug/api_priority_and_fairness"
        levels = (await api.ask("GET", f"{root}/dump_priority_levels")).body.decode().splitlines()
        assert levels[0].startswith("PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, Waiting")
        row: list[Any] = [each.strip() for each in levels[-1].split(",")]
        assert row[0] == "l"
        assert int(row[4]) > 0
        requests = (await api.ask("GET", f"{root}/dump_requests")).body.decode().splitlines()
        assert len(requests) == 1 + int(row[4])
        assert requests[1].split(",")[4].strip() == "a"
        queues = (await api.ask("GET", f"{root}/dump_queues")).body.decode().splitlines()
        assert len(queues) == 1 + 8
        stall.set()
        await asyncio.gather(*(task for _, task in flood))
        page = (await api.ask("GET", "/metrics")).body.decode()
        found = 'apiserver_flowcontrol_dispatched_requests_total{flow_schema="alice",'
        assert f'{found}priority_level="l"}} ' in page
        assert 'apiserver_flowcontrol_current_limit_seats{priority_level="l"}' in page
        assert 'apiserver_flowcontrol_rejected_requests_total{flow_schema="alice"' in page
        assert 'apiserver_request_terminations_total{code="429",component="apiserver"' in page

    run_story(story, 4)


def test_writes_of_what_many_watch_take_more_seats() -> None:
    async def story(api: Api, control: FlowControl) -> None:
        watches = [api.begin("GET", f"{MAPS}?watch=1", token="bob-token") for _ in range(25)]
        await turns(20)
        control.rebalance()
        made = await api.ask("POST", MAPS, {"metadata": {"name": "x"}}, token="alice-token")
        assert made.status == 201
        control.rebalance()
        assert control.levels["l"].period.high == 3
        assert control.levels["l"].in_use == 0
        for _, each in watches:
            each.cancel()
        await asyncio.gather(*(each for _, each in watches), return_exceptions=True)

    run_story(story, 100)
