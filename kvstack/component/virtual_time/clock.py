"""The time of a loop as a clock: whole units for stores and servers, seconds for agents.

clock = LoopClock(began_ms)          of the running loop, or of an argument
clock.unix_ms(); clock.now_s()       the time of day: the loop's start plus its elapsed time
"""

import asyncio
import time
from typing import Final

from typing_extensions import override

from kvstack.component.clock import Clock
from kvstack.component.virtual_time.loop import VirtualLoop


class LoopClock(Clock):
    """The time of a loop, and the time of day that follows from it."""

    def __init__(self, began_ms: int, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """began_ms: the time of day at 0 of the loop, since 1970; loop: None is the running one."""
        self._began_ms: Final = began_ms
        self._loop: Final = loop

    def _s(self) -> float:
        return (self._loop or asyncio.get_running_loop()).time()

    @override
    def monotonic_ns(self) -> int:
        """Return the loop's time in nanoseconds."""
        return round(self._s() * 1e9)

    @override
    def monotonic_s(self) -> float:
        """Return the loop's time."""
        return self._s()

    @override
    def unix_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return self._began_ms + self.monotonic_ns() // 1_000_000

    @override
    def unix_s(self) -> int:
        """Return the whole seconds since 1970."""
        return self.unix_ms() // 1000

    @override
    def now_s(self) -> float:
        """Return the seconds since 1970."""
        return self._began_ms / 1000 + self._s()


def began_now_ms(loop: VirtualLoop) -> int:
    """Return the time of day at which a loop began, by the machine's clock."""
    return time.time_ns() // 1_000_000 - round(loop.time() * 1000)
