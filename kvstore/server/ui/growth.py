"""Growth of the database, and a forecast of when it reaches its quota.

    growth.add(now_ms, in_use_bytes)       once a minute; more frequent samples are dropped
    growth.forecast(quota_bytes)           None for the first ten minutes

The forecast is the straight line through the samples of up to two days (least squares), so that
compactions, after which pages are free again, do not count as shrinking. Samples begin anew with
the process.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

SAMPLE_MS: Final = 60_000
SAMPLES_MAX: Final = 2 * 24 * 60
SPAN_MIN_MS: Final = 10 * 60_000
SHOWN_MAX: Final = 120
_DAY_MS: Final = 24 * 3600 * 1000


class Sample(NamedTuple):
    """The size of the used pages at one moment."""

    at_ms: int
    """Monotonic."""
    in_use_bytes: int


class Forecast(NamedTuple):
    """A forecast from the growth so far."""

    span_s: float
    """The time between the first and the last sample."""
    bytes_per_day: int
    full_in_s: float | None
    """The time until the quota is used up; None: it will not be, or there is no quota."""


class Growth:
    """The samples."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)

    def add(self, at_ms: int, in_use_bytes: int) -> None:
        """Keep a sample, unless the last one is younger than a minute."""
        if not self._samples or at_ms - self._samples[-1].at_ms >= SAMPLE_MS:
            self._samples.append(Sample(at_ms, in_use_bytes))

    def forecast(self, quota_bytes: int) -> Forecast | None:
        """Return a forecast, None if there are too few samples; quota_bytes 0: no quota."""
        samples = self._samples
        if not samples or samples[-1].at_ms - samples[0].at_ms < SPAN_MIN_MS:
            return None
        slope = _slope(samples)  # bytes a millisecond
        full_in_s = None
        left = quota_bytes - samples[-1].in_use_bytes
        if quota_bytes and slope > 0:
            full_in_s = max(left, 0) / slope / 1000
        span_s = (samples[-1].at_ms - samples[0].at_ms) / 1000
        return Forecast(span_s, round(slope * _DAY_MS), full_in_s)

    def graph_points(self) -> list[tuple[float, int]]:
        """Return up to SHOWN_MAX samples for a graph: seconds before the last one, bytes."""
        samples = list(self._samples)
        step = -(-len(samples) // SHOWN_MAX) or 1
        # The newest is among them.
        chosen = samples[::-1][::step][::-1]
        return [((samples[-1].at_ms - each.at_ms) / 1000, each.in_use_bytes) for each in chosen]


def _slope(samples: Sequence[Sample]) -> float:
    """Return the slope of the line of least squares."""
    count = len(samples)
    mean_ms = sum(each.at_ms for each in samples) / count
    mean_bytes = sum(each.in_use_bytes for each in samples) / count
    above = sum((each.at_ms - mean_ms) * (each.in_use_bytes - mean_bytes) for each in samples)
    below = sum((each.at_ms - mean_ms) ** 2 for each in samples)
    return above / below
