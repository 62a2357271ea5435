"""A kubelet whose containers only pretend, against an API server: it needs no root."""

import asyncio
from collections.abc import Callable, Coroutine
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import orjson

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import EVENTS, NODES, PODS, SERVICE_ACCOUNTS
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet.hollow.hollow_runtime import HollowRuntime
from kvstack.agents.kubelet.kubelet import Kubelet
from kvstack.agents.kubelet.node import node
from kvstack.agents.kubelet.node.node_status import StatusOptions
from kvstack.agents.kubelet.options import KubeletOptions
from kvstack.agents.kubelet.static.static_pods import StaticSettings
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from tests.agents.support.cluster import TestCluster, eventually, stored_object

MACHINE = node.Machine(
    "amd64", 4, 8 << 20, 100 << 30, "m", "s", "boot-2", "6.1", "Linux", {"2Mi": 4 << 20}, 1 << 30
)


class Here:
    """A node of a cluster."""

    def __init__(self, cluster: TestCluster, directory: Path, api: Api | None = None) -> None:
        root = directory / "node"
        root.mkdir(exist_ok=True)
        self.runtime = HollowRuntime(
            IPv4Network("10.1.0.0/24"),
            cluster.clock,
            "node-a",
            lambda uid: self.kubelet.container_ended(uid),
        )
        self.kubelet = Kubelet(
            api or cluster.admin,
            self.runtime,
            MACHINE,
            cluster.clock,
            lambda: 0.5,
            cluster.log,
            KubeletOptions(
                "node-a",
                "127.0.0.1",
                root,
                static=StaticSettings(directory / "manifests"),
                static_every_s=0.05,
                status=StatusOptions(every_s=0.05, labels={"mine": "1", "kubernetes.io/os": "x"}),
            ),
        )


Story = Callable[[TestCluster, Here], Coroutine[Any, Any, None]]


def run(directory: Path, story: Story, before: Object | None = None) -> None:
    async def main() -> None:
        (directory / "manifests").mkdir(exist_ok=True)
        async with TestCluster(directory) as cluster:
            account = {"metadata": {"name": "default"}}
            await cluster.admin.create(SERVICE_ACCOUNTS, "default", account)
            if before is not None:
                await cluster.admin.create(NODES, "", before)
            here = Here(cluster, directory)
            await here.kubelet.start()
            try:
                await story(cluster, here)
            finally:
                await here.kubelet.stop()
            assert not cluster.log.of("error")

    asyncio.run(main())


def pod(name: str, **spec: Any) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": "node-a",
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "web"}],
            **spec,
        },
    }


def ready(obj: Object | None) -> str:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "")


def messages(cluster: TestCluster, reason: str) -> set[str]:
    return {
        each["message"] for each in cluster.informers.of(EVENTS).store if each["reason"] == reason
    }


async def patch(cluster: TestCluster, path: str, body: Object) -> None:
    await cluster.admin.call(
        "PATCH", path, None, orjson.dumps(body), media_type=STRATEGIC_MERGE_PATCH
    )


def test_a_status_that_somebody_changed_is_written_again(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Here) -> None:
        store = cluster.informers.of(PODS).store
        await cluster.admin.create(PODS, "default", pod("web"))
        await eventually(lambda: ready(store.get("default/web")) == "True")
        lost = {"type": "Ready", "status": "False", "reason": "NodeNotReady"}
        seen = []
        cluster.informers.of(PODS).on_change(lambda _old, new: seen.append(ready(new)))
        path = PODS.path("default", "web", "status")
        await patch(cluster, path, {"status": {"conditions": [lost]}})
        await eventually(lambda: "False" in seen and seen[-1] == "True")
        versions = {stored_object(store, "default/web")["metadata"]["resourceVersion"]}
        here.kubelet.container_ended(stored_object(store, "default/web")["metadata"]["uid"])
        await cluster.admin.create(PODS, "default", pod("next"))
        await eventually(lambda: ready(store.get("default/next")) == "True")
        versions.add(stored_object(store, "default/web")["metadata"]["resourceVersion"])
        assert len(versions) == 1  # what is as it should be is not told again

    run(tmp_path, story)


def test_events_of_pods(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Here) -> None:
        store = cluster.informers.of(PODS).store
        await cluster.admin.create(PODS, "default", pod("web", activeDeadlineSeconds=1))
        text = "Pod was active on the node longer than the specified deadline"
        await eventually(lambda: messages(cluster, "DeadlineExceeded") == {text})
        await eventually(lambda: stored_object(store, "default/web")["status"]["phase"] == "Failed")
        (warning,) = await eventually(lambda: messages(cluster, "MissingClusterDNS"))
        assert warning.startswith('pod: "web_default(')
        await cluster.admin.create(PODS, "default", pod("none", dnsPolicy="Default"))
        await eventually(lambda: ready(store.get("default/none")) == "True")
        assert len(messages(cluster, "MissingClusterDNS")) == 1

    run(tmp_path, story)


def test_images_without_names(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Here) -> None:
        containers = [{"name": "c", "image": "Web:UP:1"}]
        await cluster.admin.create(PODS, "default", pod("bad", containers=containers))
        (text,) = await eventually(lambda: messages(cluster, "InspectFailed"))
        assert text == (
            'Failed to apply default image tag "Web:UP:1": couldn\'t parse image name "Web:UP:1": '
            "invalid reference format"
        )
        store = cluster.informers.of(PODS).store

        def reason() -> str:
            status = (store.get("default/bad") or {}).get("status") or {}
            (found,) = status.get("containerStatuses") or [{"state": {}}]
            return str((found["state"].get("waiting") or {}).get("reason"))

        await eventually(lambda: reason() == "InvalidImageName")

    run(tmp_path, story)


def test_a_node_that_is_there_already(tmp_path: Path) -> None:
    labels = {"mine": "theirs", "kubernetes.io/os": "linux", "other": "1"}
    before = {
        "metadata": {"name": "node-a", "labels": labels},
        "status": {"nodeInfo": {"bootID": "boot-1"}},
    }

    async def story(cluster: TestCluster, here: Here) -> None:
        async def reported(reason: str, text: str) -> None:
            await eventually(lambda: messages(cluster, reason) == {text})

        found = await cluster.admin.get(NODES, "", "node-a")
        labels = found["metadata"]["labels"]
        assert (labels["mine"], labels["kubernetes.io/os"], labels["other"]) == ("theirs", "x", "1")
        assert labels["kubernetes.io/hostname"] == "node-a"
        status = found["status"]
        assert status["capacity"]["hugepages-2Mi"] == "4Mi"
        assert status["allocatable"]["hugepages-2Mi"] == "4Mi"
        assert status["allocatable"]["memory"] == f"{(8 << 10) - 100 - 4}Mi"
        assert status["nodeInfo"]["swap"] == {"capacity": 1 << 30}
        assert status["nodeInfo"]["runningInUserNamespace"] is False
        assert "RestartAllContainersOnContainerExits" in status["declaredFeatures"]
        text = "Node node-a has been rebooted, boot id: boot-2"
        await eventually(lambda: messages(cluster, "Rebooted") == {text})
        for is_cordoned, reason in ((True, "NodeNotSchedulable"), (False, "NodeSchedulable")):
            body = {"spec": {"unschedulable": is_cordoned}}
            await patch(cluster, NODES.path("", "node-a"), body)
            text = f"Node node-a status is now: {reason}"
            await reported(reason, text)

    run(tmp_path, story, before)


MANIFEST = """\
metadata: {{name: web}}
spec:
  containers: [{{name: c, image: "web:{}"}}]
"""


class Dead:
    """A way to nowhere, until it is repaired."""

    def __init__(self, way: Any) -> None:
        self._way = way
        self.is_broken = True

    async def request(self, *arguments: Any, **more: Any) -> Any:
        if self.is_broken:
            raise UnreachableError("nobody is there")
        return await self._way.request(*arguments, **more)

    async def close(self) -> None:
        pass


def test_static_pods_run_before_there_is_an_api_server(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "manifests").mkdir()
        (tmp_path / "manifests" / "web.yaml").write_text(MANIFEST.format(1))
        async with TestCluster(tmp_path) as cluster:
            way = Dead(cluster.admin._transport)
            here = Here(cluster, tmp_path, Api(way, Options()))
            starting = asyncio.create_task(here.kubelet.start())
            runtime = here.runtime
            uids = await eventually(lambda: [u for u in runtime.pod_uids() if runtime.of_pod(u)])
            assert not starting.done()
            here.kubelet.container_ended("of-the-api")  # nothing is known to be unwanted yet
            way.is_broken = False
            await starting
            try:
                store = cluster.informers.of(PODS).store
                await eventually(lambda: ready(store.get("default/web-node-a")) == "True")
                assert [each.attempt for each in runtime.of_pod(uids[0])] == [0]
            finally:
                await here.kubelet.stop()

    asyncio.run(main())


def test_a_static_pod_waits_for_the_one_that_it_replaces(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Here) -> None:
        file, runtime = tmp_path / "manifests" / "web.yaml", here.runtime
        stopped = asyncio.Event()
        really = runtime.stop

        async def stop(container_id: str, grace_s: float) -> None:
            await stopped.wait()
            await really(container_id, grace_s)

        file.write_text(MANIFEST.format(1))
        (first,) = await eventually(lambda: [u for u in runtime.pod_uids() if runtime.of_pod(u)])
        slow = Slow(runtime, stop)
        here.kubelet._sync._tools = here.kubelet._sync._tools._replace(runtime=slow)
        file.write_text(MANIFEST.format(2))
        await eventually(
            lambda: len(here.kubelet._static.pods) == 1 and first not in here.kubelet._static.pods
        )
        (second,) = here.kubelet._static.pods
        await eventually(lambda: slow.asked)
        # Another pod that comes and runs: the second one was looked at before it.
        await cluster.admin.create(PODS, "default", pod("other"))
        store = cluster.informers.of(PODS).store
        await eventually(lambda: ready(store.get("default/other")) == "True")
        assert here.kubelet.record_of(second) is None
        stopped.set()
        await eventually(lambda: runtime.of_pod(second))
        assert not runtime.of_pod(first)

    run(tmp_path, story)


class Slow:
    """A runtime whose containers take their time to end."""

    def __init__(self, runtime: HollowRuntime, stop: Any) -> None:
        self._runtime = runtime
        self._stop = stop
        self.asked = False

    async def stop(self, container_id: str, grace_s: float) -> None:
        self.asked = True
        await self._stop(container_id, grace_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


class Breaks:
    """A way to the API server that breaks once, at the first status of the node."""

    def __init__(self, way: Any) -> None:
        self._way = way
        self.has_broken = False

    async def request(self, *arguments: Any, **more: Any) -> Any:
        method, path = arguments[:2]
        is_status = method == "PATCH" and path.startswith("/api/v1/nodes/node-a/status")
        if is_status and not self.has_broken:
            self.has_broken = True
            raise UnreachableError("the connection was closed")
        return await self._way.request(*arguments, **more)

    async def close(self) -> None:
        pass


def test_a_connection_that_ends_at_the_first_status_does_not_end_the_kubelet(
    tmp_path: Path,
) -> None:
    """As when the client's certificate is renewed just then."""

    async def main() -> None:
        (tmp_path / "manifests").mkdir()
        async with TestCluster(tmp_path) as cluster:
            way = Breaks(cluster.admin._transport)
            here = Here(cluster, tmp_path, Api(way, Options()))
            await here.kubelet.start()
            try:
                assert way.has_broken
                nodes = cluster.informers.of(NODES)
                await eventually(lambda: ready(nodes.store.get("node-a")) == "True")
            finally:
                await here.kubelet.stop()

    asyncio.run(main())
