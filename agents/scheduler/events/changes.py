"""Changes that may make a waiting pod schedulable, by upstream's names: NodeAdd, AssignedPodDelete.

    node_events(old, new)         → ["NodeUpdateNodeTaint"]: what of a node changed that matters
    own_events(old, new)          → what of a waiting pod changed that matters to itself
    placed_pod_events(old, new)   → what of a placed pod changed that matters to others

Whom a change helps is not decided here.
"""

from typing import Final, NamedTuple

from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object

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


class Change(NamedTuple):
    """An object before and after."""

    old: Object | None
    """None: it was added."""
    new: Object | None
    """None: it was deleted."""


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
    if shrinks(old, new):
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
    if shrinks(old, new):
        events.append(POD_SCALE_DOWN)
    return events


def shrinks(old: PodInfo, new: PodInfo) -> bool:
    """Whether a pod requests less of a resource."""
    return any(new.requests.get(name, 0) < amount for name, amount in old.requests.items())


def _conditions(status: Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status.get("conditions") or ()}
