"""Plans of a pod in the recorded worlds of the scheduler: it goes where upstream's had it.

A world is the contents, the change is its pending pod. Where it goes, whom it pushes away and what
is told of it if no node takes it is what was recorded, in a plan and in a living cluster that
begins with the same contents. As when they were recorded, no controller runs beside the scheduler.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from typing_extensions import override

from kvstack.agents.client.built_in import PODS
from kvstack.agents.standalone.in_memory.cluster_time import ClusterTime
from kvstack.agents.standalone.in_memory.memory_cluster import Virtual
from kvstack.agents.standalone.in_memory.settling import settle
from kvstack.agents.standalone.parts import CONTROLLERS, METRICS
from kvstack.apimachinery.attributes import PRIVILEGED, User
from kvstack.apimachinery.objects.json_object import Object
from kvstack.clusters.contents import Contents
from kvstack.clusters.forks.fork_cluster import ForkCluster
from kvstack.clusters.forks.fork_settings import ForkSettings
from kvstack.clusters.plan import objects
from kvstack.clusters.plan.change import Change, Outcome, Site
from kvstack.clusters.plan.objects import Objects
from kvstack.clusters.plan.plan_run import PlanSettings
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.virtual_time.loop import VirtualLoop
from kvstack.component.virtual_time.timeline import AT_ONCE, REAL, Timeline
from tests.agents.scheduler import worlds
from tests.clusters.plan.planning import contents_of, plan

pytestmark = pytest.mark.slow


SETTINGS = PlanSettings(fork=ForkSettings(without=frozenset((CONTROLLERS, METRICS))))
KINDS = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "replicationcontrollers": ("v1", "ReplicationController"),
    "replicasets": ("apps/v1", "ReplicaSet"),
    "statefulsets": ("apps/v1", "StatefulSet"),
    "persistentvolumes": ("v1", "PersistentVolume"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"),
    "storageclasses": ("storage.k8s.io/v1", "StorageClass"),
    "csinodes": ("storage.k8s.io/v1", "CSINode"),
    "csidrivers": ("storage.k8s.io/v1", "CSIDriver"),
    "csistoragecapacities": ("storage.k8s.io/v1", "CSIStorageCapacity"),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget"),
    "namespaces": ("v1", "Namespace"),
    "priorityclasses": ("scheduling.k8s.io/v1", "PriorityClass"),
    "runtimeclasses": ("node.k8s.io/v1", "RuntimeClass"),
}
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
PREEMPTION = list(worlds.read("scheduler-preemption.jsonl.gz"))
SCORES = list(worlds.read("scheduler-scores.jsonl.gz"))
UNFORESEEABLE: Final = {
    "terminating-victim": "a pod that is ending already has ended before the change is made",
}
"""Worlds of preemption that are not planned, by name."""
EQUAL_NODES: Final = {"ties": "nothing decides between three nodes, of which two were recorded"}
"""Worlds whose pod may be on any node, where it pushes the pod of the node's name away."""
NEEDS_BINDER: Final = "claims are bound by the binder, whose controllers do not run here"
OTHER_PROFILE: Final = "it asks for a profile of a scheduler that was set up for the recording"
GATED: Final = "it has gates: nobody decides about it"
ENDS_S: Final = 60.0
"""In which pods that are pushed away have ended."""
SHARE = 12
"""One of so many worlds is planned unless everything is tested."""


def shared(found: list[Object]) -> list[Any]:
    """Return worlds as parameters; most of them take part where there is time."""
    return [
        pytest.param(each, id=each["name"], marks=[pytest.mark.long] if at % SHARE else [])
        for at, each in enumerate(found)
    ]


class Creation(Change):
    """Creates a pod."""

    def __init__(self, pod: Object) -> None:
        self._pod = pod

    @override
    async def make(self, site: Site) -> Outcome:
        await site.api.create(PODS, self._pod["metadata"]["namespace"], self._pod)
        return Outcome(site.writes.passed_s)


def contents(world: Object, directory: Path) -> Contents:
    """Return a world as contents."""
    items: list[Object] = []
    for name, (api_version, kind) in KINDS.items():
        for each in (*worlds.fixtures().get(name, ()), *world.get(name, ())):
            obj = {"apiVersion": api_version, "kind": kind, **each}
            if kind == "Pod":
                obj = worlds.stored(obj, f"placed-{len(items)}")
            if kind == "Node":
                status = obj["status"]
                obj["status"] = {**status, "conditions": status.get("conditions") or [READY]}
            items.append(obj)
    for each in worlds.fixtures()["namespaces"]:
        meta = {"name": "default", "namespace": each["metadata"]["name"]}
        items.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    path = directory / "world.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return contents_of(path)


def message_of(pod: Object) -> str:
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each["type"] == "PodScheduled" and each["status"] == "False":
            message: str = each["message"]
            return message
    return ""


def why_not(world: Object, case: Object) -> str:
    """Return why a case of a world is not planned; empty: it can be."""
    spec = case["pending"]["spec"]
    if "csinodes" in world:
        return NEEDS_BINDER
    if "schedulerName" in spec:
        return OTHER_PROFILE
    return GATED if spec.get("schedulingGates") else ""


def planned(world: Object, pending: Object, directory: Path) -> tuple[str, str, list[str]]:
    """Return the node of the pod, why it has none, and who is gone, by a plan."""
    result = plan(contents(world, directory), Creation(pending), SETTINGS, directory)
    before, after = Objects(result.before), Objects(result.after)
    meta = pending["metadata"]
    known = after.get(objects.PODS, f"{meta['namespace']}/{meta['name']}")
    assert known is not None
    gone = sorted(
        each.obj["metadata"]["name"]
        for each in before.of(objects.PODS)
        if after.get(objects.PODS, each.path) is None
    )
    return known.obj["spec"].get("nodeName", ""), message_of(known.obj), gone


def happened(world: Object, pending: Object, directory: Path) -> tuple[str, str, list[str]]:
    """Return the same of a living cluster, in virtual time."""
    begun = contents(world, directory)

    async def main() -> tuple[str, str, list[str]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        virtual = Virtual(ClusterTime(loop), Random(1))
        quiet, fork = LineLogger([], "fatal"), SETTINGS.fork
        async with ForkCluster(begun, fork, directory, quiet, virtual=virtual) as living:
            cluster = living.cluster
            api = cluster.agents.api(User("admin", groups=(PRIVILEGED,)), "test")
            await settle(cluster)
            before = await api.list_all(PODS)
            meta = pending["metadata"]
            await api.create(PODS, meta["namespace"], pending)
            await virtual.time.advance(ENDS_S)
            await settle(cluster)
            pod = await api.get(PODS, meta["namespace"], meta["name"])
            there = {each["metadata"]["uid"] for each in await api.list_all(PODS)}
            virtual.time.set_rate(REAL)  # sockets need real time to end
        gone = [e["metadata"]["name"] for e in before if e["metadata"]["uid"] not in there]
        return pod["spec"].get("nodeName", ""), message_of(pod), sorted(gone)

    line = Timeline(AT_ONCE, real_s=time.monotonic())
    with asyncio.Runner(loop_factory=partial(VirtualLoop, line)) as runner:
        return runner.run(main())


def both(world: Object, pending: Object, directory: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield what is planned, and what happens."""
    yield planned(world, pending, directory)
    yield happened(world, pending, directory)


@pytest.mark.parametrize("world", shared(PREEMPTION))
def test_preemption(world: Object, tmp_path: Path) -> None:
    if world["name"] in UNFORESEEABLE:
        return
    results = world["alternatives"] if "alternatives" in world else [world["result"]]
    wanted = []
    for each in results:
        victims = sorted(victim["name"] for victim in each["victims"])
        if each["nominated"]:
            wanted.append((each["nominated"], "", victims))
        else:
            wanted.append(("", each["condition"]["message"], victims))
    if world["name"] in EQUAL_NODES:
        wanted += [(e["metadata"]["name"], "", [e["metadata"]["name"]]) for e in world["nodes"]]
    found = list(both(world, world["pending"], tmp_path))
    assert [each for each in found if each not in wanted] == []
    assert found[0][1] == found[1][1]


def cases_of(world: Object) -> list[Object]:
    return [each for each in world["cases"] if not why_not(world, each)]


@pytest.mark.parametrize("world", shared([each for each in SCORES if cases_of(each)]))
def test_the_best_node(world: Object, tmp_path: Path) -> None:
    cases = cases_of(world)
    case = cases[len(world["pods"]) % len(cases)]  # one of a world, of all positions
    result = case["result"]
    found = list(both(world, case["pending"], tmp_path))
    for node, message, gone in found:
        if result["feasible"]:
            best = result.get("best") or result["feasible"]
            assert (node in best, message, gone) == (True, "", [])
        else:
            wanted = result["condition"]["message"].partition(" preemption:")[0]
            assert (node, message.partition(" preemption:")[0]) == ("", wanted)
    assert found[0][1:] == found[1][1:]


def test_what_is_not_planned_is_named() -> None:
    """Each reason is one that is needed, and worlds without a case have one reason alone."""
    assert UNFORESEEABLE.keys() | EQUAL_NODES.keys() <= {each["name"] for each in PREEMPTION}
    reasons = {why_not(world, case) for world in SCORES for case in world["cases"]}
    assert reasons == {"", NEEDS_BINDER, OTHER_PROFILE, GATED}
    left_out = [each for each in SCORES if not cases_of(each)]
    assert {why_not(world, case) for world in left_out for case in world["cases"]} == {NEEDS_BINDER}
