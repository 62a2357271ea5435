"""Claims of devices against a real API server: allocated, reserved, waited for, given back."""

import asyncio
from pathlib import Path

import pytest

from kvstack.agents.client.built_in import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.agents.scheduler.test_live import add_node, scheduling
from tests.agents.support.cluster import TestCluster
from tests.support.waiting import answered

pytestmark = pytest.mark.slow

DRIVER = "gpu.example.com"


async def add_devices(cluster: TestCluster, node: str, *names: str) -> None:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    gpu = {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}
    await cluster.admin.create(DEVICE_CLASSES, "", gpu)
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": name} for name in names]
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    await cluster.admin.create(RESOURCE_SLICES, "", {"metadata": {"name": node}, "spec": spec})


async def add_claim(cluster: TestCluster, name: str) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    await cluster.admin.create(RESOURCE_CLAIMS, "web", claim)


async def add_pod(cluster: TestCluster, name: str, claim: str) -> None:
    container = {"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
    }
    await cluster.admin.create(PODS, "web", {"metadata": {"name": name}, "spec": spec})


def test_a_claim_is_allocated_and_reserved_before_its_pod_is_bound(tmp_path: Path) -> None:
    async def run() -> None:
        async with scheduling(tmp_path) as (cluster, scheduler):
            for name in ("n0", "n1", "n2"):
                await add_node(cluster, name)
            await add_pod(cluster, "early", "one")

            async def gated() -> bool:
                return scheduler.queue.sizes()["gated"] == 1

            await answered(gated)  # its claim is not there yet
            await add_devices(cluster, "n1", "d0")
            await add_claim(cluster, "one")

            async def bound() -> str:
                pod = await cluster.admin.get(PODS, "web", "early")
                return pod["spec"].get("nodeName") or ""

            assert await answered(bound) == "n1"
            claim = await cluster.admin.get(RESOURCE_CLAIMS, "web", "one")
            pod = await cluster.admin.get(PODS, "web", "early")
            reference = {"resource": "pods", "name": "early", "uid": pod["metadata"]["uid"]}
            assert claim["status"]["reservedFor"] == [reference]
            (result,) = claim["status"]["allocation"]["devices"]["results"]
            assert result["device"] == "d0"
            assert "resource.kubernetes.io/delete-protection" in claim["metadata"]["finalizers"]

            # The next one has to wait until the device is free again.
            await add_claim(cluster, "two")
            await add_pod(cluster, "late", "two")

            async def message() -> str:
                found = await cluster.admin.get(PODS, "web", "late")
                conditions = (found.get("status") or {}).get("conditions") or [{}]
                return conditions[0].get("message", "")

            text = "0/3 nodes are available: 3 cannot allocate all claims."
            assert (await answered(message)).startswith(text)
            assert not scheduler.cluster.devices.pending
            status = {"metadata": claim["metadata"], "spec": claim["spec"]}
            await cluster.admin.update(RESOURCE_CLAIMS, status, subresource="status")

            async def placed() -> str:
                found = await cluster.admin.get(PODS, "web", "late")
                return found["spec"].get("nodeName") or ""

            assert await answered(placed) == "n1"
            assert not cluster.log.of("error")

    asyncio.run(run())
