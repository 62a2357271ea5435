"""kr8s, which discovers kinds at run time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kr8s")

import kr8s.asyncio
from kr8s.asyncio.objects import ConfigMap, Pod

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.xdist_group("apiserver-libraries"),
    pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning"),  # of 1.37 it knows nothing
]

TIMEOUT_S = 60.0


def played(kubeconfig: Path, play: Callable[[Any], Awaitable[None]]) -> None:
    """Run a coroutine with a connected client."""

    async def run() -> None:
        api = await kr8s.asyncio.api(kubeconfig=str(kubeconfig))
        try:
            await asyncio.wait_for(play(api), TIMEOUT_S)
        finally:
            assert api._session is not None
            await api._session.aclose()

    asyncio.run(run())


def named(name: str, namespace: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def test_an_object_lives_and_ends(kubeconfig: Path, namespace: str) -> None:
    async def play(api: Any) -> None:
        made = await ConfigMap(named("a", namespace, x="1"), api=api)
        await made.create()
        assert await made.exists()
        await made.patch({"data": {"x": "2"}})
        found = await ConfigMap.get("a", namespace=namespace, api=api)
        assert found.raw["data"] == {"x": "2"}
        await made.label({"tier": "one"})
        listed = api.get("configmaps", namespace=namespace, label_selector="tier=one")
        assert [each.name async for each in listed] == ["a"]
        await made.delete()
        assert not await made.exists()

    played(kubeconfig, play)


def test_versions_and_resources_are_discovered(kubeconfig: Path) -> None:
    async def play(api: Any) -> None:
        assert (await api.version())["gitVersion"].startswith("v1.37.")
        resources = {(each["version"], each["name"]) for each in await api.api_resources()}
        assert {("v1", "pods"), ("apps/v1", "deployments")} <= resources

    played(kubeconfig, play)


def test_a_pod_is_watched(kubeconfig: Path, namespace: str) -> None:
    async def play(api: Any) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": namespace},
            "spec": {"containers": [{"name": "c", "image": "registry.example/web:1"}]},
        }
        pod = await Pod(body, api=api)
        await pod.create()
        assert pod.raw["status"]["phase"] == "Pending"
        async with aclosing(api.watch("pods", namespace=namespace)) as events:
            kind, seen = await anext(events)
        assert (kind, seen.name) == ("ADDED", "p")

    played(kubeconfig, play)
