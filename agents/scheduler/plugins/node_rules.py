"""Plugins about the node alone: its name, cordon, taints, features.

Each refusal is final: taking pods off the node would not help.
"""

from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.cycle import (
    SCORE_MAX,
    SKIP,
    Code,
    Cycle,
    Failures,
    Reason,
    Skip,
    normalized,
    refuse,
)
from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    NODE_FEATURE,
    NODE_TAINT,
    OWN_TOLERATION,
)
from kvstack.agents.scheduler.events.nodes import is_tolerable, is_uncordoned, tolerates_cordon
from kvstack.agents.scheduler.plugin import Hints, Plugin, always
from kvstack.agents.scheduler.snapshot.columns import BoolArray, IntArray
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.agents.scheduler.snapshot.taints import UNSCHEDULABLE, keeps_away
from kvstack.apimachinery.objects.core.tolerations import PREFER_NO_SCHEDULE, is_tolerated

_NAME: Final = Reason(Code.UNRESOLVABLE, ("node(s) didn't match the requested node name",))
_CORDONED: Final = Reason(Code.UNRESOLVABLE, ("node(s) were unschedulable",))
_TAINTED: Final = Reason(Code.UNRESOLVABLE, ("node(s) had untolerated taint(s)",))
_FEATURES: Final = Reason(Code.UNRESOLVABLE, ("node(s) didn't match Pod's required features",))


class NodeName(Plugin):
    """A pod that names its node runs there."""

    name = "NodeName"
    hints: ClassVar[Hints] = {NODE_ADD: always}

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        wanted = cycle.pod.node_name
        if not wanted:
            return None
        is_refused = np.ones(cycle.cluster.size, dtype=np.bool_)
        slot = cycle.cluster.slots.get(wanted)
        if slot is not None:
            is_refused[slot] = False
        return refuse(is_refused[cycle.rows], _NAME)


class NodeUnschedulable(Plugin):
    """Cordoned nodes take no new pods."""

    name = "NodeUnschedulable"
    hints: ClassVar[Hints] = {
        NODE_ADD: is_uncordoned,
        NODE_TAINT: is_uncordoned,
        OWN_TOLERATION: tolerates_cordon,
    }

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        is_refused = cycle.cluster.is_unschedulable[cycle.rows]
        if not is_refused.any() or is_tolerated(
            UNSCHEDULABLE, cycle.pod.spec.get("tolerations") or ()
        ):
            return None
        return refuse(is_refused, _CORDONED)


class TaintToleration(Plugin):
    """Taints keep pods away that do not tolerate them, or make a node worse for them."""

    name = "TaintToleration"
    default_weight = 3
    hints: ClassVar[Hints] = {
        NODE_ADD: is_tolerable,
        NODE_TAINT: is_tolerable,
        OWN_TOLERATION: always,
    }

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        lists = cycle.cluster.taint_lists
        tolerations = cycle.pod.spec.get("tolerations") or ()
        table = np.array([keeps_away(each, tolerations) for each in lists], dtype=np.bool_)
        if not table.any():
            return None
        return refuse(table[cycle.cluster.taint_ids[cycle.rows]], _TAINTED)

    @override
    def score(self, cycle: Cycle, feasible: IntArray) -> IntArray | None:
        tolerations = [
            each
            for each in cycle.pod.spec.get("tolerations") or ()
            if each.get("effect") in (None, "", PREFER_NO_SCHEDULE)
        ]
        counts = [
            sum(
                taint.effect == PREFER_NO_SCHEDULE and not is_tolerated(taint, tolerations)
                for taint in taints
            )
            for taints in cycle.cluster.taint_lists
        ]
        if not any(counts):
            return np.full(len(feasible), SCORE_MAX, dtype=np.int64)
        table = np.array(counts, dtype=np.int64)
        return normalized(table[cycle.cluster.taint_ids[feasible]], is_reversed=True)


class NodeDeclaredFeatures(Plugin):
    """Pods that need a feature of the kubelet run where the node declares it."""

    name = "NodeDeclaredFeatures"
    hints: ClassVar[Hints] = {NODE_ADD: always, NODE_FEATURE: always}

    @override
    def pre_filter(self, cycle: Cycle) -> Skip | None:
        needed = _needed_features(cycle.pod)
        if not needed:
            return SKIP
        cycle.states[self.name] = needed
        return None

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        needed: set[str] = cycle.states[self.name]
        is_refused: BoolArray = np.array(
            [
                node is not None
                and not needed <= set((node.get("status") or {}).get("declaredFeatures") or ())
                for node in cycle.cluster.nodes
            ],
            dtype=np.bool_,
        )
        return refuse(is_refused[cycle.rows], _FEATURES)


def _needed_features(pod: PodInfo) -> set[str]:
    spec = pod.spec
    needed: set[str] = set()
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        needed.add("UserNamespacesHostNetworkSupport")
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        for rule in container.get("restartPolicyRules") or ():
            if rule.get("action") == "RestartAllContainers":
                needed.add("RestartAllContainersOnContainerExits")
        if any(mount.get("bindMountOptions") for mount in container.get("volumeMounts") or ()):
            needed.add("VolumeBindMountOptions")
    return needed
