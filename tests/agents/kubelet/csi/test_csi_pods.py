"""Pods with volumes of a CSI driver, on a node of processes. It needs root and namespaces."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest

from kvstack.agents.client.built_in import (
    CSI_DRIVERS,
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    VOLUME_ATTACHMENTS,
)
from kvstack.agents.kubelet.csi.gen.node_pb2 import NodeServiceCapability
from kvstack.agents.kubelet.server import metrics, stats
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from tests.agents.kubelet.csi.csi_cluster import NAME, Scene, pod, tell
from tests.agents.kubelet.test_kubelet import log_of, pytestmark, reach
from tests.agents.support.cluster import eventually
from tests.support.csi.driver import TOPOLOGY, Driver, registered

__all__ = ["pytestmark"]

NO_ATTACH = {"attachRequired": False}
LIVES = "trap exit TERM; sleep 1000 & wait"
WRITES = "echo from $HOSTNAME >> /v/data/text; cat /v/data/text; trap exit TERM; sleep 1000 & wait"


def test_a_claim_is_attached_staged_published_and_given_back(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        admin = scene.cluster.admin
        await scene.claim("data")
        await admin.create(PODS, "default", pod("one", WRITES, "data"))
        one = await reach(scene.cluster, "one", "Running")
        await eventually(lambda: "from one\n" in log_of(scene.node, one))
        [volume] = scene.cluster.informers.of(PERSISTENT_VOLUMES).store
        handle = volume["spec"]["csi"]["volumeHandle"]
        assert (scene.driver.data / handle / "text").read_text() == "from one\n"

        # What the API tells of it.
        node = await admin.get(NODES, "", "node-a")
        unique = f"kubernetes.io/csi/{NAME}^{handle}"
        assert node["status"]["volumesInUse"] == [unique]
        assert [each["name"] for each in node["status"]["volumesAttached"]] == [unique]
        assert node["metadata"]["labels"][TOPOLOGY] == "a"
        ids = node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"]
        assert orjson.loads(ids) == {NAME: "shelf-node"}
        csi_node = await admin.get(CSI_NODES, "", "node-a")
        assert csi_node["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
        assert csi_node["spec"]["drivers"] == [
            {"name": NAME, "nodeID": "shelf-node", "topologyKeys": [TOPOLOGY]}
        ]

        # What the driver was told.
        [stage] = scene.driver.requests("NodeStageVolume")
        assert dict(stage.publish_context) == {"attached-to": "shelf-node"}
        assert stage.volume_capability.access_mode.mode == 7  # single node, many writers
        assert stage.volume_capability.WhichOneof("access_type") == "mount"
        [publish] = scene.driver.requests("NodePublishVolume")
        assert publish.staging_target_path == stage.staging_target_path
        uid = one["metadata"]["uid"]
        target = f"{scene.root}/pods/{uid}/volumes/kubernetes.io~csi/{handle}/mount"
        assert publish.target_path == target
        data = orjson.loads((Path(target).parent / "vol_data.json").read_bytes())
        assert data["volumeHandle"] == handle
        assert data["driverName"] == NAME
        assert data["specVolID"] == handle
        assert data["volumeLifecycleMode"] == "Persistent"
        assert data["attachmentID"] == next(iter(await attachments(scene)))

        await scene.gone("one")
        assert [each.target_path for each in scene.driver.requests("NodeUnpublishVolume")] == [
            target
        ]
        await eventually(lambda: scene.driver.requests("NodeUnstageVolume"))
        store = scene.cluster.informers.of(VOLUME_ATTACHMENTS).store
        await eventually(lambda: not list(store))
        assert not Path(target).parent.exists()

        # The data is there for the next pod.
        await admin.create(PODS, "default", pod("two", WRITES, "data"))
        two = await reach(scene.cluster, "two", "Running")
        await eventually(lambda: log_of(scene.node, two) == "from one\nfrom two\n")

    tell(short_directory, story)


async def attachments(scene: Scene) -> list[str]:
    found = await scene.cluster.admin.list_all(VOLUME_ATTACHMENTS)
    return [each["metadata"]["name"] for each in found]


def test_a_kubelet_that_starts_anew_finds_what_pods_have(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        admin = scene.cluster.admin
        for name in ("one", "two"):
            await scene.claim(name)
            await admin.create(PODS, "default", pod(name, LIVES, name))
        one, two = [await reach(scene.cluster, name, "Running") for name in ("one", "two")]
        await scene.node.kubelet.stop()
        # The second is deleted while there is no kubelet, and its object goes at once.
        await admin.delete(PODS, "default", "two", grace_s=0)
        await scene.start_kubelet()
        await eventually(lambda: scene.driver.requests("NodeUnpublishVolume"))
        assert two["metadata"]["uid"] in scene.driver.requests("NodeUnpublishVolume")[0].target_path
        await eventually(lambda: len(scene.driver.requests("NodeUnstageVolume")) == 1)
        # The first runs on with its volume, and gives it back when it goes.
        [container] = scene.node.runtime.of_pod(one["metadata"]["uid"])
        assert container.is_running
        nodes = scene.cluster.informers.of(NODES).store
        await eventually(lambda: len(in_use(nodes.get("node-a"))) == 1)
        await eventually(lambda: len(scene.mounts()) == 2)
        await scene.gone("one")
        assert len(scene.driver.requests("NodeUnpublishVolume")) == 2

    tell(short_directory, story)


def in_use(node: Object | None) -> list[str]:
    names: list[str] = ((node or {}).get("status") or {}).get("volumesInUse") or []
    return names


def test_a_pod_waits_for_its_driver_to_unmount(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        admin = scene.cluster.admin
        await scene.claim("data")
        await admin.create(PODS, "default", pod("one", LIVES, "data"))
        one = await reach(scene.cluster, "one", "Running")
        scene.driver.refuses["NodeUnpublishVolume"] = (grpc.StatusCode.INTERNAL, "stuck")
        await admin.delete(PODS, "default", "one")
        event = await scene.event("FailedUnmount", "desc = stuck")
        assert event["message"].startswith("UnmountVolume.TearDown failed for volume")
        # Its containers have ended, but it is there, as its volume is.
        store = scene.cluster.informers.of(PODS).store
        assert store.get("default/one") is not None
        assert len(scene.mounts()) == 2
        assert scene.driver.data.is_dir()
        scene.driver.refuses.clear()
        await eventually(lambda: store.get("default/one") is None)
        uid = one["metadata"]["uid"]
        await eventually(lambda: not scene.node.kubelet.pod_directory(uid).exists())

    tell(short_directory, story, driver_spec=NO_ATTACH)


def test_a_pod_that_succeeded_gives_its_volumes_back(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.claim("data")
        script = "echo done > /v/data/text"
        await scene.cluster.admin.create(PODS, "default", pod("one", script, "data"))
        await reach(scene.cluster, "one", "Succeeded")
        await eventually(lambda: scene.driver.requests("NodeUnstageVolume"))
        await eventually(lambda: not scene.mounts())
        [directory] = scene.driver.data.iterdir()
        assert (directory / "text").read_text() == "done\n"

    tell(short_directory, story)


def test_drivers_that_hang_hold_up_no_other_pods(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        admin = scene.cluster.admin
        scene.driver.hangs = {"NodePublishVolume", "NodeUnpublishVolume"}
        names = [f"hung-{number}" for number in range(36)]  # more than there are workers
        for name in names:
            await scene.claim(name)
            await admin.create(PODS, "default", pod(name, LIVES, name))
        asked = scene.driver.requests
        # Some may have been given up by then, and tried again.
        await eventually(
            lambda: len({each.volume_id for each in asked("NodePublishVolume")}) == len(names)
        )
        await admin.create(PODS, "default", pod("free", "echo free"))
        await reach(scene.cluster, "free", "Succeeded")
        other = Driver("o.io", scene.driver.data / "other")
        async with registered(other, scene.root):
            inline = {"name": "v", "csi": {"driver": "o.io"}}
            body = {
                "metadata": {"name": "o.io"},
                "spec": {**NO_ATTACH, "volumeLifecycleModes": ["Ephemeral"]},
            }
            await admin.create(CSI_DRIVERS, "", body)
            mounts = [{"name": "v", "mountPath": "/v"}]
            two = pod("two", "echo x > /v/file", volumes=[inline], mounts=mounts)
            await admin.create(PODS, "default", two)
            await reach(scene.cluster, "two", "Succeeded")
        await scene.event("FailedMount", "context deadline exceeded")
        scene.driver.hangs = set()
        for name in names:
            await admin.delete(PODS, "default", name)

    tell(short_directory, story, driver_spec=NO_ATTACH, call_s=5.0)


@pytest.mark.parametrize(
    ("policy", "fs_type", "is_given"),
    [("File", "", True), ("None", "ext4", False), (None, "ext4", True), (None, "", False)],
)
def test_the_group_of_a_pod(
    short_directory: Path, policy: str | None, fs_type: str, *, is_given: bool
) -> None:
    async def story(scene: Scene) -> None:
        await scene.claim("data")
        script = "echo x > /v/data/new; stat -c '%g %a' /v/data"
        group = {"fsGroup": 4242}
        obj = pod("one", script, "data", securityContext=group)
        await scene.cluster.admin.create(PODS, "default", obj)
        one = await reach(scene.cluster, "one", "Succeeded")
        assert log_of(scene.node, one) == ("4242 2775\n" if is_given else "0 755\n")

    spec = NO_ATTACH if policy is None else {**NO_ATTACH, "fsGroupPolicy": policy}
    tell(
        short_directory, story, driver_spec=spec, parameters={"csi.storage.k8s.io/fstype": fs_type}
    )


def test_a_driver_that_gives_files_to_groups_itself(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        scene.driver.abilities.append(NodeServiceCapability.RPC.VOLUME_MOUNT_GROUP)
        await scene.claim("data")
        obj = pod("one", "stat -c %g /v/data", "data", securityContext={"fsGroup": 4242})
        await scene.cluster.admin.create(PODS, "default", obj)
        one = await reach(scene.cluster, "one", "Succeeded")
        assert log_of(scene.node, one) == "0\n"
        for method in ("NodeStageVolume", "NodePublishVolume"):
            [request] = scene.driver.requests(method)
            assert request.volume_capability.mount.volume_mount_group == "4242"

    tell(short_directory, story, driver_spec={**NO_ATTACH, "fsGroupPolicy": "File"})


def test_volumes_that_are_only_to_be_read_and_parts_of_them(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        admin = scene.cluster.admin
        await scene.claim("data")
        await admin.create(
            PODS, "default", pod("one", "mkdir /v/data/in; echo x > /v/data/in/f", "data")
        )
        await reach(scene.cluster, "one", "Succeeded")
        obj = pod("two", "cat /part/f; touch /v/data/f 2>/dev/null || echo refused", "data")
        obj["spec"]["volumes"][0]["persistentVolumeClaim"]["readOnly"] = True
        container = obj["spec"]["containers"][0]
        container["volumeMounts"].append({"name": "data", "mountPath": "/part", "subPath": "in"})
        await admin.create(PODS, "default", obj)
        two = await reach(scene.cluster, "two", "Succeeded")
        assert log_of(scene.node, two) == "x\nrefused\n"
        assert [each.readonly for each in scene.driver.requests("NodePublishVolume")] == [
            False,
            True,
        ]

    tell(short_directory, story, driver_spec=NO_ATTACH)


def test_a_volume_grows_while_a_pod_has_it(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        admin = scene.cluster.admin
        await scene.claim("data")
        await admin.create(PODS, "default", pod("one", LIVES, "data"))
        one = await reach(scene.cluster, "one", "Running")
        await grow(scene, "data", "3Mi")
        store = scene.cluster.informers.of(PERSISTENT_VOLUME_CLAIMS).store

        def status() -> Object:
            found: Object = (store.get("default/data") or {}).get("status") or {}
            return found

        await eventually(lambda: status().get("allocatedResourceStatuses"))
        assert "FileSystemResizePending" in types_of(status())
        await scene.node.kubelet.renew_volumes(one)  # as every minute
        await eventually(lambda: status()["capacity"]["storage"] == "3Mi")
        assert not status().get("allocatedResourceStatuses")
        assert "FileSystemResizePending" not in types_of(status())
        [request] = scene.driver.requests("NodeExpandVolume")
        assert request.capacity_range.required_bytes == 3 << 20
        assert request.volume_path.endswith("/mount")
        assert request.staging_target_path.endswith("/globalmount")
        text = "MountVolume.NodeExpandVolume succeeded for volume"
        await scene.event("FileSystemResizeSuccessful", text)

    tell(short_directory, story, driver_spec=NO_ATTACH)


def test_a_volume_grows_before_a_pod_has_it(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        admin = scene.cluster.admin
        await scene.claim("data")
        store = scene.cluster.informers.of(PERSISTENT_VOLUME_CLAIMS).store
        await eventually(lambda: phase_of(store.get("default/data")) == "Bound")
        await grow(scene, "data", "3Mi")
        pending = "FileSystemResizePending"
        await eventually(lambda: pending in types_of((store.get("default/data") or {})["status"]))
        no = (grpc.StatusCode.OUT_OF_RANGE, "too large")
        scene.driver.refuses["NodeExpandVolume"] = no
        await admin.create(PODS, "default", pod("one", LIVES, "data"))
        await scene.event("FailedMount", "MountVolume.Setup failed while expanding volume")
        claim = await admin.get(PERSISTENT_VOLUME_CLAIMS, "default", "data")
        progress = claim["status"]["allocatedResourceStatuses"]
        assert progress == {"storage": "NodeResizeInfeasible"}
        errors = [
            each for each in claim["status"]["conditions"] if each["type"] == "NodeResizeError"
        ]
        assert "too large" in errors[0]["message"]
        # What is infeasible is not asked for again, and holds up no pod.
        await reach(scene.cluster, "one", "Running")

    tell(short_directory, story, driver_spec=NO_ATTACH)


def types_of(status: Object) -> list[str]:
    return [each["type"] for each in status.get("conditions") or ()]


async def grow(scene: Scene, name: str, size: str) -> None:
    body = {"spec": {"resources": {"requests": {"storage": size}}}}
    await scene.cluster.admin.patch(
        PERSISTENT_VOLUME_CLAIMS, "default", name, body, STRATEGIC_MERGE_PATCH
    )


def phase_of(obj: Object | None) -> str:
    phase: str = ((obj or {}).get("status") or {}).get("phase", "")
    return phase


def test_how_full_volumes_are(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.claim("data")
        await scene.cluster.admin.create(PODS, "default", pod("one", LIVES, "data"))
        one = await reach(scene.cluster, "one", "Running")
        kubelet = scene.node.kubelet
        kubelet.csi.keep()
        await eventually(lambda: kubelet.volume_stats(one["metadata"]["uid"]))
        sample = await stats.Sampler(kubelet, scene.cluster.clock).take()
        [shown] = [
            each for each in stats.summary(sample)["pods"] if each["podRef"]["name"] == "one"
        ]
        [volume] = [each for each in shown["volume"] if each["name"] == "data"]
        assert volume["pvcRef"] == {"name": "data", "namespace": "default"}
        assert volume["usedBytes"] == 7
        assert volume["capacityBytes"] == 1 << 20
        assert volume["inodesFree"] == 3
        labels = 'namespace="default",persistentvolumeclaim="data"'
        text = metrics.kubelet_metrics(kubelet)
        assert f"kubelet_volume_stats_used_bytes{{{labels}}} 7\n" in text
        assert f"kubelet_volume_stats_inodes{{{labels}}} 4\n" in text

    tell(short_directory, story, driver_spec=NO_ATTACH)


# Block devices.


@contextmanager
def loop_device(directory: Path) -> Iterator[Path]:
    file = directory / f"disk-{os.getpid()}"
    file.write_bytes(b"from the disk\n".ljust(1 << 20, b"\0"))
    done = subprocess.run(
        ["losetup", "--find", "--show", file], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"this machine has no loop devices: {done.stderr.strip()}")
    device = done.stdout.strip()
    try:
        yield Path(device)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


READS_DEVICE = """
head -c 14 /dev/xvda; stat -c %F /dev/xvda
echo written | dd of=/dev/xvda bs=8 seek=100 2>/dev/null conv=notrunc && sync; echo $?
"""


def with_device(name: str, claim: str, script: str = READS_DEVICE, **source: Any) -> Object:
    volume = {"name": "disk", "persistentVolumeClaim": {"claimName": claim, **source}}
    devices = [{"name": "disk", "devicePath": "/dev/xvda"}]
    return pod(name, script, volumes=[volume], container={"volumeDevices": devices})


def test_a_block_device_of_a_driver(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        admin = scene.cluster.admin
        await scene.claim("disk", volumeMode="Block")
        await admin.create(PODS, "default", with_device("one", "disk"))
        one = await reach(scene.cluster, "one", "Succeeded")
        assert log_of(scene.node, one) == "from the disk\nblock special file\n0\n"
        [stage] = scene.driver.requests("NodeStageVolume")
        assert stage.volume_capability.WhichOneof("access_type") == "block"
        assert "/volumeDevices/staging/" in stage.staging_target_path
        [publish] = scene.driver.requests("NodePublishVolume")
        uid = one["metadata"]["uid"]
        assert publish.target_path.endswith(f"/publish/{stage.volume_id}/{uid}")
        await eventually(lambda: scene.driver.requests("NodeUnstageVolume"))
        left = scene.root / "plugins/kubernetes.io/csi/volumeDevices" / stage.volume_id
        await eventually(lambda: not left.exists())

        # One that is only to be read, and one that is wanted as a file system.
        await admin.create(PODS, "default", with_device("two", "disk", readOnly=True))
        two = await reach(scene.cluster, "two", "Succeeded")
        assert log_of(scene.node, two) == "from the disk\nblock special file\n1\n"
        await admin.create(PODS, "default", pod("three", "true", "disk"))
        text = "volume disk has volumeMode Block, but is specified in volumeMounts"
        await scene.event("FailedMount", text)

    with loop_device(short_directory) as device:
        tell(short_directory, story, driver_spec=NO_ATTACH, parameters={"device": str(device)})


def test_a_block_device_of_the_node(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        admin = scene.cluster.admin
        volume = local_volume("disk", device, "ReadWriteOnce")
        volume["spec"]["volumeMode"] = "Block"
        await admin.create(PERSISTENT_VOLUMES, "", volume)
        await scene.claim("disk", volumeMode="Block", storageClassName="")
        await admin.create(PODS, "default", with_device("one", "disk"))
        one = await reach(scene.cluster, "one", "Succeeded")
        assert log_of(scene.node, one) == "from the disk\nblock special file\n0\n"

    with loop_device(short_directory) as device:
        tell(short_directory, story, driver_spec=NO_ATTACH)
        assert device.read_bytes()[800:808] == b"written\n"


def local_volume(name: str, path: Path, *modes: str) -> Object:
    hostname = {"key": "kubernetes.io/hostname", "operator": "Exists"}
    terms = [{"matchExpressions": [hostname]}]
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": modes,
            "capacity": {"storage": "1Mi"},
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "storageClassName": "",
        },
    }


def test_a_volume_of_the_node_for_one_pod_alone(short_directory: Path) -> None:
    async def story(scene: Scene) -> None:
        admin, single = scene.cluster.admin, "ReadWriteOncePod"
        shelf = short_directory / "shelf"
        shelf.mkdir()
        await admin.create(PERSISTENT_VOLUMES, "", local_volume("pv", shelf, single))
        await scene.claim("data", accessModes=[single], storageClassName="")
        await admin.create(PODS, "default", pod("one", LIVES, "data"))
        await reach(scene.cluster, "one", "Running")
        await admin.create(PODS, "default", pod("two", "echo two", "data"))
        text = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
        await scene.event("FailedMount", text)
        await scene.gone("one")
        await reach(scene.cluster, "two", "Succeeded")

    tell(short_directory, story, driver_spec=NO_ATTACH)
