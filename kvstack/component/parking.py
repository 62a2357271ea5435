"""Waiting for a shared answer, if possible without a task for each waiter.

    wait = Wait()
    answer = await wait            in a task: as for a future
    wait.set_result(answer)

A future wakes each of its tasks separately: a task, two callbacks and a loop iteration for every
waiter. Code that steps coroutines without tasks (`stepping`) gets the Wait instead of a future,
parks the coroutine (`park`), and steps it again together with all others that were woken.
"""

import asyncio
from collections.abc import Generator
from typing import Final, Generic, Protocol, TypeVar

T = TypeVar("T")


class Waker(Protocol):
    """A parked coroutine."""

    def wake(self) -> None:
        """Note that the answer is available; must not step the coroutine immediately."""
        ...


class Stepping:
    """The code that is stepping coroutines at present."""

    __slots__ = ("task",)

    def __init__(self) -> None:
        """Start without a current task."""
        self.task: asyncio.Task[None] | None = None
        """The current task while coroutines are stepped that may be put aside."""


stepping: Final = Stepping()
"""The state of the process; loops in other threads are distinguished by their tasks."""


class Wait(Generic[T]):
    """The answer that one coroutine waits for."""

    __slots__ = ("_error", "_future", "_is_done", "_result", "_waker")

    _result: T

    def __init__(self) -> None:
        """Create the Wait without an answer."""
        self._is_done = False
        self._error: BaseException | None = None
        self._future: asyncio.Future[None] | None = None
        self._waker: Waker | None = None

    def __await__(self) -> Generator[object, None, T]:
        """Wait; returns the answer or raises the error."""
        if not self._is_done:
            # No name for the task here: a reference to it means that it is in use.
            if stepping.task is not None and asyncio.current_task() is stepping.task:
                yield self
            else:
                yield from self.future()
        if self._error is not None:
            raise self._error
        return self._result

    def done(self) -> bool:
        """Return whether there is an answer, or its waiter has gone."""
        return self._is_done or (self._future is not None and self._future.done())

    def set_result(self, result: T) -> None:
        """Set the answer."""
        self._result = result
        self._settle()

    def set_exception(self, error: BaseException) -> None:
        """Set an error as the answer."""
        self._error = error
        self._settle()

    def _settle(self) -> None:
        self._is_done = True
        if self._waker is not None:
            self._waker.wake()
        elif self._future is not None and not self._future.done():
            self._future.set_result(None)

    def park(self, waker: Waker) -> None:
        """Wake this parked coroutine when the answer is available."""
        self._waker = waker

    def future(self) -> "asyncio.Future[None]":
        """Return a future of the answer; a parked coroutine is then not woken."""
        self._waker = None
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
            if self._is_done:
                self._future.set_result(None)
        return self._future
