"""Controllers that act on all resources act on those of definitions too."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.client.built_in import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    RESOURCE_QUOTAS,
)
from kvstack.agents.client.discovery import discover
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.table import controllers
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from tests.agents.support.cluster import TestCluster
from tests.support.waiting import answered

pytestmark = pytest.mark.slow

WIDGETS = ResourceType("example.com", "v1", "widgets", "Widget")
_WAIT_S = 60.0


async def define(cluster: TestCluster) -> None:
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]}
    body = {
        "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": spec,
    }
    await cluster.admin.create(CUSTOM_RESOURCE_DEFINITIONS, "", body)

    async def is_served() -> bool:
        found = await discover(cluster.admin)
        return found.of_kind("example.com/v1", "Widget") is not None

    await answered(is_served, within_s=_WAIT_S)


async def make(
    cluster: TestCluster, resource: ResourceType, name: str, owner: Object | None = None
) -> Object:
    meta: Object = {"name": name}
    if owner is not None:
        reference = {each: owner[each] for each in ("apiVersion", "kind")}
        reference |= {each: owner["metadata"][each] for each in ("name", "uid")}
        meta["ownerReferences"] = [reference]
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    return await cluster.admin.create(resource, "n", body)


async def gone(cluster: TestCluster, resource: ResourceType, namespace: str, name: str) -> None:
    """Wait until there is no such object."""

    async def is_gone() -> bool:
        try:
            await cluster.admin.get(resource, namespace, name)
        except ApiError as error:
            if error.code != 404:
                raise
            return True
        return False

    await answered(is_gone, within_s=_WAIT_S)


def play(tmp_path: Path, chosen: str, story: Any) -> None:
    async def run() -> None:
        async with TestCluster(tmp_path) as cluster:
            await cluster.run_controllers(controllers(cluster.controller_options(), chosen))
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
            await cluster.admin.create(NAMESPACES, "", body)
            await define(cluster)
            await story(cluster)

    asyncio.run(run())


def test_they_are_collected(tmp_path: Path) -> None:
    """Owners and dependents of both sorts, and references that are lost."""

    async def story(cluster: TestCluster) -> None:
        # What has lost its owner goes as soon as the collector sees resources of this sort.
        lost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "uid": "none"}}
        await make(cluster, WIDGETS, "lost", lost)
        await gone(cluster, WIDGETS, "n", "lost")
        owner = await make(cluster, WIDGETS, "owner")
        await make(cluster, WIDGETS, "child", owner)
        await make(cluster, CONFIG_MAPS, "child", owner)
        other = await make(cluster, CONFIG_MAPS, "other")
        await make(cluster, WIDGETS, "orphan", other)
        await cluster.admin.delete(CONFIG_MAPS, "n", "other", propagation="Orphan")
        await gone(cluster, CONFIG_MAPS, "n", "other")
        orphan = await cluster.admin.get(WIDGETS, "n", "orphan")
        assert not orphan["metadata"].get("ownerReferences")
        await cluster.admin.delete(WIDGETS, "n", "owner", propagation="Background")
        await gone(cluster, WIDGETS, "n", "child")
        await gone(cluster, CONFIG_MAPS, "n", "child")

    play(tmp_path, "garbagecollector", story)


def test_they_are_counted_and_go_with_their_namespace(tmp_path: Path) -> None:
    async def story(cluster: TestCluster) -> None:
        await make(cluster, WIDGETS, "one")
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q"},
            "spec": {"hard": {"count/widgets.example.com": "5"}},
        }
        await cluster.admin.create(RESOURCE_QUOTAS, "n", quota)

        async def is_counted() -> bool:
            found = await cluster.admin.get(RESOURCE_QUOTAS, "n", "q")
            used = (found.get("status") or {}).get("used") or {}
            return bool(used.get("count/widgets.example.com") == "1")

        await answered(is_counted, within_s=_WAIT_S)
        await cluster.admin.delete(NAMESPACES, "", "n")
        await gone(cluster, NAMESPACES, "", "n")
        assert await cluster.admin.list_all(WIDGETS) == []

    play(tmp_path, "resourcequota,namespace", story)
