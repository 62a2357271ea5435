"""A rolling update under load: who asks a Service always finds an endpoint that is ready."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstack.agents.client.built_in import DEPLOYMENTS, ENDPOINT_SLICES, PODS, SERVICES
from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.controllers.table import controllers
from kvstack.agents.kubelet.hollow.hollow_nodes import HollowNodes, HollowOptions
from kvstack.agents.scheduler.live.scheduler import Scheduler
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from tests.agents.support.cluster import TestCluster, eventually

pytestmark = pytest.mark.slow


REPLICAS = 4
LABELS = {"app": "web"}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": LABELS, "ports": [{"port": 80}]},
}


def deployment(image: str) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": REPLICAS,
            # A new pod is in the slices by then: an old one goes only after that.
            "minReadySeconds": 1,
            "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}},
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    }


def ready_endpoints(slices: ObjectStore) -> Iterator[str]:
    """Give the pods that a proxy would send requests to."""
    for each in slices.in_namespace("default"):
        if each["metadata"].get("labels", {}).get("kubernetes.io/service-name") == "web":
            for endpoint in each.get("endpoints") or ():
                if endpoint["conditions"]["ready"]:
                    yield endpoint["targetRef"]["name"]


def test_no_request_is_left_without_an_endpoint(tmp_path: Path) -> None:
    async def body() -> None:
        async with TestCluster(tmp_path) as cluster:
            clock, log = cluster.clock, cluster.log
            await cluster.run_controllers(controllers(cluster.controller_options()))
            scheduler = Scheduler(cluster.admin, cluster.informers, clock, lambda: 0.5, log)
            await scheduler.start()
            nodes = HollowNodes(
                cluster.admin,
                cluster.informers,
                clock,
                lambda: 0.5,
                log,
                HollowOptions(("node-1", "node-2")),
            )
            await nodes.start()
            try:
                await roll(cluster)
            finally:
                await nodes.stop()
                await scheduler.stop()

    asyncio.run(body())


async def roll(cluster: TestCluster) -> None:
    admin = cluster.admin
    slices = cluster.informers.of(ENDPOINT_SLICES)
    pods = cluster.informers.of(PODS).store
    await slices.synced()
    await admin.create(SERVICES, "default", SERVICE)
    await admin.create(DEPLOYMENTS, "default", deployment("web:1"))
    await eventually(lambda: len(list(ready_endpoints(slices.store))) == REPLICAS)
    fewest: list[int] = []

    def ask(_old: Object | None, _new: Object | None) -> None:
        fewest.append(len(list(ready_endpoints(slices.store))))

    slices.on_change(ask)
    images = {"spec": {"template": deployment("web:2")["spec"]["template"]}}
    await admin.patch(DEPLOYMENTS, "default", "web", images, STRATEGIC_MERGE_PATCH)

    def is_rolled() -> bool:
        found = [pods.get(f"default/{name}") for name in ready_endpoints(slices.store)]
        used = [pod["spec"]["containers"][0]["image"] for pod in found if pod is not None]
        return used == ["web:2"] * REPLICAS

    await eventually(is_rolled, within_s=60.0)
    assert len(fewest) > 2
    assert min(fewest) >= REPLICAS
