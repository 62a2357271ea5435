"""Questions of the side loop that the driver's thread answers between two turns.

    side loop:  await gatherer.read(question)  ──►  driver: question()  ──►  the answer

So whatever a question looks at is whole and of one moment, without a lock, and nobody walks a table
that a turn is changing. A question must be short: requests wait for it. Questions beyond
WAITING_MAX are refused.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

WAITING_MAX: Final = 64

T = TypeVar("T")


class BusyError(Exception):
    """The member did not come round to a question in time, or too many wait."""


class Gatherer:
    """Where questions wait for the driver."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Take the call that makes the driver take a turn."""
        self._wake = wake
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    async def read(self, question: Callable[[], T], timeout_s: float) -> T:
        """Return what question returns when called between two turns; raise BusyError."""
        if len(self._waiting) >= WAITING_MAX:
            raise BusyError(f"{WAITING_MAX} questions wait already")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        self._wake()
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise BusyError(f"the member's turn goes on for more than {timeout_s:g} s") from None

    @property
    def is_asked(self) -> bool:
        """Whether a question waits."""
        return bool(self._waiting)

    def answer(self) -> None:
        """Answer all questions (in the driver's thread)."""
        waiting, self._waiting = self._waiting, []
        for question, future in waiting:
            try:
                answer, error = question(), None
            except Exception as failure:  # it is the asker's to see, and not the turn's to die of
                answer, error = None, failure
            future.get_loop().call_soon_threadsafe(_resolve, future, answer, error)


def _resolve(future: "asyncio.Future[Any]", answer: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)
