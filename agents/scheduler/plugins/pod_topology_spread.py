"""Topology spread: spreads the pods that a selector matches over the domains of a label.

Constraints that must hold refuse nodes; others score them. A pod without constraints has those of
the configuration, for the pods of its services and its owner. Terminating pods do not count.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.arguments import Anything, ConfigurationError, Fields, invalid
from kvstack.agents.scheduler.cycle import SCORE_MAX, SKIP, Code, Cycle, Failures, Reason, Skip
from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    NODE_DELETE,
    NODE_LABEL,
    NODE_TAINT,
    OWN_LABEL,
    OWN_TOLERATION,
    POD_ADD,
    POD_DELETE,
    POD_LABEL,
)
from kvstack.agents.scheduler.events.nodes import changes_domains
from kvstack.agents.scheduler.events.pods import changes_spread
from kvstack.agents.scheduler.plugin import Args, Hints, Plugin, always
from kvstack.agents.scheduler.snapshot import node_selectors
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.columns import BoolArray, FloatArray, IdArray, IntArray
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo, PodMatch
from kvstack.agents.scheduler.snapshot.taints import keeps_away
from kvstack.agents.scheduler.spread_selectors import default_selector, own_selector
from kvstack.apimachinery.objects import labels as selectors
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector
from kvstack.apimachinery.well_known import HOSTNAME_LABEL, ZONE_LABEL

_TEXT: Final = "node(s) didn't match pod topology spread constraints"
_MISSING: Final = Reason(Code.UNRESOLVABLE, (f"{_TEXT} (missing required label)",))
_SKEWED: Final = Reason(Code.UNSCHEDULABLE, (_TEXT,))
_NO_DOMAIN: Final = 2**31 - 1
_SYSTEM: Final[tuple[Object, ...]] = (
    {"topologyKey": HOSTNAME_LABEL, "maxSkew": 3, "whenUnsatisfiable": "ScheduleAnyway"},
    {
        "topologyKey": ZONE_LABEL,
        "maxSkew": 5,
        "whenUnsatisfiable": "ScheduleAnyway",
    },
)


class Constraint(NamedTuple):
    """A constraint of a pod."""

    key: str
    max_skew: int
    selector: Selector
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


class PodTopologySpread(Plugin):
    """Pods run where few of their like do."""

    name = "PodTopologySpread"
    default_weight = 2
    arg_fields: ClassVar[Fields | None] = {"defaultConstraints": Anything, "defaultingType": str}
    arg_defaults: ClassVar[Args] = {"defaultingType": "System"}
    hints: ClassVar[Hints] = {
        **dict.fromkeys((POD_ADD, POD_LABEL, POD_DELETE), changes_spread),
        **dict.fromkeys((OWN_LABEL, OWN_TOLERATION), always),
        **dict.fromkeys((NODE_ADD, NODE_DELETE, NODE_LABEL, NODE_TAINT), changes_domains),
    }

    @classmethod
    @override
    def check_args(cls, args: Object, path: str) -> None:
        kind = args.get("defaultingType") or "System"
        if kind not in ("System", "List"):
            raise invalid(f"{path}.defaultingType", kind, "must be one of System, List")
        constraints = args.get("defaultConstraints") or ()
        if kind == "System" and constraints:
            raise ConfigurationError(
                f'{path}.defaultConstraints: Invalid value: when .defaultingType is "System",'
                " must be empty"
            )
        for number, each in enumerate(constraints):
            at = f"{path}.defaultConstraints[{number}]"
            if each.get("labelSelector"):
                raise ConfigurationError(
                    f"{at}.labelSelector: Forbidden: constraint must not define a selector, as they"
                    " deduced for each pod"
                )
            if (each.get("maxSkew") or 0) <= 0:
                raise invalid(f"{at}.maxSkew", each.get("maxSkew"), "must be greater than zero")
            if not each.get("topologyKey"):
                raise ConfigurationError(f"{at}.topologyKey: Required value: can not be empty")

    def __init__(self, args: Mapping[str, Any]) -> None:
        """args: `defaultingType`, `defaultConstraints`."""
        self._is_system = (args.get("defaultingType") or "System") == "System"
        self._defaults: Sequence[Object] = (
            _SYSTEM if self._is_system else args.get("defaultConstraints") or ()
        )

    @override
    def pre_filter(self, cycle: Cycle) -> Skip | None:
        constraints = self._constraints(cycle, "DoNotSchedule")
        if not constraints:
            return SKIP
        cycle.states[self.name] = constraints
        return None

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        constraints: list[Constraint] = cycle.states[self.name]
        cluster, pod, rows = cycle.cluster, cycle.pod, cycle.rows
        has_keys = _has_keys(cluster, constraints)
        numbers = np.zeros(cluster.size, dtype=np.int64)[rows]
        # The first constraint that refuses a node is the one that is shown.
        for each in reversed(constraints):
            ids, values = cluster.label(each.key)
            is_counted = has_keys & _is_included(cluster, pod, each)
            sums, is_domain = _sums(ids, len(values.texts), _counts(cluster, pod, each), is_counted)
            least = int(sums[is_domain].min()) if is_domain.any() else _NO_DOMAIN
            if int(is_domain.sum()) < each.min_domains:
                least = 0
            own = int(each.selector.matches(pod.labels))
            is_refused = (sums + own - least > each.max_skew)[ids][rows]
            numbers[is_refused] = 2
            numbers[ids[rows] < 0] = 1
        return Failures(numbers, (_MISSING, _SKEWED)) if numbers.any() else None

    @override
    def score(self, cycle: Cycle, feasible: IntArray) -> IntArray | None:
        constraints = self._constraints(cycle, "ScheduleAnyway")
        if not constraints:
            return None
        cluster, pod = cycle.cluster, cycle.pod
        requires_all = bool(pod.spec.get("topologySpreadConstraints")) or not self._is_system
        has_keys = _has_keys(cluster, constraints) if requires_all else cluster.is_valid
        is_scored = has_keys[feasible]
        total: FloatArray = np.zeros(len(feasible))
        for each in constraints:
            ids, values = cluster.label(each.key)
            at = ids[feasible]
            counts = _counts(cluster, pod, each)
            if each.key == HOSTNAME_LABEL:
                size = int(is_scored.sum())
                found = counts[feasible]
            else:
                size = len(np.unique(at[is_scored]))
                is_counted = has_keys & _is_included(cluster, pod, each)
                sums, _ = _sums(ids, len(values.texts), counts, is_counted)
                found = sums[at]
            scores = found * math.log(size + 2) + float(each.max_skew - 1)
            total += np.where(at >= 0, scores, 0.0)
        raw = np.floor(total + 0.5).astype(np.int64)
        return _normalized(raw, is_scored)

    def _constraints(self, cycle: Cycle, action: str) -> list[Constraint]:
        pod = cycle.pod
        own: Sequence[Object] = pod.spec.get("topologySpreadConstraints") or ()
        if own:
            return [
                _constraint(each, own_selector(each, pod))
                for each in own
                if each["whenUnsatisfiable"] == action
            ]
        wanted = [each for each in self._defaults if each["whenUnsatisfiable"] == action]
        if not wanted:
            return []
        selector = default_selector(cycle.cluster, pod)
        return [] if selector is None else [_constraint(each, selector) for each in wanted]


def _constraint(each: Object, selector: Selector) -> Constraint:
    return Constraint(
        each["topologyKey"],
        each["maxSkew"],
        selector,
        each.get("minDomains") or 1,
        each.get("nodeAffinityPolicy", "Honor") == "Honor",
        each.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def _counts(cluster: Cluster, pod: PodInfo, each: Constraint) -> IntArray:
    if each.selector.is_everything:
        # Upstream counts nothing for an empty selector.
        return np.zeros(cluster.size, dtype=np.int64)
    match = PodMatch(frozenset((pod.namespace,)), selectors.NOTHING, each.selector)
    return cluster.count((match,), counts_terminating=False)


def _has_keys(cluster: Cluster, constraints: Sequence[Constraint]) -> BoolArray:
    found = cluster.is_valid.copy()
    for each in constraints:
        found &= cluster.label(each.key)[0] >= 0
    return found


def _is_included(cluster: Cluster, pod: PodInfo, each: Constraint) -> BoolArray:
    """Return the nodes whose pods count."""
    included = cluster.is_valid
    if each.honors_affinity:
        allowed = node_selectors.required(cluster, pod.spec)
        if allowed is not None:
            included = included & allowed
    if each.honors_taints:
        tolerations = pod.spec.get("tolerations") or ()
        table = np.array(
            [not keeps_away(taints, tolerations) for taints in cluster.taint_lists],
            dtype=np.bool_,
        )
        included = included & table[cluster.taint_ids]
    return included


def _sums(
    ids: IdArray, size: int, counts: IntArray, is_counted: BoolArray
) -> tuple[IntArray, BoolArray]:
    """Return the pods of each domain, and which domains there are.

    The last element of both is that of nodes without the label: no pods, and no domain.
    """
    chosen = is_counted & (ids >= 0)
    sums = np.bincount(ids[chosen], weights=counts[chosen], minlength=size + 1)
    is_domain = np.zeros(size + 1, dtype=np.bool_)
    is_domain[ids[chosen]] = True
    return sums.astype(np.int64), is_domain


def _normalized(raw: IntArray, is_scored: BoolArray) -> IntArray:
    scores = np.zeros(len(raw), dtype=np.int64)
    scored = raw[is_scored]
    if len(scored):
        least, most = int(scored.min()), int(scored.max())
        if most == 0:
            scores[is_scored] = SCORE_MAX
        else:
            scores[is_scored] = SCORE_MAX * (most + least - scored) // most
    return scores
