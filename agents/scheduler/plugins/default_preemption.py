"""Preemption: pods of lower priority are deleted so that a pod can run.

Who has to go is decided in `preemption`. The deletions go on aside; meanwhile the pod is not tried.
"""

from typing import ClassVar, Final

from typing_extensions import override

from kvstack.agents.scheduler.arguments import SHARE_MAX, ConfigurationError, Fields, invalid
from kvstack.agents.scheduler.cycle import Code
from kvstack.agents.scheduler.handle import Handle, PostFilterResult
from kvstack.agents.scheduler.plugin import Args, Plugin, Unplaced
from kvstack.agents.scheduler.preemption import (
    BY_SCHEDULER,
    DISRUPTION,
    Limits,
    Preemption,
    best_of,
    candidates,
)
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time


class DefaultPreemption(Plugin):
    """Pods of higher priority may take the room of others."""

    name = "DefaultPreemption"
    arg_fields: ClassVar[Fields | None] = {
        "minCandidateNodesPercentage": int,
        "minCandidateNodesAbsolute": int,
    }
    arg_defaults: ClassVar[Args] = {
        "minCandidateNodesAbsolute": 100,
        "minCandidateNodesPercentage": 10,
    }

    @classmethod
    @override
    def check_args(cls, args: Object, path: str) -> None:
        share = args.get("minCandidateNodesPercentage", 10)
        least = args.get("minCandidateNodesAbsolute", 100)
        if not 0 <= share <= SHARE_MAX:
            raise invalid(
                f"{path}.minCandidateNodesPercentage", share, "not in valid range [0, 100]"
            )
        if least < 0:
            raise invalid(f"{path}.minCandidateNodesAbsolute", least, "not in valid range [0, inf)")
        if not share and not least:
            raise ConfigurationError(
                f"{path}: minCandidateNodesPercentage and minCandidateNodesAbsolute"
                " cannot both be zero"
            )

    def __init__(self, args: Args) -> None:
        """args: DefaultPreemptionArgs."""
        usual = Limits()
        self._limits: Final = Limits(
            args.get("minCandidateNodesPercentage", usual.percentage),
            args.get("minCandidateNodesAbsolute", usual.absolute),
        )

    @override
    def pre_enqueue(self, pod: PodInfo, cluster: Cluster) -> bool:
        """A pod waits until the last of its victims is on its way."""
        return pod.uid not in cluster.preempting

    @override
    async def post_filter(self, handle: Handle, unplaced: Unplaced) -> PostFilterResult:
        """Look for pods of lower priority to push away, and begin with it."""
        pod, cluster = unplaced.cycle.pod, unplaced.cycle.cluster
        now_s = handle.now_s()
        preemption = candidates(
            unplaced, self._limits, now_s, int(handle.random() * cluster.node_count)
        )
        if not isinstance(preemption, Preemption):
            left = await handle.spare(pod, preemption)
            preemption = best_of(left, cluster, now_s)
        handle.count_preemption(len(preemption.victims))
        if not preemption.node:
            nominated = None if preemption.keeps_nomination else ""
            return PostFilterResult(Code.UNSCHEDULABLE, preemption.text, nominated)
        cluster.preempting.add(pod.uid)
        handle.begin(_push_away(handle, pod, preemption), f"preempt for {pod.key}")
        return PostFilterResult(None, preemption.text, preemption.node)


async def _push_away(handle: Handle, pod: PodInfo, preemption: Preemption) -> None:
    """Delete the victims, the last one when the others are on their way."""
    cluster = handle.cluster
    try:
        waiting = cluster.nominated.get(preemption.node, {})
        lower = [each for each in waiting.values() if each.priority < pod.priority]
        for each in lower:
            cluster.unnominate(each.uid)
            await handle.patch_pod_status(each, {"nominatedNodeName": None})
        victims = preemption.victims
        await handle.together(_delete(handle, each, pod, preemption.node) for each in victims[:-1])
        for each in victims[-1:]:
            await _delete(handle, each, pod, preemption.node)
    finally:
        cluster.preempting.discard(pod.uid)
        handle.activate(pod)


async def _delete(handle: Handle, victim: PodInfo, pod: PodInfo, node: str) -> None:
    """Set the condition of a victim, and delete it."""
    if victim.is_terminating:
        return
    scheduler = pod.spec["schedulerName"]
    condition = {
        "type": DISRUPTION,
        "status": "True",
        "reason": BY_SCHEDULER,
        "message": f"{scheduler}: preempting to accommodate a higher priority pod",
        "lastTransitionTime": format_time(int(handle.now_s())),
    }
    if (generation := victim.obj["metadata"].get("generation")) is not None:
        condition["observedGeneration"] = generation
    was_there = await handle.patch_pod_status(victim, {"conditions": [condition]})
    if was_there and await handle.delete_pod(victim):
        text = f"Preempted by pod {pod.uid} on node {node}"
        handle.record(victim, "Preempted", "Preempting", text)
