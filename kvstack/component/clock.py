"""Clocks: monotonic time for durations, Unix time for ids and dates.

Only the packages from `runtime` upwards have a Clock; those below get the time as an argument.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds since some fixed moment; never decreases."""
        ...

    def unix_ms(self) -> int:
        """Return milliseconds since 1970 UTC; may jump either way."""
        ...

    def unix_s(self) -> int:
        """Return whole seconds since 1970 UTC; may jump either way."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic_ns(self) -> int:
        """Return the machine's monotonic time."""
        return time.monotonic_ns()

    def unix_ms(self) -> int:
        """Return the machine's wall time in milliseconds."""
        return time.time_ns() // 1_000_000

    def unix_s(self) -> int:
        """Return the machine's wall time in seconds."""
        return time.time_ns() // 1_000_000_000
