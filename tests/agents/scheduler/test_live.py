"""The scheduler against a real API server: pods are bound, refused, tried again, pushed away."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.client.built_in import (
    NAMESPACES,
    NEW_EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
    STORAGE_CLASSES,
)
from kvstack.agents.client.informers import Informers
from kvstack.agents.scheduler.configuration import DEFAULT, Configuration
from kvstack.agents.scheduler.live import scheduler as scheduler_module
from kvstack.agents.scheduler.live.scheduler import Scheduler
from kvstack.agents.scheduler.scheduling import Decision, schedule
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.cluster import TestCluster
from tests.support.waiting import answered, eventually

pytestmark = pytest.mark.slow

MERGE = "application/merge-patch+json"


@asynccontextmanager
async def scheduling(
    directory: Path, config: Configuration = DEFAULT
) -> AsyncGenerator[tuple[TestCluster, Scheduler]]:
    async with TestCluster(directory) as cluster:
        await cluster.admin.create(NAMESPACES, "", {"metadata": {"name": "web"}})
        await cluster.admin.create(SERVICE_ACCOUNTS, "web", {"metadata": {"name": "default"}})
        api = cluster.api("system:kube-scheduler")
        async with Informers(api, cluster.clock, lambda: 0.5, cluster.log) as informers:
            scheduler = Scheduler(
                api, informers, cluster.clock, lambda: 0.0, cluster.log, config, host="here"
            )
            await scheduler.start()
            try:
                yield cluster, scheduler
            finally:
                await scheduler.stop()


async def add_node(cluster: TestCluster, name: str, cpu: str = "4") -> None:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    node = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    await cluster.admin.create(NODES, "", node)
    await cluster.admin.patch(NODES, "", name, {"spec": {"taints": None}}, MERGE)


async def add_pod(cluster: TestCluster, name: str, cpu: str, **spec: Any) -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    pod = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
    await cluster.admin.create(PODS, "web", pod)


def test_pods_are_bound_and_spread_over_nodes(tmp_path: Path) -> None:
    async def run() -> None:
        async with scheduling(tmp_path) as (cluster, scheduler):
            for number in range(3):
                await add_node(cluster, f"n{number}")
            for number in range(9):
                await add_pod(cluster, f"p{number}", "500m")

            async def bound() -> list[str]:
                pods = await cluster.admin.list_all(PODS, "web")
                nodes = [pod["spec"].get("nodeName") for pod in pods]
                return [] if None in nodes else nodes

            nodes = await answered(bound)
            assert sorted(map(nodes.count, {"n0", "n1", "n2"})) == [3, 3, 3]
            await scheduler.flushed()
            events = await cluster.admin.list_all(NEW_EVENTS, "web")
            scheduled = [each for each in events if each["reason"] == "Scheduled"]
            assert len(scheduled) == 9
            assert scheduled[0]["reportingController"] == "default-scheduler"
            assert scheduled[0]["action"] == "Binding"
            assert scheduled[0]["note"].startswith("Successfully assigned web/p")
            assert len(scheduler.queue) == 0
            assert not cluster.log.of("error")

    asyncio.run(run())


def test_a_pod_without_a_node_gets_a_reason_and_a_node_once_there_is_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with scheduling(tmp_path) as (cluster, scheduler):
            await add_node(cluster, "small", cpu="1")
            await eventually(lambda: scheduler.cluster.node_count == 1)
            await add_pod(cluster, "big", "2")

            async def refused() -> Object | None:
                pod = await cluster.admin.get(PODS, "web", "big")
                for each in pod["status"].get("conditions") or ():
                    if each["type"] == "PodScheduled" and "cpu" in each["message"]:
                        return each
                return None

            condition = await answered(refused)
            assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
            assert condition["message"] == (
                "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available:"
                " 1 Preemption is not helpful for scheduling."
            )
            assert scheduler.queue.sizes()["unschedulable"] == 1
            await add_node(cluster, "large", cpu="4")

            async def node() -> str | None:
                pod = await cluster.admin.get(PODS, "web", "big")
                return pod["spec"].get("nodeName")

            assert await answered(node) == "large"
            assert not cluster.log.of("error")

    asyncio.run(run())


def test_a_pod_that_cannot_be_judged_does_not_keep_others_from_being_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(pod: PodInfo, *given: Any) -> Decision:
        if pod.name == "strange":
            raise ValueError("what is this?")
        return schedule(pod, *given)

    monkeypatch.setattr(scheduler_module, "schedule", judge)

    async def run() -> None:
        async with scheduling(tmp_path) as (cluster, _):
            await add_node(cluster, "n")
            await add_pod(cluster, "strange", "1")
            await add_pod(cluster, "plain", "1")

            async def node() -> str | None:
                pod = await cluster.admin.get(PODS, "web", "plain")
                return pod["spec"].get("nodeName")

            async def scheduler_error() -> str | None:
                pod = await cluster.admin.get(PODS, "web", "strange")
                for each in pod["status"].get("conditions") or ():
                    if each["reason"] == "SchedulerError":
                        return each["message"]
                return None

            assert await answered(node) == "n"
            assert await answered(scheduler_error) == "what is this?"

    asyncio.run(run())


def test_a_cordoned_node_takes_no_pods_until_it_is_uncordoned(tmp_path: Path) -> None:
    async def run() -> None:
        async with scheduling(tmp_path) as (cluster, scheduler):
            await add_node(cluster, "n")
            await cluster.admin.patch(NODES, "", "n", {"spec": {"unschedulable": True}}, MERGE)
            await eventually(lambda: scheduler.cluster.is_unschedulable.any())
            await add_pod(cluster, "p", "1", tolerations=[])
            await eventually(lambda: scheduler.queue.sizes()["unschedulable"] == 1)
            patch = {"spec": {"unschedulable": None, "taints": None}}
            await cluster.admin.patch(NODES, "", "n", patch, MERGE)

            async def node() -> str | None:
                pod = await cluster.admin.get(PODS, "web", "p")
                return pod["spec"].get("nodeName")

            assert await answered(node) == "n"

    asyncio.run(run())


LOCAL_VOLUME = {
    "metadata": {"name": "disk"},
    "spec": {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "local": {"path": "/mnt"},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}
                        ]
                    }
                ]
            }
        },
    },
}
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


def test_a_pod_runs_where_its_volume_is_once_that_is_bound(tmp_path: Path) -> None:
    async def run() -> None:
        async with scheduling(tmp_path) as (cluster, _scheduler):
            admin = cluster.admin
            local = {
                "metadata": {"name": "local"},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            await admin.create(STORAGE_CLASSES, "", local)
            await admin.create(PERSISTENT_VOLUMES, "", LOCAL_VOLUME)
            available = {"status": {"phase": "Available"}}
            await admin.patch(
                PERSISTENT_VOLUMES, "", "disk", available, MERGE, subresource="status"
            )
            await admin.create(PERSISTENT_VOLUME_CLAIMS, "web", CLAIM)
            for name in ("a", "b"):
                await add_node(cluster, name)
            volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
            await add_pod(cluster, "p", "1", volumes=volumes)

            async def claimed() -> Object | None:
                volume = await admin.get(PERSISTENT_VOLUMES, "", "disk")
                return volume["spec"].get("claimRef")

            assert (await answered(claimed))["name"] == "data"
            pod = await admin.get(PODS, "web", "p")
            assert "nodeName" not in pod["spec"]
            # What the controller of volumes does then.
            bound = {
                "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": "disk"},
            }
            await admin.patch(PERSISTENT_VOLUME_CLAIMS, "web", "data", bound, MERGE)

            async def node() -> str | None:
                pod = await admin.get(PODS, "web", "p")
                return pod["spec"].get("nodeName")

            assert await answered(node) == "b"
            assert not cluster.log.of("error")

    asyncio.run(run())


def test_a_pod_of_higher_priority_pushes_another_away(tmp_path: Path) -> None:
    async def run() -> None:
        async with scheduling(tmp_path) as (cluster, _):
            await cluster.admin.create(
                PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 1000}
            )
            await add_node(cluster, "n", cpu="1")
            await add_pod(cluster, "low", "1", terminationGracePeriodSeconds=0)

            async def node_of_low() -> str | None:
                pod = await cluster.admin.get(PODS, "web", "low")
                return pod["spec"].get("nodeName")

            assert await answered(node_of_low) == "n"
            await add_pod(cluster, "high", "1", priorityClassName="high")

            async def node_of_high() -> str | None:
                pod = await cluster.admin.get(PODS, "web", "high")
                return pod["spec"].get("nodeName")

            assert await answered(node_of_high) == "n"
            pods = await cluster.admin.list_all(PODS, "web")
            assert [pod["metadata"]["name"] for pod in pods] == ["high"]
            assert not cluster.log.of("error")

    asyncio.run(run())


def test_a_nomination_that_is_taken_back_lets_others_in(tmp_path: Path) -> None:
    async def run() -> None:
        async with scheduling(tmp_path) as (cluster, scheduler):
            patient = {"metadata": {"name": "patient"}, "value": 1000, "preemptionPolicy": "Never"}
            await cluster.admin.create(PRIORITY_CLASSES, "", patient)
            await add_pod(cluster, "large", "9", priorityClassName="patient")
            nominated = {"status": {"nominatedNodeName": "n"}}
            await cluster.admin.patch(PODS, "web", "large", nominated, MERGE, subresource="status")
            large = (await cluster.admin.get(PODS, "web", "large"))["metadata"]["uid"]
            await eventually(lambda: scheduler.cluster.nominated_node(large) == "n")
            await add_node(cluster, "n")
            await add_pod(cluster, "small", "1")

            async def refusal() -> str | None:
                pod = await cluster.admin.get(PODS, "web", "small")
                conditions = pod["status"].get("conditions") or ()
                return next((each["message"] for each in conditions), None)

            assert "Insufficient cpu" in await answered(refusal)
            taken_back = {"status": {"nominatedNodeName": None}}
            await cluster.admin.patch(PODS, "web", "large", taken_back, MERGE, subresource="status")

            async def node() -> str | None:
                return (await cluster.admin.get(PODS, "web", "small"))["spec"].get("nodeName")

            assert await answered(node) == "n"
            assert scheduler.cluster.nominated_node(large) == ""

    asyncio.run(run())
