"""Clocks that tests set."""

from typing_extensions import override

from kvstack.component.clock import Clock


class HandClock(Clock):
    """A clock that stands still until a test sets `now`, in seconds: of the day, and monotonic."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    @override
    def monotonic_ns(self) -> int:
        return round(self.now * 1e9)

    @override
    def monotonic_s(self) -> float:
        return self.now

    @override
    def unix_ms(self) -> int:
        return round(self.now * 1000)

    @override
    def now_s(self) -> float:
        return self.now
