"""Changes that may let a waiting pod be placed, by upstream's names: NodeAdd, AssignedPodDelete.

    node_events(old, new)   → ["NodeUpdateNodeTaint"]: what of a node changed that matters
    may_help(plugin, event, pod, change)   whether a pod that the plugin refused is tried again

An event that no plugin waits for moves nobody.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from kvstack.agents.scheduler.affinity_hints import (
    changes_spread,
    labels_matter,
    may_attract,
    may_clear,
)
from kvstack.agents.scheduler.snapshot.devices import allocation_of, claim_names
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.agents.scheduler.snapshot.pod_resources import PODS, amount_of, is_counted
from kvstack.agents.scheduler.snapshot.taints import keeps_away, taints_of

Object: TypeAlias = dict[str, Any]

NODE_ADD: Final = "NodeAdd"
NODE_DELETE: Final = "NodeDelete"
NODE_TAINT: Final = "NodeUpdateNodeTaint"
NODE_LABEL: Final = "NodeUpdateNodeLabel"
NODE_ALLOCATABLE: Final = "NodeUpdateNodeAllocatable"
NODE_CONDITION: Final = "NodeUpdateNodeCondition"
NODE_FEATURE: Final = "NodeUpdateNodeDeclaredFeature"
POD_ADD: Final = "AssignedPodAdd"
POD_LABEL: Final = "AssignedPodUpdatePodLabel"
POD_SCALE_DOWN: Final = "AssignedPodUpdatePodScaleDown"
POD_DELETE: Final = "AssignedPodDelete"
OWN_LABEL: Final = "TargetPodUpdatePodLabel"
OWN_TOLERATION: Final = "TargetPodUpdatePodToleration"
OWN_SCALE_DOWN: Final = "TargetPodUpdatePodScaleDown"
OWN_CLAIMS: Final = "TargetPodUpdatePodGeneratedResourceClaim"
OWN_GATES: Final = "TargetPodUpdatePodSchedulingGatesEliminated"
EXTENDER: Final = "Extender"
"""Stands among the plugins that refused a pod where an extender did."""


class Change(NamedTuple):
    """What a hint may look at."""

    old: Object | None
    new: Object | None


Hint: TypeAlias = Callable[[PodInfo, Change], bool]


def _always(_pod: PodInfo, _change: Change) -> bool:
    return True


def _schedulable(_pod: PodInfo, change: Change) -> bool:
    return change.new is not None and not (change.new.get("spec") or {}).get("unschedulable")


def _tolerable(pod: PodInfo, change: Change) -> bool:
    tolerations = pod.spec.get("tolerations") or ()
    if change.new is None or keeps_away(taints_of(change.new), tolerations):
        return False
    return change.old is None or keeps_away(taints_of(change.old), tolerations)


def _roomy(pod: PodInfo, change: Change) -> bool:
    """Whether a pod fits on the node when that is empty, and there is more of what it asks."""
    if change.new is None:
        return False
    now = _allocatable(change.new)
    if now.get(PODS, 0) < 1 or any(
        amount > now.get(name, 0) for name, amount in pod.requests.items()
    ):
        return False
    if change.old is None:
        return True
    before = _allocatable(change.old)
    return any(now.get(name, 0) > before.get(name, 0) for name in (PODS, *pod.requests))


def _same_namespace(pod: PodInfo, change: Change) -> bool:
    obj = change.new or change.old
    return obj is not None and obj["metadata"].get("namespace") == pod.namespace


def _own_claim(pod: PodInfo, change: Change) -> bool:
    if not _same_namespace(pod, change) or change.new is None:
        return False
    name = change.new["metadata"]["name"]
    return any(
        (volume.get("persistentVolumeClaim") or {}).get("claimName") == name
        or (volume.get("ephemeral") and f"{pod.name}-{volume['name']}" == name)
        for volume in pod.spec.get("volumes") or ()
    )


def _same_port(pod: PodInfo, change: Change) -> bool:
    if change.old is None:
        return False
    wanted = {port[:2] for port in pod.ports}
    return any(port[:2] in wanted for port in PodInfo(change.old).ports)


def _freed_or_own_devices(pod: PodInfo, change: Change) -> bool:
    """Whether devices were given back, or a claim of the pod has another status."""
    old, new = change.old, change.new
    had = old is not None and allocation_of(old) is not None
    if new is None or (had and allocation_of(new) is None):
        return had
    if not _same_namespace(pod, change):
        return False
    if all(name != new["metadata"]["name"] for _, name, _ in claim_names(pod.obj)):
        return False
    return old is None or old.get("status") != new.get("status")


_STORAGE_HINTS: Final[Mapping[str, Hint]] = {
    "StorageClassAdd": _always,
    "StorageClassUpdate": _always,
    "PersistentVolumeAdd": _always,
    "PersistentVolumeUpdate": _always,
    "PersistentVolumeClaimAdd": _own_claim,
    "PersistentVolumeClaimUpdate": _own_claim,
    NODE_ADD: _always,
    NODE_LABEL: _always,
}
_AFFINITY_HINTS: Final[Mapping[str, Hint]] = {
    POD_ADD: may_attract,
    POD_LABEL: labels_matter,
    POD_DELETE: may_clear,
    OWN_LABEL: _always,
    NODE_ADD: _always,
    NODE_LABEL: _always,
}
_HINTS: Final[Mapping[str, Mapping[str, Hint]]] = {
    "SchedulingGates": {OWN_GATES: _always},
    "NodeName": {NODE_ADD: _always},
    "NodeUnschedulable": {
        NODE_ADD: _schedulable,
        NODE_TAINT: _schedulable,
        OWN_TOLERATION: _always,
    },
    "TaintToleration": {NODE_ADD: _tolerable, NODE_TAINT: _tolerable, OWN_TOLERATION: _always},
    "NodeAffinity": {NODE_ADD: _always, NODE_LABEL: _always},
    "NodePorts": {POD_DELETE: _same_port, NODE_ADD: _always},
    "NodeResourcesFit": {
        POD_DELETE: _always,
        POD_SCALE_DOWN: _always,
        OWN_SCALE_DOWN: _always,
        NODE_ADD: _roomy,
        NODE_ALLOCATABLE: _roomy,
    },
    "VolumeRestrictions": {
        POD_DELETE: _same_namespace,
        NODE_ADD: _always,
        "PersistentVolumeClaimAdd": _own_claim,
    },
    "NodeVolumeLimits": {
        "CSINodeAdd": _always,
        "CSINodeUpdate": _always,
        POD_DELETE: _always,
        "PersistentVolumeClaimAdd": _own_claim,
        "VolumeAttachmentDelete": _always,
    },
    "VolumeBinding": {
        **_STORAGE_HINTS,
        "CSINodeAdd": _always,
        "CSINodeUpdate": _always,
        "CSIDriverUpdate": _always,
        "CSIStorageCapacityAdd": _always,
        "CSIStorageCapacityUpdate": _always,
    },
    "VolumeZone": _STORAGE_HINTS,
    "PodTopologySpread": {
        **dict.fromkeys((POD_ADD, POD_LABEL, POD_DELETE), changes_spread),
        **dict.fromkeys((OWN_LABEL, OWN_TOLERATION), _always),
        **dict.fromkeys((NODE_ADD, NODE_DELETE, NODE_LABEL, NODE_TAINT), _always),
    },
    "InterPodAffinity": _AFFINITY_HINTS,
    "DynamicResources": {
        **dict.fromkeys((NODE_ADD, NODE_LABEL, NODE_ALLOCATABLE, OWN_CLAIMS), _always),
        **dict.fromkeys(
            ("ResourceClaimAdd", "ResourceClaimUpdate", "ResourceClaimDelete"),
            _freed_or_own_devices,
        ),
        **dict.fromkeys(
            ("DeviceClassAdd", "DeviceClassUpdate", "ResourceSliceAdd", "ResourceSliceUpdate"),
            _always,
        ),
    },
    "NodeDeclaredFeatures": {NODE_ADD: _always, NODE_FEATURE: _always},
}
"""By plugin: which events may help the pods it refused, and what decides for one of them."""

WAITED_FOR: Final = frozenset(event for hints in _HINTS.values() for event in hints)
"""Events that some plugin waits for."""


def may_help(plugin: str, event: str, pod: PodInfo, change: Change) -> bool:
    """Whether a pod that a plugin refused is worth another try after an event."""
    if plugin == EXTENDER:
        return True  # what it waits for is not known here
    hint = _HINTS.get(plugin, {}).get(event)
    return hint is not None and hint(pod, change)


def node_events(old: Object | None, new: Object | None) -> list[str]:
    """Return what of a node changed that matters to pods."""
    if new is None:
        return [NODE_DELETE]
    if old is None:
        return [NODE_ADD]
    events: list[str] = []
    old_spec, new_spec = old.get("spec") or {}, new.get("spec") or {}
    uncordoned = old_spec.get("unschedulable") and not new_spec.get("unschedulable")
    if uncordoned or old_spec.get("taints") != new_spec.get("taints"):
        events.append(NODE_TAINT)
    old_status, new_status = old.get("status") or {}, new.get("status") or {}
    if old_status.get("allocatable") != new_status.get("allocatable"):
        events.append(NODE_ALLOCATABLE)
    if old["metadata"].get("labels") != new["metadata"].get("labels"):
        events.append(NODE_LABEL)
    if _conditions(old_status) != _conditions(new_status):
        events.append(NODE_CONDITION)
    if old_status.get("declaredFeatures") != new_status.get("declaredFeatures"):
        events.append(NODE_FEATURE)
    return events


def own_events(old: PodInfo, new: PodInfo) -> list[str]:
    """Return what of a waiting pod changed that matters to itself."""
    events: list[str] = []
    if old.labels != new.labels:
        events.append(OWN_LABEL)
    if _is_less(old, new):
        events.append(OWN_SCALE_DOWN)
    if old.spec.get("schedulingGates") and not new.spec.get("schedulingGates"):
        events.append(OWN_GATES)
    if len(old.spec.get("tolerations") or ()) != len(new.spec.get("tolerations") or ()):
        events.append(OWN_TOLERATION)
    if _claim_statuses(old) != _claim_statuses(new):
        events.append(OWN_CLAIMS)
    return events


def _claim_statuses(pod: PodInfo) -> object:
    return (pod.obj.get("status") or {}).get("resourceClaimStatuses")


def placed_pod_events(old: PodInfo, new: PodInfo) -> list[str]:
    """Return what of a placed pod changed that matters to others."""
    events: list[str] = []
    if old.labels != new.labels:
        events.append(POD_LABEL)
    if _is_less(old, new):
        events.append(POD_SCALE_DOWN)
    return events


def _is_less(old: PodInfo, new: PodInfo) -> bool:
    return any(new.requests.get(name, 0) < amount for name, amount in old.requests.items())


def _conditions(status: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status.get("conditions") or ()}


def _allocatable(node: Object) -> dict[str, int]:
    amounts = (node.get("status") or {}).get("allocatable") or {}
    return {
        name: amount_of(name, text)
        for name, text in amounts.items()
        if name == PODS or is_counted(name)
    }
