"""Counts and durations of conversions by webhooks, under upstream's names.

with metrics.timed("things.g.io", "v1", "v2") as call:
    …
    call.failure = MALFORMED        before what is wrong is raised
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kvstack.apiserver.kinds.custom.rule_times import COMPILED, EVALUATED
from kvstack.apiserver.registry.timing import Clock
from kvstore.histograms import NANOSECOND_S, Histograms, exponential
from kvstore.server.metrics.exposition import FamilyKind, FamilySamples, labels

CALL_FAILED: Final = "conversion_webhook_call_failure"
PARTIAL: Final = "conversion_webhook_partial_response_failure"
MALFORMED: Final = "conversion_webhook_malformed_response_failure"
INVALID: Final = "conversion_webhook_invalid_converted_object_failure"

_DEFINITION_BOUNDS: Final = exponential(0.001, 2, 15)
_CALL_BOUNDS: Final = (
    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip


class ConversionCall:
    """One call."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        """Nothing is wrong yet."""
        self.failure = CALL_FAILED
        """What it is that failed, if anything does."""


class ConversionMetrics:
    """The calls for all definitions."""

    def __init__(self, clock: Clock) -> None:
        """Begin with none."""
        self._clock: Final = clock
        self._definitions: Final = Histograms(_DEFINITION_BOUNDS)
        self._calls: Final = Histograms(_CALL_BOUNDS)

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
            self._definitions.add(
                labels(
                    crd_name=definition,
                    from_version=before,
                    succeeded="true" if is_good else "false",
                    to_version=after,
                ),
                took_s,
            )
            failure, result = ("", "success") if is_good else (call.failure, "failure")
            self._calls.add(labels(failure_type=failure, result=result), took_s)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        yield (
            "apiserver_crd_conversion_webhook_duration_seconds",
            FamilyKind.HISTOGRAM,
            "CRD webhook conversion duration in seconds",
            self._definitions.copies(),
        )
        yield (
            "apiserver_conversion_webhook_duration_seconds",
            FamilyKind.HISTOGRAM,
            "Conversion webhook request latency",
            self._calls.copies(),
        )
        yield (
            "apiserver_conversion_webhook_request_total",
            FamilyKind.COUNTER,
            "Counter for conversion webhook requests with success/failure and failure error type",
            self._calls.counts(),
        )


def rule_readings() -> Iterator[FamilySamples]:
    """Yield how long rules of custom resources take."""
    for name, histogram in (("compilation", COMPILED), ("evaluation", EVALUATED)):
        yield (
            f"apiserver_cel_{name}_duration_seconds",
            FamilyKind.HISTOGRAM,
            f"CEL {name} time in seconds.",
            histogram.copy(),
        )
