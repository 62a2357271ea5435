"""The source of time; a simulation passes its own. Waiting is the event loop's business."""

import time
from functools import lru_cache
from typing import Protocol

from kvstack.apimachinery.objects.times import Moment, format_micro_time, format_time


class Clock(Protocol):
    """A clock."""

    def now_s(self) -> float:
        """Return the seconds since 1970, UTC; may jump either way."""
        ...

    def monotonic_s(self) -> float:
        """Return the seconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_s(self) -> float:
        """Return the wall time."""
        return time.time_ns() / 1e9

    def monotonic_s(self) -> float:
        """Return the monotonic time."""
        return time.monotonic()


def time_text(now_s: float) -> str:
    """Return a moment as objects have it: in whole seconds."""
    return _second_text(int(now_s))


@lru_cache(maxsize=64)  # most times that are written in a second are of the same one
def _second_text(seconds: int) -> str:
    return format_time(seconds)


def micro_time_text(now_s: float) -> str:
    """Return a moment as leases and events have it: in microseconds."""
    seconds = int(now_s // 1)
    return format_micro_time(Moment(seconds, int((now_s - seconds) * 1e9)))
