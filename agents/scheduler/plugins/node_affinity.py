"""Node selectors and node affinity of pods, and affinity added by the configuration."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.arguments import Anything, Fields
from kvstack.agents.scheduler.cycle import (
    SKIP,
    Code,
    Cycle,
    Failures,
    Only,
    Reason,
    Refusal,
    Skip,
    normalized,
)
from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    NODE_LABEL,
)
from kvstack.agents.scheduler.events.nodes import is_selected
from kvstack.agents.scheduler.plugin import Args, Hints, Plugin
from kvstack.agents.scheduler.snapshot import node_selectors
from kvstack.agents.scheduler.snapshot.columns import BoolArray, IntArray
from kvstack.apimachinery.objects.json_object import Object

_ADDED: Final = Reason(
    Code.UNRESOLVABLE, ("node(s) didn't match scheduler-enforced node affinity",)
)
_OWN: Final = Reason(Code.UNRESOLVABLE, ("node(s) didn't match Pod's node affinity/selector",))
_CONFLICT: Final = Refusal(Code.UNRESOLVABLE, "pod affinity terms conflict")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class NodeAffinity(Plugin):
    """Pods run where the labels of nodes are as they ask."""

    name = "NodeAffinity"
    default_weight = 2
    arg_fields: ClassVar[Fields | None] = {"addedAffinity": Anything}
    arg_defaults: ClassVar[Args] = {}
    hints: ClassVar[Hints] = {NODE_ADD: is_selected, NODE_LABEL: is_selected}

    def __init__(self, args: Mapping[str, Any]) -> None:
        """args: `addedAffinity`, a NodeAffinity all pods have besides."""
        added = args.get("addedAffinity") or {}
        self._added_required: Object | None = added.get(_REQUIRED)
        self._added_preferred: list[Object] = added.get(_PREFERRED) or []

    @override
    def pre_filter(self, cycle: Cycle) -> Skip | Only | Refusal | None:
        spec = cycle.pod.spec
        own = node_selectors.required_affinity(spec)
        if own is None and not spec.get("nodeSelector") and self._added_required is None:
            return SKIP
        names = _node_names(own)
        if names is None:
            return None
        return Only(names) if names else _CONFLICT

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        cluster = cycle.cluster
        numbers = np.zeros(cluster.size, dtype=np.int64)
        own = node_selectors.required(cluster, cycle.pod.spec)
        if own is not None:
            numbers[~own] = 2
        if self._added_required is not None:
            added: BoolArray = node_selectors.selected(cluster, self._added_required)
            numbers[~added] = 1
        numbers = numbers[cycle.rows]
        return Failures(numbers, (_ADDED, _OWN)) if numbers.any() else None

    @override
    def score(self, cycle: Cycle, feasible: IntArray) -> IntArray | None:
        node_affinity = (cycle.pod.spec.get("affinity") or {}).get("nodeAffinity") or {}
        preferred = [*(node_affinity.get(_PREFERRED) or ()), *self._added_preferred]
        if not preferred:
            return None
        total = np.zeros(len(feasible), dtype=np.int64)
        for each in preferred:
            total += (
                each["weight"] * node_selectors.term(cycle.cluster, each["preference"])[feasible]
            )
        return normalized(total)


def _node_names(affinity: Object | None) -> frozenset[str] | None:
    """Return the names of the nodes that can match; None: any."""
    terms = (affinity or {}).get("nodeSelectorTerms") or ()
    if not terms:
        return None
    union: set[str] = set()
    for term in terms:
        lists = [
            set(each.get("values") or ())
            for each in term.get("matchFields") or ()
            if each["key"] == "metadata.name" and each["operator"] == "In"
        ]
        if not lists:
            return None
        union |= set.intersection(*lists)
    return frozenset(union)
