"""Reads of the node's state for the side loop, run by the driver's thread between two turns.

    side loop:  await gatherer.read(function)  ──►  driver: function()  ──►  its result

So each read sees a consistent state without a lock, and none iterates over a table that a turn is
changing. A read must be short: requests wait for it. Reads beyond WAITING_MAX are refused.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

WAITING_MAX: Final = 64

T = TypeVar("T")


class BusyError(Exception):
    """A read was not run in time, or too many are waiting."""


class Gatherer:
    """The queue of reads for the driver."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """wake makes the driver run a turn."""
        self._wake = wake
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    async def read(self, function: Callable[[], T], timeout_s: float) -> T:
        """Return the result of a function called between two turns; BusyError if it is not run."""
        if len(self._waiting) >= WAITING_MAX:
            raise BusyError(f"too many reads are waiting, limit {WAITING_MAX}")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((function, future))
        self._wake()
        try:
            async with asyncio.timeout(timeout_s):  # wait_for loses a cancellation before 3.12
                return await future
        except TimeoutError:
            raise BusyError(f"the member's turn has taken more than {timeout_s:g} s") from None

    @property
    def is_waiting(self) -> bool:
        """Whether a read is waiting."""
        return bool(self._waiting)

    def run_all(self) -> None:
        """Run all waiting reads (in the driver's thread)."""
        waiting, self._waiting = self._waiting, []
        for function, future in waiting:
            try:
                result, error = function(), None
            except Exception as failure:  # noqa: BLE001 - raised in read(); the turn goes on
                result, error = None, failure
            future.get_loop().call_soon_threadsafe(_resolve, future, result, error)


def _resolve(future: "asyncio.Future[Any]", result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
