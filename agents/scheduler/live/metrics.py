"""The scheduler's metrics, under upstream's names.

metrics.attempted("default-scheduler", "scheduled", 0.0004)
render(metrics.readings(queue.sizes(), …))
"""

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from kvstack.component.metrics.exposition import FamilyKind, FamilySamples
from kvstack.component.metrics.histograms import Histogram, exponential
from kvstack.component.metrics.labelled import LabelledCounter, LabelledHistogram, by_labels

SCHEDULED: Final = "scheduled"
UNSCHEDULABLE: Final = "unschedulable"
ERROR: Final = "error"

_ATTEMPT_BOUNDS: Final = exponential(0.001, 2, 15)
_POINT_BOUNDS: Final = exponential(0.0001, 2, 12)
_SLI_BOUNDS: Final = exponential(0.01, 2, 20)
_COUNT_BOUNDS: Final = tuple(exponential(1, 2, 5))
_VICTIM_BOUNDS: Final = tuple(exponential(1, 2, 7))


class Sizes(NamedTuple):
    """The current sizes."""

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
        self._attempts: Final = LabelledCounter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result.",
            *("profile", "result"),
        )
        self._durations: Final = LabelledHistogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds",
            _ATTEMPT_BOUNDS,
            *("profile", "result"),
        )
        self._sli: Final = LabelledHistogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Latency for a pod being scheduled, from the time it enters the queue.",
            _SLI_BOUNDS,
            "attempts",
        )
        self._points: Final = LabelledHistogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            _POINT_BOUNDS,
            *("extension_point", "profile", "status"),
        )
        self._pod_attempts = Histogram(_COUNT_BOUNDS)
        self._victims = Histogram(_VICTIM_BOUNDS)
        self._preemptions = 0

    def attempted(self, profile: str, result: str, took_s: float) -> None:
        """Count a scheduling attempt."""
        self._attempts.add(profile, result)
        self._durations.add(took_s, profile, result)

    def decided(self, profile: str, moments_s: Mapping[str, float], *, is_placed: bool) -> None:
        """Observe the durations of the extension points of a decision; moments: when they ended."""
        points = list(moments_s.items())
        for (_, began_s), (point, ended_s) in pairwise(points):
            is_success = is_placed or point != "Filter"
            self.took(point, profile, ended_s - began_s, is_success=is_success)

    def took(self, point: str, profile: str, took_s: float, *, is_success: bool = True) -> None:
        """Observe the duration of an extension point."""
        status = "Success" if is_success else "Unschedulable"
        self._points.add(took_s, point, profile, status)

    def bound(self, attempts: int, took_s: float) -> None:
        """Count a bound pod; took_s: since it was first seen."""
        self._pod_attempts.add(attempts)
        self._sli.add(took_s, str(attempts) if attempts < 15 else "15+")

    def preempted(self, victims: int) -> None:
        """Count a preemption; victims: the number of them."""
        self._preemptions += 1
        if victims:
            self._victims.add(victims)

    def readings(self, sizes: Sizes) -> list[FamilySamples]:
        """Return the samples of all families."""
        cache = {
            ("nodes",): sizes.nodes,
            ("pods",): sizes.pods,
            ("assumed_pods",): sizes.assumed,
        }
        pending = {(name,): count for name, count in sizes.pending.items()}
        incoming = {(event, queue): count for (queue, event), count in sizes.incoming.items()}
        counter, gauge, histogram = FamilyKind.COUNTER, FamilyKind.GAUGE, FamilyKind.HISTOGRAM
        return [
            self._attempts.samples(),
            self._durations.samples(),
            self._sli.samples(),
            self._points.samples(),
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
                by_labels(("queue",), pending),
            ),
            (
                "scheduler_queue_incoming_pods_total",
                counter,
                "Number of pods added to scheduling queues by event and queue type.",
                by_labels(("event", "queue"), incoming),
            ),
            (
                "scheduler_cache_size",
                gauge,
                "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
                by_labels(("type",), cache),
            ),
        ]
