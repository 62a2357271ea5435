"""Seat demand of a priority level: over time, and smoothed over periods.

demand.set(5, now_ns)        five seats are taken or waited for, from now on
demand.end_period(now_ns)    → the average, deviation and maximum since the last call
"""

from math import sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

SMOOTHING: Final = 0.977
_NEGLIGIBLE: Final = 1e-9
"""Of a seat."""


class Period(NamedTuple):
    """Statistics of one period."""

    average: float
    deviation: float
    high: int


class Demand:
    """A value that changes with time."""

    __slots__ = (
        "_area",
        "_at_ns",
        "_began_ns",
        "_high",
        "_square_area",
        "on_rise",
        "smoothed",
        "value",
    )

    def __init__(self, now_ns: int) -> None:
        self.value = 0
        self.on_rise: Callable[[], None] | None = None
        """Called when something is needed for the first time since the last period ended."""
        self.smoothed = 0.0
        """The envelope of the periods: it rises at once and falls slowly."""
        self._high = 0
        self._at_ns = self._began_ns = now_ns
        self._area = 0
        self._square_area = 0

    def set(self, value: int, now_ns: int) -> None:
        """Set the current value."""
        elapsed = now_ns - self._at_ns
        if elapsed > 0:
            old = self.value
            self._area += old * elapsed
            self._square_area += old * old * elapsed
            self._at_ns = now_ns
        self.value = value
        if value > self._high:
            if not self._high and self.on_rise is not None:
                self.on_rise()
            self._high = value

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing was needed since the last period ended, and hardly anything before."""
        return not (self.value or self._high or self._area) and self.smoothed < _NEGLIGIBLE

    def skip_period(self, now_ns: int) -> None:
        """End a period at rest, as `end_period` does."""
        self._at_ns = self._began_ns = now_ns

    def skip_until(self, began_ns: int) -> None:
        """End the periods at rest before this one, which began then."""
        self._began_ns = max(self._began_ns, began_ns)

    def end_period(self, now_ns: int) -> Period:
        """Return the statistics since the last call, and update the smoothed value."""
        self.set(self.value, now_ns)
        elapsed = now_ns - self._began_ns
        period = Period(0.0, 0.0, self._high)
        if elapsed > 0:
            average = self._area / elapsed
            variance = max(self._square_area / elapsed - average * average, 0.0)
            period = Period(average, sqrt(variance), self._high)
            envelope = period.average + period.deviation
            self.smoothed = max(envelope, SMOOTHING * self.smoothed + (1 - SMOOTHING) * envelope)
        self._area = self._square_area = 0
        self._high = self.value
        self._began_ns = now_ns
        return period
