"""The time of a cluster on a virtual loop: it goes at a rate, and as far ahead as it is asked to.

    time = ClusterTime(loop)
    time.set_rate(100.0)          from now on; 0 stands
    await time.advance(86_400)    a day at once: everything that is due in it happens in order

While time stands, what needs no time happens, and who asks the cluster is answered: time goes as
far as an answer takes.
"""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kvstack.component.errors import ComponentError
from kvstack.component.virtual_time.clock import LoopClock, began_now_ms
from kvstack.component.virtual_time.loop import VirtualLoop, pass_time
from kvstack.component.virtual_time.timeline import AT_ONCE, RateError

ADVANCE_S_MAX: Final = 366 * 86_400.0


class ClusterTimeError(ComponentError):
    """Time cannot go so."""


class ClusterTime:
    """The time of one cluster."""

    def __init__(self, loop: VirtualLoop, began_ms: int | None = None) -> None:
        """began_ms: the time of day at 0 of the loop, since 1970; None: it is now the machine's."""
        self._loop: Final = loop
        self._passing: Final = asyncio.Lock()
        self.clock: Final = LoopClock(began_now_ms(loop) if began_ms is None else began_ms, loop)

    @property
    def rate(self) -> float:
        """How many times as fast as real time it goes; 0: it stands."""
        return self._loop.line.rate

    @property
    def now_s(self) -> float:
        """The time of day, in seconds since 1970."""
        return self.clock.now_s()

    def set_rate(self, rate: float) -> None:
        """Go on at another rate; ClusterTimeError."""
        if not math.isfinite(rate):
            raise ClusterTimeError(f"rate {rate:g}: it is a number")
        try:
            self._loop.set_rate(rate)
        except RateError as error:
            raise ClusterTimeError(str(error)) from error

    def go_on_while(self, is_asked: Callable[[], bool]) -> None:
        """Let time that stands go on while requests are answered, which may take some."""
        self._loop.go_on_while(is_asked)

    @contextmanager
    def going_at(self, rate: float) -> Iterator[None]:
        """Let time go at another rate meanwhile."""
        before = self.rate
        self.set_rate(rate)
        try:
            yield
        finally:
            self._loop.set_rate(before)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Let time go as far as what is waited for meanwhile takes, and no further."""
        rate = self.rate
        self._loop.set_rate(AT_ONCE)
        try:
            yield
        finally:
            self._loop.set_rate(rate)

    async def advance(self, seconds: float) -> None:
        """Let so much time go by at once, and return when what was due then is done."""
        if not 0 <= seconds <= ADVANCE_S_MAX:  # NaN is neither
            raise ClusterTimeError(f"advance by {seconds:g} s: 0 to {ADVANCE_S_MAX:.0f} s")
        async with self._passing:
            await pass_time(self._loop, seconds)

    async def idle(self) -> None:
        """Wait until everything that needs no time has happened."""
        await self._loop.idle()
