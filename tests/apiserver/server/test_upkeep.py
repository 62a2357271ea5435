"""What is kept is made right again, whoever changed it."""

import dataclasses
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.allocators.node_ports import bitmap, decode_bitmap, encode_bitmap
from kvstack.apiserver.registry.window import SMALL_BYTES
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.server.upkeep.identity_lease import lease_name
from kvstack.apiserver.server.upkeep.unused import KEPT_S, PERIOD_S
from kvstore.client.values import prefix_end
from tests.apiserver.server.in_process import World, options, run

pytestmark = pytest.mark.slow

PORTS_KEY = b"/registry/ranges/servicenodeports"
CONFIG_MAPS = GroupResource("", "configmaps")
SERVICES = GroupResource("", "services")
ADDRESSES = GroupResource("networking.k8s.io", "ipaddresses")
FLOW = "flowcontrol.apiserver.k8s.io"


def in_world(tmp_path: Path, main: Callable[[World, ApiServer], Awaitable[None]]) -> None:
    async def body(world: World) -> None:
        server = await world.start()
        for job in server.jobs:
            if not job.begins_later:
                await job.done.wait()
        await server.registry.live.catch_up()
        await main(world, server)

    run(tmp_path, body)


async def again(server: ApiServer, name: str) -> None:
    """Do a round of a job now."""
    await server.registry.live.catch_up()
    await next(each for each in server.jobs if each.name == name).once()
    await server.registry.live.catch_up()


async def remove(server: ApiServer, resource: GroupResource, namespace: str, name: str) -> None:
    """Remove an object from the store, past everything that would keep it."""
    collection = server.registry.collection(resource)
    record = collection.get(f"{namespace}/{name}" if namespace else name)
    assert record is not None
    await server.registry.writes.delete(collection, record)
    await server.registry.live.catch_up()


def test_what_nobody_asks_for_again_is_given_up(tmp_path: Path) -> None:
    async def main(world: World, server: ApiServer) -> None:
        router, window = server.site.router, server.registry.collection(CONFIG_MAPS).window
        gone, used = (router.route("GET", f"/api/v1/pods?limit={each}") for each in (1, 2))
        body = orjson.dumps({"metadata": {"name": "x"}, "data": {"y": "z" * (SMALL_BYTES // 2)}})
        path, ask = "/api/v1/namespaces/default/configmaps", partial(world.ask, token="admin-token")
        for _ in range(4):
            assert (await ask(server, "POST", path, body=body))[0] == 201
            assert (await ask(server, "DELETE", f"{path}/x"))[0] == 200
        await server.registry.live.catch_up()
        before = len(window)
        for _ in range(round(KEPT_S / PERIOD_S)):
            await again(server, "unused memory")
            assert router.route("GET", "/api/v1/pods?limit=2") is used
        assert len(window) == before, "not before it is old"
        await again(server, "unused memory")
        assert len(window) < before
        assert router.route("GET", "/api/v1/pods?limit=1") is not gone

    in_world(tmp_path, main)


def test_objects_that_are_gone_are_made_again(tmp_path: Path) -> None:
    gone = [
        ("system namespaces", GroupResource("", "namespaces"), "", "kube-public"),
        (
            "priority classes",
            GroupResource("scheduling.k8s.io", "priorityclasses"),
            "",
            "system-node-critical",
        ),
        ("roles", GroupResource("rbac.authorization.k8s.io", "clusterroles"), "", "view"),
        ("flow control", GroupResource(FLOW, "flowschemas"), "", "probes"),
        ("flow control", GroupResource(FLOW, "prioritylevelconfigurations"), "", "exempt"),
        ("the Service kubernetes", SERVICES, "default", "kubernetes"),
        ("the Service kubernetes", GroupResource("", "endpoints"), "default", "kubernetes"),
        (
            "the Service kubernetes",
            GroupResource("discovery.k8s.io", "endpointslices"),
            "default",
            "kubernetes",
        ),
        (
            "the default ServiceCIDR",
            GroupResource("networking.k8s.io", "servicecidrs"),
            "",
            "kubernetes",
        ),
        (
            "authentication info",
            GroupResource("", "configmaps"),
            "kube-system",
            "extension-apiserver-authentication",
        ),
        (
            "API services",
            GroupResource("apiregistration.k8s.io", "apiservices"),
            "",
            "v1.apps",
        ),
    ]

    async def main(_world: World, server: ApiServer) -> None:
        for job, resource, namespace, name in gone:
            if resource == SERVICES:
                await remove(server, ADDRESSES, "", "10.0.0.1")
            await remove(server, resource, namespace, name)
            await again(server, job)
            found = server.registry.view.get(resource, namespace, name)
            assert found is not None, (job, resource)

    in_world(tmp_path, main)


def test_what_was_changed_is_put_back(tmp_path: Path) -> None:
    changes: list[tuple[str, GroupResource, str, Callable[[Any], None]]] = [
        (
            "flow control",
            GroupResource(FLOW, "flowschemas"),
            "probes",
            lambda spec: spec.update(matchingPrecedence=7),
        ),
        (
            "API services",
            GroupResource("apiregistration.k8s.io", "apiservices"),
            "v1.apps",
            lambda spec: spec.update(versionPriority=3),
        ),
    ]

    async def main(_world: World, server: ApiServer) -> None:
        for job, resource, name, change in changes:
            before = server.registry.view.get(resource, "", name)
            assert before is not None
            spec = orjson.loads(orjson.dumps(before["spec"]))
            change(spec)
            await server.loopback.update(resource, {**before, "spec": spec})
            await again(server, job)
            after = server.registry.view.get(resource, "", name)
            assert after is not None
            assert after["spec"] == before["spec"]

    in_world(tmp_path, main)


def test_a_flow_schema_of_which_the_user_takes_care_is_left_alone(tmp_path: Path) -> None:
    resource = GroupResource(FLOW, "flowschemas")

    async def main(_world: World, server: ApiServer) -> None:
        found = server.registry.view.get(resource, "", "probes")
        assert found is not None
        annotations = {"apf.kubernetes.io/autoupdate-spec": "false"}
        new = {
            **found,
            "metadata": {**found["metadata"], "annotations": annotations},
            "spec": {**found["spec"], "matchingPrecedence": 7},
        }
        await server.loopback.update(resource, new)
        await again(server, "flow control")
        kept = server.registry.view.get(resource, "", "probes")
        assert kept is not None
        assert kept["spec"]["matchingPrecedence"] == 7

    in_world(tmp_path, main)


def test_a_flow_schema_reports_whether_its_level_is_there(tmp_path: Path) -> None:
    schemas = GroupResource(FLOW, "flowschemas")

    async def main(_world: World, server: ApiServer) -> None:
        await again(server, "flow control's conditions")
        assert _dangling(server) == "False"
        await remove(server, GroupResource(FLOW, "prioritylevelconfigurations"), "", "system")
        await again(server, "flow control's conditions")
        assert _dangling(server) == "True"

    def _dangling(server: ApiServer) -> str:
        found = server.registry.view.get(schemas, "", "system-nodes")
        assert found is not None
        status: str = found["status"]["conditions"][0]["status"]
        return status

    in_world(tmp_path, main)


def test_cluster_ips_are_repaired(tmp_path: Path) -> None:
    async def main(world: World, server: ApiServer) -> None:
        await remove(server, ADDRESSES, "", "10.0.0.1")
        await again(server, "repair of cluster IPs")
        claim = server.registry.view.get(ADDRESSES, "", "10.0.0.1")
        assert claim is not None
        assert claim["spec"]["parentRef"]["name"] == "kubernetes"
        events = await world.object(server, "/apis/events.k8s.io/v1/namespaces/default/events")
        told = [(each["reason"], each["note"], each["type"]) for each in events["items"]]
        assert told == [
            (
                "ClusterIPNotAllocated",
                "Cluster IP [IPv4]: 10.0.0.1 is not allocated; repairing",
                "Warning",
            )
        ]

    in_world(tmp_path, main)


def test_node_ports_are_repaired(tmp_path: Path) -> None:
    async def main(world: World, server: ApiServer) -> None:
        service = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]},
        }
        await server.loopback.create(SERVICES, service)
        port_range = server.env.settings.node_ports
        lost = orjson.loads((await world.store.get(PORTS_KEY)).kv.value)  # type: ignore[union-attr]
        assert decode_bitmap(lost["data"]) == bitmap(port_range, [30001])
        lost["data"] = encode_bitmap(bitmap(port_range, [30005]))
        await world.store.put(PORTS_KEY, orjson.dumps(lost))
        for _ in range(3):  # a leak is only believed when it is seen for the third time
            await again(server, "repair of node ports")
        found = orjson.loads((await world.store.get(PORTS_KEY)).kv.value)  # type: ignore[union-attr]
        assert decode_bitmap(found["data"]) == bitmap(port_range, [30001])

    in_world(tmp_path, main)


def test_a_lease_of_a_dead_server_is_collected_and_others_are_not(tmp_path: Path) -> None:
    leases = GroupResource("coordination.k8s.io", "leases")

    async def main(_world: World, server: ApiServer) -> None:
        identity = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
        for name, labels, renewed in (
            ("dead", identity, "2020-01-01T00:00:00.000000Z"),
            ("other", {}, "2020-01-01T00:00:00.000000Z"),
            ("alive", identity, "2999-01-01T00:00:00.000000Z"),
        ):
            metadata = {"name": name, "namespace": "kube-system", "labels": labels}
            spec = {
                "holderIdentity": name,
                "leaseDurationSeconds": 3600,
                "renewTime": renewed,
            }
            await server.loopback.create(leases, {"metadata": metadata, "spec": spec})
        await again(server, "leases of dead servers")
        names = {each["metadata"]["name"] for each in server.registry.view.list(leases)}
        assert {"other", "alive"} <= names
        assert "dead" not in names

    in_world(tmp_path, main)


def test_a_lease_has_upstreams_name() -> None:
    assert lease_name("vm") == "apiserver-wlv32tlttr4jl3gtroqexyxapa"


def test_masters_of_several_servers_go_with_their_lease(tmp_path: Path) -> None:
    async def main(world: World, server: ApiServer) -> None:
        await world.store.put(b"/registry/masterleases/192.0.2.9", b"k8s\0 of another server")
        await again(server, "the Service kubernetes")
        obj = await world.object(server, "/api/v1/namespaces/default/endpoints/kubernetes")
        assert [each["ip"] for each in obj["subsets"][0]["addresses"]] == [
            "192.0.2.7",
            "192.0.2.9",
        ]
        found = await world.store.get(b"/registry/masterleases/192.0.2.7")
        assert found.kv is not None
        assert found.kv.lease
        await world.store.lease_revoke(found.kv.lease)
        left = await world.store.range(
            b"/registry/masterleases/", prefix_end(b"/registry/masterleases/")
        )
        assert [each.key.rpartition(b"/")[2] for each in left.kvs] == [b"192.0.2.9"]

    in_world(tmp_path, main)


def test_ranges_that_are_not_those_of_the_flags_are_left_and_reported(tmp_path: Path) -> None:
    ranges = GroupResource("networking.k8s.io", "servicecidrs")

    async def body(world: World) -> None:
        first = await world.start()
        await first.stop()
        from kvstack.apiserver.allocators.cluster_ips import address_range

        other = dataclasses.replace(
            options(tmp_path), service_ranges=(address_range("10.1.0.0/16"),)
        )
        second = await world.start(other)
        found = second.registry.view.get(ranges, "", "kubernetes")
        assert found is not None
        assert found["spec"]["cidrs"] == ["10.0.0.0/16"]

    run(tmp_path, body)
