"""Autoscalers on metrics of hollow nodes: the controllers, metrics.k8s.io, a scripted load."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import (
    DEPLOYMENTS,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    PODS,
)
from kvstack.agents.controllers.options import AutoscalerOptions
from kvstack.agents.metrics.collector import CollectorOptions
from kvstack.agents.standalone.local_agents import AgentOptions, LocalAgents
from kvstack.agents.standalone.local_metrics import MetricsOptions
from kvstack.agents.standalone.parts import NODE
from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import MERGE_PATCH
from tests.agents.support.cluster import TestCluster
from tests.support.waiting import answered

pytestmark = pytest.mark.slow


STEP_S = 0.1
WAIT_S = 90.0
FAST = MetricsOptions(CollectorOptions(resolution_s=1.0, first_wait_s=0.5))


@asynccontextmanager
async def autoscaled(directory: Path, *, stabilization_s: float) -> AsyncIterator[Api]:
    """Run everything, its times shortened."""
    async with TestCluster(directory) as cluster:
        autoscaler = AutoscalerOptions(
            sync_period_s=0.5,
            downscale_stabilization_s=stabilization_s,
            cpu_initialization_s=1.0,
            readiness_delay_s=0.0,
        )
        options = AgentOptions(
            frozenset((NODE,)),
            ("hollow-1",),
            controllers=replace(cluster.controller_options(), autoscaler=autoscaler),
            metrics=FAST,
        )
        async with LocalAgents(cluster.server, options, cluster.log):
            yield cluster.admin


def deployment(load: str) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"hollow/cpu": load}},
                "spec": {"containers": [container]},
            },
        },
    }


def autoscaler(replicas_max: int, behavior: Object | None = None) -> Object:
    target = {"type": "Utilization", "averageUtilization": 50}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": replicas_max,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            **({"behavior": behavior} if behavior else {}),
        },
    }


async def load_all(api: Api, count: int, text: str) -> None:
    """Let the pods use something else, once all of them are there."""

    async def all_pods() -> list[Object] | None:
        found = await api.list_all(PODS, "default")
        return found if len(found) == count else None

    for pod in await answered(all_pods):
        change = {"metadata": {"annotations": {"hollow/cpu": text}}}
        await api.patch(PODS, "default", pod["metadata"]["name"], change, MERGE_PATCH)


async def replicas(api: Api) -> int:
    found: int = (await api.get(DEPLOYMENTS, "default", "web"))["spec"]["replicas"]
    return found


async def condition(api: Api, type_: str) -> Object:
    found = await api.get(HORIZONTAL_POD_AUTOSCALERS, "default", "web")
    return find((found.get("status") or {}).get("conditions") or [], type_) or {}


async def sizes(api: Api) -> list[str]:
    """Return to what sizes the target was brought, as events tell it."""
    events = await api.list_all(EVENTS, "default")
    told = [each for each in events if each.get("reason") == "SuccessfulRescale"]
    told.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
    return [each["message"] for each in told]


async def is_recorded(api: Api, text: str) -> bool:
    return text in await sizes(api)


def test_up_under_load_and_down_once_it_is_stable(tmp_path: Path) -> None:
    async def main() -> None:
        async with autoscaled(tmp_path, stabilization_s=4.0) as api:
            await api.create(DEPLOYMENTS, "default", deployment("0s=20m,3s=200m"))
            await api.create(HORIZONTAL_POD_AUTOSCALERS, "default", autoscaler(4))

            async def is_at(count: int) -> bool:
                return await replicas(api) == count

            await answered(lambda: is_at(4))
            assert (await condition(api, "ScalingActive"))["status"] == "True"
            reason = "cpu resource utilization (percentage of request) above target"
            await answered(lambda: is_recorded(api, f"New size: 4; reason: {reason}"))
            await answered(lambda: at_limit(api))
            await load_all(api, 4, "10m")

            async def is_held() -> bool:
                return (await condition(api, "AbleToScale"))["reason"] == "ScaleDownStabilized"

            await answered(is_held)
            assert await replicas(api) == 4, "what was recommended of late still holds"
            await answered(lambda: is_at(1))
            await answered(
                lambda: is_recorded(api, "New size: 1; reason: All metrics below target")
            )
            status = (await api.get(HORIZONTAL_POD_AUTOSCALERS, "default", "web"))["status"]
            current = status["currentMetrics"][0]["resource"]["current"]
            assert 0 < current["averageUtilization"] <= 20

    asyncio.run(main())


async def at_limit(api: Api) -> bool:
    return (await condition(api, "ScalingLimited")).get("reason") == "TooManyReplicas"


def test_policies_make_steps(tmp_path: Path) -> None:
    one = {"type": "Pods", "value": 1, "periodSeconds": 1}
    behavior = {
        "scaleUp": {"policies": [one]},
        "scaleDown": {"policies": [one], "stabilizationWindowSeconds": 0},
    }

    async def main() -> None:
        async with autoscaled(tmp_path, stabilization_s=300.0) as api:
            await api.create(DEPLOYMENTS, "default", deployment("300m"))
            await api.create(HORIZONTAL_POD_AUTOSCALERS, "default", autoscaler(3, behavior))

            async def is_at(count: int) -> bool:
                return await replicas(api) == count

            await answered(lambda: is_at(3))
            await load_all(api, 3, "5m")
            await answered(lambda: is_at(1))
            await answered(
                lambda: is_recorded(api, "New size: 1; reason: All metrics below target")
            )
            told = [each.split(";")[0] for each in await sizes(api)]
            assert told == ["New size: 2", "New size: 3", "New size: 2", "New size: 1"]

    asyncio.run(main())
