"""Histograms for the metrics page: counts by upper bound, and the sum of all values.

Plain numbers, cheap enough for hot paths: one bisect and three additions a value.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from kvstack.component.units import NANOSECOND_S as NANOSECOND_S


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Return count bucket bounds: first, first * factor, ..."""
    return tuple(first * factor**power for power in range(count))


DISK_BOUNDS: Final = exponential(0.001, 2, 14)
PROMETHEUS_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The default bounds of histograms."""


class Histogram:
    """Observations by size: counts[i] is the number in (bounds[i - 1], bounds[i]].

    The last count is that of all values above the last bound; total is the sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Take ascending bounds."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, once or count times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def copy(self) -> "Histogram":
        """Return a copy."""
        other = Histogram(self.bounds)
        other.counts, other.total = list(self.counts), self.total
        return other
