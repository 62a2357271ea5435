"""Jobs that run at start and periodically.

    job = Job("bootstrap-controller", service.keep, every_s=10)
    jobs = Jobs([job, …], logger);  jobs.start();  await jobs.stop()
    job.wake()                     there is something to do: the next round begins now
    job.rest()                     from now on rounds are made only after `job.note_change()`

A job that rests makes a round when it would have made one anyway, but none between changes. It is
for servers that nobody writes beside, whose jobs see all that could give them something to do. What
is about the machine, its memory and files, is done there by the machine's clock instead, however
fast the time of the loop advances.

A failed round is logged and tried again soon. `job.done` says whether one has ever succeeded, which
is what the health checks of start hooks check.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.logger import Logger
from kvstack.component.virtual_time.loop import call_real_later
from kvstore.client.errors import StoreError

RETRY_S: Final = 0.5
RETRY_MAX_S: Final = 10.0
END_S_MAX: Final = 2.0
"""Limit of the time that the end of one job may take."""


class Job:
    """A job that runs periodically."""

    def __init__(
        self,
        name: str,
        do: Callable[[], Awaitable[None]],
        *,
        every_s: float = 0.0,
        hooks: Sequence[str] = (),
        follows: Sequence[GroupResource] | None = None,
        after: "Job | None" = None,
        begins_later: bool = False,
        is_about_machine: bool = False,
        at_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Run `do` every so many seconds; 0: once, until it succeeds.

        hooks: the health checks that pass once it has succeeded. follows: the resources that decide
        whether there is anything to do; None: it does not rest. after: the job that must have
        succeeded first. begins_later: whether the first round waits for a period. is_about_machine:
        whether it rests by the machine's clock. at_end: runs when the server stops, if a round was
        started.
        """
        self.name: Final = name
        self.hooks: Final = hooks
        self.follows: Final = follows
        self.after: Final = after
        self.at_end: Final = at_end
        self.is_begun = False
        self.done: Final = asyncio.Event()
        self._woken: Final = asyncio.Event()
        self._stirred: Final = asyncio.Event()
        """It was woken, or something has changed since the last round began."""
        self._rests = False
        self._do: Final = do
        self._every_s: Final = every_s
        self.begins_later: Final = begins_later
        self.is_about_machine: Final = is_about_machine

    def wake(self) -> None:
        """Start the next round at once; a failed one is retried at its time."""
        self._woken.set()
        self._stirred.set()

    def rest(self) -> None:
        """Make rounds after changes only, or by the machine's clock."""
        self._rests = True

    def note_change(self) -> None:
        """There may be something to do: the next round is made in its time."""
        self._stirred.set()

    async def once(self) -> None:
        """Run one round; raises its exception."""
        await self._do()

    async def run(self, logger: Logger) -> None:
        """Run until cancelled, or once."""
        if self.after is not None:
            await self.after.done.wait()
        if self.begins_later:
            await self._pause()
        retry_s = RETRY_S
        self.is_begun = True
        while True:
            self._woken.clear()
            self._stirred.clear()
            try:
                await self.once()
            except (ApiError, StoreError) as error:
                # Other servers maintain the same objects: one of them may have written first.
                is_race = isinstance(error, ApiError) and error.is_conflict
                log = logger.warning if self.done.is_set() and not is_race else logger.info
                log("a job failed and will be retried", job=self.name, error=str(error))
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, RETRY_MAX_S)
            else:
                self.done.set()
                retry_s = RETRY_S
                if not self._every_s:
                    return
                await self._pause()

    async def _pause(self) -> None:
        wait_s = self._every_s
        loop = asyncio.get_running_loop()
        if self._rests and self.is_about_machine:
            timer = call_real_later(loop, wait_s, self._woken.set)
            try:
                await self._woken.wait()
            finally:
                timer.cancel()
            return
        if self._rests:
            begun_s = loop.time()
            await self._stirred.wait()
            wait_s -= (loop.time() - begun_s) % self._every_s
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._woken.wait()


class Jobs:
    """All jobs of a server."""

    def __init__(self, jobs: Iterable[Job], logger: Logger) -> None:
        """Take the jobs; none is started."""
        self.jobs: Final = tuple(jobs)
        self._logger: Final = logger
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start all jobs."""
        self._tasks = [asyncio.create_task(self._run(each), name=each.name) for each in self.jobs]

    async def stop(self) -> None:
        """Stop all jobs."""
        for each in self._tasks:
            each.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        for job in self.jobs:
            if job.is_begun and job.at_end is not None:
                await self._end(job.name, job.at_end)

    async def _end(self, name: str, at_end: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(END_S_MAX):
                await at_end()
        except (ApiError, StoreError, TimeoutError) as error:
            # What it would have removed expires with its lease.
            self._logger.warning("a job failed to stop", job=name, error=str(error))

    async def _run(self, job: Job) -> None:
        try:
            await job.run(self._logger)
        except Exception as error:
            self._logger.error("a job ended with an error", job=job.name, error=repr(error))
            raise
