"""Attach-detach: VolumeAttachments for the CSI volumes that pods of a node use, and for no others.

    pod on a node, its volume of a driver that attaches ─► VolumeAttachment ─► the driver attaches
    no such pod, and the node has unmounted it          ─► deleted          ─► the driver detaches

The node's status tells what is attached (`volumesAttached`, written here before anything is
detached) and what is mounted (`volumesInUse`, written by its kubelet). What a node has mounted is
detached nevertheless when it has been unready for six minutes, or is out of service. A volume that
only one node may have waits until the other one has released it.

Only what this made by its names is taken away. Keys: names of nodes.
"""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import (
    CSI_DRIVERS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    VOLUME_ATTACHMENTS,
)
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.nodes.lifecycle import PODS_OF_NODE, nodes_of_pod
from kvstack.agents.controllers.nodes.taints import taints_of
from kvstack.agents.controllers.options import VolumeOptions
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.storage.pod_claims import CLAIMS_INDEX, claims_of_pod
from kvstack.agents.controllers.storage.volume_rules import annotations_of
from kvstack.agents.reconcile.plan import (
    Action,
    Again,
    BaseController,
    Create,
    Delete,
    Identity,
    Index,
    Outcome,
    Patch,
    Plan,
    Record,
    Step,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects.core import attachments as names_of
from kvstack.apimachinery.objects.core.node_status import is_ready
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.apimachinery.well_known import ATTACHED_BY_CONTROLLER_ANNOTATION, OUT_OF_SERVICE_TAINT

_Steps: TypeAlias = Generator[Step, list[Outcome], None]

_BY_NODE: Final = "attachments of a node"
_BY_VOLUME: Final = "attachments of a volume"
_NAME: Final = re.compile("csi-[0-9a-f]{64}")
_FORCED_AFTER_S: Final = 360.0
_SHARED: Final = frozenset(("ReadWriteMany", "ReadOnlyMany"))


@dataclass(frozen=True, slots=True)
class _Use:
    """A volume that pods of a node use."""

    volume: Object
    pods: Sequence[Object]


class AttachDetach(BaseController):
    """Keeps the VolumeAttachments of nodes."""

    workers = 1
    reads: Sequence[ResourceType] = (PERSISTENT_VOLUMES, CSI_DRIVERS)

    def __init__(self, options: VolumeOptions) -> None:
        """options: whether what an unready node has mounted is detached after a while."""
        self._forces: Final = options.forces_detach
        self._waiting: dict[str, float] = {}
        """Since when unused attachments are still mounted, by name."""
        self.identity: Identity = Identity(
            "persistentvolume-attach-detach-controller",
            "attachdetach-controller",
            "attachdetach-controller",
        )
        self.watches: Sequence[Watch] = (
            Watch(PODS, _keys_of_pod),
            Watch(PERSISTENT_VOLUME_CLAIMS, _keys_of_claim),
            Watch(VOLUME_ATTACHMENTS, _keys_of_attachment),
            Watch(NODES, _keys_of_node),
        )
        self.indexes: Sequence[Index] = (
            Index(PODS, PODS_OF_NODE, nodes_of_pod),
            Index(PODS, CLAIMS_INDEX, claims_of_pod),
            Index(VOLUME_ATTACHMENTS, _BY_NODE, lambda each: (each["spec"]["nodeName"],)),
            Index(VOLUME_ATTACHMENTS, _BY_VOLUME, lambda each: filter(None, (_volume_name(each),))),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one node."""
        node = view.get(NODES, key)
        if (
            node is not None
            and annotations_of(node).get(ATTACHED_BY_CONTROLLER_ANNOTATION) != "true"
        ):
            return None
        known = view.by_index(VOLUME_ATTACHMENTS, _BY_NODE, key)
        attachments = {each["metadata"]["name"]: each for each in known if _is_ours(each, view)}
        desired = {} if node is None else _desired_attachments(key, view)
        for name in desired:
            self._waiting.pop(name, None)
        yield from _attach(key, desired, attachments, view)
        unwanted = [each for name, each in attachments.items() if name not in desired]
        going, again_s = self._detachable(node, unwanted, view, now_s)
        if node is not None:
            yield from _report_attached(node, desired, attachments, going, view)
        yield from _detach(going)
        return None if again_s is None else Again(again_s)

    def _detachable(
        self, node: Object | None, unwanted: Sequence[Object], view: View, now_s: float
    ) -> tuple[list[Object], float | None]:
        """Return what may be detached now, and after how many seconds to look again."""
        for name in [each for each in self._waiting if view.get(VOLUME_ATTACHMENTS, each) is None]:
            del self._waiting[name]
        status = (node or {}).get("status") or {}
        mounted = set(status.get("volumesInUse") or ())
        going, waits = [], []
        for attachment in unwanted:
            name = attachment["metadata"]["name"]
            if _device(attachment, view) not in mounted:
                self._waiting.pop(name, None)
                going.append(attachment)
                continue
            rest_s = self._waiting.setdefault(name, now_s) + _FORCED_AFTER_S - now_s
            is_late = self._forces and rest_s <= 0 and not is_ready(node or {})
            if is_late or _is_out_of_service(node):
                going.append(attachment)
            elif self._forces:
                waits.append(max(rest_s, 1.0))
        return going, min(waits, default=None)


def _attach(
    node: str, desired: Mapping[str, _Use], attachments: Mapping[str, Object], view: View
) -> _Steps:
    """Create missing attachments, and record events for pods that wait."""
    for name, use in desired.items():
        pv_name = use.volume["metadata"]["name"]
        known = attachments.get(name)
        if known is not None:
            error = ((known.get("status") or {}).get("attachError") or {}).get("message")
            if error:
                text = f'AttachVolume.Attach failed for volume "{pv_name}" : {error}'
                yield _pod_events(use.pods, "Warning", "FailedAttachVolume", text)
        elif holders := _held_elsewhere(use.volume, node, view):
            text = f'Waiting for detach for volume "{pv_name}" Volume is already used by {holders}'
            yield _pod_events(use.pods, "Warning", "FailedAttachVolume", text)
        else:
            [made] = yield [Create(VOLUME_ATTACHMENTS, "", _attachment(name, use.volume, node))]
            if not made.is_conflict:
                made.result()


def _report_attached(
    node: Object,
    desired: Mapping[str, _Use],
    attachments: Mapping[str, Object],
    going: Sequence[Object],
    view: View,
) -> _Steps:
    """Update the attached volumes in the node's status, and record events for pods."""
    leaving = {each["metadata"]["name"] for each in going}
    devices = {
        name: device
        for name, each in attachments.items()
        if name not in leaving
        and not is_deleting(each)  # it goes, and is attached anew if a pod has come meanwhile
        and (each.get("status") or {}).get("attached")
        and (device := _device(each, view))
    }
    in_status = {each["name"] for each in (node.get("status") or {}).get("volumesAttached") or ()}
    if in_status == set(devices.values()):
        return
    listed = [{"name": each, "devicePath": ""} for each in sorted(devices.values())]
    body = {"status": {"volumesAttached": listed}}
    name = node["metadata"]["name"]
    yield from do(Patch(NODES, "", name, body, STRATEGIC_MERGE_PATCH, "status"))
    for name, device in devices.items():
        if device not in in_status and (use := desired.get(name)) is not None:
            pv_name = use.volume["metadata"]["name"]
            text = f'AttachVolume.Attach succeeded for volume "{pv_name}" '
            yield _pod_events(use.pods, "Normal", "SuccessfulAttachVolume", text)


def _detach(going: Sequence[Object]) -> _Steps:
    outcomes = yield [
        Delete(VOLUME_ATTACHMENTS, "", each["metadata"]["name"], each["metadata"]["uid"])
        for each in going
        if not is_deleting(each)
    ]
    for outcome in outcomes:
        if not outcome.is_not_found:
            outcome.result()


def _pod_events(pods: Sequence[Object], type_: str, reason: str, text: str) -> list[Action]:
    return [Record(each, type_, reason, text) for each in pods]


# What is wanted.


def _desired_attachments(node: str, view: View) -> dict[str, _Use]:
    """Return the volumes that pods of a node need attached, by the names of attachments."""
    pods: dict[str, list[Object]] = {}
    for pod in view.by_index(PODS, PODS_OF_NODE, node):
        if not is_ended(pod):
            for claim in claims_of_pod(pod):
                if (volume := _attachable(claim, view)) is not None:
                    pods.setdefault(volume["metadata"]["name"], []).append(pod)
    volumes = ((view.get(PERSISTENT_VOLUMES, name), users) for name, users in pods.items())
    return {
        attachment_name(volume, node): _Use(volume, users)
        for volume, users in volumes
        if volume is not None
    }


def _attachable(claim_key: str, view: View) -> Object | None:
    """Return the volume that a claim is bound to, if its driver has to attach it."""
    claim = view.get(PERSISTENT_VOLUME_CLAIMS, claim_key)
    volume = None
    if claim is not None and claim["spec"].get("volumeName"):
        volume = view.get(PERSISTENT_VOLUMES, claim["spec"]["volumeName"])
    if claim is None or volume is None or "csi" not in volume["spec"]:
        return None
    if (volume["spec"].get("claimRef") or {}).get("uid") != claim["metadata"]["uid"]:
        return None
    driver = view.get(CSI_DRIVERS, volume["spec"]["csi"]["driver"])
    attaches = driver is None or driver["spec"].get("attachRequired", True)
    return volume if attaches else None


def _held_elsewhere(volume: Object, node: str, view: View) -> str:
    """Return the other node that has a volume for one node; empty: none."""
    name, modes = volume["metadata"]["name"], volume["spec"].get("accessModes") or ()
    if not modes or not _SHARED.isdisjoint(modes):
        return ""
    others = [
        each["spec"]["nodeName"]
        for each in view.by_index(VOLUME_ATTACHMENTS, _BY_VOLUME, name)
        if each["spec"]["nodeName"] != node
    ]
    pods = [each for each in _pods_of(volume, view) if each["spec"].get("nodeName") in others]
    names = ", ".join(sorted(each["metadata"]["name"] for each in pods))
    return f"pod(s) {names}" if names else f"node(s) {', '.join(others)}" if others else ""


def _pods_of(volume: Object, view: View) -> Sequence[Object]:
    reference = volume["spec"].get("claimRef")
    if not reference:
        return ()
    return view.by_index(PODS, CLAIMS_INDEX, f"{reference['namespace']}/{reference['name']}")


def _is_out_of_service(node: Object | None) -> bool:
    return node is not None and any(each["key"] == OUT_OF_SERVICE_TAINT for each in taints_of(node))


# Names.


def attachment_name(volume: Object, node: str) -> str:
    """Return the name of the attachment of a CSI volume to a node."""
    source = volume["spec"]["csi"]
    return names_of.attachment_name(source["driver"], source["volumeHandle"], node)


def _attachment(name: str, volume: Object, node: str) -> Object:
    return {
        "apiVersion": VOLUME_ATTACHMENTS.api_version,
        "kind": VOLUME_ATTACHMENTS.kind,
        "metadata": {"name": name},
        "spec": {
            "attacher": volume["spec"]["csi"]["driver"],
            "nodeName": node,
            "source": {"persistentVolumeName": volume["metadata"]["name"]},
        },
    }


def _volume_name(attachment: Object) -> str:
    name: str = (attachment["spec"].get("source") or {}).get("persistentVolumeName") or ""
    return name


def _is_ours(attachment: Object, view: View) -> bool:
    """Whether an attachment has the name that it gets here; if the volume is gone, its form."""
    name, pv_name = attachment["metadata"]["name"], _volume_name(attachment)
    volume = view.get(PERSISTENT_VOLUMES, pv_name) if pv_name else None
    if volume is None or "csi" not in volume["spec"]:
        return bool(pv_name) and _NAME.fullmatch(name) is not None
    return attachment_name(volume, attachment["spec"]["nodeName"]) == str(name)


def _device(attachment: Object, view: View) -> str:
    """Return how nodes name a volume; empty: it is gone."""
    volume = view.get(PERSISTENT_VOLUMES, _volume_name(attachment))
    source = ((volume or {}).get("spec") or {}).get("csi")
    return names_of.unique_name(source["driver"], source["volumeHandle"]) if source else ""


# Keys.


def _nodes(pods: Iterable[Object | None]) -> Iterable[str]:
    for pod in pods:
        if pod is not None and pod["spec"].get("nodeName"):
            yield pod["spec"]["nodeName"]


def _keys_of_pod(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    return set(_nodes(each for each in (old, new) if each is not None and claims_of_pod(each)))


def _keys_of_claim(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None and new["spec"].get("volumeName"):
        yield from set(_nodes(view.by_index(PODS, CLAIMS_INDEX, key_of(new))))


def _keys_of_attachment(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    attachment = new or old or {}
    yield attachment["spec"]["nodeName"]
    volume = view.get(PERSISTENT_VOLUMES, _volume_name(attachment))
    if new is None and volume is not None:  # another node may have it now
        yield from set(_nodes(_pods_of(volume, view)))


def _keys_of_node(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    name: str = (new or old or {})["metadata"]["name"]
    if old is None or new is None or view.by_index(VOLUME_ATTACHMENTS, _BY_NODE, name):
        yield name
