"""What external-provisioner, -attacher and -resizer do, as small as it can be.

    async with sidecars(api, driver, socket): …       claims get volumes, attachments are attached

They watch by polling; what they write, and in which order, is what the real ones write.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import (
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from tests.support.csi.gen import controller_pb2 as controller

_RACES = (404, 409)


class Sidecars:
    """Those of one driver."""

    def __init__(self, api: Api, driver: str, socket: Path) -> None:
        self._api = api
        self._driver = driver
        self._socket = socket
        self.attaches = True
        """Whether attachments are attached."""

    async def run(self) -> None:
        while True:
            for work in (self._provision, self._attach, self._resize, self._delete):
                try:
                    await work()
                except ApiError as error:
                    if error.code not in _RACES:
                        raise
            await asyncio.sleep(0.05)

    async def _ask(self, method: str, **fields: Any) -> Any:
        async with grpc.aio.insecure_channel(f"unix://{self._socket}") as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
                f"/csi.v1.Controller/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=getattr(controller, f"{method}Response").FromString,
            )
            return await call(getattr(controller, f"{method}Request")(**fields), timeout=30)

    async def _provision(self) -> None:
        for claim in await self._api.list_all(PERSISTENT_VOLUME_CLAIMS):
            annotations = claim["metadata"].get("annotations") or {}
            is_ours = annotations.get("volume.kubernetes.io/storage-provisioner") == self._driver
            if not is_ours or claim["spec"].get("volumeName"):
                continue
            found = await self._api.get(STORAGE_CLASSES, "", claim["spec"]["storageClassName"])
            node = annotations.get("volume.kubernetes.io/selected-node")
            waits = found["volumeBindingMode"] == "WaitForFirstConsumer"
            if waits and not (node and await self._knows_topology(node)):
                continue
            size = parse(claim["spec"]["resources"]["requests"]["storage"]).value()
            name = f"pvc-{claim['metadata']['uid']}"
            answer = await self._ask(
                "CreateVolume",
                name=name,
                capacity_range=controller.SizeRange(required_bytes=size),
                parameters={
                    key: value
                    for key, value in (found.get("parameters") or {}).items()
                    if not key.startswith("csi.storage.k8s.io/")
                },
            )
            await self._api.create(
                PERSISTENT_VOLUMES, "", _volume(claim, found, answer.volume, self._driver)
            )

    async def _knows_topology(self, node: str) -> bool:
        """Whether the chosen node says where it is, as the real provisioner wants to know."""
        csi_node = await self._api.get(CSI_NODES, "", node)
        drivers = {each["name"]: each for each in csi_node["spec"]["drivers"] or ()}
        labels = (await self._api.get(NODES, "", node))["metadata"]["labels"]
        known = drivers.get(self._driver)
        return known is not None and set(known.get("topologyKeys") or ()) <= labels.keys()

    async def _attach(self) -> None:
        finalizer = f"external-attacher/{self._driver.replace('.', '-')}"
        for each in await self._api.list_all(VOLUME_ATTACHMENTS):
            meta, spec = each["metadata"], each["spec"]
            if spec["attacher"] != self._driver or not self.attaches:
                continue
            status = each.get("status") or {}
            if (node_id := await self._node_id(each)) is None:
                continue  # the driver has not registered yet
            ids = {"volume_id": await self._handle(each), "node_id": node_id}
            if meta.get("deletionTimestamp"):
                if finalizer in (meta.get("finalizers") or ()):
                    await self._ask("ControllerUnpublishVolume", **ids)
                    await self._patch_attachment(each, {"metadata": {"finalizers": None}})
            elif finalizer not in (meta.get("finalizers") or ()):
                await self._patch_attachment(each, {"metadata": {"finalizers": [finalizer]}})
            elif not status.get("attached"):
                answer = await self._ask("ControllerPublishVolume", **ids)
                attached = {
                    "attached": True,
                    "attachmentMetadata": dict(answer.publish_context),
                }
                await self._patch_attachment(each, {"status": attached}, "status")

    async def _patch_attachment(self, each: Object, body: Object, subresource: str = "") -> None:
        name = each["metadata"]["name"]
        await self._api.patch(
            VOLUME_ATTACHMENTS, "", name, body, MERGE_PATCH, subresource=subresource
        )

    async def _handle(self, attachment: Object) -> str:
        name = attachment["spec"]["source"]["persistentVolumeName"]
        volume = await self._api.get(PERSISTENT_VOLUMES, "", name)
        handle: str = volume["spec"]["csi"]["volumeHandle"]
        return handle

    async def _node_id(self, attachment: Object) -> str | None:
        csi_node = await self._api.get(CSI_NODES, "", attachment["spec"]["nodeName"])
        drivers = csi_node["spec"]["drivers"] or ()
        return next((each["nodeID"] for each in drivers if each["name"] == self._driver), None)

    async def _resize(self) -> None:
        for claim in await self._api.list_all(PERSISTENT_VOLUME_CLAIMS):
            meta, status = claim["metadata"], claim.get("status") or {}
            size = parse(claim["spec"]["resources"]["requests"]["storage"])
            has = parse((status.get("capacity") or {}).get("storage", "0"))
            is_begun = status.get("allocatedResourceStatuses")
            if status.get("phase") != "Bound" or size <= has or is_begun:
                continue
            volume = await self._api.get(PERSISTENT_VOLUMES, "", claim["spec"]["volumeName"])
            source = volume["spec"].get("csi") or {}
            if source.get("driver") != self._driver:
                continue
            answer = await self._ask(
                "ControllerExpandVolume",
                volume_id=source["volumeHandle"],
                capacity_range=controller.SizeRange(required_bytes=size.value()),
            )
            capacity = {"capacity": {"storage": str(size)}}
            await self._api.patch(
                PERSISTENT_VOLUMES,
                "",
                volume["metadata"]["name"],
                {"spec": capacity},
                STRATEGIC_MERGE_PATCH,
            )
            body: Object = {"status": capacity}
            if answer.node_expansion_required:
                condition = {"type": "FileSystemResizePending", "status": "True"}
                body["status"] = {
                    "allocatedResources": {"storage": str(size)},
                    "allocatedResourceStatuses": {"storage": "NodeResizePending"},
                    "conditions": [condition],
                }
            await self._api.patch(
                PERSISTENT_VOLUME_CLAIMS,
                meta["namespace"],
                meta["name"],
                body,
                STRATEGIC_MERGE_PATCH,
                subresource="status",
            )

    async def _delete(self) -> None:
        for volume in await self._api.list_all(PERSISTENT_VOLUMES):
            source = volume["spec"].get("csi") or {}
            is_over = (volume.get("status") or {}).get("phase") == "Released"
            if source.get("driver") == self._driver and is_over:
                await self._ask("DeleteVolume", volume_id=source["volumeHandle"])
                await self._api.delete(PERSISTENT_VOLUMES, "", volume["metadata"]["name"])


def _volume(claim: Object, found: Object, made: Any, driver: str) -> Object:
    """Return the PersistentVolume of what a driver made."""
    meta, spec = claim["metadata"], claim["spec"]
    parameters = found.get("parameters") or {}
    terms = [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in place.segments.items()
            ]
        }
        for place in made.accessible_topology
    ]
    source: Object = {
        "driver": driver,
        "volumeHandle": made.volume_id,
        "volumeAttributes": dict(made.volume_context),
        "fsType": parameters.get("csi.storage.k8s.io/fstype", ""),
    }
    for field, key in (
        ("nodeStageSecretRef", "node-stage"),
        ("nodePublishSecretRef", "node-publish"),
        ("nodeExpandSecretRef", "node-expand"),
    ):
        if name := parameters.get(f"csi.storage.k8s.io/{key}-secret-name"):
            namespace = parameters[f"csi.storage.k8s.io/{key}-secret-namespace"]
            source[field] = {"name": name, "namespace": namespace}
    return {
        "metadata": {
            "name": made.volume_id,
            "annotations": {"pv.kubernetes.io/provisioned-by": driver},
        },
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "csi": {key: value for key, value in source.items() if value},
            "mountOptions": found.get("mountOptions") or [],
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "persistentVolumeReclaimPolicy": found["reclaimPolicy"],
            "storageClassName": found["metadata"]["name"],
            "volumeMode": spec["volumeMode"],
        },
    }


@asynccontextmanager
async def sidecars(api: Api, driver: str, socket: Path) -> AsyncIterator[Sidecars]:
    """Run the sidecars of a driver."""
    found = Sidecars(api, driver, socket)
    task = asyncio.create_task(found.run(), name=f"sidecars of {driver}")
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
