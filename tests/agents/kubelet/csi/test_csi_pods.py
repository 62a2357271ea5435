"""Pods with volumes of a CSI driver, on a node of processes. It needs root and namespaces."""

from pathlib import Path

import orjson

from kvstack.agents.client.built_in import (
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    VOLUME_ATTACHMENTS,
)
from tests.agents.kubelet.csi.csi_cluster import NAME, Scene, pod, tell
from tests.agents.kubelet.test_kubelet import log_of, pytestmark, reach
from tests.agents.support.cluster import eventually
from tests.support.csi.driver import TOPOLOGY

__all__ = ["pytestmark"]

WRITES = "echo from $HOSTNAME >> /v/data/text; cat /v/data/text; sleep 1000"


def test_a_claim_is_attached_staged_published_and_given_back(place: Path) -> None:
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
        [stage] = scene.driver.asked("NodeStageVolume")
        assert dict(stage.publish_context) == {"attached-to": "shelf-node"}
        assert stage.volume_capability.access_mode.mode == 7  # single node, many writers
        assert stage.volume_capability.WhichOneof("access_type") == "mount"
        [publish] = scene.driver.asked("NodePublishVolume")
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
        assert [each.target_path for each in scene.driver.asked("NodeUnpublishVolume")] == [target]
        await eventually(lambda: scene.driver.asked("NodeUnstageVolume"))
        store = scene.cluster.informers.of(VOLUME_ATTACHMENTS).store
        await eventually(lambda: not list(store))
        assert not Path(target).parent.exists()

        # The data is there for the next pod.
        await admin.create(PODS, "default", pod("two", WRITES, "data"))
        two = await reach(scene.cluster, "two", "Running")
        await eventually(lambda: log_of(scene.node, two) == "from one\nfrom two\n")

    tell(place, story)


async def attachments(scene: Scene) -> list[str]:
    found = await scene.cluster.admin.list_all(VOLUME_ATTACHMENTS)
    return [each["metadata"]["name"] for each in found]
