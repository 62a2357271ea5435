"""Which waiting pods a change may help, by the plugin that refused them.

    may_help(plugin, event, pod, change)   whether a pod that the plugin refused is tried again

An event that no plugin waits for moves nobody.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    NODE_ALLOCATABLE,
    NODE_DELETE,
    NODE_FEATURE,
    NODE_LABEL,
    NODE_TAINT,
    OWN_CLAIMS,
    OWN_GATES,
    OWN_LABEL,
    OWN_SCALE_DOWN,
    OWN_TOLERATION,
    POD_ADD,
    POD_DELETE,
    POD_LABEL,
    POD_SCALE_DOWN,
    Change,
)
from kvstack.agents.scheduler.events.nodes import (
    changes_domains,
    has_room,
    is_selected,
    is_tolerable,
    is_uncordoned,
    moves_domain,
    tolerates_cordon,
)
from kvstack.agents.scheduler.events.pods import (
    changes_spread,
    frees_port,
    frees_resources,
    frees_volume,
    had_claims,
    labels_matter,
    may_attract,
    may_clear,
)
from kvstack.agents.scheduler.events.storage import (
    has_claims,
    has_more_capacity,
    has_other_topology,
    is_migrated,
    is_own_claim,
    is_zoned,
    lets_more,
    stops_counting,
    waits_for_pods,
)
from kvstack.agents.scheduler.snapshot.devices import allocation_of, claim_names
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

Object: TypeAlias = dict[str, Any]
Hint: TypeAlias = Callable[[PodInfo, Change], bool]

EXTENDER: Final = "Extender"
"""Stands among the plugins that refused a pod where an extender did."""


def _always(_pod: PodInfo, _change: Change) -> bool:
    return True


def _freed_or_own_devices(pod: PodInfo, change: Change) -> bool:
    """Whether devices were given back, or a claim of the pod has another status."""
    old, new = change.old, change.new
    had = old is not None and allocation_of(old) is not None
    if new is None or (had and allocation_of(new) is None):
        return had
    if new["metadata"]["namespace"] != pod.namespace:
        return False
    if all(name != new["metadata"]["name"] for _, name, _ in claim_names(pod.obj)):
        return False
    return old is None or old.get("status") != new.get("status")


_OWN_CLAIM: Final[Mapping[str, Hint]] = dict.fromkeys(
    ("PersistentVolumeClaimAdd", "PersistentVolumeClaimUpdate"), is_own_claim
)
_HINTS: Final[Mapping[str, Mapping[str, Hint]]] = {
    "SchedulingGates": {OWN_GATES: _always},
    "NodeName": {NODE_ADD: _always},
    "NodeUnschedulable": {
        NODE_ADD: is_uncordoned,
        NODE_TAINT: is_uncordoned,
        OWN_TOLERATION: tolerates_cordon,
    },
    "TaintToleration": {NODE_ADD: is_tolerable, NODE_TAINT: is_tolerable, OWN_TOLERATION: _always},
    "NodeAffinity": {NODE_ADD: is_selected, NODE_LABEL: is_selected},
    "NodePorts": {POD_DELETE: frees_port, NODE_ADD: _always},
    "NodeResourcesFit": {
        POD_DELETE: _always,
        POD_SCALE_DOWN: frees_resources,
        OWN_SCALE_DOWN: _always,
        NODE_ADD: has_room,
        NODE_ALLOCATABLE: has_room,
    },
    "VolumeRestrictions": {
        POD_DELETE: frees_volume,
        NODE_ADD: _always,
        "PersistentVolumeClaimAdd": is_own_claim,
    },
    "NodeVolumeLimits": {
        "CSINodeAdd": _always,
        "CSINodeUpdate": lets_more,
        POD_DELETE: had_claims,
        "PersistentVolumeClaimAdd": is_own_claim,
        "VolumeAttachmentDelete": has_claims,
    },
    "VolumeBinding": {
        **_OWN_CLAIM,
        "StorageClassAdd": _always,
        "StorageClassUpdate": has_other_topology,
        **dict.fromkeys(("PersistentVolumeAdd", "PersistentVolumeUpdate"), _always),
        **dict.fromkeys((NODE_ADD, NODE_LABEL), _always),
        "CSINodeAdd": _always,
        "CSINodeUpdate": is_migrated,
        "CSIDriverUpdate": stops_counting,
        "CSIStorageCapacityAdd": _always,
        "CSIStorageCapacityUpdate": has_more_capacity,
    },
    "VolumeZone": {
        **_OWN_CLAIM,
        "StorageClassAdd": waits_for_pods,
        **dict.fromkeys(("PersistentVolumeAdd", "PersistentVolumeUpdate"), is_zoned),
        **dict.fromkeys((NODE_ADD, NODE_LABEL), _always),
    },
    "PodTopologySpread": {
        **dict.fromkeys((POD_ADD, POD_LABEL, POD_DELETE), changes_spread),
        **dict.fromkeys((OWN_LABEL, OWN_TOLERATION), _always),
        **dict.fromkeys((NODE_ADD, NODE_DELETE, NODE_LABEL, NODE_TAINT), changes_domains),
    },
    "InterPodAffinity": {
        POD_ADD: may_attract,
        POD_LABEL: labels_matter,
        POD_DELETE: may_clear,
        OWN_LABEL: _always,
        NODE_ADD: moves_domain,
        NODE_LABEL: moves_domain,
    },
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
