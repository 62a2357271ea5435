"""VolumeAttachments: made for what pods use, told by the node's status, deleted in order."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.client.built_in import (
    CSI_DRIVERS,
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SERVICE_ACCOUNTS,
    VOLUME_ATTACHMENTS,
)
from kvstack.agents.controllers.options import VolumeOptions
from kvstack.agents.controllers.storage.attachments import AttachDetach, attachment_name
from kvstack.agents.reconcile.plan import Action, Again, Create, Delete, Patch, Record
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from tests.agents.support.cluster import TestCluster, eventually
from tests.agents.support.plans import drive, refusal, view_of

DEVICE = "kubernetes.io/csi/d.example.com^h"
MANAGED = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}


def node(name: str = "a", *, is_ready: bool = True, **status: Any) -> Object:
    ready = {"type": "Ready", "status": "True" if is_ready else "Unknown"}
    meta = {"name": name, "annotations": MANAGED}
    return {"metadata": meta, "spec": {}, "status": {"conditions": [ready], **status}}


def pod(name: str = "p", on: str = "a", phase: str = "Running") -> Object:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    spec = {"nodeName": on, "volumes": volumes}
    meta = {"name": name, "namespace": "n", "uid": f"u-{name}"}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def claim(uid: str = "u") -> Object:
    meta = {"name": "c", "namespace": "n", "uid": uid}
    return {"metadata": meta, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}


def volume(*modes: str, **source: Any) -> Object:
    csi = {"driver": "d.example.com", "volumeHandle": "h", **source}
    reference = {"namespace": "n", "name": "c", "uid": "u"}
    spec = {"csi": csi, "claimRef": reference, "accessModes": modes or ("ReadWriteOnce",)}
    return {"metadata": {"name": "v"}, "spec": spec}


def attachment(on: str = "a", **status: Any) -> Object:
    source = {"persistentVolumeName": "v"}
    meta = {"name": attachment_name(volume(), on), "uid": f"u-{on}"}
    return {"metadata": meta, "spec": {"nodeName": on, "source": source}, "status": status}


class World:
    """A controller, and what it sees."""

    def __init__(self, **options: Any) -> None:
        self.controller = AttachDetach(VolumeOptions(**options))
        self.nodes = [node()]
        self.pods = [pod()]
        self.claims = [claim()]
        self.volumes = [volume()]
        self.attachments: list[Object] = []
        self.drivers: list[Object] = []

    def plan(self, key: str = "a", now_s: float = 0.0) -> tuple[list[Action], Any]:
        objects = {
            NODES: self.nodes,
            PODS: self.pods,
            PERSISTENT_VOLUME_CLAIMS: self.claims,
            PERSISTENT_VOLUMES: self.volumes,
            VOLUME_ATTACHMENTS: self.attachments,
            CSI_DRIVERS: self.drivers,
        }
        view = view_of(objects, self.controller.indexes)
        return drive(self.controller.reconcile(key, view, now_s))


def kinds(actions: list[Action]) -> list[str]:
    return [type(each).__name__ for each in actions]


def test_what_pods_use_is_attached_and_reported() -> None:
    world = World()
    [create], again = world.plan()
    assert again is None
    assert isinstance(create, Create)
    assert create.obj["metadata"]["name"] == attachment_name(volume(), "a")
    assert create.obj["spec"] == {
        "attacher": "d.example.com",
        "nodeName": "a",
        "source": {"persistentVolumeName": "v"},
    }
    world.attachments = [attachment(attached=False)]
    assert world.plan()[0] == []
    world.attachments = [attachment(attached=True)]
    patch, told = world.plan()[0]
    assert isinstance(patch, Patch)
    assert patch.subresource == "status"
    assert patch.body == {"status": {"volumesAttached": [{"name": DEVICE, "devicePath": ""}]}}
    assert isinstance(told, Record)
    assert (told.reason, told.about["metadata"]["name"]) == ("SuccessfulAttachVolume", "p")
    world.nodes = [node(volumesAttached=[{"name": DEVICE, "devicePath": ""}])]
    assert world.plan()[0] == []


def test_what_needs_no_attachment_gets_none() -> None:
    world = World()
    world.drivers = [{"metadata": {"name": "d.example.com"}, "spec": {"attachRequired": False}}]
    assert world.plan()[0] == []
    world = World()
    world.pods = [pod(phase="Succeeded"), pod(on="b")]
    assert world.plan()[0] == []
    world = World()
    world.claims = [claim("another")]
    assert world.plan()[0] == []
    world = World()
    world.volumes = [{**volume(), "spec": {"local": {"path": "/x"}}}]
    assert world.plan()[0] == []
    world = World()
    world.nodes[0]["metadata"]["annotations"] = {}
    assert world.plan()[0] == []


def test_a_volume_of_one_node_waits_until_the_other_one_has_it_no_more() -> None:
    world = World()
    world.pods = [pod(), pod("q", "b")]
    world.attachments = [attachment("b", attached=True)]
    [told], _ = world.plan()
    assert isinstance(told, Record)
    assert told.reason == "FailedAttachVolume"
    assert told.message.endswith("already used by pod(s) q")
    world.volumes = [volume("ReadWriteOnce", "ReadWriteMany")]
    assert kinds(world.plan()[0]) == ["Create"]


def test_what_is_being_detached_is_not_attached_for_the_next_pod() -> None:
    world = World()
    world.attachments = [attachment(attached=True)]
    world.attachments[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert world.plan()[0] == []  # the node is told nothing, and it is waited for
    world.nodes = [node(volumesAttached=[{"name": DEVICE, "devicePath": ""}])]
    [patch] = world.plan()[0]
    assert isinstance(patch, Patch)
    assert patch.body == {"status": {"volumesAttached": []}}
    world.attachments = []
    assert "Create" in kinds(world.plan()[0])


def test_a_driver_that_fails_is_reported() -> None:
    world = World()
    world.attachments = [attachment(attached=False, attachError={"message": "no such disk"})]
    [told], _ = world.plan()
    assert isinstance(told, Record)
    assert told.message == 'AttachVolume.Attach failed for volume "v" : no such disk'


def test_nothing_is_detached_that_is_mounted_nor_before_the_node_is_updated() -> None:
    world = World()
    world.pods = []
    world.attachments = [attachment(attached=True)]
    listed = [{"name": DEVICE, "devicePath": ""}]
    world.nodes = [node(volumesAttached=listed, volumesInUse=[DEVICE])]
    actions, again = world.plan()
    assert actions == []
    assert again == Again(360.0)
    world.nodes = [node(volumesAttached=listed)]
    patch, delete = world.plan()[0]
    assert isinstance(patch, Patch)
    assert patch.body == {"status": {"volumesAttached": []}}
    assert isinstance(delete, Delete)
    assert (delete.name, delete.uid) == (attachment_name(volume(), "a"), "u-a")
    world.attachments[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert kinds(world.plan()[0]) == ["Patch"]
    world.nodes = []
    del world.attachments[0]["metadata"]["deletionTimestamp"]
    assert kinds(world.plan()[0]) == ["Delete"]


@pytest.mark.parametrize(
    ("is_ready", "forces", "goes"),
    [(False, True, True), (True, True, False), (False, False, False)],
)
def test_a_node_that_does_not_answer_loses_its_volumes_after_six_minutes(
    *, is_ready: bool, forces: bool, goes: bool
) -> None:
    world = World(forces_detach=forces)
    world.pods = []
    world.attachments = [attachment(attached=True)]
    mounted: dict[str, Any] = {
        "volumesAttached": [{"name": DEVICE, "devicePath": ""}],
        "volumesInUse": [DEVICE],
    }
    world.nodes = [node(is_ready=is_ready, **mounted)]
    assert world.plan(now_s=1000.0)[0] == []
    assert world.plan(now_s=1359.0)[0] == []
    assert ("Delete" in kinds(world.plan(now_s=1360.0)[0])) is goes
    # Wanted once more meanwhile: the time begins again.
    world.pods = [pod()]
    world.plan(now_s=1361.0)
    world.pods = []
    assert world.plan(now_s=1362.0)[0] == []
    world.nodes[0]["spec"]["taints"] = [OUT_OF_SERVICE]
    assert "Delete" in kinds(world.plan(now_s=1363.0)[0])


def test_attachments_of_others_are_left_alone() -> None:
    world = World()
    world.pods = []
    theirs = attachment(attached=False)
    theirs["metadata"]["name"] = "by-hand"
    world.attachments = [theirs]
    assert world.plan()[0] == []
    world.volumes = []
    assert world.plan()[0] == []
    world.attachments = [attachment(attached=False)]
    assert kinds(world.plan()[0]) == ["Delete"]


def test_an_attachment_that_is_refused_is_tried_again() -> None:
    world = World()
    view = view_of(
        {
            NODES: world.nodes,
            PODS: world.pods,
            PERSISTENT_VOLUME_CLAIMS: world.claims,
            PERSISTENT_VOLUMES: world.volumes,
            VOLUME_ATTACHMENTS: [],
            CSI_DRIVERS: [],
        },
        world.controller.indexes,
    )
    plan = world.controller.reconcile("a", view, 0.0)
    with pytest.raises(Exception, match="refused"):
        drive(plan, lambda action: refusal(403))
    plan = world.controller.reconcile("a", view, 0.0)
    assert kinds(drive(plan, lambda action: refusal(409))[0]) == ["Create"]


@pytest.mark.slow
def test_a_driver_attaches_and_detaches(tmp_path: Path) -> None:
    async def main() -> None:
        async with TestCluster(tmp_path) as cluster:
            await cluster.run_controllers([AttachDetach(VolumeOptions())])
            admin = cluster.admin
            account = {"metadata": {"name": "default"}}
            await admin.create(SERVICE_ACCOUNTS, "default", account)
            meta = {"name": "a", "annotations": MANAGED}
            await admin.create(NODES, "", {"metadata": meta})
            amount = {"requests": {"storage": "1Gi"}}
            spec = {"accessModes": ["ReadWriteOnce"], "resources": amount, "volumeName": "v"}
            spec["storageClassName"] = ""
            named = {"metadata": {"name": "c"}, "spec": spec}
            made = await admin.create(PERSISTENT_VOLUME_CLAIMS, "default", named)
            reference = {"namespace": "default", "name": "c", "uid": made["metadata"]["uid"]}
            whole = {**volume()["spec"], "capacity": {"storage": "1Gi"}, "claimRef": reference}
            await admin.create(PERSISTENT_VOLUMES, "", {"metadata": {"name": "v"}, "spec": whole})
            used = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
            container = {"name": "c", "image": "x"}
            body = {
                "nodeName": "a",
                "containers": [container],
                "volumes": [used],
                "automountServiceAccountToken": False,
            }
            await admin.create(PODS, "default", {"metadata": {"name": "p"}, "spec": body})
            store = cluster.informers.of(VOLUME_ATTACHMENTS).store
            [found] = await eventually(lambda: list(store))
            status = {"status": {"attached": True}}  # as the driver's attacher says it
            await admin.update(VOLUME_ATTACHMENTS, {**found, **status}, subresource="status")
            events = cluster.informers.of(EVENTS).store
            await eventually(
                lambda: any(each["reason"] == "SuccessfulAttachVolume" for each in events)
            )
            attached = (await admin.get(NODES, "", "a"))["status"]["volumesAttached"]
            assert attached == [{"name": DEVICE, "devicePath": ""}]
            patch = b'{"status": {"volumesInUse": ["' + DEVICE.encode() + b'"]}}'
            path = NODES.path("", "a", "status")
            await admin.call("PATCH", path, None, patch, media_type=STRATEGIC_MERGE_PATCH)
            await admin.delete(PODS, "default", "p", grace_s=0)
            patch = b'{"status": {"volumesInUse": null}}'
            await admin.call("PATCH", path, None, patch, media_type=STRATEGIC_MERGE_PATCH)
            await eventually(lambda: not list(store))
            assert "volumesAttached" not in (await admin.get(NODES, "", "a"))["status"]
            assert not cluster.log.of("error")

    asyncio.run(main())
