"""Whether one node would accept a pod, with a given set of pods on it. Pure.

    passes_with_nominated(pod, overlay, profile.filters, slot, now_s)     None: it would

Preemption asks this about nodes without their victims, the decision about nodes that others are
nominated for.
"""

from collections.abc import Sequence

import numpy as np

from kvstack.agents.scheduler.cycle import Code, Cycle, Only, Reason, Refusal, Skip
from kvstack.agents.scheduler.plugin import Plugin
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.overlay import Overlay
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo


def passes(
    pod: PodInfo, cluster: Cluster, filters: Sequence[Plugin], slot: int, now_s: float
) -> tuple[str, Reason] | None:
    """Look at one node as it is now; return the plugin that refuses it and why, or None."""
    cycle = Cycle(pod, cluster, np.array([slot], dtype=np.int64), now_s)
    filtering: list[Plugin] = []
    for plugin in filters:
        answer = plugin.pre_filter(cycle)
        if isinstance(answer, Skip):
            continue
        if isinstance(answer, Refusal):
            return plugin.name, Reason(answer.code, (answer.text,))
        if isinstance(answer, Only) and cluster.names[slot] not in answer.names:
            return plugin.name, outside([plugin.name])
        filtering.append(plugin)
    for plugin in filtering:
        failures = plugin.filter(cycle) if plugin.filters else None
        if failures is not None and failures.numbers[0]:
            return plugin.name, failures.reasons[int(failures.numbers[0]) - 1]
    return None


def passes_with_nominated(
    pod: PodInfo, overlay: Overlay, filters: Sequence[Plugin], slot: int, now_s: float
) -> tuple[str, Reason] | None:
    """Look at one node with the pods that are nominated for it, and then as the overlay is.

    The overlay is left as it was.
    """
    nominated = nominated_before(pod, overlay, overlay.names[slot])
    if nominated:
        for each in nominated:
            overlay.add_pod(each, overlay.names[slot])
        refusal = passes(pod, overlay, filters, slot, now_s)
        for each in nominated:
            overlay.remove_pod(each.uid)
        if refusal is not None:
            return refusal
    return passes(pod, overlay, filters, slot, now_s)


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


def outside(plugins: Sequence[str]) -> Reason:
    """Return why nodes are refused that are not among those that plugins named."""
    return Reason(Code.UNRESOLVABLE, (f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}]",))
