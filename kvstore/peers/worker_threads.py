"""A bounded queue and the threads that empty it: none while nothing is queued, a few under load.

    workers = WorkerThreads("peer-task", run, threads_max=8, queue_max=1024, idle_s=3.0)
    workers.put(item)                                  False: the queue is full, or was stopped

    def run() -> None:                                 in each thread, from its start to its end
        while (item := workers.take()) is not None: …

`put` does not block. A thread ends after idle_s without an item.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class WorkerThreads(Generic[T]):
    """The queue and the number of threads."""

    def __init__(
        self,
        name: str,
        run: Callable[[], None],
        *,
        threads_max: int,
        queue_max: int,
        idle_s: float,
    ) -> None:
        """Create the queue, without threads; name: that of each thread."""
        self._name: Final = name
        self._run: Final = run
        self._threads_max: Final = threads_max
        self._queue_max: Final = queue_max
        self._idle_s: Final = idle_s
        self._changed: Final = threading.Condition()
        self._queue: Final[deque[T]] = deque()
        self._threads = 0
        self._idle = 0
        self.is_stopping = False

    def put(self, item: T) -> bool:
        """Queue an item; return False if the queue is full or was stopped."""
        with self._changed:
            if self.is_stopping or len(self._queue) >= self._queue_max:
                return False
            self._queue.append(item)
            if self._idle >= len(self._queue) or self._threads >= self._threads_max:
                self._changed.notify()
                return True
            self._threads += 1
        threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return True

    def take(self) -> T | None:
        """Return the next item; None: there was none for idle_s, so the thread must end."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: bool(self._queue) or self.is_stopping, self._idle_s)
            self._idle -= 1
            if self._queue:
                return self._queue.popleft()
            self._threads -= 1
            return None

    def drop(self) -> int:
        """Drop the queue; return how many items it had."""
        with self._changed:
            count = len(self._queue)
            self._queue.clear()
            return count

    def stop(self) -> None:
        """Drop the queue and let the threads end; does not wait for them."""
        with self._changed:
            self.is_stopping = True
            self._queue.clear()
            self._changed.notify_all()
