"""One direction of a connection: what is sent arrives late, and in order."""

import asyncio
from collections import deque
from collections.abc import Callable


class Pipe:
    """Delivers calls in order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._under_way: deque[Callable[[], None]] = deque()
        self._last_s = 0.0

    def send(self, at_s: float, arrive: Callable[[], None]) -> None:
        """Call arrive at a time, or when all that was sent before has arrived."""
        self._last_s = max(at_s, self._last_s)
        self._under_way.append(arrive)
        # Timers of the same time come in any order, so none of them is for one thing alone.
        self._loop.call_at(self._last_s, self._next)

    def _next(self) -> None:
        self._under_way.popleft()()
