"""Time limits of many calls at a time, with one timer.

    add(7, 5.0)     ──► due(7) is called 5 s later, if call 7 is still open

Calls with the same limit expire in the order they began, so each limit has a queue, and finished
calls are dropped from its head. A call costs a tuple, not a timer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Container
from typing import Final

_SWEEP_MIN: Final = 1024  # finished calls are removed when a queue has doubled, and is above this


class Deadlines:
    """The limits of the calls of one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        open_calls: Container[int],
        due: Callable[[int], None],
    ) -> None:
        """Call due(call) for calls whose time limit expires while they are in open_calls."""
        self._loop = loop
        self._open = open_calls
        self._due = due
        self._queues: dict[float, deque[tuple[float, int]]] = {}
        self._sizes: dict[float, int] = {}  # after the last sweep
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def add(self, call: int, limit_s: float) -> None:
        """Add a call with its time limit from now on."""
        queue = self._queues.get(limit_s)
        if queue is None:
            queue = self._queues[limit_s] = deque()
            self._sizes[limit_s] = _SWEEP_MIN
        at = self._loop.time() + limit_s
        open_calls = self._open
        while queue and queue[0][1] not in open_calls:
            queue.popleft()
        queue.append((at, call))
        if len(queue) > 2 * self._sizes[limit_s]:
            self._sweep(limit_s)
        if self._timer is None or at < self._timer_at:
            self._set_timer(at)

    def _sweep(self, limit_s: float) -> None:
        kept = deque(each for each in self._queues[limit_s] if each[1] in self._open)
        self._queues[limit_s] = kept
        self._sizes[limit_s] = max(len(kept), _SWEEP_MIN)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        """Call due for the expired calls, and set the timer for the next."""
        self._timer = None
        now = self._loop.time()
        for limit_s, queue in list(self._queues.items()):
            while queue and (queue[0][0] <= now or queue[0][1] not in self._open):
                _, call = queue.popleft()
                if call in self._open:
                    self._due(call)
            if not queue:
                del self._queues[limit_s], self._sizes[limit_s]
        heads = [queue[0][0] for queue in self._queues.values()]
        if heads:
            self._set_timer(min(heads))

    def close(self) -> None:
        """Drop all calls."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._queues.clear()
