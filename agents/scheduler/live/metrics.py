"""What the scheduler counts, under upstream's names.

metrics.attempted("default-scheduler", "scheduled", 0.0004)
render(metrics.readings(queue.sizes(), …))
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from kvstore.histograms import Histogram, exponential
from kvstore.server.metrics.exposition import FamilyKind, FamilySamples, labels

SCHEDULED: Final = "scheduled"
UNSCHEDULABLE: Final = "unschedulable"
ERROR: Final = "error"

_ATTEMPT_BOUNDS: Final = exponential(0.001, 2, 15)
_POINT_BOUNDS: Final = exponential(0.0001, 2, 12)
_SLI_BOUNDS: Final = exponential(0.01, 2, 20)
_COUNT_BOUNDS: Final = tuple(exponential(1, 2, 5))
_VICTIM_BOUNDS: Final = tuple(exponential(1, 2, 7))


class Sizes(NamedTuple):
    """How much there is now."""

    pending: dict[str, int]
    """Pods by queue: active, backoff, unschedulable, gated."""
    nodes: int
    pods: int
    assumed: int
    incoming: Mapping[tuple[str, str], int] = MappingProxyType({})
    """(queue, event) → how many pods came so far."""


class Metrics:
    """Counts attempts, and how long they took, in seconds."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self._attempts: dict[str, int] = defaultdict(int)
        self._durations: dict[str, Histogram] = {}
        self._sli: dict[str, Histogram] = {}
        self._pod_attempts = Histogram(_COUNT_BOUNDS)
        self._victims = Histogram(_VICTIM_BOUNDS)
        self._preemptions = 0
        self._points: dict[tuple[str, str, bool], Histogram] = {}

    def attempted(self, profile: str, result: str, took_s: float) -> None:
        """Count an attempt to place a pod."""
        key = labels(profile=profile, result=result)
        self._attempts[key] += 1
        found = self._durations.get(key)
        if found is None:
            found = self._durations[key] = Histogram(_ATTEMPT_BOUNDS)
        found.add(took_s)

    def decided(self, profile: str, moments_s: Mapping[str, float], *, is_placed: bool) -> None:
        """Count how long the extension points of a decision took; moments: when they ended."""
        points = list(moments_s.items())
        for (_, began_s), (point, ended_s) in pairwise(points):
            is_success = is_placed or point != "Filter"
            self.took(point, profile, ended_s - began_s, is_success=is_success)

    def took(self, point: str, profile: str, took_s: float, *, is_success: bool = True) -> None:
        """Count how long all plugins of an extension point took together."""
        key = (point, profile, is_success)
        found = self._points.get(key)
        if found is None:
            found = self._points[key] = Histogram(_POINT_BOUNDS)
        found.add(took_s)

    def bound(self, attempts: int, took_s: float) -> None:
        """Count a pod that was bound; took_s: since it was first seen."""
        self._pod_attempts.add(attempts)
        key = labels(attempts=str(attempts) if attempts < 15 else "15+")
        found = self._sli.get(key)
        if found is None:
            found = self._sli[key] = Histogram(_SLI_BOUNDS)
        found.add(took_s)

    def preempted(self, victims: int) -> None:
        """Count a try to push pods away; victims: how many had to go."""
        self._preemptions += 1
        if victims:
            self._victims.add(victims)

    def readings(self, sizes: Sizes) -> list[FamilySamples]:
        """Return the samples of all families."""
        cache = {"nodes": sizes.nodes, "pods": sizes.pods, "assumed_pods": sizes.assumed}
        counter, gauge, histogram = FamilyKind.COUNTER, FamilyKind.GAUGE, FamilyKind.HISTOGRAM
        return [
            (
                "scheduler_schedule_attempts_total",
                counter,
                "Number of attempts to schedule pods, by the result.",
                dict(self._attempts),
            ),
            (
                "scheduler_scheduling_attempt_duration_seconds",
                histogram,
                "Scheduling attempt latency in seconds",
                dict(self._durations),
            ),
            (
                "scheduler_pod_scheduling_sli_duration_seconds",
                histogram,
                "Latency for a pod being scheduled, from the time it enters the queue.",
                dict(self._sli),
            ),
            (
                "scheduler_pod_scheduling_attempts",
                histogram,
                "Number of attempts to successfully schedule a pod.",
                self._pod_attempts,
            ),
            (
                "scheduler_preemption_attempts_total",
                counter,
                "Total preemption attempts in the cluster till now",
                self._preemptions,
            ),
            (
                "scheduler_preemption_victims",
                histogram,
                "Number of selected preemption victims",
                self._victims,
            ),
            (
                "scheduler_pending_pods",
                gauge,
                "Number of pending pods, by the queue type.",
                {labels(queue=name): count for name, count in sizes.pending.items()},
            ),
            (
                "scheduler_queue_incoming_pods_total",
                counter,
                "Number of pods added to scheduling queues by event and queue type.",
                {
                    labels(event=event, queue=queue): count
                    for (queue, event), count in sizes.incoming.items()
                },
            ),
            (
                "scheduler_framework_extension_point_duration_seconds",
                histogram,
                "Latency for running all plugins of a specific extension point.",
                {
                    labels(
                        extension_point=point,
                        profile=profile,
                        status="Success" if is_success else "Unschedulable",
                    ): found
                    for (point, profile, is_success), found in self._points.items()
                },
            ),
            (
                "scheduler_cache_size",
                gauge,
                "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
                {labels(type=name): count for name, count in cache.items()},
            ),
        ]
