"""Counts and durations of calls of admission webhooks, under upstream's names."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kvstore.histograms import NANOSECOND_S, Histograms
from kvstore.server.metrics.exposition import FamilyKind, FamilySamples, labels

CALLING_ERROR: Final = "calling_webhook_error"
NO_ERROR: Final = "no_error"
SERVER_ERROR: Final = "apiserver_internal_error"
_BOUNDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0)
_PREFIX: Final = "apiserver_admission_webhook"
_CODE_MAX: Final = 600


class WebhookMetrics:
    """The calls of all webhooks."""

    def __init__(self) -> None:
        """Begin with none."""
        self._durations: Final = Histograms(_BOUNDS)
        self._requests: Counter[str] = Counter()
        self._rejections: Counter[str] = Counter()
        self._failed_open: Counter[str] = Counter()

    def add(
        self, name: str, type_: str, operation: str, code: int, error_type: str, took_ns: int
    ) -> None:
        """Count a call; error_type: why the request is refused, empty if it is not."""
        rejected = "true" if error_type else "false"
        timed = labels(name=name, operation=operation, rejected=rejected, type=type_)
        self._durations.add(timed, took_ns * NANOSECOND_S)
        shown = str(min(code, _CODE_MAX))
        counted = labels(code=shown, name=name, operation=operation, rejected=rejected, type=type_)
        self._requests[counted] += 1
        if error_type:
            rejection = labels(
                error_type=error_type,
                name=name,
                operation=operation,
                rejection_code=shown,
                type=type_,
            )
            self._rejections[rejection] += 1

    def count_failed_open(self, name: str, type_: str) -> None:
        """Count a call that failed and is ignored."""
        self._failed_open[labels(name=name, type=type_)] += 1

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        yield (
            f"{_PREFIX}_admission_duration_seconds",
            FamilyKind.HISTOGRAM,
            "Admission webhook latency histogram in seconds, identified by name and broken out for"
            " each operation and API resource and type (validate or admit).",
            self._durations.copies(),
        )
        for name, text, counts in (
            (
                "request_total",
                "Admission webhook request total, identified by name and broken out for each"
                " admission type (validating or mutating) and operation.",
                self._requests,
            ),
            (
                "rejection_count",
                "Admission webhook rejection count, identified by name and broken out for each"
                " admission type (validating or admit) and operation.",
                self._rejections,
            ),
            (
                "fail_open_count",
                "Admission webhook fail open count, identified by name and broken out for each"
                " admission type (validating or mutating).",
                self._failed_open,
            ),
        ):
            yield f"{_PREFIX}_{name}", FamilyKind.COUNTER, text, dict(counts)
