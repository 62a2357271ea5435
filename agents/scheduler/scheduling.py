"""The decision: which node is best for a pod, or why none will do. Pure.

    decision = schedule(pod, cluster, profile, turn)
    decision.node          "n3", or None
    decision.diagnosis     why not

Plugins are asked in order, each about all nodes at once; a node is refused by the first that
refuses it. In large clusters the search ends at enough nodes that will do, and the next one begins
where it ended (`Turn`). Of equally good nodes the profile's way of breaking ties takes one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kvstack.agents.scheduler.cycle import (
    Code,
    Cycle,
    Failures,
    Only,
    Plugin,
    Reason,
    Refusal,
    Skip,
)
from kvstack.agents.scheduler.diagnosis import Diagnosis, Refused
from kvstack.agents.scheduler.events.hints import EXTENDER
from kvstack.agents.scheduler.profile import Profile
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.columns import BoolArray, IntArray
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

_ALL_BELOW: Final = 100
"""Clusters smaller than this are always looked at whole."""
_EMPTY: Final = np.zeros(0, dtype=np.int64)


@dataclass(slots=True)
class Turn:
    """What is kept from one pod to the next."""

    start: int = 0
    """Where in the order of nodes the next search begins."""
    last_chosen: int = -1
    """The place in the order of the node chosen last."""


@dataclass(slots=True)
class Said:
    """What extenders said about a pod."""

    names: list[str]
    """Nodes that all of them take."""
    refused: dict[str, Reason] = field(default_factory=dict)
    scores: dict[str, int] = field(default_factory=dict)
    """By node, to be added to the sums."""


@dataclass(slots=True)
class Decision:
    """What was decided about a pod."""

    cycle: Cycle
    diagnosis: Diagnosis
    """Why the other nodes will not do."""
    slot: int = -1
    """Of the chosen node; -1: none will do."""
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
    said: Said | None = None,
    clock: Callable[[], float] | None = None,
) -> Decision:
    """Decide where a pod runs.

    nominated_node: the node to try first, and alone. said: what extenders said about the nodes
    that `find_feasible` found; no other nodes are looked at then. clock: tells how long it took.
    """
    began_s = clock() if clock is not None else 0.0
    decision = Decision(Cycle(pod, cluster), Diagnosis(cluster.node_count))
    if said is None:
        _find_feasible(decision, profile, turn, nominated_node)
    else:
        _keep_said(decision, profile, said)
    if clock is not None:
        decision.moments_s = {"": began_s, "Filter": clock()}
    if not len(decision.feasible):
        return decision
    if len(decision.feasible) == 1:
        decision.slot = int(decision.feasible[0])
        return decision
    _score(decision, profile, said)
    if clock is not None:
        decision.moments_s["Score"] = clock()
    decision.slot = _choose(decision, profile, turn)
    return decision


def find_feasible(
    pod: PodInfo, cluster: Cluster, profile: Profile, turn: Turn, nominated_node: str = ""
) -> list[str]:
    """Return the names of nodes that will do: what extenders are asked about."""
    decision = Decision(Cycle(pod, cluster), Diagnosis(cluster.node_count))
    _find_feasible(decision, profile, turn, nominated_node)
    return [cluster.names[slot] for slot in decision.feasible]


def _find_feasible(decision: Decision, profile: Profile, turn: Turn, nominated_node: str) -> None:
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
        decision.feasible = _sampled(cluster, is_alive, profile, turn)


def _keep_said(decision: Decision, profile: Profile, said: Said) -> None:
    """Keep the nodes that extenders take and that still will do: time has passed meanwhile."""
    cycle, diagnosis = decision.cycle, decision.diagnosis
    slots = cycle.cluster.slots
    plugins = prepare(cycle, profile.filters, diagnosis)
    if plugins is None:
        return
    is_alive = _filtered(cycle, plugins, diagnosis, profile)
    kept = [slot for name in said.names if (slot := slots.get(name, -1)) >= 0 and is_alive[slot]]
    decision.feasible = np.array(kept, dtype=np.int64)
    for name, reason in said.refused.items():
        slot = slots.get(name, -1)
        if slot >= 0 and is_alive[slot]:
            diagnosis.others[slot] = reason
    if said.refused:
        diagnosis.rejectors.add(EXTENDER)


def prepare(cycle: Cycle, plugins: Iterable[Plugin], diagnosis: Diagnosis) -> list[Plugin] | None:
    """Let plugins prepare; return those that have nodes to refuse. None: no node will do."""
    asked: list[Plugin] = []
    names: frozenset[str] | None = None
    limiting: list[str] = []
    for plugin in plugins:
        answer = plugin.pre_filter(cycle)
        if isinstance(answer, Skip):
            continue
        asked.append(plugin)
        if isinstance(answer, Refusal):
            diagnosis.rejectors.add(plugin.name)
            diagnosis.refusal, diagnosis.refused_by = answer, plugin.name
            return None
        if isinstance(answer, Only):
            limiting.append(plugin.name)
            names = answer.names if names is None else names & answer.names
    if names is not None:
        _keep_only(cycle, diagnosis, names, limiting)
    return asked


def run_filters(cycle: Cycle, plugins: Iterable[Plugin], diagnosis: Diagnosis) -> BoolArray:
    """Ask plugins about all rows; return which slots will do. Reasons go into the diagnosis."""
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
            diagnosis.refused.append(Refused(plugin.name, at, failures))
            diagnosis.rejectors.add(plugin.name)
            is_alive &= ~at
            if not is_alive.any():
                break
    return is_alive


def passes(
    pod: PodInfo, cluster: Cluster, profile: Profile, slot: int
) -> tuple[str, Reason] | None:
    """Look at one node as it is now; return the plugin that refuses it and why, or None."""
    cycle = Cycle(pod, cluster, np.array([slot], dtype=np.int64))
    asked: list[Plugin] = []
    for plugin in profile.filters:
        answer = plugin.pre_filter(cycle)
        if isinstance(answer, Skip):
            continue
        if isinstance(answer, Refusal):
            return plugin.name, Reason(answer.code, (answer.text,))
        if isinstance(answer, Only) and cluster.names[slot] not in answer.names:
            return plugin.name, _outside([plugin.name])
        asked.append(plugin)
    for plugin in asked:
        failures = plugin.filter(cycle) if plugin.filters else None
        if failures is not None and failures.numbers[0]:
            return plugin.name, failures.reasons[int(failures.numbers[0]) - 1]
    return None


def passes_with_nominated(
    pod: PodInfo, cluster: Cluster, profile: Profile, slot: int
) -> tuple[str, Reason] | None:
    """Look at one node with the pods that are to run there, and then as it is."""
    nominated = nominated_before(pod, cluster, cluster.names[slot])
    if nominated:
        for each in nominated:
            cluster.add_pod(each, cluster.names[slot])
        try:
            found = passes(pod, cluster, profile, slot)
        finally:
            for each in nominated:
                cluster.remove_pod(each.uid)
        if found is not None:
            return found
    return passes(pod, cluster, profile, slot)


def nominated_before(pod: PodInfo, cluster: Cluster, node_name: str) -> list[PodInfo]:
    """Return the pods that are to run on a node and go before a pod."""
    waiting = cluster.nominated.get(node_name)
    if not waiting:
        return []
    return [
        each
        for each in waiting.values()
        if each.priority >= pod.priority and each.uid != pod.uid and each.uid not in cluster.pods
    ]


def _filtered(
    cycle: Cycle, plugins: list[Plugin], diagnosis: Diagnosis, profile: Profile
) -> BoolArray:
    is_alive = run_filters(cycle, plugins, diagnosis)
    cluster, pod = cycle.cluster, cycle.pod
    for name in list(cluster.nominated):
        slot = cluster.slots.get(name, -1)
        if slot < 0 or not is_alive[slot] or not nominated_before(pod, cluster, name):
            continue
        found = passes_with_nominated(pod, cluster, profile, slot)
        if found is not None:
            is_alive[slot] = False
            diagnosis.others[slot] = found[1]
            diagnosis.rejectors.add(found[0])
    return is_alive


def _sampled(cluster: Cluster, is_alive: BoolArray, profile: Profile, turn: Turn) -> IntArray:
    """Return enough nodes that will do, from where the last search ended."""
    order = cluster.order
    count = len(order)
    wanted = enough(count, profile.percentage_of_nodes_to_score)
    if wanted >= count:
        found: IntArray = order[is_alive[order]]
        return found
    start = turn.start % count
    turned = np.concatenate((order[start:], order[:start]))
    places = is_alive[turned].nonzero()[0]
    if len(places) > wanted:
        turn.start = (start + int(places[wanted])) % count
        places = places[:wanted]
    feasible: IntArray = turned[places]
    return feasible


def enough(count: int, percentage: int) -> int:
    """Return how many nodes that will do are enough, of so many; percentage 0: by their number."""
    if count < _ALL_BELOW or percentage >= 100:
        return count
    share = percentage or max(5, 50 - count // 125)
    return max(_ALL_BELOW, count * share // 100)


def _score(decision: Decision, profile: Profile, said: Said | None) -> None:
    feasible = decision.feasible
    totals = np.zeros(len(feasible), dtype=np.int64)
    for plugin, weight in profile.scorers:
        scores = plugin.score(decision.cycle, feasible)
        if scores is not None:
            weighted = scores * weight
            decision.scores[plugin.name] = weighted
            totals += weighted
    if said is not None and said.scores:
        names = decision.cycle.cluster.names
        totals += np.array([said.scores.get(names[slot], 0) for slot in feasible], dtype=np.int64)
    decision.totals = totals


def _choose(decision: Decision, profile: Profile, turn: Turn) -> int:
    totals, feasible = decision.totals, decision.feasible
    if profile.tie_break == "heap":
        return int(feasible[heap_root(totals.tolist())])
    best = feasible[totals == totals.max()]
    cluster = decision.cycle.cluster
    places = cluster.order_places[best]
    later = places[places > turn.last_chosen]
    place = int(later.min()) if len(later) else int(places.min())
    turn.last_chosen = place
    return int(cluster.order[place])


def heap_root(scores: list[int]) -> int:
    """Return which of the scores Go's heap has at its root: the way upstream breaks ties."""
    heap = list(range(len(scores)))
    for root in range(len(heap) // 2 - 1, -1, -1):
        place = root
        while (child := 2 * place + 1) < len(heap):
            right = child + 1
            if right < len(heap) and scores[heap[right]] > scores[heap[child]]:
                child = right
            if scores[heap[child]] <= scores[heap[place]]:
                break
            heap[place], heap[child] = heap[child], heap[place]
            place = child
    return heap[0]


def _outside(plugins: list[str]) -> Reason:
    return Reason(Code.UNRESOLVABLE, (f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}]",))


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
        failures = Failures(at.astype(np.int64), (_outside(plugins),))
        diagnosis.refused.append(Refused(plugins[0], at, failures))
        diagnosis.rejectors.update(plugins)
