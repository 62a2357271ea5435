"""Concurrent callers share one request.

    a calls ──► request 1 is open ────────────────► answer 1 for a
    b, c call meanwhile ──► wait ──► request 2 ──► answer 2 for b and c

An answer is only for callers that called before its request was sent, so it is new enough for
each of them. There is never more than one open request, however many callers there are.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kvstack.component.parking import Wait
from kvstore.client.errors import ClosedError, StoreError


class SharedQuestion:
    """Makes requests for all callers."""

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        """Take the function that sends one request; it has its own time limit."""
        self._ask = ask
        self._waiting: list[Wait[int]] = []
        self._task: asyncio.Task[None] | None = None

    def answer(self) -> Wait[int]:
        """Return the answer to a request that begins after this call; StoreError if it failed."""
        wait: Wait[int] = Wait()
        self._waiting.append(wait)
        if self._task is None:
            self._begin()
        return wait

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._ask_for_all(), name="shared question")
        self._task.add_done_callback(self._over)

    async def _ask_for_all(self) -> None:
        while self._waiting:
            waits, self._waiting = self._waiting, []
            try:
                answer = await self._ask()
            except StoreError as error:
                for wait in waits:
                    if not wait.done():
                        wait.set_exception(error.again())
            except BaseException:
                self._waiting += waits
                raise
            else:
                for wait in waits:
                    if not wait.done():
                        wait.set_result(answer)

    def _over(self, task: asyncio.Task[None]) -> None:
        """Send the next request for the callers that wait; fail them if it was abandoned."""
        self._task = None
        failure: BaseException | None = ClosedError("the request was abandoned")
        if not task.cancelled():
            failure = task.exception()
        waiting, self._waiting = self._waiting, []
        for wait in waiting:
            if wait.done():
                continue
            if failure is not None:
                wait.set_exception(failure)
            else:
                self._waiting.append(wait)
        if self._waiting:
            self._begin()

    def close(self) -> None:
        """Close; waiting callers get a ClosedError."""
        if self._task is not None:
            self._task.cancel()
