"""Where virtual time is, and how far it may be at a moment of real time.

    line = Timeline(rate=0.0)            it stands
    line.set_rate(100.0, real_s)         a hundred times as fast as real time, from now on
    line.free_until(line.now_s + 60.0)   a minute goes by as soon as nobody has anything to do

    rate      limit_s(real_s)
    0         now
    r         so far as r times the real time since the rate was set
    AT_ONCE   no limit: the next moment for which anybody waits may come at once

All of it is decided from arguments. Time never goes back.
"""

import math
from typing import Final

AT_ONCE: Final = math.inf
STANDING: Final = 0.0
REAL: Final = 1.0
RATE_MAX: Final = 1_000_000.0


class RateError(ValueError):
    """A rate that time cannot have."""


class Timeline:
    """The time of one loop, in seconds since it began."""

    __slots__ = ("_anchor_real_s", "_anchor_s", "_rate", "_until_s", "now_s")

    def __init__(self, rate: float = AT_ONCE, *, now_s: float = 0.0, real_s: float = 0.0) -> None:
        """Begin at a time; real_s: the moment of real time at which that is."""
        self.now_s = now_s
        self._until_s: float | None = None
        self._rate = STANDING
        self._anchor_s = self._anchor_real_s = 0.0
        self.set_rate(rate, real_s)

    @property
    def rate(self) -> float:
        """How many times as fast as real time it goes, but for what `free_until` lets go by."""
        return self._rate

    @property
    def is_real(self) -> bool:
        """Whether it goes exactly as real time does, also while somebody works."""
        return self._rate == REAL and self._until_s is None

    @property
    def is_standing(self) -> bool:
        """Whether it does not go by itself."""
        return self._rate == STANDING and self._until_s is None

    @property
    def until_s(self) -> float | None:
        """The moment up to which time goes by at once; None: it goes at its rate."""
        return self._until_s

    def set_rate(self, rate: float, real_s: float) -> None:
        """Go on at another rate from a moment of real time on; RateError names what cannot be."""
        if not (rate == AT_ONCE or 0 <= rate <= RATE_MAX):  # NaN is neither
            raise RateError(f"rate {rate:g}: 0 to {RATE_MAX:g}")
        self._rate = rate
        self._anchor_s, self._anchor_real_s = self.now_s, real_s

    def free_until(self, until_s: float) -> None:
        """Let time go by at once up to a moment, and stand there until `bind`."""
        self._until_s = until_s

    def bind(self, real_s: float) -> None:
        """Go on at the rate that was set."""
        self._until_s = None
        self.set_rate(self._rate, real_s)

    def limit_s(self, real_s: float) -> float:
        """Return how far time may be at a moment of real time."""
        if self._until_s is not None:
            return max(self._until_s, self.now_s)
        if self._rate == STANDING:
            return self.now_s
        if self._rate == AT_ONCE:
            return AT_ONCE
        return max(self._anchor_s + (real_s - self._anchor_real_s) * self._rate, self.now_s)

    def real_wait_s(self, due_s: float, real_s: float) -> float | None:
        """Return in how much real time a moment comes; None: not by itself."""
        if due_s <= self.limit_s(real_s):
            return 0.0
        if self._until_s is not None or self._rate == STANDING or due_s == math.inf:
            return None
        return (due_s - self._anchor_s) / self._rate - (real_s - self._anchor_real_s)
