"""Handlers that wait for what many wait for: put aside, woken together, tasks only when asked."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable

import pytest

from kvstack.component.http.serving.handler_tasks import Parked, Spare
from kvstack.component.parking import Wait
from tests.component.http.serving.test_handler_tasks import Stepper, run, settle


def run_scenario(scenario: Callable[[Stepper], Awaitable[None]]) -> None:
    """Run a scenario, after which no task may be left."""

    async def whole() -> None:
        stepper = Stepper()
        await scenario(stepper)
        stepper.tasks.close()
        await settle()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(whole())


def test_many_wait_and_go_on_without_tasks() -> None:
    async def handle(number: int, wait: Wait[str], *, again: Wait[str] | None) -> None:
        assert isinstance(asyncio.current_task(), asyncio.Task)
        seen.append((number, await wait))
        if again is not None:
            seen.append((number, await again))

    seen: list[tuple[int, str]] = []

    async def scenario(stepper: Stepper) -> None:
        waits = [Wait[str]() for _ in range(3)]
        again = Wait[str]()
        before = len(asyncio.all_tasks())
        for number, wait in enumerate(waits):
            parked = stepper.begin(handle(number, wait, again=again if number == 1 else None))
            assert isinstance(parked, Parked)
        assert len(asyncio.all_tasks()) == before + 1, "the spare one"
        for number, wait in enumerate(waits):
            wait.set_result(f"answer {number}")
            assert not seen, "never within the call"
        await settle()
        assert seen == [(0, "answer 0"), (1, "answer 1"), (2, "answer 2")]
        assert stepper.ends == [None, None]
        again.set_result("again")
        await settle()
        assert seen[3:] == [(1, "again")]
        assert stepper.ends == [None, None, None]

    run_scenario(scenario)


def test_errors_reach_the_handler_and_its_server() -> None:
    async def handle(wait: Wait[int]) -> None:
        with pytest.raises(KeyError):
            await wait
        raise ValueError("of the handler")

    async def scenario(stepper: Stepper) -> None:
        wait = Wait[int]()
        stepper.begin(handle(wait))
        wait.set_exception(KeyError("of the answer"))
        await settle()
        [error] = stepper.ends
        assert isinstance(error, ValueError)

    run_scenario(scenario)


def test_one_that_waits_for_something_else_afterwards_becomes_a_task() -> None:
    async def handle(wait: Wait[int], future: "asyncio.Future[int]") -> None:
        seen.append(await wait)
        seen.append(await future)
        seen.append(asyncio.current_task())

    seen: list[object] = []

    async def scenario(stepper: Stepper) -> None:
        wait, future = Wait[int](), asyncio.get_running_loop().create_future()
        parked = stepper.begin(handle(wait, future))
        assert parked is not None
        wait.set_result(1)
        await settle()
        task = parked.task
        future.set_result(2)
        await settle()
        assert seen == [1, 2, task]
        assert stepper.ends == [None]

    run_scenario(scenario)


@pytest.mark.parametrize("is_answered", [False, True])
def test_it_is_cancelled_as_a_task(*, is_answered: bool) -> None:
    """Also when the answer has just come and the handler was not stepped yet."""

    async def handle(wait: Wait[int]) -> None:
        try:
            await wait
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    seen: list[str] = []

    async def scenario(stepper: Stepper) -> None:
        wait = Wait[int]()
        parked = stepper.begin(handle(wait))
        assert parked is not None
        if is_answered:
            wait.set_result(1)
        task = parked.task
        task.cancel()
        await asyncio.wait([task])
        assert seen == ["cancelled"]
        assert task.cancelled()
        [error] = stepper.ends
        assert isinstance(error, asyncio.CancelledError)
        assert wait.done()

    run_scenario(scenario)


def test_a_task_that_was_asked_for_runs_the_rest() -> None:
    async def handle(wait: Wait[int]) -> None:
        seen.append(await wait)

    seen: list[int] = []

    async def scenario(stepper: Stepper) -> None:
        for is_early in (True, False):
            wait = Wait[int]()
            parked = stepper.begin(handle(wait))
            assert parked is not None
            if is_early:
                wait.set_result(1)
            task = parked.task
            assert parked.task is task
            if not is_early:
                wait.set_result(2)
            await asyncio.wait([task])
        assert seen == [1, 2]
        assert stepper.ends == [None, None]

    run_scenario(scenario)


def test_a_handler_whose_task_is_known_elsewhere_keeps_it() -> None:
    """A time limit names the task that it will cancel."""

    async def handle(wait: Wait[int]) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await wait
        ended.append(True)

    ended: list[bool] = []

    async def scenario(stepper: Stepper) -> None:
        spare = stepper.begin(handle(Wait[int]()))
        assert isinstance(spare, Spare)
        await asyncio.wait([spare.task])
        assert ended == [True]

    run_scenario(scenario)


def test_contexts_stay_the_handlers() -> None:
    variable = contextvars.ContextVar("variable", default="server's")

    async def handle(name: str, wait: Wait[int]) -> None:
        variable.set(name)
        await wait
        seen.append(variable.get())

    seen: list[str] = []

    async def scenario(stepper: Stepper) -> None:
        waits = [Wait[int](), Wait[int]()]
        for name, wait in zip("ab", waits, strict=True):
            stepper.begin(handle(name, wait))
        for wait in waits:
            wait.set_result(0)
        await settle()
        assert seen == ["a", "b"]
        assert variable.get() == "server's"

    run_scenario(scenario)


def test_in_a_task_it_is_waited_for_as_a_future() -> None:
    async def scenario() -> None:
        answered, failed, early = Wait[int](), Wait[int](), Wait[int]()
        early.set_result(3)
        assert await early == 3
        tasks = [asyncio.create_task(_get(each)) for each in (answered, failed)]
        given_up = asyncio.create_task(_get(left := Wait[int]()))
        await settle()
        given_up.cancel()
        await settle()
        assert left.done()
        left.set_result(4)  # nobody waits any more
        answered.set_result(1)
        failed.set_exception(KeyError("no"))
        assert await tasks[0] == 1
        with pytest.raises(KeyError):
            await tasks[1]

    run(scenario())


async def _get(wait: Wait[int]) -> int:
    return await wait
