"""The current virtual time, and its limit at a moment of real time.

    line = Timeline(rate=0.0)            it stands
    line.set_rate(100.0, real_s)         a hundred times as fast as real time, from now on
    line.free_until(line.now_s + 60.0)   a minute passes as soon as no task can run

    rate      limit_s(real_s)
    0         now
    r         r times the real time since the rate was set
    AT_ONCE   no limit: the next timer may fire at once

It is pure: real time is an argument. Time never goes back.
"""

import math
from typing import Final

AT_ONCE: Final = math.inf
STANDING: Final = 0.0
REAL: Final = 1.0
RATE_MAX: Final = 1_000_000.0


class RateError(ValueError):
    """An invalid rate of time."""


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
        """The rate relative to real time, apart from time freed by `free_until`."""
        return self._rate

    @property
    def is_real(self) -> bool:
        """Whether it is real time, also while tasks run."""
        return self._rate == REAL and self._until_s is None

    @property
    def is_standing(self) -> bool:
        """Whether it does not advance on its own."""
        return self._rate == STANDING and self._until_s is None

    @property
    def until_s(self) -> float | None:
        """The moment up to which time passes at once; None: it advances at its rate."""
        return self._until_s

    def set_rate(self, rate: float, real_s: float) -> None:
        """Set the rate from a moment of real time on; RateError for an invalid one."""
        if not (rate == AT_ONCE or 0 <= rate <= RATE_MAX):  # NaN is neither
            raise RateError(f"invalid rate {rate:g}: must be from 0 to {RATE_MAX:g}")
        self._rate = rate
        self._anchor_s, self._anchor_real_s = self.now_s, real_s

    def free_until(self, until_s: float) -> None:
        """Let time pass at once up to a moment, and stand there until `bind`."""
        self._until_s = until_s

    def bind(self, real_s: float) -> None:
        """Advance at the set rate again."""
        self._until_s = None
        self.set_rate(self._rate, real_s)

    def limit_s(self, real_s: float) -> float:
        """Return the limit of time at a moment of real time."""
        if self._until_s is not None:
            return max(self._until_s, self.now_s)
        if self._rate == STANDING:
            return self.now_s
        if self._rate == AT_ONCE:
            return AT_ONCE
        return max(self._anchor_s + (real_s - self._anchor_real_s) * self._rate, self.now_s)

    def real_wait_s(self, due_s: float, real_s: float) -> float | None:
        """Return the real time until a moment; None: it does not come on its own."""
        if due_s <= self.limit_s(real_s):
            return 0.0
        if self._until_s is not None or self._rate == STANDING or due_s == math.inf:
            return None
        return (due_s - self._anchor_s) / self._rate - (real_s - self._anchor_real_s)
