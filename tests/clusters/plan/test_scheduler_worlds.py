"""Plans of a pod in the recorded worlds of the scheduler: it goes where upstream's had it.

A world is the contents, the change is its pending pod. Where it goes, whom it pushes away and what
is told of it if no node takes it is what was recorded. As when they were recorded, no controller
runs beside the scheduler.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from kvstack.agents.client.built_in import PODS
from kvstack.agents.standalone.parts import CONTROLLERS, METRICS
from kvstack.clusters.contents import Contents
from kvstack.clusters.forks.fork_settings import ForkSettings
from kvstack.clusters.plan import objects
from kvstack.clusters.plan.change import Change, Outcome, Site
from kvstack.clusters.plan.objects import Objects
from kvstack.clusters.plan.plan_run import PlanSettings
from tests.agents.scheduler import worlds
from tests.clusters.plan.planning import contents_of, plan

pytestmark = pytest.mark.slow

Object = dict[str, Any]

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
UNFORESEEABLE = {
    "terminating-victim": "a pod that is ending already has ended before the change is made",
}
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


@pytest.mark.parametrize("world", shared(PREEMPTION))
def test_preemption(world: Object, tmp_path: Path) -> None:
    if world["name"] in UNFORESEEABLE:
        return
    node, message, gone = planned(world, world["pending"], tmp_path)
    results = world["alternatives"] if "alternatives" in world else [world["result"]]
    wanted = []
    for each in results:
        victims = sorted(victim["name"] for victim in each["victims"])
        if each["nominated"]:
            wanted.append((each["nominated"], "", victims))
        else:
            wanted.append(("", each["condition"]["message"], victims))
    assert (node, message, gone) in wanted


@pytest.mark.parametrize("world", shared([each for each in SCORES if "csinodes" not in each]))
def test_the_best_node(world: Object, tmp_path: Path) -> None:
    """Worlds with volumes are for the binder, whose controllers do not run here."""
    cases = [
        each
        for each in world["cases"]
        if "schedulerName" not in each["pending"]["spec"]
        and not each["pending"]["spec"].get("schedulingGates")
    ]
    case = cases[len(world["pods"]) % len(cases)]  # one of a world, of all positions
    node, message, gone = planned(world, case["pending"], tmp_path)
    result = case["result"]
    if result["feasible"]:
        best = result.get("best") or result["feasible"]
        assert (node in best, message, gone) == (True, "", [])
    else:
        wanted = result["condition"]["message"].partition(" preemption:")[0]
        assert (node, message.partition(" preemption:")[0]) == ("", wanted)
