"""A control plane with the controllers of volumes, a node of processes, and a CSI driver."""

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvstack.agents.client.built_in import (
    CSI_DRIVERS,
    EVENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STORAGE_CLASSES,
)
from kvstack.agents.controllers.options import VolumeOptions
from kvstack.agents.controllers.storage.attachments import AttachDetach
from kvstack.agents.controllers.storage.binder import VolumeBinder
from kvstack.agents.controllers.storage.protection import ClaimProtection, VolumeProtection
from kvstack.agents.kubelet.disk.mount_table import points_below
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from tests.agents.kubelet.test_kubelet import Node, run
from tests.agents.kubelet.test_kubelet import pod as pod_of
from tests.agents.support.cluster import TestCluster, eventually
from tests.support.csi.driver import Driver, registered
from tests.support.csi.sidecars import Sidecars, sidecars

NAME = "d.example.com"


@dataclass
class Scene:
    """What a story is told with."""

    cluster: TestCluster
    node: Node
    driver: Driver
    sidecars: Sidecars

    @property
    def root(self) -> Path:
        return self.node.options.root

    async def claim(self, name: str, **spec: Any) -> None:
        await self.cluster.admin.create(PERSISTENT_VOLUME_CLAIMS, "default", claim(name, **spec))

    async def start_kubelet(self) -> None:
        self.node.kubelet = self.node.new_kubelet()
        await self.node.kubelet.start()

    async def gone(self, name: str) -> None:
        """Delete a pod, and wait until it is gone."""
        await self.cluster.admin.delete(PODS, "default", name)
        store = self.cluster.informers.of(PODS).store
        await eventually(lambda: store.get(f"default/{name}") is None)

    async def event(self, reason: str, text: str) -> Object:
        """Return the event that tells something."""
        store = self.cluster.informers.of(EVENTS).store

        def newest() -> Object | None:
            events = [each for each in store if each["reason"] == reason]
            return next((each for each in events if text in each["message"]), None)

        event: Object = await eventually(newest)
        return event

    def mounts(self) -> list[str]:
        return points_below(self.root / "plugins") + [
            each for each in points_below(self.root / "pods") if "kubernetes.io~csi" in each
        ]


def claim(name: str, **spec: Any) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "csi",
            "resources": {"requests": {"storage": "1Mi"}},
            **spec,
        },
    }


def pod(name: str, script: str, *claims: str, **spec: Any) -> Object:
    """Return a pod with claims at /v/<claim>."""
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    mounts = [{"name": each, "mountPath": f"/v/{each}"} for each in claims]
    volumes += spec.pop("volumes", [])
    container = {"volumeMounts": mounts + spec.pop("mounts", []), **spec.pop("container", {})}
    given = {"terminationGracePeriodSeconds": 1, "volumes": volumes, **spec}
    return pod_of(name, script, container=container, **given)


def driver_object(**spec: Any) -> Object:
    return {"metadata": {"name": NAME}, "spec": spec}


def tell(
    directory: Path,
    story: Callable[[Scene], Awaitable[None]],
    *,
    driver_spec: Object | None = None,
    parameters: dict[str, str] | None = None,
    call_s: float = 60.0,
    prepare: Callable[[TestCluster, Node], Awaitable[None]] | None = None,
) -> None:
    """Tell a story; driver_spec: of the CSIDriver, None: there is no such object.

    call_s: the limit of what drivers are asked. prepare: what is done with the node first.
    """

    async def main(cluster: TestCluster, node: Node) -> None:
        options = VolumeOptions()
        await cluster.run_controllers(
            [VolumeBinder(options), AttachDetach(options), ClaimProtection(), VolumeProtection()]
        )
        if driver_spec is not None:
            await cluster.admin.create(CSI_DRIVERS, "", driver_object(**driver_spec))
        found = {
            "metadata": {"name": "csi"},
            "provisioner": NAME,
            "allowVolumeExpansion": True,
            "parameters": parameters or {},
        }
        await cluster.admin.create(STORAGE_CLASSES, "", found)
        driver = Driver(NAME, directory / "data")
        await node.kubelet.stop()
        if prepare is not None:
            await prepare(cluster, node)
        node.options = replace(node.options, csi_call_s=call_s)
        node.kubelet = node.new_kubelet()
        await node.kubelet.start()
        root = node.options.root
        socket = root / "plugins" / NAME / "csi.sock"
        async with registered(driver, root), sidecars(cluster.admin, NAME, socket) as beside:
            scene = Scene(cluster, node, driver, beside)
            await story(scene)
            # Nothing of any pod is left, whatever happened.
            store = cluster.informers.of(PODS).store
            for each in [obj["metadata"]["name"] for obj in store]:
                with suppress(ApiError):  # it is going already
                    await cluster.admin.delete(PODS, "default", each)
            # Unmounting is retried after up to two minutes.
            await eventually(lambda: not list(store), within_s=180)
            await eventually(lambda: not scene.mounts(), within_s=180)
            left = root / "plugins" / "kubernetes.io" / "csi"
            await eventually(lambda: not _files_below(left, "vol_data.json"), within_s=180)

    run(directory, main)


def _files_below(directory: Path, name: str) -> list[str]:
    """Return the files of a name; directories may go meanwhile."""
    return [f"{where}/{name}" for where, _, files in os.walk(directory) if name in files]
