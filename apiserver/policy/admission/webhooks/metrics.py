"""Counts and durations of webhook calls, under upstream's names."""

from collections.abc import Iterator
from typing import Final

from kvstack.component.metrics.exposition import FamilySamples
from kvstack.component.metrics.histograms import NANOSECOND_S
from kvstack.component.metrics.labelled import LabelledCounter, LabelledHistogram

CALLING_ERROR: Final = "calling_webhook_error"
NO_ERROR: Final = "no_error"
SERVER_ERROR: Final = "apiserver_internal_error"
_BOUNDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0)
_PREFIX: Final = "apiserver_admission_webhook"
_CODE_MAX: Final = 600


class WebhookMetrics:
    """Metrics of all webhooks."""

    def __init__(self) -> None:
        self._durations: Final = LabelledHistogram(
            f"{_PREFIX}_admission_duration_seconds",
            "Admission webhook latency histogram in seconds, identified by name and broken out for"
            " each operation and API resource and type (validate or admit).",
            _BOUNDS,
            *("name", "operation", "rejected", "type"),
        )
        self._requests: Final = LabelledCounter(
            f"{_PREFIX}_request_total",
            "Admission webhook request total, identified by name and broken out for each"
            " admission type (validating or mutating) and operation.",
            *("code", "name", "operation", "rejected", "type"),
        )
        self._rejections: Final = LabelledCounter(
            f"{_PREFIX}_rejection_count",
            "Admission webhook rejection count, identified by name and broken out for each"
            " admission type (validating or admit) and operation.",
            *("error_type", "name", "operation", "rejection_code", "type"),
        )
        self._failed_open: Final = LabelledCounter(
            f"{_PREFIX}_fail_open_count",
            "Admission webhook fail open count, identified by name and broken out for each"
            " admission type (validating or mutating).",
            *("name", "type"),
        )

    def add(
        self, name: str, type_: str, operation: str, code: int, error_type: str, took_ns: int
    ) -> None:
        """Count a call; error_type: why the request is refused, empty if it is not."""
        rejected = "true" if error_type else "false"
        self._durations.add(took_ns * NANOSECOND_S, name, operation, rejected, type_)
        shown = str(min(code, _CODE_MAX))
        self._requests.add(shown, name, operation, rejected, type_)
        if error_type:
            self._rejections.add(error_type, name, operation, shown, type_)

    def count_failed_open(self, name: str, type_: str) -> None:
        """Count a failed call that is ignored."""
        self._failed_open.add(name, type_)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        for each in (self._durations, self._requests, self._rejections, self._failed_open):
            yield each.samples()
