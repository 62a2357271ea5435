"""What a node and a CSI driver say to each other, without pods that run: it needs no root."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest

from kvstack.agents.client.built_in import (
    CSI_DRIVERS,
    CSI_NODES,
    NODES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    VOLUME_ATTACHMENTS,
)
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.kubelet.csi import volume as csi_volume
from kvstack.agents.kubelet.csi.csi_node import CsiNode
from kvstack.agents.kubelet.csi.mounting import Group, StepError
from kvstack.agents.kubelet.csi.uses import PendingError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from tests.agents.support.cluster import TestCluster, eventually
from tests.support.csi.driver import Driver, registered, registrar, running, serving
from tests.support.waiting import answered

NAME = "d.io"
NO_ATTACH = {"attachRequired": False}
NO_GROUP = Group(None, "Always")
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "uid": "u-1"},
    "spec": {"serviceAccountName": "default"},
}


class Scene:
    """A node's side of CSI, and an API server."""

    def __init__(self, cluster: TestCluster, root: Path, node: Object, call_s: float) -> None:
        self.cluster, self.root = cluster, root
        self._node, self._call_s = node, call_s
        self.again: list[str] = []
        self.csi = self.new()

    def new(self) -> CsiNode:
        cluster = self.cluster
        recorder = EventRecorder(cluster.admin, "kubelet", cluster.clock, lambda: 0.5, cluster.log)
        return CsiNode(
            cluster.admin,
            cluster.clock,
            lambda: 0.5,
            cluster.log,
            recorder,
            "node-a",
            self.root,
            node=lambda: self._node,
            again=self.again.append,
            report=lambda: None,
            call_s=self._call_s,
        )

    async def restart(self) -> None:
        await self.csi.close()
        self.csi = self.new()
        await self.csi.open()
        self.csi.start()

    async def registered(self, name: str = NAME) -> Object:
        """Return what the CSINode says of a driver, once it says something."""
        store = self.cluster.informers.of(CSI_NODES).store

        def driver_entry() -> Object | None:
            drivers = (store.get("node-a") or {"spec": {}})["spec"].get("drivers") or ()
            return next((each for each in drivers if each["name"] == name), None)

        entry: Object = await eventually(driver_entry)
        return entry

    async def have(
        self, volume: csi_volume.Volume, pod: Object = POD, group: Group = NO_GROUP
    ) -> str:
        """Return where a pod has a volume, however often it is to be asked for."""

        async def path() -> str:
            try:
                return await self.csi.volumes.have(pod, "v", volume, group)
            except PendingError:
                return ""

        return await answered(path)

    async def release(self, uid: str = "u-1") -> None:
        await eventually(lambda: self.csi.volumes.release(uid))


def volume(name: str = "pv-1", **fields: Any) -> csi_volume.Volume:
    given = {"access_modes": ("ReadWriteOnce",), **fields}
    return csi_volume.Volume(name, given.pop("driver", NAME), f"handle-{name}", **given)


def tell(
    directory: Path,
    story: Callable[[Scene], Awaitable[None]],
    *,
    call_s: float = 60.0,
    driver_spec: Object | None = NO_ATTACH,
) -> None:
    async def main() -> None:
        async with TestCluster(directory) as cluster:
            node = await cluster.admin.create(NODES, "", {"metadata": {"name": "node-a"}})
            if driver_spec is not None:
                body = {"metadata": {"name": NAME}, "spec": driver_spec}
                await cluster.admin.create(CSI_DRIVERS, "", body)
            scene = Scene(cluster, directory / "n", node, call_s)
            await scene.csi.open()
            scene.csi.start()
            try:
                await story(scene)
            finally:
                await scene.csi.close()

    asyncio.run(main())


@asynccontextmanager
async def one_driver(scene: Scene, name: str = NAME) -> AsyncIterator[Driver]:
    driver = Driver(name, scene.root / "data", mounts=False)
    async with registered(driver, scene.root):
        await scene.registered(name)
        yield driver


def test_a_volume_that_is_attached_staged_and_published(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        async with one_driver(scene) as driver:
            pv = volume()
            admin = scene.cluster.admin
            with pytest.raises(PendingError):
                await scene.csi.volumes.have(POD, "v", pv, NO_GROUP)
            await eventually(scene.csi.volumes.in_use)
            assert scene.csi.volumes.in_use() == [pv.unique_name]
            assert not driver.requests("NodeStageVolume")

            await admin.create(
                VOLUME_ATTACHMENTS,
                "",
                {
                    "metadata": {"name": pv.attachment("node-a")},
                    "spec": {
                        "attacher": NAME,
                        "nodeName": "node-a",
                        "source": {"persistentVolumeName": "pv-1"},
                    },
                },
            )
            # Attached and in use: one without the other is not enough.
            status: Object = {"volumesAttached": [{"name": pv.unique_name, "devicePath": ""}]}
            await patch_node(scene, status)
            status["volumesInUse"] = [pv.unique_name]
            await patch_node(scene, status)
            path = await scene.have(pv)
            assert path.endswith("/pods/u-1/volumes/kubernetes.io~csi/pv-1/mount")
            assert [name for name, _ in driver.calls if name.startswith("Node")] == [
                "NodeGetInfo",
                "NodeGetCapabilities",
                "NodeStageVolume",
                "NodePublishVolume",
            ]
            await scene.release()
            await eventually(lambda: not scene.csi.volumes.in_use())
            assert driver.requests("NodeUnstageVolume")

    tell(short_directory, story, driver_spec=None)  # without an object, drivers attach


async def patch_node(scene: Scene, status: Object) -> None:
    await scene.cluster.admin.patch(
        NODES, "", "node-a", {"status": status}, STRATEGIC_MERGE_PATCH, subresource="status"
    )


def test_two_pods_of_a_node_share_what_is_staged(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        other = {**POD, "metadata": {**POD["metadata"], "uid": "u-2"}}
        async with one_driver(scene) as driver:
            await asyncio.gather(scene.have(volume()), scene.have(volume(), other))
            assert len(driver.requests("NodeStageVolume")) == 1
            assert len(driver.requests("NodePublishVolume")) == 2
            await scene.release("u-1")
            assert not driver.requests("NodeUnstageVolume")
            await scene.release("u-2")
            await eventually(lambda: driver.requests("NodeUnstageVolume"))
            await eventually(lambda: not list((scene.root / "plugins").rglob("vol_data.json")))
            await eventually(lambda: not list((scene.root / "pods").rglob("vol_data.json")))

    tell(short_directory, story)


def test_a_volume_for_one_pod_alone(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        other = {**POD, "metadata": {**POD["metadata"], "uid": "u-2"}}
        single = volume(access_modes=("ReadWriteOncePod",))
        async with one_driver(scene) as driver:
            await scene.have(single)
            assert driver.requests("NodePublishVolume")[0].volume_capability.access_mode.mode == 6
            with pytest.raises(StepError, match="already in use by another pod"):
                await scene.have(single, other)
            await scene.release("u-1")
            await scene.have(single, other)
            await scene.release("u-2")

    tell(short_directory, story)


@pytest.mark.parametrize(
    ("method", "step"),
    [
        ("NodeStageVolume", "MountVolume.MountDevice failed"),
        ("NodePublishVolume", "MountVolume.SetUp failed"),
    ],
)
def test_what_a_driver_refuses_is_reported_and_tried_again(
    short_directory: Path, method: str, step: str
) -> None:
    async def story(scene: Scene) -> None:
        async with one_driver(scene) as driver:
            driver.refuses[method] = (grpc.StatusCode.INVALID_ARGUMENT, "not so")
            text = f'{step} for volume "pv-1" : rpc error: code = InvalidArgument desc = not so'
            with pytest.raises(StepError) as raised:
                await scene.have(volume())
            assert str(raised.value) == text
            # It is over, and nothing is left of it.
            assert not list((scene.root / "pods").rglob("vol_data.json"))
            driver.refuses.clear()
            await scene.have(volume())
            await scene.release()
            assert len(driver.requests("NodeUnpublishVolume")) == 1

    tell(short_directory, story)


@pytest.mark.parametrize("method", ["NodeStageVolume", "NodePublishVolume"])
@pytest.mark.parametrize("how", ["hangs", "garbles"])
def test_what_may_have_been_done_is_undone(short_directory: Path, method: str, how: str) -> None:
    async def story(scene: Scene) -> None:
        async with one_driver(scene) as driver:
            getattr(driver, how).add(method)
            with pytest.raises(StepError, match=r"deadline exceeded|cannot be read"):
                await scene.have(volume())
            getattr(driver, how).clear()
            await scene.release()
            await eventually(lambda: driver.requests("NodeUnstageVolume"))
            unpublished = len(driver.requests("NodeUnpublishVolume"))
            assert unpublished == (method == "NodePublishVolume")
            await eventually(lambda: not list(scene.root.rglob("vol_data.json")))

    tell(short_directory, story, call_s=1.0)


def test_a_driver_that_hangs_holds_up_no_other(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        async with one_driver(scene) as bad, one_driver(scene, "good.io") as good:
            body = {"metadata": {"name": "good.io"}, "spec": NO_ATTACH}
            await scene.cluster.admin.create(CSI_DRIVERS, "", body)
            bad.hangs.update(("NodeStageVolume", "NodeGetVolumeStats", "NodeUnpublishVolume"))
            loop = asyncio.get_running_loop()
            pods = [{**POD, "metadata": {**POD["metadata"], "uid": f"b-{n}"}} for n in range(12)]
            for number, pod in enumerate(pods):
                begun_s = loop.time()
                with pytest.raises(PendingError):
                    await scene.csi.volumes.have(pod, "v", volume(f"pv-{number}"), NO_GROUP)
                assert loop.time() - begun_s < 30
            scene.csi.keep()
            await scene.have(volume("good", driver="good.io"))
            scene.csi.keep()
            [use] = scene.csi.volumes.of_pod("u-1")
            await eventually(lambda: use.fill)
            await scene.release("u-1")
            assert good.requests("NodeUnpublishVolume")
            assert not bad.requests("NodePublishVolume")

    tell(short_directory, story, call_s=60.0)


def test_a_node_that_starts_anew_goes_on(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        async with one_driver(scene) as driver:
            kept, gone = volume("kept"), volume("gone")
            other = {**POD, "metadata": {**POD["metadata"], "uid": "u-2"}}
            await scene.have(kept)
            await scene.have(gone, other)
            (scene.root / "pods/u-3/volumes/kubernetes.io~csi/bad").mkdir(parents=True)
            broken = scene.root / "pods/u-3/volumes/kubernetes.io~csi/bad/vol_data.json"
            broken.write_text("{")
            await scene.restart()
            assert sorted(scene.csi.volumes.uids()) == ["u-1", "u-2"]
            assert scene.csi.volumes.in_use() == sorted((kept.unique_name, gone.unique_name))
            [(text, fields)] = scene.cluster.log.of("error")
            assert "not unmounted" in text
            assert str(broken) in str(fields["problem"])
            # One is wanted still, and is published once more; the other's pod is gone.
            await scene.have(kept)
            await scene.release("u-2")
            assert len(driver.requests("NodePublishVolume")) == 3
            unpublished = [each.volume_id for each in driver.requests("NodeUnpublishVolume")]
            assert unpublished == ["handle-gone"]
            await eventually(lambda: scene.csi.volumes.in_use() == [])
            await scene.release("u-1")
            await eventually(lambda: len(driver.requests("NodeUnstageVolume")) == 2)

    tell(short_directory, story)


def test_what_is_staged_for_nobody_is_unstaged_at_start(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        async with one_driver(scene) as driver:
            driver.refuses["NodePublishVolume"] = (grpc.StatusCode.INTERNAL, "no")
            with pytest.raises(StepError):
                await scene.have(volume())
            await scene.restart()
            assert not scene.csi.volumes.uids()
            await eventually(lambda: driver.requests("NodeUnstageVolume"))
            await eventually(lambda: not scene.csi.volumes.in_use())

    tell(short_directory, story)


def test_a_driver_that_is_gone_is_waited_for(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        put_forward(scene, 60.0)  # drivers that run already have registered by then
        with pytest.raises(
            StepError, match=r"driver name d\.io not found in the list of registered"
        ):
            await scene.have(volume())
        async with one_driver(scene):
            assert "u-1" in scene.again
            await scene.have(volume())
        store = scene.cluster.informers.of(CSI_NODES).store
        await eventually(lambda: not drivers(store))
        assert not scene.csi.volumes.release("u-1")
        await eventually(lambda: scene.cluster.log.of("warning"))
        async with one_driver(scene) as back:
            await scene.release()
            assert back.requests("NodeUnpublishVolume")
            await eventually(lambda: back.requests("NodeUnstageVolume"))

    tell(short_directory, story)


def test_an_inline_volume(short_directory: Path) -> None:
    spec = {
        **NO_ATTACH,
        "podInfoOnMount": True,
        "volumeLifecycleModes": ["Ephemeral"],
        "requiresRepublish": True,
    }
    inline = {"driver": NAME, "volumeAttributes": {"a": "b"}, "readOnly": True}
    inline["nodePublishSecretRef"] = {"name": "s"}
    of_pod = csi_volume.of_pod(POD, {"name": "cache", "csi": inline})

    async def story(scene: Scene) -> None:
        async with one_driver(scene) as driver:
            with pytest.raises(StepError) as raised:
                await scene.have(of_pod)
            assert "fetching NodePublishSecretRef default/s failed" in str(raised.value)
            assert 'secrets "s" not found' in str(raised.value)
            secret = {"metadata": {"name": "s"}, "stringData": {"key": "value"}}
            await scene.cluster.admin.create(SECRETS, "default", secret)
            path = await scene.have(of_pod)
            assert path.endswith("/volumes/kubernetes.io~csi/cache/mount")
            [publish] = driver.requests("NodePublishVolume")
            assert publish.volume_id.startswith("csi-")
            assert publish.readonly
            assert dict(publish.secrets) == {"key": "value"}
            assert not publish.staging_target_path
            assert dict(publish.volume_context) == {
                "a": "b",
                "csi.storage.k8s.io/ephemeral": "true",
                "csi.storage.k8s.io/pod.name": "p",
                "csi.storage.k8s.io/pod.namespace": "default",
                "csi.storage.k8s.io/pod.uid": "u-1",
                "csi.storage.k8s.io/serviceAccount.name": "default",
            }
            assert not driver.requests("NodeStageVolume")
            scene.csi.keep()
            await eventually(lambda: len(driver.requests("NodePublishVolume")) == 2)
            # What fails then is told, and the pod keeps what it has.
            driver.refuses["NodePublishVolume"] = (grpc.StatusCode.INTERNAL, "no")
            await eventually(lambda: scene.csi.volumes.of_pod("u-1")[0].task is None)
            scene.csi.keep()
            await eventually(lambda: len(driver.requests("NodePublishVolume")) == 3)
            assert await scene.have(of_pod) == path
            assert await asyncio.to_thread(Path(path).is_dir)
            await scene.release()
            with pytest.raises(StepError) as raised:
                await scene.have(volume())
            assert str(raised.value).endswith(
                'volume mode "Persistent" not supported by driver d.io'
                ' (only supports ["Ephemeral"])'
            )

    tell(short_directory, story, driver_spec=spec)


def test_secrets_for_each_step(short_directory: Path) -> None:
    names: dict[str, Any] = {
        f"{step}_secret": csi_volume.SecretName("default", step)
        for step in ("stage", "publish", "expand")
    }

    async def story(scene: Scene) -> None:
        for step in ("stage", "publish"):
            body = {"metadata": {"name": step}, "stringData": {"for": step}}
            await scene.cluster.admin.create(SECRETS, "default", body)
        async with one_driver(scene) as driver:
            await scene.have(volume(**names, attributes={"x": "y"}, mount_options=("noatime",)))
            [stage] = driver.requests("NodeStageVolume")
            [publish] = driver.requests("NodePublishVolume")
            assert dict(stage.secrets) == {"for": "stage"}
            assert dict(publish.secrets) == {"for": "publish"}
            assert dict(stage.volume_context) == {"x": "y"}
            assert list(publish.volume_capability.mount.mount_flags) == ["noatime"]
            await scene.release()

    tell(short_directory, story)


# Registration.


def test_a_driver_registers_and_tells_of_its_node(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        driver = Driver(NAME, scene.root / "data", mounts=False)
        driver.volumes_max = 7
        socket = scene.root / "plugins" / NAME / "csi.sock"
        async with running(driver, socket):
            async with registrar(scene.root, NAME, socket) as beside:
                entry = await scene.registered()
                assert entry["allocatable"] == {"count": 7}
                await eventually(lambda: beside.statuses)
                assert [each.plugin_registered for each in beside.statuses] == [True]
            store = scene.cluster.informers.of(CSI_NODES).store
            await eventually(lambda: not drivers(store))

            async def node_without() -> Object | None:  # it is written after its CSINode
                node = await scene.cluster.admin.get(NODES, "", "node-a")
                return None if node["metadata"].get("annotations") else node

            node = await answered(node_without)
            assert node["metadata"]["labels"]["topology.d.example.com/shelf"] == "a"

            # The same socket, with another node id and another topology than before.
            driver.node_id, driver.topology = "moved", {"other": "b"}
            async with registrar(scene.root, NAME, socket):
                assert (await scene.registered())["nodeID"] == "moved"

    tell(short_directory, story)


def test_a_socket_that_is_replaced(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        async with one_driver(scene) as driver, AsyncExitStack() as second:
            file = scene.root / "plugins_registry" / f"{NAME}-reg.sock"
            await asyncio.to_thread(file.unlink)
            driver.node_id = "moved"
            endpoint = scene.root / "plugins" / NAME / "csi.sock"
            beside = await second.enter_async_context(
                registrar(scene.root, NAME, endpoint, file=file.name)
            )
            await eventually(lambda: beside.statuses)
            assert (await scene.registered())["nodeID"] == "moved"
            # Another driver at the same socket takes the place of the first.
            await asyncio.to_thread(file.unlink)
            async with running(Driver("e.io", scene.root / "e", mounts=False), endpoint):
                await second.enter_async_context(
                    registrar(scene.root, "e.io", endpoint, file=file.name)
                )
                await scene.registered("e.io")
                csi_node = await scene.cluster.admin.get(CSI_NODES, "", "node-a")
                assert [each["name"] for each in csi_node["spec"]["drivers"]] == ["e.io"]

    tell(short_directory, story)


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        (NAME, {}, "already registered with a higher supported version"),
        ("../x", {}, "is not a valid name of a CSI driver"),
        ("x" * 64, {}, "is not a valid name of a CSI driver"),
        ("e.io", {"type": "DRAPlugin"}, "no handler registered for plugin type: DRAPlugin"),
        ("e.io", {"versions": []}, "none of its versions of CSI is supported"),
        ("e.io", {"versions": ["0.3.0", "nonsense"]}, "none of its versions of CSI is supported"),
    ],
)
def test_registrations_that_are_refused(
    short_directory: Path, name: str, fields: Object, text: str
) -> None:
    async def story(scene: Scene) -> None:
        async with one_driver(scene):
            endpoint = scene.root / "plugins" / NAME / "csi.sock"
            async with registrar(scene.root, name, endpoint, file="s", **fields) as beside:
                await eventually(lambda: beside.statuses)
                assert not beside.statuses[0].plugin_registered
                assert text in beside.statuses[0].error
            csi_node = await scene.cluster.admin.get(CSI_NODES, "", "node-a")
            assert [each["name"] for each in csi_node["spec"]["drivers"]] == [NAME]

    tell(short_directory, story)


def test_plugins_that_hang_or_answer_nonsense_hold_up_nothing(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        hanging = Driver("h.io", scene.root / "h", mounts=False)
        hanging.hangs = {"NodeGetInfo"}
        garbling = Driver("g.io", scene.root / "g", mounts=False)
        garbling.garbles = {"NodeGetInfo"}
        nameless = Driver("n.io", scene.root / "g", mounts=False)
        nameless.node_id = ""
        registry = scene.root / "plugins_registry"
        (registry / "file").write_text("no socket")
        (registry / ".hidden").write_text("")
        async with AsyncExitStack() as stack:
            for driver in (hanging, garbling, nameless):
                await stack.enter_async_context(registered(driver, scene.root))
            # One that serves something else, and one that serves nothing any more.
            await stack.enter_async_context(serving(garbling, registry / "other"))
            silent = await stack.enter_async_context(registrar(scene.root, "s.io", registry))
            silent.hangs = True
            await stack.enter_async_context(one_driver(scene))
            await scene.have(volume())
            await scene.release()
            csi_node = await scene.cluster.admin.get(CSI_NODES, "", "node-a")
            assert [each["name"] for each in csi_node["spec"]["drivers"]] == [NAME]

    tell(short_directory, story)


def test_a_topology_that_the_node_contradicts(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        labels = {"topology.d.example.com/shelf": "b"}
        await scene.cluster.admin.patch(
            NODES, "", "node-a", {"metadata": {"labels": labels}}, STRATEGIC_MERGE_PATCH
        )
        driver = Driver(NAME, scene.root / "data", mounts=False)
        socket = scene.root / "plugins" / NAME / "csi.sock"
        async with running(driver, socket), registrar(scene.root, NAME, socket) as beside:
            await eventually(lambda: beside.statuses)
            assert "detected topology value collision" in beside.statuses[0].error

    tell(short_directory, story)


def test_limits_are_asked_for_anew_where_drivers_say_so(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        async with one_driver(scene) as driver:
            driver.volumes_max = 3
            scene.csi.keep()
            store = scene.cluster.informers.of(CSI_NODES).store

            def is_known() -> bool:
                put_forward(scene, 20.0)
                scene.csi.keep()
                return drivers(store)[0].get("allocatable") == {"count": 3}

            await eventually(is_known)

    tell(
        short_directory, story, driver_spec={**NO_ATTACH, "nodeAllocatableUpdatePeriodSeconds": 10}
    )


def put_forward(scene: Scene, seconds: float) -> None:
    """Let the monotonic clock of a scene be ahead of what it was."""
    clock = scene.cluster.clock
    now_s = clock.monotonic_s
    clock.monotonic_s = lambda: now_s() + seconds


def drivers(store: Any) -> list[Object]:
    found: list[Object] = store.get("node-a")["spec"].get("drivers") or []
    return found


def test_a_csi_node_of_an_earlier_node_is_made_anew(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        store = scene.cluster.informers.of(CSI_NODES).store
        await eventually(lambda: store.get("node-a") is not None)
        await scene.csi.close()
        stale = {
            "metadata": {
                "name": "node-a",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "old"}
                ],
            },
            "spec": {"drivers": [{"name": "gone.io", "nodeID": "x"}]},
        }
        await scene.cluster.admin.delete(CSI_NODES, "", "node-a")
        await scene.cluster.admin.create(CSI_NODES, "", stale)
        await scene.restart()
        async with one_driver(scene):
            assert [each["name"] for each in drivers(store)] == [NAME]

    tell(short_directory, story)


def test_tokens_of_the_pod_for_the_driver(short_directory: Path) -> None:
    requests = [{"audience": "vault", "expirationSeconds": 600}]
    spec = {**NO_ATTACH, "tokenRequests": requests, "serviceAccountTokenInSecrets": True}

    async def story(scene: Scene) -> None:
        await scene.cluster.admin.create(
            SERVICE_ACCOUNTS, "default", {"metadata": {"name": "default"}}
        )
        body = {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "node-a"},
        }
        pod = await scene.cluster.admin.create(PODS, "default", body)
        uid = pod["metadata"]["uid"]
        async with one_driver(scene) as driver:
            await scene.have(volume(), pod)
            [publish] = driver.requests("NodePublishVolume")
            key = "csi.storage.k8s.io/serviceAccount.tokens"
            assert key not in publish.volume_context
            [(audience, token)] = orjson.loads(publish.secrets[key]).items()
            assert audience == "vault"
            assert token.keys() == {"token", "expirationTimestamp"}
            await scene.release(uid)

    tell(short_directory, story, driver_spec=spec)
