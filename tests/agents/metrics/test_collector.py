"""Rounds of readings: what a node can do to the others, and when it is forgotten."""

import asyncio
from typing import Any

from kvstack.agents.client.built_in import NODES
from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.metrics.collector import Collector, CollectorOptions, UnreadableError
from kvstack.agents.metrics.readings import ContainerUsage, Reading, Usage
from tests.support.clocks import HandClock
from tests.support.list_log import ListLog


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
