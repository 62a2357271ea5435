"""Looks that are left out: what is made comes at moments at which it would have come anyway."""

import asyncio
import math

import pytest

from kvstack.agents.client.work_queue import WorkQueue
from kvstack.agents.reconcile.plan import Again
from kvstack.agents.reconcile.skipped_looks import REST_S_MAX, SkippedLooks
from tests.apiserver.support.virtual_time import run
from tests.sim.stack.timing import SimClock

PERIOD_S = 5.0


def looks(rests_s: float, changes: list[float], until_s: float) -> list[float]:
    """Return when looks are made, from the first on at 2 s."""

    async def body() -> list[float]:
        clock = SimClock()
        queue: WorkQueue[str] = WorkQueue(clock)
        skipped = SkippedLooks(queue, clock)
        made: list[float] = []

        async def work() -> None:
            while True:
                key = await queue.get()
                made.append(round(clock.monotonic_s() - begun_s, 3))
                skipped.add(key, Again(PERIOD_S, is_routine=True, rests_s=rests_s))
                queue.done(key)

        begun_s = clock.monotonic_s()
        await asyncio.sleep(2.0)
        queue.add("all")
        worker = asyncio.create_task(work())
        for at in changes:
            await asyncio.sleep(begun_s + at - clock.monotonic_s())
            skipped.changed()
        await asyncio.sleep(begun_s + until_s - clock.monotonic_s())
        worker.cancel()
        queue.close()
        return made

    return run(body())


@pytest.mark.parametrize(
    ("rests_s", "changes", "made"),
    [
        (0.0, [], [2.0, 7.0, 12.0, 17.0, 22.0, 27.0]),
        (5.0, [], [2.0, 7.0, 12.0, 17.0, 22.0, 27.0]),
        (5.1, [], [2.0, 12.0, 22.0]),
        (12.0, [], [2.0, 17.0]),
        (15.0, [], [2.0, 17.0]),
        (math.inf, [], [2.0]),
        (math.inf, [3.0], [2.0, 7.0]),
        (math.inf, [3.0, 4.0, 8.0], [2.0, 7.0, 12.0]),
        # A change at the moment of a look may have come just after it.
        (math.inf, [12.0], [2.0, 17.0]),
        (12.0, [9.0], [2.0, 12.0, 27.0]),
    ],
)
def test_looks(rests_s: float, changes: list[float], made: list[float]) -> None:
    assert looks(rests_s, changes, 30.0) == made


def test_a_look_comes_at_last() -> None:
    made = looks(math.inf, [], 2 * REST_S_MAX)
    assert made == [2.0, 2.0 + REST_S_MAX]
