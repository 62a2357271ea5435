"""Waiting for an answer that many wait for, if possible without a task for each of them.

    wait = Wait()
    answer = await wait            in a task: as for a future
    wait.set_result(answer)

A future wakes each of its tasks by itself: a task, two callbacks and a turn of the loop for every
waiter. Who steps coroutines without tasks (`stepping`) is given the Wait instead of a future, puts
the coroutine aside (`park`), and steps it again together with all others that were woken.
"""

import asyncio
from collections.abc import Generator
from typing import Final, Generic, Protocol, TypeVar

T = TypeVar("T")


class Waker(Protocol):
    """One who was put aside."""

    def wake(self) -> None:
        """Take note that the answer is there; it may not step the coroutine at once."""
        ...


class Stepping:
    """Who steps coroutines at present."""

    __slots__ = ("task",)

    def __init__(self) -> None:
        """Begin with nobody."""
        self.task: asyncio.Task[None] | None = None
        """The current task while coroutines are stepped that may be put aside."""


stepping: Final = Stepping()
"""Of the process; loops in other threads are told apart by their tasks."""


class Wait(Generic[T]):
    """What one coroutine waits for."""

    __slots__ = ("_error", "_future", "_is_done", "_result", "_waker")

    _result: T

    def __init__(self) -> None:
        """Begin without an answer."""
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
        """Return whether there is an answer, or nobody waits for it any more."""
        return self._is_done or (self._future is not None and self._future.done())

    def set_result(self, result: T) -> None:
        """Answer."""
        self._result = result
        self._settle()

    def set_exception(self, error: BaseException) -> None:
        """Answer with an error."""
        self._error = error
        self._settle()

    def _settle(self) -> None:
        self._is_done = True
        if self._waker is not None:
            self._waker.wake()
        elif self._future is not None and not self._future.done():
            self._future.set_result(None)

    def park(self, waker: Waker) -> None:
        """Wake this one, which has been given the Wait, when the answer is there."""
        self._waker = waker

    def future(self) -> "asyncio.Future[None]":
        """Return a future that is done with the answer; who was to be woken is not."""
        self._waker = None
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
            if self._is_done:
                self._future.set_result(None)
        return self._future
