"""Which changes of nodes matter to a waiting pod, by the rule that refused it.

    has_room(pod, change)         there is more of what the pod asks, and it fits when alone
    is_selected(pod, change)      the pod's selectors choose it now, and did not before
    changes_domains(pod, change)  the domains of its spread constraints are others

What other pods do on the node is not looked at.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from kvstack.agents.scheduler.events.changes import Change
from kvstack.agents.scheduler.events.pods import hard_constraints
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.agents.scheduler.snapshot.pod_resources import PODS, amount_of, is_counted
from kvstack.agents.scheduler.snapshot.taints import UNSCHEDULABLE, keeps_away
from kvstack.apimachinery.objects.core.tolerations import taints_of
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.node_rules import selects

_Labels: TypeAlias = dict[str, str]

_NO_LABELS: Final[_Labels] = {}


def is_uncordoned(_pod: PodInfo, change: Change) -> bool:
    """Whether a node is schedulable."""
    return change.new is not None and not (change.new.get("spec") or {}).get("unschedulable")


def tolerates_cordon(pod: PodInfo, _change: Change) -> bool:
    """Whether a pod tolerates unschedulable nodes."""
    return not keeps_away((UNSCHEDULABLE,), pod.spec.get("tolerations") or ())


def is_tolerable(pod: PodInfo, change: Change) -> bool:
    """Whether a pod tolerates a node's taints now, and did not before."""
    tolerations = pod.spec.get("tolerations") or ()
    if change.new is None or keeps_away(taints_of(change.new), tolerations):
        return False
    return change.old is None or keeps_away(taints_of(change.old), tolerations)


def has_room(pod: PodInfo, change: Change) -> bool:
    """Whether a pod fits on the empty node, and the node has more of what it requests."""
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


def is_selected(pod: PodInfo, change: Change) -> bool:
    """Whether a pod's node selector and required affinity match a node now, and did not before."""
    if change.new is None or not selects(pod.spec, change.new):
        return False
    return change.old is None or not selects(pod.spec, change.old)


def changes_domains(pod: PodInfo, change: Change) -> bool:
    """Whether a new, deleted or changed node may satisfy a pod's spread constraints."""
    own = hard_constraints(pod)
    if own is None:
        return True  # those of the configuration are not known here
    keys = [each["topologyKey"] for each in own]
    before, now = (obj is not None and _has(obj, keys) for obj in change)
    if before != now or change.old is None or change.new is None:
        return before or now
    if not now:
        return False
    old, new = change.old, change.new
    return (
        any(_labels(old)[key] != _labels(new)[key] for key in keys)
        or taints_of(old) != taints_of(new)
        or selects(pod.spec, old) != selects(pod.spec, new)
    )


def moves_domain(pod: PodInfo, change: Change) -> bool:
    """Whether a node joined a domain of a pod's affinity, or left one that it must avoid."""
    if change.new is None:
        return False
    if not pod.affinity.required and not pod.anti_affinity.required:
        return True  # pods on the node refused it, which are not known here
    now = _labels(change.new)
    old = None if change.old is None else _labels(change.old)
    for term in pod.affinity.required:
        if term.key in now and (old is None or old.get(term.key) != now[term.key]):
            return True
    return any(
        old is None or (term.key in old and old[term.key] != now.get(term.key))
        for term in pod.anti_affinity.required
    )


def _has(node: Object, keys: Iterable[str]) -> bool:
    labels = _labels(node)
    return all(key in labels for key in keys)


def _labels(node: Object) -> _Labels:
    return node["metadata"].get("labels") or _NO_LABELS


def _allocatable(node: Object) -> dict[str, int]:
    amounts = (node.get("status") or {}).get("allocatable") or {}
    return {
        name: amount_of(name, text)
        for name, text in amounts.items()
        if name == PODS or is_counted(name)
    }
