"""Resize of pods that run, on a node of processes: limits of the machine's control groups."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from kvstack.agents.client.built_in import EVENTS, PODS
from kvstack.agents.kubelet.runtime.cgroups import ROOT, Cgroups
from kvstack.agents.kubelet.sync.allocations import FILE
from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from tests.agents.kubelet.test_kubelet import Node, log_of, pod, pytestmark, reach, run
from tests.agents.support.cluster import TestCluster, eventually

__all__ = ["pytestmark"]


SLEEP = "echo began; sleep 1000"


def resources(cpu: str, memory: str) -> Object:
    amounts = {"cpu": cpu, "memory": memory}
    return {"requests": amounts, "limits": amounts}


def sized(name: str, cpu: str, memory: str, script: str = SLEEP, **container: Any) -> Object:
    own = {"resources": resources(cpu, memory), **container}
    return pod(name, script, policy="Always", container=own, terminationGracePeriodSeconds=1)


async def resize(cluster: TestCluster, name: str, cpu: str, memory: str) -> None:
    change = {"spec": {"containers": [{"name": "c", "resources": resources(cpu, memory)}]}}
    path = PODS.path("default", name, "resize")
    await cluster.admin.call(
        "PATCH", path, None, orjson.dumps(change), media_type=STRATEGIC_MERGE_PATCH
    )


def seen(cluster: TestCluster, name: str) -> Object:
    found = cluster.informers.of(PODS).store.get(f"default/{name}")
    assert found is not None
    return found


def status_of(cluster: TestCluster, name: str) -> Object:
    found: Object = seen(cluster, name)["status"]["containerStatuses"][0]
    return found


def condition(cluster: TestCluster, name: str, type_: str) -> Object:
    return find(seen(cluster, name)["status"].get("conditions") or [], type_) or {}


async def applied(cluster: TestCluster, name: str, cpu: str, memory: str) -> None:
    """Wait until a pod has these amounts, and nothing is on its way."""

    def is_so() -> bool:
        if condition(cluster, name, "PodResizeInProgress"):
            return False
        found = status_of(cluster, name)
        wanted = resources(cpu, memory)
        return bool(found["resources"] == wanted) and (
            found["allocatedResources"] == wanted["requests"]
        )

    await eventually(is_so)


def limits(uid: str, location: str = "") -> tuple[str, str]:
    """Return the quota of processors and the limit of memory of a pod's group, or one below."""
    is_new = Cgroups().version == 2
    names = ("cpu/cpu.cfs_quota_us", "memory/memory.limit_in_bytes")
    cpu, memory = ("/cpu.max", "/memory.max") if is_new else names
    found = []
    for each in (cpu, memory):
        controller, _, file = each.partition("/")
        path = ROOT / controller / f"kubepods/pod{uid}{location}" / file
        found.append(path.read_text().split()[0])
    return found[0], found[1]


async def first_message(cluster: TestCluster, reason: str) -> str:
    """Return the message of the first event of a reason, once there is one."""
    store = cluster.informers.of(EVENTS).store

    def read() -> list[str]:
        return [each["message"] for each in store if each.get("reason") == reason]

    return (await eventually(read))[0]


def needs_groups(here: Node) -> None:
    if here.runtime.unsupported("limits"):
        pytest.skip("control groups cannot be made here")


def test_limits_change_while_a_container_runs(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        needs_groups(here)
        await cluster.admin.create(PODS, "default", sized("web", "100m", "64Mi"))
        uid = (await reach(cluster, "web", "Running"))["metadata"]["uid"]
        number = status_of(cluster, "web")["containerID"]
        assert limits(uid) == limits(uid, "/c-0") == ("10000", str(64 << 20))
        for cpu, memory, quota, amount in (
            ("200m", "128Mi", "20000", 128 << 20),
            ("150m", "32Mi", "15000", 32 << 20),
        ):
            await resize(cluster, "web", cpu, memory)
            await applied(cluster, "web", cpu, memory)
            assert limits(uid) == limits(uid, "/c-0") == (quota, str(amount))
        found = status_of(cluster, "web")
        assert (found["containerID"], found["restartCount"]) == (number, 0)
        await eventually(lambda: log_of(here, seen(cluster, "web")) == "began\n")
        summary = '{"containers":[{"name":"c","resources":'
        assert (await first_message(cluster, "ResizeStarted")).startswith(
            f"Pod resize started: {summary}"
        )
        assert (await first_message(cluster, "ResizeCompleted")).startswith(
            "Pod resize completed: {"
        )

    run(tmp_path, story)


def test_a_container_that_has_to_starts_anew(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        needs_groups(here)
        policies = [
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        ]
        made = sized("web", "100m", "64Mi", "trap exit TERM; sleep 1000 & wait",
                     resizePolicy=policies)  # fmt: skip
        await cluster.admin.create(PODS, "default", made)
        uid = (await reach(cluster, "web", "Running"))["metadata"]["uid"]
        await resize(cluster, "web", "200m", "64Mi")
        await applied(cluster, "web", "200m", "64Mi")
        assert status_of(cluster, "web")["restartCount"] == 0
        await resize(cluster, "web", "200m", "128Mi")
        await eventually(lambda: status_of(cluster, "web")["restartCount"] == 1)
        await applied(cluster, "web", "200m", "128Mi")
        assert limits(uid) == limits(uid, "/c-1") == ("20000", str(128 << 20))
        assert "Container c resize requires restart" in await first_message(cluster, "Killing")

    run(tmp_path, story)


def test_what_the_node_cannot_give_is_reported(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        needs_groups(here)
        whole = here.kubelet.node.object["status"]["allocatable"]["cpu"]
        cpus = int(whole)
        await cluster.admin.create(PODS, "default", sized("web", "100m", "64Mi"))
        uid = (await reach(cluster, "web", "Running"))["metadata"]["uid"]
        await resize(cluster, "web", f"{cpus * 1000 - 50}m", "64Mi")
        await applied(cluster, "web", f"{cpus * 1000 - 50}m", "64Mi")
        await resize(cluster, "web", "100m", "64Mi")
        await applied(cluster, "web", "100m", "64Mi")

        # Another pod is in the way, and ends.
        await cluster.admin.create(PODS, "default", sized("other", "100m", "64Mi"))
        await reach(cluster, "other", "Running")
        more = f"{cpus * 1000 - 50}m"
        await resize(cluster, "web", more, "64Mi")
        await eventually(lambda: condition(cluster, "web", "PodResizePending"))
        found = condition(cluster, "web", "PodResizePending")
        assert (found["status"], found["reason"]) == ("True", "Deferred")
        text = (
            f"Node didn't have enough resource: cpu, requested: {cpus * 1000 - 50}, used: 100, "
            f"capacity: {cpus * 1000}"
        )
        assert found["message"] == text
        assert status_of(cluster, "web")["allocatedResources"]["cpu"] == "100m"
        assert limits(uid) == ("10000", str(64 << 20))
        assert (await first_message(cluster, "ResizeDeferred")).startswith("Pod resize Deferred: {")
        await cluster.admin.delete(PODS, "default", "other")
        await applied(cluster, "web", more, "64Mi")
        await eventually(lambda: not condition(cluster, "web", "PodResizePending"))

    run(tmp_path, story)


def test_memory_in_use_is_not_taken_away(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        needs_groups(here)
        script = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); echo full; sleep 1000 & wait"
        await cluster.admin.create(PODS, "default", sized("web", "100m", "256Mi", script))
        found = await reach(cluster, "web", "Running")
        uid = found["metadata"]["uid"]
        await eventually(lambda: "full" in log_of(here, found))
        await resize(cluster, "web", "100m", "16Mi")
        await eventually(
            lambda: condition(cluster, "web", "PodResizeInProgress").get("reason") == "Error"
        )
        text = condition(cluster, "web", "PodResizeInProgress")["message"]
        assert 'attempting to set container "c" memory limit (16777216) below current' in text
        assert (await first_message(cluster, "ResizeError")).startswith("Pod resize error: {")
        own = status_of(cluster, "web")
        assert own["resources"]["limits"]["memory"] == "256Mi"
        assert own["allocatedResources"]["memory"] == "16Mi"
        assert limits(uid) == limits(uid, "/c-0") == ("10000", str(256 << 20))
        await resize(cluster, "web", "100m", "192Mi")
        await applied(cluster, "web", "100m", "192Mi")
        assert limits(uid) == limits(uid, "/c-0") == ("10000", str(192 << 20))

    run(tmp_path, story)


def test_a_kubelet_that_is_started_anew_goes_on_from_what_was_given(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        needs_groups(here)
        await cluster.admin.create(PODS, "default", sized("web", "100m", "64Mi"))
        uid = (await reach(cluster, "web", "Running"))["metadata"]["uid"]
        file = here.kubelet.pod_directory(uid) / FILE
        kept = orjson.loads(file.read_bytes())
        assert kept == {"allocated": {"c": resources("100m", "64Mi")}, "applied": {}}
        await here.kubelet.stop()
        # It was allocated, and nothing was done yet.
        wanted = resources("200m", "128Mi")
        kept = {"allocated": {"c": wanted}, "applied": {"c": resources("100m", "64Mi")}}
        file.write_bytes(orjson.dumps(kept))
        await resize(cluster, "web", "200m", "128Mi")
        here.kubelet = here.new_kubelet()
        await here.kubelet.start()
        await applied(cluster, "web", "200m", "128Mi")
        assert limits(uid) == limits(uid, "/c-0") == ("20000", str(128 << 20))
        await eventually(lambda: orjson.loads(file.read_bytes())["applied"] == {})
        await cluster.admin.delete(PODS, "default", "web")
        await eventually(lambda: not file.exists())

    run(tmp_path, story)
