"""Handlers stepped at once: a task only for those that wait, and tasks like any other then."""

import asyncio
import contextvars
import gc
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from kvstack.component.http.serving.handler_tasks import HandlerTasks, Parked, Spare

Errors = list[BaseException | None]


class Stepper:
    """Begins handlers as a server does, and notes how they end."""

    def __init__(self) -> None:
        self.tasks = HandlerTasks(asyncio.get_running_loop())
        self.ends: Errors = []

    def begin(self, coroutine: Coroutine[Any, Any, None]) -> Spare | Parked | None:
        """Begin a handler in a callback of the loop, where there is no current task."""
        outcome: list[Spare | Parked | BaseException | None] = []

        def step() -> None:
            assert asyncio.current_task() is None
            self.tasks.enter()
            try:
                spare = self.tasks.begin(coroutine)
                if spare is not None:
                    spare.on_end = self.ends.append
                outcome.append(spare)
            except BaseException as error:  # noqa: BLE001 - asserted by the test
                outcome.append(error)
            finally:
                self.tasks.leave()
            assert asyncio.current_task() is None

        step_in_callback(step)
        [result] = outcome
        if isinstance(result, BaseException):
            raise result
        return result


def step_in_callback(function: Any) -> None:
    """Run a function as a callback of the loop would: without the test's own task."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    asyncio.tasks._leave_task(loop, task)
    try:
        function()
    finally:
        asyncio.tasks._enter_task(loop, task)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_handler_that_does_not_wait_costs_no_task() -> None:
    async def handle() -> None:
        assert isinstance(asyncio.current_task(), asyncio.Task)
        seen.append(id(asyncio.current_task()))

    seen: list[int] = []

    async def scenario() -> None:
        stepper = Stepper()
        for _ in range(5):
            assert stepper.begin(handle()) is None
        assert seen == [seen[0]] * 5, "the spare one, each time"
        assert stepper.ends == []
        stepper.tasks.close()
        await settle()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario())


def test_one_that_waits_goes_on_as_the_task_it_was_from_the_start() -> None:
    seen: list[object] = []

    async def handle(future: "asyncio.Future[int]") -> None:
        seen.append(asyncio.current_task())
        seen.append(await future)
        seen.append(asyncio.current_task())

    async def scenario() -> None:
        stepper = Stepper()
        futures = [asyncio.get_running_loop().create_future() for _ in range(3)]
        spares = [stepper.begin(handle(future)) for future in futures]
        tasks = [spare.task for spare in spares if spare is not None]
        assert len(set(tasks)) == 3
        assert seen == tasks
        for n, future in enumerate(futures):
            if n == 1:
                await settle()
            future.set_result(n)
        await asyncio.wait(tasks)
        assert seen[3:] == [0, tasks[0], 1, tasks[1], 2, tasks[2]] or len(seen) == 9
        assert stepper.ends == [None, None, None]
        assert all(task.done() and not task.cancelled() for task in tasks)

    run(scenario())


def test_a_future_that_is_done_meanwhile_is_not_missed() -> None:
    done: list[str] = []

    async def handle(future: "asyncio.Future[str]") -> None:
        done.append(await future)

    async def scenario() -> None:
        stepper = Stepper()
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        stepper.begin(handle(future))
        future.set_result("early")  # before the task has seen that it waits
        await settle()
        assert done == ["early"]

    run(scenario())


def test_errors_of_the_first_step_are_raised_and_later_ones_reported() -> None:
    async def at_once() -> None:
        raise KeyError("at once")

    async def later() -> None:
        await asyncio.sleep(0)
        raise KeyError("later")

    async def scenario() -> None:
        stepper = Stepper()
        with pytest.raises(KeyError, match="at once"):
            stepper.begin(at_once())
        spare = stepper.begin(later())
        assert spare is not None
        task = spare.task
        await settle()
        assert [str(error) for error in stepper.ends] == ["'later'"]
        assert task.done()
        assert task.exception() is None  # it was told; nobody asks the task

    run(scenario())


@pytest.mark.parametrize("settled", [False, True])
def test_cancelling_reaches_what_the_handler_waits_for(*, settled: bool) -> None:
    seen: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("inner")
            raise

    async def handle() -> None:
        child = asyncio.create_task(inner())
        await asyncio.sleep(0)
        try:
            await child
        except asyncio.CancelledError:
            seen.append("handler")
            raise

    async def scenario() -> None:
        stepper = Stepper()
        spare = stepper.begin(handle())
        assert spare is not None
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if settled:
            await settle()
        task = spare.task
        task.cancel()
        await asyncio.wait([task])
        assert seen[-1:] == ["handler"] or (not settled and seen == [])
        assert task.cancelled()
        assert isinstance(stepper.ends[0], asyncio.CancelledError)

    run(scenario())


def test_cancelling_at_once_is_as_with_any_task() -> None:
    async def handle(future: "asyncio.Future[None]") -> None:
        await future

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        stepper = Stepper()
        future: asyncio.Future[None] = loop.create_future()
        spare = stepper.begin(handle(future))
        assert spare is not None
        task = spare.task
        task.cancel("why")  # before its first step as a task
        await asyncio.wait([task])
        assert future.cancelled(), "what it waits for is cancelled, not only the wait"
        assert task.cancelled()

    run(scenario())


def test_a_handler_may_refuse_to_be_cancelled() -> None:
    seen: list[str] = []

    async def handle() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("refused")
        await asyncio.sleep(0)
        seen.append("went on")

    async def scenario() -> None:
        stepper = Stepper()
        spare = stepper.begin(handle())
        assert spare is not None
        spare.task.cancel()
        await asyncio.wait([spare.task])
        assert seen == ["refused", "went on"]
        assert stepper.ends == [None]

    run(scenario())


def test_one_that_cancels_itself_and_ends_harms_no_other() -> None:
    seen: list[str] = []

    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def handle() -> None:
        await asyncio.sleep(0)
        seen.append("ended")

    async def scenario() -> None:
        stepper = Stepper()
        assert stepper.begin(cancels_itself()) is None
        stepper.begin(handle())
        await settle()
        assert seen == ["ended"]

    run(scenario())


def test_one_that_cancels_itself_and_waits_is_cancelled() -> None:
    async def handle() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    async def scenario() -> None:
        stepper = Stepper()
        spare = stepper.begin(handle())
        assert spare is not None
        task = spare.task
        await asyncio.wait([task])
        assert task.cancelled()

    run(scenario())


def test_a_task_that_somebody_keeps_is_not_used_again() -> None:
    kept: list[asyncio.Task[Any]] = []
    seen: list[str] = []

    async def keeps() -> None:
        task = asyncio.current_task()
        assert task is not None
        kept.append(task)

    async def handle() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen.append("ended")

    async def scenario() -> None:
        stepper = Stepper()
        assert stepper.begin(keeps()) is None
        spare = stepper.begin(handle())
        assert spare is not None
        assert spare.task is not kept[0]
        kept[0].cancel()  # as a clock that was wound up too late: nobody's any more
        await settle()
        assert seen == ["ended"]
        assert kept[0].done()

    run(scenario())


def test_timeouts_count_from_the_first_line() -> None:
    outcomes: list[str] = []

    async def handle() -> None:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            outcomes.append("late")
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        outcomes.append("in time")

    async def scenario() -> None:
        stepper = Stepper()
        spare = stepper.begin(handle())
        assert spare is not None
        task = spare.task
        await asyncio.wait([task])
        assert outcomes == ["late", "in time"]
        assert task.cancelling() == 0

    run(scenario())


def test_contexts_are_copies_of_the_servers() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen: list[str] = []

    async def handle(name: str) -> None:
        seen.append(variable.get())
        variable.set(name)
        await asyncio.sleep(0)
        seen.append(variable.get())

    async def scenario() -> None:
        variable.set("server's")
        stepper = Stepper()
        variable.set("later")
        for name in "ab":
            stepper.begin(handle(name))
        await settle()
        assert sorted(seen) == ["a", "b", "server's", "server's"]

    run(scenario())


def test_a_task_factory_is_passed_by_and_nothing_is_left_pending() -> None:
    async def handle() -> None:
        await asyncio.sleep(0)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def factory(*_: object, **__: object) -> Any:
            raise AssertionError("no task is made by it")

        stepper = Stepper()
        loop.set_task_factory(factory)
        stepper.begin(handle())
        await settle()
        loop.set_task_factory(None)
        stepper.tasks.close()
        await settle()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        gc.collect()  # a task destroyed while pending would be a warning, which is an error here

    run(scenario())


def test_one_that_has_ended_leaves_no_cycle() -> None:
    async def handle() -> None:
        await asyncio.sleep(0)

    async def scenario() -> None:
        stepper = Stepper()
        spare = stepper.begin(handle())
        assert spare is not None
        kept = weakref.ref(spare)
        del spare
        await settle()
        assert stepper.ends == [None]
        assert kept() is None, "freed at once: nothing is left for the collector"

    gc.disable()
    try:
        run(scenario())
    finally:
        gc.enable()
