"""Jobs: once and again, retried, in order, ended."""

import asyncio
from typing import Any

from kvstack.apimachinery.objects import status
from kvstack.apiserver.server.upkeep import loop
from kvstack.apiserver.server.upkeep.loop import Job, Jobs
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.virtual_time import loop as virtual_time_loop
from tests.apiserver.support import virtual_time

LOG = LineLogger([], "fatal")


def run(main: Any) -> None:
    async def body() -> None:
        async with asyncio.timeout(10):
            await main()

    asyncio.run(body())


def test_a_job_is_done_once_and_its_followers_wait_for_it() -> None:
    told: list[str] = []

    async def main() -> None:
        gate = asyncio.Event()

        async def first() -> None:
            await gate.wait()
            told.append("first")

        async def second() -> None:
            told.append("second")

        one = Job("one", first)
        jobs = Jobs([Job("two", second, after=one), one], LOG)
        jobs.start()
        await asyncio.sleep(0)
        gate.set()
        await jobs.jobs[0].done.wait()
        await jobs.stop()

    run(main)
    assert told == ["first", "second"]


def test_a_round_that_fails_is_tried_again(monkeypatch: Any) -> None:
    monkeypatch.setattr(loop, "RETRY_S", 0.0)
    rounds: list[int] = []

    async def main() -> None:
        async def often() -> None:
            rounds.append(1)
            if len(rounds) < 3:
                raise status.timeout("not yet")

        jobs = Jobs([Job("often", often)], LOG)
        jobs.start()
        await jobs.jobs[0].done.wait()
        await jobs.stop()

    run(main)
    assert len(rounds) == 3


def test_a_job_that_is_woken_does_not_wait_for_its_period() -> None:
    rounds: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]

    async def main() -> None:
        told = iter(rounds)

        async def often() -> None:
            next(told).set()

        job = Job("often", often, every_s=60)
        jobs = Jobs([job], LOG)
        jobs.start()
        await rounds[0].wait()
        job.wake()
        await rounds[1].wait()
        await jobs.stop()

    run(main)


def test_the_end_of_a_job_is_done_only_if_it_was_begun() -> None:
    told: list[str] = []

    async def main() -> None:
        async def nothing() -> None:
            pass

        async def end_of_one() -> None:
            told.append("one")
            raise status.timeout("the store is gone")

        async def end_of_two() -> None:
            told.append("two")

        async def end_of_three() -> None:
            told.append("three")

        one = Job("one", nothing, every_s=60, at_end=end_of_one)
        two = Job("two", nothing, every_s=60, at_end=end_of_two, begins_later=True)
        three = Job("three", nothing, at_end=end_of_three)
        jobs = Jobs([one, two, three], LOG)
        jobs.start()
        await one.done.wait()
        await three.done.wait()
        await jobs.stop()

    run(main)
    assert told == ["one", "three"]


def test_an_idle_job_runs_only_after_changes_at_its_period() -> None:
    rounds: list[float] = []

    async def main() -> None:
        running = asyncio.get_running_loop()
        begun_s = running.time()

        async def often() -> None:
            rounds.append(round(running.time() - begun_s, 3))

        job = Job("often", often, every_s=10.0, follows=())
        job.rest()
        jobs = Jobs([job], LOG)
        jobs.start()
        await asyncio.sleep(34.0)
        job.note_change()
        job.note_change()
        await asyncio.sleep(20.0)
        job.wake()
        await asyncio.sleep(60.0)
        await jobs.stop()

    virtual_time.run(main())
    assert rounds == [0.0, 40.0, 54.0]


def test_a_job_that_changes_something_itself_makes_one_more_round() -> None:
    rounds: list[float] = []

    async def main() -> None:
        running = asyncio.get_running_loop()
        begun_s = running.time()

        async def often() -> None:
            rounds.append(round(running.time() - begun_s, 3))
            if len(rounds) == 1:
                job.note_change()

        job = Job("often", often, every_s=10.0, follows=())
        job.rest()
        jobs = Jobs([job], LOG)
        jobs.start()
        await asyncio.sleep(100.0)
        await jobs.stop()

    virtual_time.run(main())
    assert rounds == [0.0, 10.0]


def test_a_job_about_the_machine_rests_by_the_machines_clock() -> None:
    rounds: list[float] = []

    async def main() -> None:
        running = asyncio.get_running_loop()

        async def look() -> None:
            rounds.append(running.time())

        job = Job("memory", look, every_s=0.05, begins_later=True, is_about_machine=True)
        job.rest()
        jobs = Jobs([job], LOG)
        jobs.start()
        await asyncio.sleep(86_400)  # a day of virtual time: a moment
        begun = len(rounds)
        assert begun < 1000
        while len(rounds) == begun:
            await virtual_time_loop.real_sleep(0.01)
        await jobs.stop()

    virtual_time.run(main())


def test_a_job_about_the_machine_that_does_not_rest_goes_by_the_loops_clock() -> None:
    rounds: list[float] = []

    async def main() -> None:
        running = asyncio.get_running_loop()

        async def look() -> None:
            rounds.append(running.time())

        jobs = Jobs([Job("memory", look, every_s=25, is_about_machine=True)], LOG)
        jobs.start()
        await asyncio.sleep(80)
        await jobs.stop()

    virtual_time.run(main())
    assert [round(each) for each in rounds] == [0, 25, 50, 75]
