"""Keeps cluster and queue up to date with the API's objects."""

from collections.abc import Callable, Container
from typing import Final, NamedTuple

from kvstack.agents.client import built_in
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.scheduler.events.changes import (
    POD_ADD,
    POD_DELETE,
    Change,
    node_events,
    placed_pod_events,
)
from kvstack.agents.scheduler.scheduling_queue import SchedulingQueue
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.core.pod_status import ENDED_PHASES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock

_OWNERS: Final = (
    built_in.REPLICATION_CONTROLLERS,
    built_in.REPLICA_SETS,
    built_in.STATEFUL_SETS,
)


class _FedObjects(NamedTuple):
    """Objects that are kept by their keys, and the name that events about them bear."""

    resource: ResourceType
    objects: dict[str, Object]
    event: str
    changed: Callable[[], None] | None = None


class Feed:
    """Takes changes from informers."""

    def __init__(
        self,
        informers: Informers,
        cluster: Cluster,
        queue: SchedulingQueue,
        names: Container[str],
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        """names: schedulerNames of pods to place. wake is called when the queue may have work."""
        self._informers = informers
        self._cluster = cluster
        self._queue = queue
        self._names = names
        self._clock = clock
        self._wake = wake
        self.assumed: Final[set[str]] = set()
        """Uids of pods that were placed here, and are not known to be bound yet."""
        storage, devices = cluster.storage, cluster.devices
        self._kept = (
            _FedObjects(built_in.PERSISTENT_VOLUMES, storage.volumes, "PersistentVolume"),
            _FedObjects(built_in.PERSISTENT_VOLUME_CLAIMS, storage.claims, "PersistentVolumeClaim"),
            _FedObjects(built_in.STORAGE_CLASSES, storage.classes, "StorageClass"),
            _FedObjects(built_in.CSI_NODES, storage.nodes, "CSINode"),
            _FedObjects(built_in.CSI_DRIVERS, storage.drivers, "CSIDriver"),
            _FedObjects(built_in.CSI_STORAGE_CAPACITIES, storage.capacities, "CSIStorageCapacity"),
            _FedObjects(built_in.VOLUME_ATTACHMENTS, storage.attachments, "VolumeAttachment"),
            _FedObjects(built_in.POD_DISRUPTION_BUDGETS, cluster.budgets, "PodDisruptionBudget"),
            _FedObjects(built_in.DEVICE_CLASSES, devices.classes, "DeviceClass"),
            _FedObjects(
                built_in.RESOURCE_SLICES, devices.slices, "ResourceSlice", devices.slices_changed
            ),
            _FedObjects(
                built_in.DEVICE_TAINT_RULES,
                devices.taint_rules,
                "ResourceSlice",
                devices.slices_changed,
            ),
        )

    async def start(self) -> None:
        """Apply existing objects, and every change from then on."""
        informers = self._informers
        resources = [
            built_in.NAMESPACES,
            built_in.NODES,
            built_in.SERVICES,
            *_OWNERS,
            *(each.resource for each in self._kept),
            built_in.RESOURCE_CLAIMS,
            built_in.PODS,
        ]
        for resource in resources:
            informers.of(resource)
        for resource in resources:
            await informers.of(resource).synced()
        informers.of(built_in.NAMESPACES).on_change(self._namespace)
        informers.of(built_in.NODES).on_change(self._node)
        informers.of(built_in.SERVICES).on_change(self._service)
        for resource in _OWNERS:
            informers.of(resource).on_change(self._owner(resource))
        for each in self._kept:
            informers.of(each.resource).on_change(self._keep(each))
        informers.of(built_in.RESOURCE_CLAIMS).on_change(self._claim)
        informers.of(built_in.PODS).on_change(self._pod)

    def happened(self, event: str, old: Object | None, new: Object | None) -> None:
        """Pass an event to the queue."""
        if self._queue.happened(event, Change(old, new), self._clock.now_s()):
            self._wake()

    def waiting_pod(self, key: str, uid: str) -> PodInfo | None:
        """Return a pod as the API shows it; None if it is gone or has a node."""
        pod = self._informers.of(built_in.PODS).store.get(key)
        if pod is None or pod["metadata"]["uid"] != uid or pod["spec"].get("nodeName"):
            return None
        return PodInfo(pod)

    # Pods.

    def _pod(self, old: Object | None, new: Object | None) -> None:
        if new is None or (new.get("status") or {}).get("phase") in ENDED_PHASES:
            gone = old or new
            if gone is not None:
                self._remove_pod(gone)
        elif new["spec"].get("nodeName"):
            self._placed_pod(new)
        elif new["spec"].get("schedulerName") in self._names:
            self._waiting_pod(old, new)

    def _placed_pod(self, pod: Object) -> None:
        info = PodInfo(pod, placed=True)
        before = self._cluster.pods.get(info.uid)
        self.assumed.discard(info.uid)
        self._cluster.add_pod(info, info.node_name)
        if before is not None:
            for event in placed_pod_events(before, info):
                self.happened(event, before.obj, pod)
            return
        self._queue.remove(info.uid)
        self._cluster.nominate(info, "")
        self.happened(POD_ADD, None, pod)

    def _waiting_pod(self, old: Object | None, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._cluster.pods:
            if "deletionTimestamp" in pod["metadata"]:
                self._drop_assumed(uid, pod)
            return
        info = PodInfo(pod)
        self._nomination(_nominated_node(old), _nominated_node(pod), info)
        self._queue.add(info, self._clock.now_s())
        self._wake()

    def _nomination(self, old: str, new: str, info: PodInfo) -> None:
        """Set the node that a pod is nominated for; the scheduler's own decision has precedence."""
        if new:
            self._cluster.nominate(info, new)
        elif old and self._cluster.nominated_node(info.uid) == old:
            self._cluster.unnominate(info.uid)
        if old and old != new:
            self._gave_up(info.obj, info.priority)

    def _gave_up(self, pod: Object, priority: int) -> None:
        """Notify the queue that a pod no longer reserves resources of a node."""
        change = Change(pod, None)
        if self._queue.happened(POD_DELETE, change, self._clock.now_s(), priority):
            self._wake()

    def _remove_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        was_nominated = self._cluster.unnominate(uid)
        self._queue.remove(uid)
        if uid in self._cluster.pods:
            self._drop_assumed(uid, pod)
        elif was_nominated:
            self._gave_up(pod, pod["spec"].get("priority") or 0)

    def _drop_assumed(self, uid: str, pod: Object) -> None:
        """Forget a pod on a node, assumed or not."""
        self.assumed.discard(uid)
        self._cluster.remove_pod(uid)
        self.happened(POD_DELETE, pod, None)

    # Others.

    def _namespace(self, old: Object | None, new: Object | None) -> None:
        obj = new or old
        if obj is not None:
            labels = None if new is None else new["metadata"].get("labels") or {}
            self._cluster.index.set_namespace(obj["metadata"]["name"], labels)

    def _node(self, old: Object | None, new: Object | None) -> None:
        events = node_events(old, new)
        if new is not None:
            self._cluster.set_node(new)
        elif old is not None:
            self._cluster.remove_node(old["metadata"]["name"])
        for event in events:
            self.happened(event, old, new)

    def _service(self, old: Object | None, new: Object | None) -> None:
        meta = (new or old or {})["metadata"]
        services = self._cluster.services.setdefault(meta["namespace"], {})
        if new is None:
            services.pop(meta["name"], None)
        else:
            services[meta["name"]] = new

    def _owner(self, resource: ResourceType) -> Callable[[Object | None, Object | None], None]:
        is_plain = resource == built_in.REPLICATION_CONTROLLERS

        def handle(old: Object | None, new: Object | None) -> None:
            meta = (new or old or {})["metadata"]
            key = (resource.api_version, resource.kind, meta["namespace"], meta["name"])
            if new is None:
                self._cluster.owners.pop(key, None)
                return
            selector = new["spec"].get("selector")
            self._cluster.owners[key] = {"matchLabels": selector} if is_plain else selector

        return handle

    def _claim(self, old: Object | None, new: Object | None) -> None:
        obj = new or old
        if obj is not None:
            self._cluster.devices.set_claim(key_of(obj), new)
            self.happened(f"ResourceClaim{_action(old, new)}", old, new)

    def _keep(self, kept: _FedObjects) -> Callable[[Object | None, Object | None], None]:
        def handle(old: Object | None, new: Object | None) -> None:
            if new is not None:
                kept.objects[key_of(new)] = new
            elif old is not None:
                kept.objects.pop(key_of(old), None)
            if kept.changed is not None:
                kept.changed()
            self.happened(f"{kept.event}{_action(old, new)}", old, new)

        return handle


def _nominated_node(pod: Object | None) -> str:
    return ((pod or {}).get("status") or {}).get("nominatedNodeName") or ""


def _action(old: Object | None, new: Object | None) -> str:
    if new is None:
        return "Delete"
    return "Add" if old is None else "Update"
