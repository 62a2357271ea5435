"""Pod affinity and anti-affinity.

A term's domain is a value of its topology key. Counts of pods a node are kept by the cluster; here
they are added up by domain. Terminating pods count.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.arguments import SHARE_MAX, Fields, invalid
from kvstack.agents.scheduler.cycle import SCORE_MAX, SKIP, Code, Cycle, Failures, Reason, Skip
from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    NODE_LABEL,
    OWN_LABEL,
    POD_ADD,
    POD_DELETE,
    POD_LABEL,
)
from kvstack.agents.scheduler.events.nodes import moves_domain
from kvstack.agents.scheduler.events.pods import labels_matter, may_attract, may_clear
from kvstack.agents.scheduler.plugin import Args, Hints, Plugin, always
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.columns import BoolArray, IntArray
from kvstack.agents.scheduler.snapshot.pod_index import Carried
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

_AFFINITY: Final = Reason(Code.UNRESOLVABLE, ("node(s) didn't match pod affinity rules",))
_ANTI: Final = Reason(Code.UNSCHEDULABLE, ("node(s) didn't match pod anti-affinity rules",))
_EXISTING: Final = Reason(
    Code.UNSCHEDULABLE, ("node(s) didn't satisfy existing pods anti-affinity rules",)
)


class InterPodAffinity(Plugin):
    """Pods run beside those they want, and not beside those they do not want."""

    name = "InterPodAffinity"
    default_weight = 2
    arg_fields: ClassVar[Fields | None] = {
        "hardPodAffinityWeight": int,
        "ignorePreferredTermsOfExistingPods": bool,
    }
    arg_defaults: ClassVar[Args] = {
        "hardPodAffinityWeight": 1,
        "ignorePreferredTermsOfExistingPods": False,
    }
    hints: ClassVar[Hints] = {
        POD_ADD: may_attract,
        POD_LABEL: labels_matter,
        POD_DELETE: may_clear,
        OWN_LABEL: always,
        NODE_ADD: moves_domain,
        NODE_LABEL: moves_domain,
    }

    @classmethod
    @override
    def check_args(cls, args: dict[str, Any], path: str) -> None:
        weight = args.get("hardPodAffinityWeight", 1)
        if not 0 <= weight <= SHARE_MAX:
            raise invalid(f"{path}.hardPodAffinityWeight", weight, "not in valid range [0-100]")

    def __init__(self, args: Mapping[str, Any]) -> None:
        """args: `hardPodAffinityWeight`, `ignorePreferredTermsOfExistingPods`."""
        weight = args.get("hardPodAffinityWeight")
        self._hard_weight: int = 1 if weight is None else weight
        self._ignores_existing = bool(args.get("ignorePreferredTermsOfExistingPods"))

    @override
    def pre_filter(self, cycle: Cycle) -> Skip | None:
        pod = cycle.pod
        existing = [
            each for each in cycle.cluster.index.carried_for(pod) if each.kind == "anti-required"
        ]
        if not (pod.affinity.required or pod.anti_affinity.required or existing):
            return SKIP
        cycle.states[self.name] = existing
        return None

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        cluster, pod, rows = cycle.cluster, cycle.pod, cycle.rows
        existing: list[Carried] = cycle.states[self.name]
        numbers = np.zeros(cluster.size, dtype=np.int64)[rows]
        for each in existing:
            at = in_domains(cluster, each.term.key, each.column.data[: cluster.size])[rows]
            numbers[at] = 3
        for term in pod.anti_affinity.required:
            counts = cluster.count((term.match,), counts_terminating=True)
            numbers[in_domains(cluster, term.key, counts)[rows]] = 2
        if pod.affinity.required:
            numbers[~_affine(cluster, pod)[rows]] = 1
        return Failures(numbers, (_AFFINITY, _ANTI, _EXISTING)) if numbers.any() else None

    @override
    def score(self, cycle: Cycle, feasible: IntArray) -> IntArray | None:
        pod, cluster = cycle.pod, cycle.cluster
        has_own = bool(pod.affinity.preferred or pod.anti_affinity.preferred)
        if self._ignores_existing and not has_own:
            return None
        total = np.zeros(cluster.size, dtype=np.int64)
        is_any = False
        for terms, sign in ((pod.affinity.preferred, 1), (pod.anti_affinity.preferred, -1)):
            for term in terms:
                counts = cluster.count((term.match,), counts_terminating=True)
                is_any |= _add(cluster, total, term.key, counts, sign * term.weight)
        for carried in cluster.index.carried_for(pod):
            weight = self._weight_of(carried)
            if weight:
                counts = carried.column.data[: cluster.size]
                is_any |= _add(cluster, total, carried.term.key, counts, weight)
        if not is_any:
            return None
        raw = total[feasible]
        least, most = int(raw.min()), int(raw.max())
        if most == least:
            return np.zeros(len(feasible), dtype=np.int64)
        shares = (raw - least) / float(most - least)
        return np.trunc(float(SCORE_MAX) * shares).astype(np.int64)

    def _weight_of(self, carried: Carried) -> int:
        if carried.kind == "required":
            return self._hard_weight
        if carried.kind == "preferred":
            return carried.term.weight
        return -carried.term.weight if carried.kind == "anti-preferred" else 0


def in_domains(cluster: Cluster, key: str, counts: IntArray) -> BoolArray:
    """Return which nodes are in the domain of a node that has some of the pods counted."""
    ids, values = cluster.label(key)
    table = np.zeros(len(values.texts) + 1, dtype=np.bool_)
    table[ids[(counts > 0) & (ids >= 0)]] = True
    found: BoolArray = table[ids]
    return found


def _affine(cluster: Cluster, pod: PodInfo) -> BoolArray:
    """Return which nodes have, for each required term, a pod that all terms mean."""
    terms = pod.affinity.required
    matches = tuple(term.match for term in terms)
    counts = cluster.count(matches, counts_terminating=True)
    is_met = cluster.is_valid.copy()
    has_keys = cluster.is_valid.copy()
    is_anywhere = False
    for key in dict.fromkeys(term.key for term in terms):
        ids, _ = cluster.label(key)
        has_keys &= ids >= 0
        is_anywhere = is_anywhere or bool(((counts > 0) & (ids >= 0)).any())
        is_met &= in_domains(cluster, key, counts)
    if not is_anywhere and cluster.index.means(matches, pod):
        # The first of pods that want to be together.
        return has_keys
    return is_met


def _add(cluster: Cluster, total: IntArray, key: str, counts: IntArray, weight: int) -> bool:
    """Add the weight for each pod counted to all nodes of its domain; return if there was one."""
    ids, values = cluster.label(key)
    has_some = (counts > 0) & (ids >= 0)
    if not has_some.any():
        return False
    # The last element is that of nodes without the label.
    sums = np.zeros(len(values.texts) + 1, dtype=np.int64)
    np.add.at(sums, ids[has_some], counts[has_some])
    total += weight * sums[ids]
    return True
