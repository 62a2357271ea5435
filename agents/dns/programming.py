"""How long changes of endpoints take until names have them: Kubernetes' DNS programming latency.

The controller of EndpointSlices notes on a slice when the change came that it was written for. So
clocks of two machines are compared. A slice that says nothing new, one without a Service, and one
that nobody selected pods for are not counted.
"""

from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import TimeError, parse_time
from kvstack.apimachinery.well_known import ENDPOINTS_TRIGGER_TIME_ANNOTATION
from kvstack.component.metrics.histograms import Histogram, exponential
from kvstack.component.units import NANOSECOND_S

CLUSTER_IP: Final = "cluster_ip"
HEADLESS: Final = "headless_with_selector"
SECONDS: Final = exponential(0.001, 2, 20)


class Programming:
    """The durations by kind of Service."""

    def __init__(self) -> None:
        self.seconds: Final[dict[str, Histogram]] = {}

    def count(self, old: Object | None, new: Object, now_s: float, *, is_headless: bool) -> None:
        """Count the change of a slice that names have now."""
        written = _trigger_time(new)
        if not written or (old is not None and _trigger_time(old) == written):
            return
        try:
            moment = parse_time(written)
        except TimeError:
            return  # anybody may write the annotation
        kind = HEADLESS if is_headless else CLUSTER_IP
        spent_s = now_s - moment.seconds - moment.nanoseconds * NANOSECOND_S
        self.seconds.setdefault(kind, Histogram(SECONDS)).add(max(0.0, spent_s))


def _trigger_time(obj: Object) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    found: str = annotations.get(ENDPOINTS_TRIGGER_TIME_ANNOTATION, "")
    return found
