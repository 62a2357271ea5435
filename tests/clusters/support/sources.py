"""Clusters that contents are taken from, and what is compared of them."""

import asyncio
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS
from kvstack.agents.client.kubeconfig import Kubeconfigs, connect
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.standalone.in_memory.background import BackgroundCluster
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.clusters.contents import Contents
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.sources.api_server import ApiServerSource
from kvstack.clusters.sources.source import ReadOptions, Silent
from kvstore.client.values import KeyValue
from tests.support.waiting import wait_for

T = TypeVar("T")

WIDGETS = ResourceType("example.com", "v1", "widgets", "Widget")
WEBHOOKS = ResourceType(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    is_namespaced=False,
)
API_SERVICES = ResourceType(
    "apiregistration.k8s.io", "v1", "apiservices", "APIService", is_namespaced=False
)


def api_of(kubeconfig: Path) -> Api:
    """Return the API as the user of a file."""
    return Api(connect(Kubeconfigs([kubeconfig]).cluster()), Options(user_agent="test"))


def call(kubeconfig: Path, *steps: Any) -> Any:
    """Do steps, functions of an Api, one after another; return what the last one gives."""

    async def main() -> Any:
        api = api_of(kubeconfig)
        found = None
        try:
            for step in steps:
                found = await step(api)
        finally:
            await api.close()
        return found

    return asyncio.run(main())


def source_of(cluster: BackgroundCluster, name: str = "source") -> ApiServerSource:
    """Return the contents of a cluster by its API."""
    return ApiServerSource(Kubeconfigs([cluster.kubeconfig]).cluster(), name)


def read(cluster: BackgroundCluster, **options: Any) -> Contents:
    """Return the contents of a cluster as they are read over the wire."""
    return asyncio.run(source_of(cluster).read(ReadOptions(**options), Silent()))


def on_loop(cluster: BackgroundCluster, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop of a cluster's thread."""
    loop = cluster._loop
    assert loop is not None
    return asyncio.run_coroutine_threadsafe(work, loop).result(60)


def config_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}


def definition(plural: str = "widgets", kind: str = "Widget", **more: Any) -> Object:
    """Return a definition of a kind that takes anything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
            "versions": [version],
            **more,
        },
    }


def webhook(url: str, name: str = "check.example.com", policy: str = "Fail") -> Object:
    """Return a configuration whose webhook is asked about all ConfigMaps."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["*"],
        "resources": ["configmaps"],
    }
    hook = {
        "name": name,
        "rules": [rule],
        "clientConfig": {"url": url},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": policy,
        "timeoutSeconds": 1,
    }
    return {"metadata": {"name": "check"}, "webhooks": [hook]}


def aggregated(version: str = "v1", group: str = "remote.example.com") -> Object:
    return {
        "metadata": {"name": f"{version}.{group}"},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"namespace": "default", "name": "remote"},
        },
    }


def add_widgets(kubeconfig: Path, *names: str) -> None:
    """Define widgets and make some."""
    call(kubeconfig, lambda api: api.create(CUSTOM_RESOURCE_DEFINITIONS, "", definition()))
    wait_for(lambda: call(kubeconfig, _is_served), "widgets are served")
    for name in names:
        widget = {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": name},
            "spec": {"size": 3, "big": 1.5, "none": None},
        }
        call(kubeconfig, lambda api, widget=widget: api.create(WIDGETS, "default", widget))


async def _is_served(api: Api) -> bool:
    try:
        await api.list_page(WIDGETS)
    except ApiError:
        return False
    return True


def add_config_map(kubeconfig: Path, name: str, **data: str) -> Object:
    found: Object = call(
        kubeconfig, lambda api: api.create(CONFIG_MAPS, "default", config_map(name, **data))
    )
    return found


def objects_of(rows: Iterable[KeyValue]) -> dict[str, Object]:
    """Return the objects of rows by their keys, as everybody reads them."""
    rows = list(rows)
    kinds = Kinds.of(rows)
    return {kv.key.decode(): kinds.read(kv) for kv in rows if kinds.find(kv.key)}
