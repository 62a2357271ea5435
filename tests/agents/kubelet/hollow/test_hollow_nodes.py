"""Hollow nodes against an API server."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.client.built_in import LEASES, NODES, PODS, SERVICE_ACCOUNTS
from kvstack.agents.kubelet.hollow.hollow_nodes import HollowNodes, HollowOptions
from kvstack.agents.kubelet.hollow.nodes import named
from kvstack.agents.kubelet.node.leases import Leases
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.cluster import TestCluster, eventually, stored_object

MERGE = "application/merge-patch+json"

pytestmark = pytest.mark.slow


def run(directory: Path, story: Callable[[TestCluster], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with TestCluster(directory) as cluster:
            await cluster.admin.create(
                SERVICE_ACCOUNTS, "default", {"metadata": {"name": "default"}}
            )
            await story(cluster)
            assert not cluster.log.of("error")

    asyncio.run(main())


def hollow(cluster: TestCluster, options: HollowOptions) -> HollowNodes:
    return HollowNodes(
        cluster.admin, cluster.informers, cluster.clock, lambda: 0.5, cluster.log, options
    )


def pod(name: str, node: str = "node-a", **more: Any) -> Object:
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "web:1"}],
        **more.pop("spec", {}),
    }
    return {"metadata": {"name": name, **more}, "spec": spec}


def of_status(obj: Object | None, type_: str) -> str:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    return next((each["status"] for each in conditions if each["type"] == type_), "")


def test_nodes_register_and_keep_leases(tmp_path: Path) -> None:
    async def story(cluster: TestCluster) -> None:
        names = ("node-a", "node-b", "node-c")
        nodes = hollow(cluster, HollowOptions(names=names, lease_every_s=0.01))
        await nodes.start()
        first = await cluster.admin.get(NODES, "", "node-a")
        assert of_status(first, "Ready") == "True"
        assert first["status"]["addresses"] == [{"type": "InternalIP", "address": "127.0.0.11"}]
        assert first["status"]["allocatable"]["pods"] == "110"
        last = await cluster.admin.get(NODES, "", "node-c")
        assert last["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-c"
        leases = cluster.informers.of(LEASES).store
        lease = await eventually(lambda: leases.get("kube-node-lease/node-b"))
        assert lease["spec"]["holderIdentity"] == "node-b"
        assert lease["spec"]["leaseDurationSeconds"] == 40
        await eventually(
            lambda: (
                stored_object(leases, "kube-node-lease/node-b")["spec"]["renewTime"]
                > lease["spec"]["renewTime"]
            )
        )
        await nodes.stop()

    run(tmp_path, story)


def test_nodes_of_others_are_adopted_by_their_label(tmp_path: Path) -> None:
    async def story(cluster: TestCluster) -> None:
        nodes = hollow(cluster, HollowOptions(names=named(1)))
        await nodes.start()
        await cluster.admin.create(NODES, "", {"metadata": {"name": "real"}})
        await cluster.admin.create(
            NODES, "", {"metadata": {"name": "mine", "labels": {"hollow": "true"}}}
        )
        store = cluster.informers.of(NODES).store
        await eventually(lambda: of_status(store.get("mine"), "Ready") == "True")
        assert stored_object(store, "mine")["status"]["addresses"][0]["address"] == "127.0.0.22"
        assert nodes.names == ("hollow-1", "mine")
        assert of_status(store.get("real"), "Ready") == ""
        await cluster.admin.delete(NODES, "", "mine")
        await eventually(lambda: nodes.names == ("hollow-1",))
        await nodes.stop()

    run(tmp_path, story)


def test_pods_live_and_go(tmp_path: Path) -> None:
    async def story(cluster: TestCluster) -> None:
        nodes = hollow(cluster, HollowOptions(names=("node-a",)))
        await nodes.start()
        admin, store = cluster.admin, cluster.informers.of(PODS).store
        await admin.create(PODS, "default", pod("web"))
        await eventually(lambda: of_status(store.get("default/web"), "Ready") == "True")
        web = stored_object(store, "default/web")
        assert web["status"]["podIP"] == "10.244.1.1"
        assert web["status"]["phase"] == "Running"
        await admin.patch(
            PODS,
            "default",
            "web",
            {"metadata": {"annotations": {"hollow/ready": "false"}}},
            MERGE,
        )
        await eventually(lambda: of_status(store.get("default/web"), "Ready") == "False")
        await admin.create(PODS, "default", pod("job", spec={"restartPolicy": "Never"}))
        await eventually(
            lambda: (store.get("default/job") or {}).get("status", {}).get("phase") == "Succeeded"
        )
        assert of_status(store.get("default/job"), "Initialized") == "True"
        await admin.delete(PODS, "default", "web", grace_s=30)
        await eventually(lambda: store.get("default/web") is None)
        await nodes.stop()

    run(tmp_path, story)


def test_pods_of_before_keep_their_addresses(tmp_path: Path) -> None:
    async def story(cluster: TestCluster) -> None:
        first = hollow(cluster, HollowOptions(names=("node-a",)))
        await first.start()
        admin, store = cluster.admin, cluster.informers.of(PODS).store
        await admin.create(PODS, "default", pod("old"))
        await eventually(lambda: of_status(store.get("default/old"), "Ready") == "True")
        await first.stop()
        again = hollow(cluster, HollowOptions(names=("node-a",)))
        await again.start()
        await admin.create(PODS, "default", pod("new"))
        await eventually(lambda: of_status(store.get("default/new"), "Ready") == "True")
        assert stored_object(store, "default/old")["status"]["podIP"] == "10.244.1.1"
        assert stored_object(store, "default/new")["status"]["podIP"] == "10.244.1.2"
        await again.stop()

    run(tmp_path, story)


def test_a_node_that_was_given_up_says_that_it_is_ready(tmp_path: Path) -> None:
    async def story(cluster: TestCluster) -> None:
        nodes = hollow(cluster, HollowOptions(names=("node-a",)))
        await nodes.start()
        node = await cluster.admin.get(NODES, "", "node-a")
        for condition in node["status"]["conditions"]:
            condition |= {"status": "Unknown", "reason": "NodeStatusUnknown"}
        await cluster.admin.update(NODES, node, subresource="status")
        store = cluster.informers.of(NODES).store
        version = node["metadata"]["resourceVersion"]
        await eventually(
            lambda: (
                stored_object(store, "node-a")["metadata"]["resourceVersion"] != version
                and of_status(store.get("node-a"), "Ready") == "True"
            )
        )
        await nodes.stop()

    run(tmp_path, story)


def test_a_lease_that_others_changed_or_deleted_is_renewed(tmp_path: Path) -> None:
    async def story(cluster: TestCluster) -> None:
        admin = cluster.admin
        node = await admin.create(NODES, "", {"metadata": {"name": "n"}})
        leases = Leases(admin, cluster.clock, lambda: 0.0, cluster.log, 0.01)
        task = asyncio.get_running_loop().create_task(leases.run())
        leases.keep(node)
        store = cluster.informers.of(LEASES).store
        first = await eventually(lambda: store.get("kube-node-lease/n"))
        await admin.delete(LEASES, "kube-node-lease", "n")
        await eventually(
            lambda: (
                (store.get("kube-node-lease/n") or first)["metadata"]["uid"]
                != first["metadata"]["uid"]
            )
        )
        await admin.patch(LEASES, "kube-node-lease", "n", {"spec": {"holderIdentity": "x"}}, MERGE)
        await eventually(
            lambda: stored_object(store, "kube-node-lease/n")["spec"]["holderIdentity"] == "n"
        )
        task.cancel()
        await asyncio.wait((task,))

    run(tmp_path, story)


def test_pods_use_what_they_say_also_under_another_process(tmp_path: Path) -> None:
    async def story(cluster: TestCluster) -> None:
        nodes = hollow(cluster, HollowOptions(names=("node-a",)))
        await nodes.start()
        load = {"hollow/memory": "64Mi", "hollow/cpu": "500m"}
        await cluster.admin.create(PODS, "default", pod("web", annotations=load))
        await cluster.admin.create(PODS, "default", pod("odd", annotations={"hollow/cpu": "?"}))
        store = cluster.informers.of(PODS).store
        await eventually(
            lambda: all(
                of_status(store.get(f"default/{each}"), "Ready") == "True"
                for each in ("web", "odd")
            )
        )

        def memory(of: HollowNodes) -> dict[str, int]:
            return {
                each["metadata"]["name"]: used.memory_bytes
                for each, found in of.usage("node-a")
                for used in found
            }

        assert memory(nodes) == {"web": 64 << 20, "odd": 8 << 20}
        assert any("hollow/cpu" in str(each) for _, each in cluster.log.of("warning"))
        assert nodes.usage("node-z") == []
        await nodes.stop()
        again = hollow(cluster, HollowOptions(names=("node-a",)))
        await again.start()
        assert again.runs("node-a")
        assert memory(again) == {"web": 64 << 20, "odd": 8 << 20}
        change = {"metadata": {"annotations": {"hollow/memory": "1Mi"}}}
        await cluster.admin.patch(PODS, "default", "web", change, MERGE)
        await eventually(lambda: memory(again)["web"] == 1 << 20)
        await again.stop()

    run(tmp_path, story)


def test_nodes_of_a_copied_cluster_stay_as_they_are(tmp_path: Path) -> None:
    status = {
        "capacity": {"cpu": "96", "pods": "250"},
        "allocatable": {"cpu": "95", "pods": "250"},
        "addresses": [{"type": "InternalIP", "address": "10.9.8.7"}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    running = {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [
            {
                "name": "c",
                "image": "web:1",
                "imageID": "web",
                "containerID": "containerd://1",
                "ready": False,
                "started": True,
                "restartCount": 3,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                "lastState": {},
            }
        ],
    }

    async def story(cluster: TestCluster) -> None:
        admin, store = cluster.admin, cluster.informers.of(PODS).store
        for name in ("real", "other"):
            made = await admin.create(NODES, "", {"metadata": {"name": name}})
            await admin.update(NODES, {**made, "status": status}, subresource="status")
        for name, policy in (("web", "Always"), ("job", "Never"), ("old", "Always")):
            made = await admin.create(
                PODS, "default", pod(name, "real", spec={"restartPolicy": policy})
            )
            await admin.update(PODS, {**made, "status": running}, subresource="status")
        before = {
            each: (await admin.get(PODS, "default", each))["status"] for each in ("web", "job")
        }
        node = (await admin.get(NODES, "", "real"))["status"]
        nodes = hollow(cluster, HollowOptions(found=("real",), lease_every_s=0.01))
        await nodes.start()
        await eventually(lambda: nodes.names == ("real",))
        await admin.create(PODS, "default", pod("new", "real"))
        await eventually(lambda: of_status(store.get("default/new"), "Ready") == "True")
        assert (store.get("default/new") or {})["status"]["hostIP"] == "10.9.8.7"
        await admin.delete(PODS, "default", "old")
        await eventually(lambda: store.get("default/old") is None)
        leases = cluster.informers.of(LEASES).store
        await eventually(lambda: leases.get("kube-node-lease/real"))
        for name, found in before.items():
            assert (await admin.get(PODS, "default", name))["status"] == found
        assert (await admin.get(NODES, "", "real"))["status"] == node
        lost = {
            **node,
            "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}],
        }
        real = await admin.get(NODES, "", "real")
        await admin.update(NODES, {**real, "status": lost}, subresource="status")
        informer = cluster.informers.of(NODES).store
        await eventually(lambda: of_status(informer.get("real"), "Ready") == "True")
        assert (informer.get("real") or {})["status"]["capacity"] == status["capacity"]
        await nodes.stop()

    run(tmp_path, story)
