"""Preemption: chooses victims so that a pod can run. Pure.

    found = preempt(unplaced, limits, now_s, offset)
    found.node, found.victims     where it could run, and without whom
    found.text                    the message about it

On each node that would do without some pods: all pods of lower priority are taken off; those that
can be put back, the most important first and those under a disruption budget before all others,
are spared. The node is taken that hurts least. Budgets are a preference, not a veto.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvstack.agents.scheduler.cycle import Code, Reason
from kvstack.agents.scheduler.diagnosis import count_texts, histogram
from kvstack.agents.scheduler.handle import Candidate
from kvstack.agents.scheduler.one_node import passes_with_nominated
from kvstack.agents.scheduler.plugin import Plugin, Unplaced
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.overlay import Overlay
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo, selector_of
from kvstack.apimachinery.objects.core.pod_status import condition_of
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import parse_time

DISRUPTION: Final = "DisruptionTarget"
BY_SCHEDULER: Final = "PreemptionByScheduler"
_NO_VICTIMS: Final = Reason(Code.UNRESOLVABLE, ("No preemption victims found for incoming pod",))
_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_PRIORITY_OFFSET: Final = 2**31


class Preemption(NamedTuple):
    """The outcome of preemption."""

    text: str
    node: str = ""
    victims: tuple[PodInfo, ...] = ()
    keeps_nomination: bool = False
    """Whether the pod's nominated node is kept."""


class Limits(NamedTuple):
    """The number of candidates that suffice: a share of the nodes, and a minimum."""

    percentage: int = 10
    absolute: int = 100


def preempt(unplaced: Unplaced, limits: Limits, now_s: float, offset: int) -> Preemption:
    """Return who has to go; now_s: seconds since 1970; offset: with which node to begin."""
    found = candidates(unplaced, limits, now_s, offset)
    if isinstance(found, Preemption):
        return found
    return best_of(found, unplaced.cycle.cluster, now_s)


def candidates(
    unplaced: Unplaced, limits: Limits, now_s: float, offset: int
) -> list[Candidate] | Preemption:
    """Return where the pod could run without some pods, or why nowhere."""
    pod, cluster = unplaced.cycle.pod, unplaced.cycle.cluster
    obstacle = _obstacle(pod, unplaced)
    if obstacle:
        return Preemption(f"preemption: {obstacle}", keeps_nomination=True)
    overlay = Overlay(cluster)
    slots = unplaced.diagnosis.slots_of(Code.UNSCHEDULABLE)
    candidates_max = _candidate_count(len(slots), limits)
    possible: list[Candidate] = []
    refused: list[Reason] = []
    for step in range(len(slots)):
        slot = slots[(offset + step) % len(slots)]
        tried = _try_node(pod, overlay, unplaced.filters, slot, now_s)
        if isinstance(tried, Reason):
            refused.append(tried)
            continue
        possible.append(tried)
        if len(possible) >= candidates_max and any(not each.violations for each in possible):
            break
    if not possible:
        return Preemption(f"preemption: {_nothing(cluster, refused, len(slots))}")
    return possible


def best_of(found: Sequence[Candidate], cluster: Cluster, now_s: float) -> Preemption:
    """Return the candidate that hurts least."""
    if not found:
        return Preemption("preemption: no candidate node for preemption")
    best = _best(found, now_s)
    node = cluster.names[best.slot]
    text = (
        f"preemption: found a potential placement for pod on node {node},"
        f" preempting {len(best.victims)} victims"
    )
    return Preemption(text, node, best.victims)


def _obstacle(pod: PodInfo, unplaced: Unplaced) -> str:
    """Return why a pod may not push others away; empty: it may."""
    if pod.spec.get("preemptionPolicy") == "Never":
        return "not eligible due to preemptionPolicy=Never."
    cluster = unplaced.cycle.cluster
    nominated = (pod.obj.get("status") or {}).get("nominatedNodeName")
    nominated = nominated or cluster.nominated_node(pod.uid)
    slot = cluster.slots.get(nominated, -1)
    if slot < 0:
        return ""
    reason = unplaced.diagnosis.reason_of(slot)
    if reason is not None and reason.code is Code.UNRESOLVABLE:
        return ""
    if any(
        each.priority < pod.priority and each.is_terminating and _is_preempted(each)
        for each in cluster.pods_on[slot].values()
    ):
        return "not eligible due to a terminating pod on the nominated node."
    return ""


def _is_preempted(pod: PodInfo) -> bool:
    condition = condition_of(pod.obj, DISRUPTION)
    return (
        condition is not None
        and condition["status"] == "True"
        and condition.get("reason") == BY_SCHEDULER
    )


def _candidate_count(nodes: int, limits: Limits) -> int:
    share = nodes * limits.percentage // 100
    return min(nodes, max(share, limits.absolute))


def _nothing(cluster: Cluster, refused: list[Reason], tried: int) -> str:
    counts = count_texts(refused)
    others = cluster.node_count - tried
    if others:
        counts[_NOT_HELPFUL] += others
    return f"0/{cluster.node_count} nodes are available: {histogram(counts)}."


def _try_node(
    pod: PodInfo, overlay: Overlay, filters: Sequence[Plugin], slot: int, now_s: float
) -> Candidate | Reason:
    """Return who has to leave a node, or why that would not help. The overlay is left as it was."""
    name = overlay.names[slot]
    lower = [each for each in overlay.pods_on[slot].values() if each.priority < pod.priority]
    if not lower:
        return _NO_VICTIMS
    removed = {each.uid: each for each in lower}
    for each in lower:
        overlay.remove_pod(each.uid)
    try:
        refusal = passes_with_nominated(pod, overlay, filters, slot, now_s)
        if refusal is not None:
            return refusal[1]
        lower.sort(key=lambda each: (-each.priority, _start_s(each, now_s)))
        violating, others = _by_budget(lower, overlay)
        violations = 0
        for each in (*violating, *others):
            overlay.add_pod(each, name)
            del removed[each.uid]
            if passes_with_nominated(pod, overlay, filters, slot, now_s) is not None:
                overlay.remove_pod(each.uid)
                removed[each.uid] = each
                violations += each in violating
        victims = tuple(each for each in (*violating, *others) if each.uid in removed)
        return Candidate(slot, victims, violations)
    finally:
        for each in removed.values():
            overlay.add_pod(each, name)


def _by_budget(pods: Sequence[PodInfo], cluster: Cluster) -> tuple[list[PodInfo], list[PodInfo]]:
    """Return the pods whose budgets do not allow them to go, and the others."""
    allowed: dict[str, int] = {}
    violating: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        is_violating = False
        for key, budget in cluster.budgets.items():
            if not pod.labels or not _covers(budget, pod):
                continue
            status = budget.get("status") or {}
            if pod.name in (status.get("disruptedPods") or {}):
                continue
            left = allowed.get(key, status.get("disruptionsAllowed") or 0) - 1
            allowed[key] = left
            is_violating = is_violating or left < 0
        (violating if is_violating else others).append(pod)
    return violating, others


def _covers(budget: Object, pod: PodInfo) -> bool:
    if budget["metadata"]["namespace"] != pod.namespace:
        return False
    selector = selector_of(budget["spec"].get("selector"))
    return not selector.is_everything and selector.matches(pod.labels)


def _best(candidates: Sequence[Candidate], now_s: float) -> Candidate:
    """Return the candidate that hurts least: each measure decides among those equal so far."""

    def harm(each: Candidate) -> tuple[float, ...]:
        victims = each.victims
        if not victims:
            return (each.violations, -_PRIORITY_OFFSET, 0, 0, -now_s)
        top = max(victim.priority for victim in victims)
        starts = [_start_s(victim, now_s) for victim in victims if victim.priority == top]
        total = sum(victim.priority + _PRIORITY_OFFSET for victim in victims)
        return (each.violations, top, total, len(victims), -min(starts))

    return min(candidates, key=harm)


def _start_s(pod: PodInfo, now_s: float) -> float:
    text = (pod.obj.get("status") or {}).get("startTime")
    return now_s if not text else float(parse_time(text).seconds)
