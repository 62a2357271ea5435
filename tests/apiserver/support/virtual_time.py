"""An event loop whose time goes on by itself when nothing else is to be done.

run(story())     time passes only while everybody waits, as fast as it can
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from typing_extensions import override

T = TypeVar("T")

_BUSY = 100
_TICK_S = 1e-9
"""Time that passes in a round of a loop that was busy for so many rounds: timers come early by up
to the resolution of the clock, and who finds that they did sets them again."""
_STILL_MAX = 100_000
"""So many rounds of the loop may pass while time stands still."""
_THREADS_S = 60.0
"""How long a thread may really take, when only it is waited for."""
BEGAN_MS = 1_800_000_000_000


class _Selector(selectors.SelectSelector):
    """Instead of waiting for a timer, lets its time come."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._still = 0
        self.rounds = 0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0 if timeout is not None else _THREADS_S)
        if not found:
            if timeout is None:
                raise RuntimeError("everybody waits for something that will not come")
            self.now_s += timeout
        self.rounds += 1
        self._still = 0 if timeout else self._still + 1
        if self._still > _BUSY:
            self.now_s += _TICK_S
        if self._still > _STILL_MAX:
            self._still = 0
            raise RuntimeError("time stands still")
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        """Begin at 0."""
        self._virtual = _Selector()
        super().__init__(self._virtual)

    @property
    def rounds(self) -> int:
        """How often it has looked for what is to be done."""
        return self._virtual.rounds

    @override
    def time(self) -> float:
        """Return the seconds that have passed."""
        return self._virtual.now_s


class LoopClock:
    """The clock of the running loop; set `jumped_ms` to let the wall clock jump."""

    jumped_ms = 0

    def monotonic_ns(self) -> int:
        """Return the loop's time."""
        return round(asyncio.get_running_loop().time() * 1e9)

    def unix_ms(self) -> int:
        """Return a time of day that goes on with the loop."""
        return BEGAN_MS + self.jumped_ms + self.monotonic_ns() // 1_000_000


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
