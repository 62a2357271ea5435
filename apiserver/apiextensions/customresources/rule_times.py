"""How long rules of custom resources take, for the page of metrics, under upstream's names.

    with timed(COMPILED): …

All API servers of a process share them, as they share the compiled rules.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Final

from kvstack.component.metrics.histograms import NANOSECOND_S, PROMETHEUS_BOUNDS, Histogram

COMPILED: Final = Histogram(PROMETHEUS_BOUNDS)
"""Of all rules of a schema together, in seconds."""
EVALUATED: Final = Histogram(PROMETHEUS_BOUNDS)
"""Of all rules for one object together, in seconds."""


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Count how long something takes."""
    began = perf_counter_ns()
    try:
        yield
    finally:
        histogram.add((perf_counter_ns() - began) * NANOSECOND_S)
