"""Durations of CEL rules, for metrics, under upstream's names.

    with timed(COMPILED): …

All API servers of a process share them, as they share the compiled rules.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Final

from kvstack.component.metrics.histograms import NANOSECOND_S, PROMETHEUS_BOUNDS, Histogram

COMPILED: Final = Histogram(PROMETHEUS_BOUNDS)
"""Compilation of all rules of a schema, in seconds."""
EVALUATED: Final = Histogram(PROMETHEUS_BOUNDS)
"""Evaluation of all rules for one object, in seconds."""


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Measure a duration."""
    began = perf_counter_ns()
    try:
        yield
    finally:
        histogram.add((perf_counter_ns() - began) * NANOSECOND_S)
