"""When a runner works on a key: at changes, again, once it sees what it wrote, after a rest."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
from typing_extensions import override

from kvstack.agents.client.api import Api, Event
from kvstack.agents.client.built_in import CONFIG_MAPS, PODS
from kvstack.agents.client.informer import Informer
from kvstack.agents.controllers.ownership import own_key
from kvstack.agents.reconcile.plan import (
    Again,
    BackOff,
    BaseController,
    Create,
    Delete,
    ForeseenError,
    Identity,
    Plan,
    Retry,
    View,
    Watch,
    discover,
    do,
)
from kvstack.agents.reconcile.runner import Environment, Runner
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.scripted import Answered, Request, Scripted
from tests.apiserver.support.virtual_time import run
from tests.sim.stack.timing import SimClock
from tests.support.list_log import ListLog

KEY = "default/a"


def config_map(name: str, version: int, **meta: object) -> Object:
    told = {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**told, **meta}}


class Clock(SimClock):
    """The loop's time, and what a plan pretends to have spent."""

    spent_s = 0.0

    @override
    def monotonic_s(self) -> float:
        """Return the time since the beginning."""
        return super().monotonic_s() + self.spent_s


class Controller(BaseController):
    """Does what the test says, and notes when."""

    identity = Identity("test-controller", "test", "test")
    watches = (Watch(CONFIG_MAPS, own_key),)
    workers = 2

    def __init__(self, work: Callable[[], Plan], back_off: BackOff | None = None) -> None:
        self._work = work
        self.synced_s: list[float] = []
        if back_off is not None:
            self.back_off = back_off

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        self.synced_s.append(round(asyncio.get_running_loop().time(), 4))
        return (yield from self._work())


class Bench:
    """One controller on informers that the test feeds."""

    def __init__(
        self,
        controller: Controller,
        answer: Callable[[Request], Any],
        served: Callable[[], int] | None = None,
    ) -> None:
        self.clock = Clock()
        self.log = ListLog()
        self.controller = controller
        self.server = Scripted(answer)
        self._made: dict[Any, Informer] = {}
        api = Api(self.server)
        self.runner = Runner(
            controller,
            api,
            Environment(self, self.clock, lambda: 0.5, self.log, served=served),  # type: ignore[arg-type]
        )
        self.maps = self.of(CONFIG_MAPS)
        self.maps.replace([], "1")

    def of(self, resource: Any, *, metadata_only: bool = False) -> Informer:
        found = self._made.get(resource)
        if found is None:
            api = Api(self.server) if hasattr(self, "server") else None
            found = Informer(api, resource, self.clock, lambda: 0.5, self.log)  # type: ignore[arg-type]
            self._made[resource] = found
        return found

    def change(self, version: int, name: str = "a", kind: str = "MODIFIED") -> None:
        self.maps.apply([Event(kind, config_map(name, version))])


def nothing() -> Plan:
    return None
    yield []


def play(
    work: Callable[[], Plan],
    story: Callable[[Bench], Coroutine[Any, Any, None]],
    back_off: BackOff | None = None,
    answer: Callable[[Request], Any] = lambda request: Answered(200, {}),
) -> Bench:
    """Run a controller while a story is told; return what is left."""

    async def body() -> Bench:
        bench = Bench(Controller(work, back_off), answer)
        await bench.runner.start()
        await story(bench)
        await bench.runner.stop()
        return bench

    return run(body())


def play_after_write(
    action: Create | Delete, story: Callable[[Bench], Coroutine[Any, Any, None]]
) -> None:
    """Have the first sync write something, change its object, and tell a story from then on."""

    bench: Bench = None  # type: ignore[assignment]  # set before anything is done

    def work() -> Plan:
        if len(bench.controller.synced_s) == 1:
            yield [action]
        return None

    async def whole(running: Bench) -> None:
        nonlocal bench
        bench = running
        bench.change(2)
        await asyncio.sleep(1)
        bench.change(3)
        await story(bench)

    play(work, whole, answer=lambda request: Answered(200, config_map("a", 9)))


def test_changes_that_come_together_are_one_sync() -> None:
    async def story(bench: Bench) -> None:
        for version in range(2, 12):
            bench.change(version)
        await asyncio.sleep(1)

    assert len(play(nothing, story).controller.synced_s) == 1


@pytest.mark.parametrize(
    ("takes_s", "syncs"),
    [
        (0.0005, 100),  # quick ones are made at each change
        (0.004, 28),  # each rests for nine times as long, 0.036 s
        (0.5, 2),  # but never longer than a second
    ],
)
def test_a_key_whose_plans_take_long_rests_between_them(takes_s: float, syncs: int) -> None:
    bench: Bench = None  # type: ignore[assignment]  # set before anything is done

    def work() -> Plan:
        bench.clock.spent_s += takes_s
        return None
        yield []

    async def story(running: Bench) -> None:
        nonlocal bench
        bench = running
        for version in range(2, 102):
            bench.change(version)
            await asyncio.sleep(0.01)
            if version == 50:
                assert bench.runner.is_idle == (syncs == 100)
        await asyncio.sleep(2)
        assert bench.runner.is_idle

    play(work, story)
    assert len(bench.controller.synced_s) == pytest.approx(syncs, abs=2)
    # The last change is not lost.
    assert bench.controller.synced_s[-1] >= 0.99


def test_a_key_that_rests_does_not_hold_others_back() -> None:
    bench: Bench = None  # type: ignore[assignment]  # set before anything is done

    def work() -> Plan:
        bench.clock.spent_s += 0.05
        return None
        yield []

    async def story(running: Bench) -> None:
        nonlocal bench
        bench = running
        for name in ("a", "b"):
            bench.change(2, name)
        await asyncio.sleep(0.001)
        assert len(bench.controller.synced_s) == 2

    play(work, story)


MADE = Create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})


@pytest.mark.parametrize(
    ("action", "seen"),
    [
        (MADE, ("MODIFIED", config_map("a", 9))),
        (MADE, ("BOOKMARK", {"metadata": {"resourceVersion": "9"}})),
        (Delete(CONFIG_MAPS, "default", "a"), ("DELETED", config_map("a", 9))),
        (
            Delete(CONFIG_MAPS, "default", "a"),
            ("MODIFIED", config_map("a", 9, deletionTimestamp="2027-01-15T08:00:00Z")),
        ),
        (
            Delete(CONFIG_MAPS, "default", "a"),
            ("MODIFIED", config_map("a", 9, uid="of another")),
        ),
    ],
)
def test_a_key_waits_until_the_view_shows_what_was_written_for_it(
    action: Create | Delete, seen: tuple[str, Object]
) -> None:
    async def story(bench: Bench) -> None:
        await asyncio.sleep(10)
        assert len(bench.controller.synced_s) == 1
        bench.maps.apply([Event(*seen)])
        await asyncio.sleep(10)
        assert len(bench.controller.synced_s) == 2

    play_after_write(action, story)


def test_a_write_that_no_view_shows_is_forgotten_after_five_minutes() -> None:
    async def story(bench: Bench) -> None:
        await asyncio.sleep(310)
        assert len(bench.controller.synced_s) == 2
        assert 300 <= bench.controller.synced_s[1] <= 302

    play_after_write(MADE, story)


def failing() -> Plan:
    raise ForeseenError("not yet")
    yield []


def retrying() -> Plan:
    return Retry("not there")
    yield []


@pytest.mark.parametrize(
    ("work", "back_off", "waits"),
    [
        (failing, BackOff(base_s=1.0, max_s=4.0), [1, 2, 4, 4, 4, 4]),
        (retrying, BackOff(base_s=1.0, max_s=4.0), [1, 2, 4, 4, 4, 4]),
        (failing, BackOff(base_s=1.0, retries_max=2), [1, 2]),
        (failing, BackOff(base_s=15.0, max_s=15.0, has_bucket=False), [15]),
        (lambda: again_after(3.0), None, [3, 3, 3, 3, 3, 3]),
    ],
)
def test_when_a_key_is_worked_on_again(
    work: Callable[[], Plan], back_off: BackOff | None, waits: list[int]
) -> None:
    async def story(bench: Bench) -> None:
        bench.change(2)
        await asyncio.sleep(20)

    times = play(work, story, back_off).controller.synced_s
    found = [round(after - before, 2) for before, after in pairwise(times)]
    assert found == waits


def again_after(seconds: float) -> Plan:
    return Again(seconds)
    yield []


def test_a_key_that_was_given_up_is_worked_on_at_its_next_change() -> None:
    async def story(bench: Bench) -> None:
        bench.change(2)
        await asyncio.sleep(20)
        assert len(bench.controller.synced_s) == 3
        assert [fields["key"] for _, fields in bench.log.of("error")] == [KEY]
        bench.change(3)
        await asyncio.sleep(20)
        assert len(bench.controller.synced_s) == 6

    play(failing, story, BackOff(base_s=1.0, retries_max=2))


@pytest.mark.parametrize("work", [failing, lambda: broken()], ids=["foreseen", "not foreseen"])
def test_whatever_fails_is_tried_again(work: Callable[[], Plan]) -> None:
    async def story(bench: Bench) -> None:
        bench.change(2)
        await asyncio.sleep(1)
        assert len(bench.controller.synced_s) > 3
        level = "warning" if work is failing else "error"
        assert bench.log.of(level)

    play(work, story)


def broken() -> Plan:
    raise ValueError("a bug")
    yield []


def test_ten_keys_a_second_are_tried_again_after_a_hundred() -> None:
    async def story(bench: Bench) -> None:
        for number in range(200):
            bench.change(2, f"m{number}")
        await asyncio.sleep(5.2)
        # Each fails once at once; of what is tried again a hundred go, and then ten a second.
        assert 200 + 100 + 50 <= len(bench.controller.synced_s) <= 200 + 100 + 54

    play(failing, story, BackOff(base_s=0.001))


def test_a_plan_reads_what_it_did_from_the_answer() -> None:
    read: list[Object] = []

    def work() -> Plan:
        made = yield from do(Create(PODS, "default", {"metadata": {"name": "p"}}))
        read.append(made)
        return None

    async def story(bench: Bench) -> None:
        bench.change(2)
        await asyncio.sleep(1)

    play(work, story, answer=lambda request: Answered(201, {"metadata": {"uid": "u"}}))
    assert read == [{"metadata": {"uid": "u"}}]


@pytest.mark.parametrize("is_known", [True, False])
def test_discovery_is_asked_when_what_is_served_may_have_changed(*, is_known: bool) -> None:
    """Where a server tells of changes; elsewhere each time."""
    generation = 1
    asked: list[str] = []
    found: list[Any] = []

    def answer(request: Request) -> Any:
        asked.append(request.path)
        return Answered(200, {"kind": "APIGroupDiscoveryList", "items": []})

    def work() -> Plan:
        found.append((yield from discover()))
        return None

    async def main() -> None:
        nonlocal generation
        bench = Bench(Controller(work), answer, (lambda: generation) if is_known else None)
        await bench.runner.start()
        for version in range(1, 5):
            bench.change(version)
            await asyncio.sleep(1)
            if version == 2:
                generation += 1
        await bench.runner.stop()

    run(main())
    assert len(found) == 4
    assert asked == ["/api", "/apis"] * (2 if is_known else 4)
