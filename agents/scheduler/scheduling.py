"""The decision: the best node for a pod, or why none is feasible. Pure.

    decision = schedule(pod, cluster, profile, turn)
    decision.node          "n3", or None
    decision.diagnosis     why not
    decision.turn          for the next decision

Plugins are asked in order, each about all nodes at once; a node is refused by the first that
refuses it. In large clusters the search ends at enough nodes that will do, and the next one begins
where it ended (`Turn`). Of equally good nodes the profile's way of breaking ties takes one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from kvstack.agents.scheduler.cycle import Cycle, Failures, Only, Reason, Refusal, Skip
from kvstack.agents.scheduler.diagnosis import Diagnosis, RefusedNodes
from kvstack.agents.scheduler.hints import EXTENDER
from kvstack.agents.scheduler.one_node import (
    nominated_before,
    outside,
    passes_with_nominated,
)
from kvstack.agents.scheduler.plugin import Plugin
from kvstack.agents.scheduler.profile import Profile
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.columns import BoolArray, IntArray
from kvstack.agents.scheduler.snapshot.overlay import Overlay
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

_ALL_BELOW: Final = 100
"""Clusters smaller than this are always looked at whole."""
_EMPTY: Final = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Turn:
    """The state that one decision passes to the next."""

    start: int = 0
    """The index of the node at which the next search starts."""
    last_chosen: int = -1
    """The position in the order of the node chosen last."""


@dataclass(slots=True)
class ExtenderResults:
    """The results of extenders for a pod."""

    names: list[str]
    """Nodes that all of them take."""
    refused: dict[str, Reason] = field(default_factory=dict)
    scores: dict[str, int] = field(default_factory=dict)
    """By node, to be added to the sums."""


@dataclass(slots=True)
class Decision:
    """The decision about a pod."""

    cycle: Cycle
    diagnosis: Diagnosis
    """Why the other nodes will not do."""
    turn: Turn
    """For the next decision."""
    slot: int = -1
    """The slot of the chosen node; -1: none is feasible."""
    feasible: IntArray = field(default_factory=lambda: _EMPTY)
    """Slots that will do, in the order in which they were looked at."""
    scores: dict[str, IntArray] = field(default_factory=dict)
    """By plugin, weighted; an element for each of `feasible`."""
    totals: IntArray = field(default_factory=lambda: _EMPTY)
    moments_s: dict[str, float] = field(default_factory=dict)
    """When the extension points ended; "" is the beginning. Empty without a clock."""

    @property
    def node(self) -> str | None:
        """The name of the chosen node."""
        return None if self.slot < 0 else self.cycle.cluster.names[self.slot]


def schedule(
    pod: PodInfo,
    cluster: Cluster,
    profile: Profile,
    turn: Turn,
    nominated_node: str = "",
    extender_results: ExtenderResults | None = None,
    clock: Callable[[], float] | None = None,
    now_s: float = 0.0,
) -> Decision:
    """Decide where a pod runs.

    nominated_node: the node to try first, and alone. extender_results: for the nodes that
    `find_feasible` returned; other nodes are then ignored. clock: for durations.
    now_s: seconds since 1970.
    """
    began_s = clock() if clock is not None else 0.0
    decision = Decision(Cycle(pod, cluster, now_s=now_s), Diagnosis(cluster.node_count), turn)
    if extender_results is None:
        _find_feasible(decision, profile, nominated_node)
    else:
        _keep_said(decision, profile, extender_results)
    if clock is not None:
        decision.moments_s = {"": began_s, "Filter": clock()}
    if not len(decision.feasible):
        return decision
    if len(decision.feasible) == 1:
        decision.slot = int(decision.feasible[0])
        return decision
    _score(decision, profile, extender_results)
    if clock is not None:
        decision.moments_s["Score"] = clock()
    decision.slot = _choose(decision, profile)
    return decision


def find_feasible(
    pod: PodInfo,
    cluster: Cluster,
    profile: Profile,
    turn: Turn,
    nominated_node: str = "",
    now_s: float = 0.0,
) -> tuple[list[str], Turn]:
    """Return the names of nodes that will do, what extenders are asked about; and the next turn."""
    decision = Decision(Cycle(pod, cluster, now_s=now_s), Diagnosis(cluster.node_count), turn)
    _find_feasible(decision, profile, nominated_node)
    return [cluster.names[slot] for slot in decision.feasible], decision.turn


def _find_feasible(decision: Decision, profile: Profile, nominated_node: str) -> None:
    cycle, diagnosis = decision.cycle, decision.diagnosis
    cluster = cycle.cluster
    plugins = prepare(cycle, profile.filters, diagnosis)
    if plugins is None:
        return
    is_alive = _filtered(cycle, plugins, diagnosis, profile)
    slot = cluster.slots.get(nominated_node, -1)
    if slot >= 0 and is_alive[slot]:
        decision.feasible = np.array([slot], dtype=np.int64)
    else:
        decision.feasible, decision.turn = _sampled(cluster, is_alive, profile, decision.turn)


def _keep_said(decision: Decision, profile: Profile, extender_results: ExtenderResults) -> None:
    """Keep the nodes that extenders take and that still will do: time has passed meanwhile."""
    cycle, diagnosis = decision.cycle, decision.diagnosis
    slots = cycle.cluster.slots
    plugins = prepare(cycle, profile.filters, diagnosis)
    if plugins is None:
        return
    is_alive = _filtered(cycle, plugins, diagnosis, profile)
    kept = [
        slot
        for name in extender_results.names
        if (slot := slots.get(name, -1)) >= 0 and is_alive[slot]
    ]
    decision.feasible = np.array(kept, dtype=np.int64)
    for name, reason in extender_results.refused.items():
        slot = slots.get(name, -1)
        if slot >= 0 and is_alive[slot]:
            diagnosis.others[slot] = reason
    if extender_results.refused:
        diagnosis.rejectors.add(EXTENDER)


def prepare(cycle: Cycle, plugins: Iterable[Plugin], diagnosis: Diagnosis) -> list[Plugin] | None:
    """Run pre-filters; return the plugins that filter. None: no node is feasible."""
    filtering: list[Plugin] = []
    names: frozenset[str] | None = None
    limiting: list[str] = []
    for plugin in plugins:
        answer = plugin.pre_filter(cycle)
        if isinstance(answer, Skip):
            continue
        filtering.append(plugin)
        if isinstance(answer, Refusal):
            diagnosis.rejectors.add(plugin.name)
            diagnosis.refusal, diagnosis.refused_by = answer, plugin.name
            return None
        if isinstance(answer, Only):
            limiting.append(plugin.name)
            names = answer.names if names is None else names & answer.names
    if names is not None:
        _keep_only(cycle, diagnosis, names, limiting)
    return filtering


def run_filters(cycle: Cycle, plugins: Iterable[Plugin], diagnosis: Diagnosis) -> BoolArray:
    """Run filters on all rows; return the feasible slots. Reasons go into the diagnosis."""
    is_alive = cycle.cluster.is_valid.copy()
    for each in diagnosis.refused:
        is_alive &= ~each.at
    for plugin in plugins:
        if not plugin.filters:
            continue
        cycle.is_alive = is_alive
        failures = plugin.filter(cycle)
        if failures is None:
            continue
        at = is_alive & (failures.numbers > 0)
        if at.any():
            diagnosis.refused.append(RefusedNodes(plugin.name, at, failures))
            diagnosis.rejectors.add(plugin.name)
            is_alive &= ~at
            if not is_alive.any():
                break
    return is_alive


def _filtered(
    cycle: Cycle, plugins: list[Plugin], diagnosis: Diagnosis, profile: Profile
) -> BoolArray:
    is_alive = run_filters(cycle, plugins, diagnosis)
    cluster, pod = cycle.cluster, cycle.pod
    overlay: Overlay | None = None
    for name in cluster.nominated:
        slot = cluster.slots.get(name, -1)
        if slot < 0 or not is_alive[slot] or not nominated_before(pod, cluster, name):
            continue
        overlay = overlay or Overlay(cluster)
        refusal = passes_with_nominated(pod, overlay, profile.filters, slot, cycle.now_s)
        if refusal is not None:
            is_alive[slot] = False
            diagnosis.others[slot] = refusal[1]
            diagnosis.rejectors.add(refusal[0])
    return is_alive


def _sampled(
    cluster: Cluster, is_alive: BoolArray, profile: Profile, turn: Turn
) -> tuple[IntArray, Turn]:
    """Return enough nodes that will do, from where the last search ended; and the next turn."""
    order = cluster.order
    count = len(order)
    nodes_max = enough(count, profile.percentage_of_nodes_to_score)
    if nodes_max >= count:
        all_feasible: IntArray = order[is_alive[order]]
        return all_feasible, turn
    start = turn.start % count
    turned = np.concatenate((order[start:], order[:start]))
    positions = is_alive[turned].nonzero()[0]
    if len(positions) > nodes_max:
        turn = replace(turn, start=(start + int(positions[nodes_max])) % count)
        positions = positions[:nodes_max]
    feasible: IntArray = turned[positions]
    return feasible, turn


def enough(count: int, percentage: int) -> int:
    """Return how many nodes that will do are enough, of so many; percentage 0: by their number."""
    if count < _ALL_BELOW or percentage >= 100:
        return count
    share = percentage or max(5, 50 - count // 125)
    return max(_ALL_BELOW, count * share // 100)


def _score(decision: Decision, profile: Profile, extender_results: ExtenderResults | None) -> None:
    feasible = decision.feasible
    totals = np.zeros(len(feasible), dtype=np.int64)
    for plugin, weight in profile.scorers:
        scores = plugin.score(decision.cycle, feasible)
        if scores is not None:
            weighted = scores * weight
            decision.scores[plugin.name] = weighted
            totals += weighted
    if extender_results is not None and extender_results.scores:
        names = decision.cycle.cluster.names
        totals += np.array(
            [extender_results.scores.get(names[slot], 0) for slot in feasible], dtype=np.int64
        )
    decision.totals = totals


def _choose(decision: Decision, profile: Profile) -> int:
    totals, feasible = decision.totals, decision.feasible
    if profile.tie_break == "heap":
        return int(feasible[heap_root(totals.tolist())])
    best = feasible[totals == totals.max()]
    cluster = decision.cycle.cluster
    positions = cluster.order_positions[best]
    later = positions[positions > decision.turn.last_chosen]
    position = int(later.min()) if len(later) else int(positions.min())
    decision.turn = replace(decision.turn, last_chosen=position)
    return int(cluster.order[position])


def heap_root(scores: list[int]) -> int:
    """Return which of the scores Go's heap has at its root: the way upstream breaks ties."""
    heap = list(range(len(scores)))
    for root in range(len(heap) // 2 - 1, -1, -1):
        parent = root
        while (child := 2 * parent + 1) < len(heap):
            right = child + 1
            if right < len(heap) and scores[heap[right]] > scores[heap[child]]:
                child = right
            if scores[heap[child]] <= scores[heap[parent]]:
                break
            heap[parent], heap[child] = heap[child], heap[parent]
            parent = child
    return heap[0]


def _keep_only(
    cycle: Cycle, diagnosis: Diagnosis, names: frozenset[str], plugins: list[str]
) -> None:
    cluster = cycle.cluster
    at = cluster.is_valid.copy()
    for name in names:
        slot = cluster.slots.get(name)
        if slot is not None:
            at[slot] = False
    if at.any():
        failures = Failures(at.astype(np.int64), (outside(plugins),))
        diagnosis.refused.append(RefusedNodes(plugins[0], at, failures))
        diagnosis.rejectors.update(plugins)
