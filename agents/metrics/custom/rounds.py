"""Periodic work that goes on after failures."""

import asyncio
from collections.abc import Awaitable, Callable

from kvstack.component.clock import Clock
from kvstack.component.logger import Logger


class Rounds:
    """One round every so often, of which the rounds themselves are a part."""

    def __init__(
        self, work: Callable[[], Awaitable[None]], every_s: float, clock: Clock, logger: Logger
    ) -> None:
        self._work = work
        self._every_s = every_s
        self._clock = clock
        self._logger = logger
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="readings")

    async def stop(self) -> None:
        """End, also in the middle of a round."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _run(self) -> None:
        while True:
            began = self._clock.monotonic_s()
            try:
                await self._work()
            except Exception as error:  # noqa: BLE001 - one object must not end all readings
                self._logger.error("a round of readings failed", error=repr(error))
            spent = self._clock.monotonic_s() - began
            await asyncio.sleep(max(self._every_s - spent, 0))
