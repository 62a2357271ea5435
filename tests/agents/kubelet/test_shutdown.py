"""Pods that end with their node, in the order of their priorities."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvstack.agents.client.built_in import EVENTS, NODES, PODS
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.kubelet.node_shutdown import MESSAGE, ShutdownPeriod, in_order, periods_of
from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.times import parse_time
from tests.agents.kubelet.test_kubelet import Node, log_of, pod, pytestmark, reach, run
from tests.agents.support.cluster import TestCluster, eventually

__all__ = ["pytestmark"]

CLASSES = ResourceType("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass",
                       is_namespaced=False)  # fmt: skip
CRITICAL = 2_000_000_000
OBEYS = "trap 'echo ends; exit 0' TERM; echo began; while :; do sleep 0.05; done"
RESISTS = "trap '' TERM; echo began; while :; do sleep 0.05; done"


def named(name: str, priority: int | None) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"priority": priority}}


def names(periods: list[tuple[int, float]], *priorities: int | None) -> list[list[str]]:
    pods = [named(str(each), each) for each in priorities]
    found = in_order(pods, [ShutdownPeriod(*each) for each in periods])
    return [[each["metadata"]["name"] for each in group] for _, group in found]


async def has_begun(here: Node, obj: dict[str, Any]) -> None:
    await eventually(lambda: log_of(here, obj) == "began\n")


def test_the_least_important_end_first() -> None:
    periods = [(1000, 10.0), (0, 20.0), (CRITICAL, 5.0)]
    found = names(periods, CRITICAL, 5, None, 1000, 1999, CRITICAL + 1000)
    assert found == [["5", "None"], ["1000", "1999"], [str(CRITICAL), str(CRITICAL + 1000)]]
    assert names([(100, 1.0), (200, 1.0)], -5, 7, 150) == [["-5", "7", "150"]]
    assert names([], 0) == []


def test_periods_of_the_settings() -> None:
    assert periods_of(0, 0) == ()
    assert periods_of(30, 10) == ((0, 20.0), (CRITICAL, 10.0))
    assert periods_of(30, 0) == ((0, 30.0),)
    assert periods_of(30, 30) == ((CRITICAL, 30.0),)


def test_pods_end_in_order_with_their_node(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        await here.kubelet.stop()
        here.options = replace(here.options, shutdown=((0, 2.0), (1000, 30.0)))
        here.kubelet = here.new_kubelet()
        await here.kubelet.start()
        high = {"metadata": {"name": "high"}, "value": 1000}
        await cluster.admin.create(CLASSES, "", high)
        important: dict[str, Any] = {"priorityClassName": "high", "priority": 1000}
        for made in (pod("low", OBEYS), pod("slow", RESISTS), pod("high", OBEYS, **important)):
            await cluster.admin.create(PODS, "default", made)
            obj = await reach(cluster, made["metadata"]["name"], "Running")
            await has_begun(here, obj)
        work = asyncio.ensure_future(here.kubelet.shut_down())
        await eventually(lambda: here.kubelet.is_shutting_down)
        await cluster.admin.create(PODS, "default", pod("late", "exit 0"))
        late = await reach(cluster, "late", "Failed")
        assert late["status"]["reason"] == "NodeShutdown"
        await work
        ends: dict[str, float] = {}
        for name in ("low", "slow", "high"):
            status = (await reach(cluster, name, "Failed"))["status"]
            assert (status["reason"], status["message"]) == ("Terminated", MESSAGE)
            disrupted = find(status["conditions"], "DisruptionTarget")
            assert disrupted is not None
            assert disrupted["reason"] == "TerminationByKubelet"
            ended = status["containerStatuses"][0]["state"]["terminated"]
            ends[name] = parse_time(ended["finishedAt"]).seconds
            assert ended["exitCode"] == (137 if name == "slow" else 0)
        assert ends["low"] <= ends["slow"] <= ends["high"]
        store = cluster.informers.of(NODES).store

        def reason() -> str:
            found = store.get("node-a")
            ready = find(found["status"]["conditions"], "Ready") if found else None
            return "" if ready is None else str(ready["message"])

        await eventually(lambda: reason() == "node is shutting down")
        events = cluster.informers.of(EVENTS).store
        await eventually(lambda: any(each["reason"] == "NodeShutdown" for each in events))

    run(tmp_path, story)


def test_a_node_without_periods_lets_its_pods_be(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        await cluster.admin.create(PODS, "default", pod("web", OBEYS))
        obj = await reach(cluster, "web", "Running")
        await here.kubelet.shut_down()
        assert not here.kubelet.is_shutting_down
        assert [each.is_running for each in here.runtime.of_pod(obj["metadata"]["uid"])] == [True]

    run(tmp_path, story)
