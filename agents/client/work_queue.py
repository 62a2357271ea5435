"""A queue of keys, as client-go's: each key waits once, and is never worked on twice at once.

    queue.add(key)                   now
    queue.add_after(key, 2.0)        later; the earlier of several times wins
    queue.add_rate_limited(key)      later, the later the more often it failed
    key = await queue.get()
    queue.done(key)                  if it was added meanwhile, it is handed out again now

A key that is added while it is worked on is handed out once more afterwards.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from kvstack.agents.client.back_off import FailureBackOff
from kvstack.component.clock import Clock

_Key = TypeVar("_Key", bound=Hashable)


class WorkQueue(Generic[_Key]):
    """Keys that need work; all of it belongs to one loop."""

    def __init__(self, clock: Clock, back_off: FailureBackOff | None = None) -> None:
        """back_off: the delays of failed keys."""
        self._clock = clock
        self._back_off = back_off or FailureBackOff(clock)
        self._waiting: deque[_Key] = deque()
        self._dirty: set[_Key] = set()
        self._processing: set[_Key] = set()
        self._due: dict[_Key, float] = {}  # key → monotonic seconds
        self._heap: list[tuple[float, int, _Key]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._getters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False
        self.added = 0
        """The number of keys that were added, those that waited already not counted."""
        self.retried = 0
        """The number of them that were added after a failure."""

    def __len__(self) -> int:
        """Return how many keys wait to be given out."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no key waits or is worked on; delayed keys do not count."""
        return not self._waiting and not self._processing

    def in_hand(self) -> Iterator[tuple[_Key, bool]]:
        """Yield the keys that are not done, and whether they are worked on."""
        yield from ((key, True) for key in self._processing)
        yield from ((key, False) for key in self._waiting)

    def due(self) -> Iterator[tuple[_Key, float]]:
        """Yield the keys that come later, and in how many seconds."""
        now_s = self._clock.monotonic_s()
        yield from ((key, max(0.0, at_s - now_s)) for key, at_s in self._due.items())

    def add(self, key: _Key) -> None:
        """Add a key."""
        if key in self._dirty or self._is_closed:
            return
        self._dirty.add(key)
        self.added += 1
        if key not in self._processing:
            self._waiting.append(key)
            self._wake()

    def add_after(self, key: _Key, delay_s: float) -> None:
        """Add a key after a delay."""
        if delay_s <= 0:
            self.add(key)
            return
        due = self._clock.monotonic_s() + delay_s
        if self._is_closed or self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, key))
        self._set_timer()

    def add_rate_limited(self, key: _Key) -> float:
        """Add a key again after a failure; return the delay in seconds."""
        delay_s = self._back_off.next_s(key)
        self.retried += 1
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: _Key) -> None:
        """Reset the failures of a key, after success or when it is given up."""
        self._back_off.forget(key)

    def failures(self, key: _Key) -> int:
        """Return how often the work of a key failed."""
        return self._back_off.failures(key)

    async def get(self) -> _Key:
        """Return the next key; `done` must follow. QueueClosedError after close()."""
        while not self._waiting:
            if self._is_closed:
                raise QueueClosedError
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake()  # it was this one's turn: let it be another's
                raise
        key = self._waiting.popleft()
        self._processing.add(key)
        self._dirty.discard(key)
        if not self._dirty:
            self._dirty = set()  # a set that was once large never shrinks
        return key

    def done(self, key: _Key) -> None:
        """The work of a key is over."""
        self._processing.discard(key)
        if key in self._dirty:
            self._waiting.append(key)
            self._wake()

    def close(self) -> None:
        """Accept no more keys, and hand out those that wait."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)
        self._getters.clear()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _set_timer(self) -> None:
        due = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        delay_s = max(0.0, due - self._clock.monotonic_s())
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.monotonic_s()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        if self._heap:
            self._set_timer()


class QueueClosedError(Exception):
    """The queue is closed and empty."""
