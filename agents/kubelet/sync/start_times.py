"""How long pods take to start, for the service level: from their creation until they run.

The time for which images were pulled does not count. Pods with init containers are left out, since
how long these take is the user's affair; so are pods that are older than their kubelet, and such as
had run before.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from kvstack.apimachinery.objects.times import parse_time
from kvstack.component.metrics.histograms import Histogram

Object: TypeAlias = Mapping[str, Any]

BOUNDS_S: Final = (
    0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900,
    1200, 1800, 2700, 3600,
)  # fmt: skip
_NEW: Final = (None, "Pending")
_RUNNING: Final = "Running"


class StartTimes:
    """The times of one node's pods."""

    def __init__(self, since_s: float) -> None:
        """since_s: when the kubelet started."""
        self._since_s = since_s
        self.histogram = Histogram(BOUNDS_S)

    def observe(
        self, pod: Object, before: Object | None, status: Object, pulling_s: float, now_s: float
    ) -> None:
        """Take a status that was written; before: the one before it, of this kubelet."""
        shown = (pod.get("status") or {}) if before is None else before
        if status.get("phase") != _RUNNING or shown.get("phase") not in _NEW:
            return
        if pod["spec"].get("initContainers"):
            return
        created_s, _ = parse_time(pod["metadata"]["creationTimestamp"])
        if created_s >= int(self._since_s):
            self.histogram.add(max(now_s - created_s - pulling_s, 0.0))
