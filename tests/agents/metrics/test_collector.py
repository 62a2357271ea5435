"""Rounds of readings: what a node can do to the others, and when it is forgotten."""

import asyncio
from typing import Any

from typing_extensions import override

from kvstack.agents.client.built_in import NODES
from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.metrics.collector import Collector, CollectorOptions, UnreadableError
from kvstack.agents.metrics.readings import ContainerUsage, Reading, Usage
from kvstack.component.clock import Clock
from kvstack.component.virtual_time.loop import run as run_virtually
from tests.support.clocks import HandClock
from tests.support.list_log import ListLog


class LoopClock(Clock):
    """The time of the running loop."""

    @override
    def monotonic_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * 1e9)

    @override
    def unix_ms(self) -> int:
        return self.monotonic_ns() // 1_000_000 + 1_700_000_000_000


class Stores:
    """What informers know."""

    def __init__(self) -> None:
        self.nodes, self.pods = ObjectStore(), ObjectStore()

    def of(self, resource: object) -> Any:
        class Informer:
            store = self.nodes if resource == NODES else self.pods

        return Informer()


def collector_of(known: Any, clock: HandClock, log: ListLog, read: Any, **more: Any) -> Collector:
    options = CollectorOptions(timeout_s=0.2, **more)
    return Collector(known, clock, log, options, read)


def test_a_silent_a_broken_and_a_good_node() -> None:
    known, clock, log = Stores(), HandClock(), ListLog()
    for name in ("silent", "broken", "odd", "good"):
        known.nodes.set({"metadata": {"name": name}})
    known.pods.set({"metadata": {"namespace": "d", "name": "p"}, "spec": {"nodeName": "good"}})

    async def read(node: dict[str, Any]) -> Reading:
        name = node["metadata"]["name"]
        if name == "silent":
            await asyncio.sleep(60)
        if name == "broken":
            raise UnreadableError("it is broken")
        if name == "odd":
            raise KeyError("what nobody foresaw")
        now_ms = int(clock.now * 1000)
        usage = Usage(now_ms, 1, now_ms * 10**6, 100)
        return Reading(usage, [ContainerUsage("d", "p", "c", usage)])

    async def main() -> None:
        collector = collector_of(known, clock, log, read)
        for _ in range(2):
            await collector.read_all()
            clock.now += 15
        assert collector.is_ready
        rate = collector.points.node("good")
        assert rate is not None
        assert rate.cpu_nano == 10**9
        assert [each.cpu_cores for each in collector.history.of("d/p")] == [1.0]
        assert [each.cpu_cores for each in collector.history.of("good")] == [1.0]
        assert not collector.history.of("silent")
        told = {fields["node"]: fields["error"] for _, fields in log.of("warning")}
        assert told == {
            "silent": "no answer within 0.2 s",
            "broken": "it is broken",
            "odd": "KeyError('what nobody foresaw')",
        }

    asyncio.run(main())


def test_a_node_that_is_lost_for_a_while_is_forgotten() -> None:
    known, clock, log = Stores(), HandClock(), ListLog()
    known.nodes.set({"metadata": {"name": "n"}})
    is_there = True

    async def read(_node: dict[str, Any]) -> Reading:
        if not is_there:
            raise UnreadableError("gone")
        now_ms = int(clock.now * 1000)
        return Reading(Usage(now_ms, 0, now_ms, 1), ())

    async def main() -> None:
        nonlocal is_there
        collector = collector_of(known, clock, log, read)
        for each in (True, True, False, False, False):
            is_there = each
            await collector.read_all()
            clock.now += 15
            if clock.now > 1015:
                assert collector.points.node("n") is not None
        await collector.read_all()
        assert collector.points.node("n") is None
        is_there = True
        await collector.read_all()
        assert [msg for msg, _ in log.of("info")] == ["a node can be read again"]
        known.nodes.remove("n")
        await collector.read_all()
        assert collector.points.node("n") is None

    asyncio.run(main())


def test_a_pod_is_shown_within_twenty_seconds_of_its_start() -> None:
    """Whenever it starts between two readings: what docs/resource-metrics.md promises."""
    known = Stores()
    known.nodes.set({"metadata": {"name": "n"}})
    starts_ms: list[int] = []

    async def main() -> list[int]:
        clock = LoopClock()

        async def read(_node: dict[str, Any]) -> Reading:
            now_ms = int(clock.now_s() * 1000)
            pods = [
                ContainerUsage(
                    "d", f"p{n}", "c", Usage(now_ms, start, (now_ms - start) * 500_000 + 1, 9)
                )
                for n, start in enumerate(starts_ms)
            ]
            return Reading(Usage(now_ms, 0, now_ms, 1), pods)

        informers: Any = known
        collector = Collector(informers, clock, ListLog(), CollectorOptions(), read)
        reading = asyncio.create_task(collector._run())
        await asyncio.sleep(100.05)  # it has been reading for long
        shown_ms: dict[int, int] = {}
        for _ in range(800):
            now_ms = int(clock.now_s() * 1000)
            if len(starts_ms) < 160:
                starts_ms.append(now_ms)
            for number, start in enumerate(starts_ms):
                rate = collector.points.pod("n", "d", f"p{number}")
                if rate is not None and number not in shown_ms:
                    shown_ms[number] = now_ms - start
                    assert 450_000_000 < rate.cpu_nano < 550_000_000
            await asyncio.sleep(0.1)
        reading.cancel()
        return [shown_ms[number] for number in range(160)]

    waits_ms = run_virtually(main())
    # Readings come every 15 s, and a container that has run for 4 s needs one alone.
    assert 15_000 < max(waits_ms) < 20_000
    assert min(waits_ms) < 5_000


def test_only_so_many_are_read_at_once() -> None:
    known = Stores()
    for number in range(20):
        known.nodes.set({"metadata": {"name": f"n{number}"}})
    open_now = most = 0

    async def read(_node: dict[str, Any]) -> Reading:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0)
        open_now -= 1
        return Reading(Usage(1, 0, 1, 1), ())

    asyncio.run(collector_of(known, HandClock(), ListLog(), read, at_once=3).read_all())
    assert most == 3


def test_nodes_at_hand_are_read_without_waiting() -> None:
    known, clock, log = Stores(), HandClock(), ListLog()
    for name in ("near", "far", "odd"):
        known.nodes.set({"metadata": {"name": name}})
    waited_for: list[str] = []

    def reading() -> Reading:
        now_ms = int(clock.now * 1000)
        return Reading(Usage(now_ms, 1, now_ms * 10**6, 100), ())

    async def read(node: dict[str, Any]) -> Reading:
        waited_for.append(node["metadata"]["name"])
        return reading()

    def read_now(node: dict[str, Any]) -> Reading | None:
        if node["metadata"]["name"] == "odd":
            raise KeyError("what nobody foresaw")
        return reading() if node["metadata"]["name"] == "near" else None

    async def main() -> None:
        collector = Collector(known, clock, log, CollectorOptions(), read, read_now)  # type: ignore[arg-type]
        for _ in range(2):
            await collector.read_all()
            clock.now += 15
        assert waited_for == ["far", "far"]
        for name in ("near", "far"):
            rate = collector.points.node(name)
            assert rate is not None
            assert rate.cpu_nano == 10**9
        assert collector.points.node("odd") is None
        assert [fields["node"] for _, fields in log.of("warning")] == ["odd"]

    asyncio.run(main())
