"""metrics.k8s.io in the process of an API server: who serves it, and who may read it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import NODES
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.metrics import access, resource_api
from kvstack.agents.metrics.collector import CollectorOptions
from kvstack.agents.standalone.local_agents import AgentOptions, LocalAgents
from kvstack.agents.standalone.local_metrics import MetricsOptions
from kvstack.agents.standalone.parts import CONTROLLERS, METRICS, NODE, SCHEDULER
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import MERGE_PATCH
from tests.agents.support.cluster import TestCluster, eventually
from tests.support.waiting import answered

API_SERVICES = ResourceType(
    "apiregistration.k8s.io", "v1", "apiservices", "APIService", is_namespaced=False
)
ROLES = ResourceType(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", is_namespaced=False
)
BINDINGS = ResourceType(
    "rbac.authorization.k8s.io",
    "v1",
    "clusterrolebindings",
    "ClusterRoleBinding",
    is_namespaced=False,
)
NAMES = ("v1.metrics.k8s.io", "v1beta1.metrics.k8s.io")
PATH = "/apis/metrics.k8s.io/v1beta1/nodes"
FAST = MetricsOptions(CollectorOptions(resolution_s=0.2, first_wait_s=0.1))
SERVICE = {
    "spec": {
        "service": {"namespace": "kube-system", "name": "metrics-server"},
        "insecureSkipTLSVerify": True,
    }
}


@asynccontextmanager
async def agents(cluster: TestCluster, *without: str, nodes: int = 1) -> AsyncIterator[None]:
    names = tuple(f"hollow-{number}" for number in range(1, nodes + 1))
    left_out = frozenset((CONTROLLERS, SCHEDULER, NODE, *without))
    options = AgentOptions(left_out, names, metrics=FAST)
    async with LocalAgents(cluster.server, options, cluster.log):
        yield


async def code_of(api: Api, path: str = PATH) -> int:
    try:
        await api.call("GET", path)
    except ApiError as error:
        return error.code
    return 200


async def measured(api: Api, count: int) -> None:
    async def is_so() -> bool:
        return len((await api.call("GET", PATH))["items"]) >= count

    await answered(is_so)


async def groups(api: Api) -> list[str]:
    return [each["name"] for each in (await api.call("GET", "/apis"))["groups"]]


@pytest.mark.parametrize("many", [1000, 0])
def test_it_is_registered_and_answers(
    many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a thread, as where there are many objects."""
    monkeypatch.setattr(resource_api, "OBJECTS_MANY", many)

    async def main() -> None:
        async with TestCluster(tmp_path) as cluster:
            api = cluster.admin
            async with agents(cluster, nodes=3):
                await measured(api, 3)
                for name in NAMES:
                    found = await api.get(API_SERVICES, "", name)
                    assert found["status"]["conditions"][0]["reason"] == "Local"
                assert "metrics.k8s.io" in await groups(api)
                preferred = await api.call("GET", "/apis/metrics.k8s.io")
                assert preferred["preferredVersion"]["version"] == "v1"
                document = await api.call("GET", "/openapi/v3/apis/metrics.k8s.io/v1")
                assert f"{PATH}".replace("v1beta1", "v1") in document["paths"]
                assert PATH in (await api.call("GET", "/openapi/v2"))["paths"]
            assert await code_of(api) == 404, "nobody answers any more"

    asyncio.run(main())


def test_a_history_for_graphs(tmp_path: Path) -> None:
    base = "/apis/metrics.kvstack.io/v1"

    async def main() -> None:
        async with TestCluster(tmp_path) as cluster, agents(cluster):
            api = cluster.admin
            await measured(api, 1)
            found = await api.call("GET", f"{base}/nodes/hollow-1")
            assert (found["kind"], found["metadata"]["name"]) == ("NodeHistory", "hollow-1")
            assert found["points"][0]["usage"]["memory"] == "128Mi"
            assert await code_of(api, f"{base}/nodes/none") == 404
            assert await code_of(api, f"{base}/namespaces/default/pods/none") == 404
            assert await code_of(api, f"{base}/nodes") == 404
            assert await code_of(cluster.api("somebody"), f"{base}/nodes/hollow-1") == 403
            listed = await api.call("GET", base)
            assert [each["verbs"] for each in listed["resources"]] == [["get"], ["get"]]

    asyncio.run(main())


def test_without_it_nothing_is_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with TestCluster(tmp_path) as cluster, agents(cluster, METRICS):
            names = [
                each["metadata"]["name"] for each in await cluster.admin.list_all(API_SERVICES)
            ]
            assert not set(NAMES).intersection(names)
            assert "metrics.k8s.io" not in await groups(cluster.admin)
            assert await code_of(cluster.admin) == 404

    asyncio.run(main())


def test_rights_are_those_of_the_user(tmp_path: Path) -> None:
    async def main() -> None:
        async with TestCluster(tmp_path) as cluster, agents(cluster):
            somebody = cluster.api("somebody")
            assert await code_of(somebody) == 403
            [role] = access.OBJECTS
            await cluster.admin.create(ROLES, "", dict(role))
            binding = {
                "metadata": {"name": "reads"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": access.READERS,
                },
                "subjects": [
                    {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "User",
                        "name": "somebody",
                    }
                ],
            }
            await cluster.admin.create(BINDINGS, "", binding)
            await measured(somebody, 1)

    asyncio.run(main())


def test_who_registers_a_server_takes_the_group_over(tmp_path: Path) -> None:
    async def main() -> None:
        async with TestCluster(tmp_path) as cluster, agents(cluster):
            api = cluster.admin
            await measured(api, 1)
            await api.patch(API_SERVICES, "", NAMES[1], SERVICE, MERGE_PATCH)
            remotes = cluster.server.aggregator.here
            await eventually(lambda: remotes.at(PATH) is None)
            assert await code_of(api) == 503, "that server is not there"
            assert await code_of(api, PATH.replace("v1beta1", "v1")) == 404
            await api.delete(API_SERVICES, "", NAMES[1])
            await eventually(lambda: remotes.at(PATH.replace("v1beta1", "v1")) is not None)
            assert await code_of(api) == 404, "what was deleted stays so"
            assert await code_of(api, PATH.replace("v1beta1", "v1")) == 200

    asyncio.run(main())


def test_what_others_registered_stays(tmp_path: Path) -> None:
    async def main() -> None:
        async with TestCluster(tmp_path) as cluster:
            foreign = {
                "metadata": {"name": NAMES[1]},
                "spec": {
                    "group": "metrics.k8s.io",
                    "version": "v1beta1",
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    **SERVICE["spec"],
                },
            }
            before = await cluster.admin.create(API_SERVICES, "", foreign)
            async with agents(cluster):
                found = await cluster.admin.get(API_SERVICES, "", NAMES[1])
                assert found["spec"] == before["spec"]
                with pytest.raises(ApiError, match="not found"):
                    await cluster.admin.get(API_SERVICES, "", NAMES[0])

    asyncio.run(main())


def test_a_node_that_cannot_be_read_keeps_no_other_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        async with TestCluster(tmp_path) as cluster, agents(cluster):
            node: dict[str, Any] = {"metadata": {"name": "elsewhere"}}
            await cluster.admin.create(NODES, "", node)

            def is_logged() -> bool:
                return any(
                    message == "what a node uses cannot be read"
                    and fields["node"] == "elsewhere"
                    and "no address of type" in str(fields["error"])
                    for message, fields in cluster.log.of("warning")
                )

            await eventually(is_logged)
            await measured(cluster.admin, 1)

    asyncio.run(main())
