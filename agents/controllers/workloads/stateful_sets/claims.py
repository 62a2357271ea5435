"""The owners of a StatefulSet's claims, by its retention policy.

    whenDeleted  whenScaled   owner
    Retain       Retain       none
    Delete       Retain       the set
    Retain       Delete       the pod, once its ordinal is out of range
    Delete       Delete       the set, or instead the pod, once its ordinal is out of range

A claim that belongs to an earlier set or pod of the same name is left alone, and so is one that
something else controls.
"""

from typing import Final

from kvstack.agents.controllers.ownership import controller_reference
from kvstack.agents.controllers.workloads.stateful_sets.pods import is_in_range, ordinal_of
from kvstack.apimachinery.objects.json_object import Object

_DELETE: Final = "Delete"


def _policy(stateful_set: Object) -> tuple[bool, bool]:
    """Return whether claims go when the set is deleted, and when it is scaled down."""
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return policy.get("whenDeleted") == _DELETE, policy.get("whenScaled") == _DELETE


def _names(reference: Object, obj: Object) -> bool:
    """Whether a reference is to an object of this kind and name, whatever its uid."""
    return bool(
        reference["apiVersion"] == obj["apiVersion"]
        and reference["kind"] == obj["kind"]
        and reference["name"] == obj["metadata"]["name"]
    )


def _references(claim: Object) -> list[Object]:
    return claim["metadata"].get("ownerReferences") or []


def is_stale(claim: Object, obj: Object) -> bool:
    """Whether a claim belongs to an earlier object of the same name."""
    for reference in _references(claim):
        if _names(reference, obj):
            return bool(reference["uid"] != obj["metadata"].get("uid"))
    return False


def blocks_pod(stateful_set: Object, claim: Object, pod: Object) -> bool:
    """Whether a claim is about to be deleted with an earlier pod: a new pod must wait."""
    return _policy(stateful_set)[1] and is_stale(claim, pod)


def has_other_controller(claim: Object, stateful_set: Object, pod: Object) -> bool:
    """Whether the policy requires an owner, and another object controls the claim."""
    if not any(_policy(stateful_set)):
        return False
    for reference in _references(claim):
        own = next((each for each in (stateful_set, pod) if _names(reference, each)), None)
        if own is None:
            if reference.get("controller"):
                return True
        elif reference["uid"] != own["metadata"].get("uid"):
            return True
    return False


def desired_references(claim: Object, stateful_set: Object, pod: Object) -> list[Object] | None:
    """Return the owner references that a claim is to have; None: those that it has."""
    if is_stale(claim, stateful_set) or is_stale(claim, pod):
        return None
    before = _references(claim)
    rest = [each for each in before if not (_names(each, stateful_set) or _names(each, pod))]
    if has_other_controller(claim, stateful_set, pod):
        return rest if len(rest) != len(before) else None
    owner = _owner(stateful_set, pod)
    own = [each for each in before if each not in rest]
    if owner is None:
        return rest if own else None
    uid = owner["metadata"]["uid"]
    if len(own) == 1 and own[0]["uid"] == uid and own[0].get("controller"):
        return None
    return [*rest, controller_reference(owner)]


def _owner(stateful_set: Object, pod: Object) -> Object | None:
    when_deleted, when_scaled = _policy(stateful_set)
    if when_scaled and not is_in_range(stateful_set, ordinal_of(pod)):
        return pod
    return stateful_set if when_deleted else None
