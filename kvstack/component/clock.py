"""Clocks: monotonic time for durations, Unix time for ids and dates.

Only the packages from `runtime` upwards have a Clock; those below get the time as an argument.
Stores and servers count whole units, agents seconds; a clock that has `monotonic_ns` and `unix_ms`
has all of them. Waiting is the event loop's business.
"""

import time
from typing import Protocol

from typing_extensions import override


class Clock(Protocol):
    """A source of time; all parts of a program share one."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds since some fixed moment; never decreases."""
        ...

    def unix_ms(self) -> int:
        """Return milliseconds since 1970 UTC; may jump either way."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds since some fixed moment; never decreases."""
        return self.monotonic_ns() / 1e9

    def unix_s(self) -> int:
        """Return whole seconds since 1970 UTC; may jump either way."""
        return self.unix_ms() // 1000

    def now_s(self) -> float:
        """Return seconds since 1970 UTC, with fractions; may jump either way."""
        return self.unix_ms() / 1000


class SystemClock(Clock):
    """The machine's clocks."""

    @override
    def monotonic_ns(self) -> int:
        """Return the machine's monotonic time."""
        return time.monotonic_ns()

    @override
    def monotonic_s(self) -> float:
        """Return the machine's monotonic time in seconds."""
        return time.monotonic()

    @override
    def unix_ms(self) -> int:
        """Return the machine's wall time in milliseconds."""
        return time.time_ns() // 1_000_000

    @override
    def unix_s(self) -> int:
        """Return the machine's wall time in seconds."""
        return time.time_ns() // 1_000_000_000

    @override
    def now_s(self) -> float:
        """Return the machine's wall time in seconds, to the microsecond."""
        return time.time_ns() / 1e9
