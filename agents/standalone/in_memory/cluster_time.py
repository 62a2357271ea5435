"""The virtual clock of a cluster: it runs at a rate, or is advanced.

    time = ClusterTime(loop)
    time.set_rate(100.0)          from now on; 0 pauses
    await time.advance(86_400)    a day at once: everything that is due in it happens in order

While time stands, what needs no time happens, and who asks the cluster is answered: time goes as
far as an answer takes.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kvstack.component.errors import ComponentError
from kvstack.component.virtual_time.clock import LoopClock, began_now_ms
from kvstack.component.virtual_time.loop import VirtualLoop, pass_time
from kvstack.component.virtual_time.timeline import AT_ONCE, RATE_MAX

ADVANCE_S_MAX: Final = 366 * 86_400.0

MACHINE: Final = "real"
"""The machine's clocks."""
VIRTUAL: Final = "virtual"
"""A clock of the cluster's own, which goes as the machine's does until it is advanced."""
PAUSED: Final = "paused"
"""A virtual clock, which is paused until it is advanced."""
CLOCKS: Final = (MACHINE, VIRTUAL, PAUSED)


class ClusterTimeError(ComponentError):
    """Time cannot go so."""


class ClusterTime:
    """The time of one cluster."""

    def __init__(self, loop: VirtualLoop, began_ms: int | None = None) -> None:
        """began_ms: the time of day at 0 of the loop, since 1970; None: it is now the machine's."""
        self._loop: Final = loop
        self._passing: Final = asyncio.Lock()
        self._rate = loop.line.rate
        self._waiting = 0
        """The number of callers that advance time as far as they wait."""
        self.clock: Final = LoopClock(began_now_ms(loop) if began_ms is None else began_ms, loop)

    @property
    def rate(self) -> float:
        """The speed relative to real time; 0: paused."""
        return self._rate

    @property
    def is_advancing(self) -> bool:
        """Whether time is being advanced."""
        return self._passing.locked()

    @property
    def now_s(self) -> float:
        """The time of day, in seconds since 1970."""
        return self.clock.now_s()

    def set_rate(self, rate: float) -> None:
        """Go on at another rate; ClusterTimeError."""
        if not 0 <= rate <= RATE_MAX:  # NaN is neither
            raise ClusterTimeError(f"rate {rate:g}: 0 to {RATE_MAX:g}")
        self._go_at(rate)

    def go_on_while(self, is_asked: Callable[[], bool]) -> None:
        """Run a paused clock while requests are answered, which may take some time."""
        self._loop.go_on_while(is_asked)

    @contextmanager
    def going_at(self, rate: float) -> Iterator[None]:
        """Run time at another rate meanwhile."""
        before = self.rate
        self.set_rate(rate)
        try:
            yield
        finally:
            self._go_at(before)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Advance time as far as the code inside waits, and no further.

        Several may wait so; time goes at its rate again once none does.
        """
        self._waiting += 1
        if self._waiting == 1:
            self._loop.set_rate(AT_ONCE)
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._loop.set_rate(self._rate)

    async def advance(self, seconds: float) -> None:
        """Advance time, and return when what was due then is done."""
        if not 0 <= seconds <= ADVANCE_S_MAX:  # NaN is neither
            raise ClusterTimeError(f"advance by {seconds:g} s: 0 to {ADVANCE_S_MAX:.0f} s")
        async with self._passing:
            await pass_time(self._loop, seconds)

    def _go_at(self, rate: float) -> None:
        self._rate = rate
        if not self._waiting:
            self._loop.set_rate(rate)

    async def idle(self) -> None:
        """Wait until everything that needs no time has happened."""
        await self._loop.idle()
