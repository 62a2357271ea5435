"""Counts and durations of conversions by webhooks, under upstream's names.

with metrics.timed("things.g.io", "v1", "v2") as call: …
call.failure = MALFORMED        before the error is raised
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kvstack.apiserver.apiextensions.customresources.rule_times import COMPILED, EVALUATED
from kvstack.component.clock import Clock
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples
from kvstack.component.metrics.histograms import NANOSECOND_S, exponential
from kvstack.component.metrics.labelled import LabelledHistogram

CALL_FAILED: Final = "conversion_webhook_call_failure"
PARTIAL: Final = "conversion_webhook_partial_response_failure"
MALFORMED: Final = "conversion_webhook_malformed_response_failure"
INVALID: Final = "conversion_webhook_invalid_converted_object_failure"

_DEFINITION_BOUNDS: Final = exponential(0.001, 2, 15)
_CALL_BOUNDS: Final = (
    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip


class ConversionCall:
    """One conversion call."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure = CALL_FAILED
        """The kind of failure, if any."""


class ConversionMetrics:
    """Metrics of all definitions."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._definitions: Final = LabelledHistogram(
            "apiserver_crd_conversion_webhook_duration_seconds",
            "CRD webhook conversion duration in seconds",
            _DEFINITION_BOUNDS,
            *("crd_name", "from_version", "succeeded", "to_version"),
        )
        self._calls: Final = LabelledHistogram(
            "apiserver_conversion_webhook_duration_seconds",
            "Conversion webhook request latency",
            _CALL_BOUNDS,
            *("failure_type", "result"),
        )

    @contextmanager
    def timed(self, definition: str, before: str, after: str) -> Iterator[ConversionCall]:
        """Count a call for the objects of a definition, from one version to another."""
        began = self._clock.monotonic_ns()
        call, is_good = ConversionCall(), False
        try:
            yield call
            is_good = True
        finally:
            took_s = (self._clock.monotonic_ns() - began) * NANOSECOND_S
            self._definitions.add(took_s, definition, before, "true" if is_good else "false", after)
            failure, result = ("", "success") if is_good else (call.failure, "failure")
            self._calls.add(took_s, failure, result)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        yield self._definitions.samples()
        yield self._calls.samples()
        yield self._calls.counted(
            "apiserver_conversion_webhook_request_total",
            "Counter for conversion webhook requests with success/failure and failure error type",
        )


def rule_readings() -> Iterator[FamilySamples]:
    """Yield the durations of CEL rules."""
    for name, histogram in (("compilation", COMPILED), ("evaluation", EVALUATED)):
        yield (
            f"apiserver_cel_{name}_duration_seconds",
            FamilyKind.HISTOGRAM,
            f"CEL {name} time in seconds.",
            histogram.copy(),
        )
