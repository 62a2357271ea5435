"""Handlers are stepped at once, and become tasks only if they wait.

    begin(coroutine) ─► runs to its end        no task, no future, one copy of a context
                     └► waits ─► the spare task, which was the current task all along, runs the rest

`asyncio.current_task` is a real task from a handler's first line on, so `asyncio.timeout` and
`asyncio.TaskGroup` work before the first wait, too: there is one spare task, suspended, that is the
current task while handlers are stepped. The first handler that waits gets it, and a new spare is
made. A handler that ends without waiting leaves the spare unused; but if it has cancelled the spare
or kept a reference to it, the spare is discarded.

A handler that awaits a shared `kvstack.component.parking.Wait` gets no task either: it is parked,
and stepped again together with all others that were woken. It gets one when `Parked.task` is read,
which is how it is cancelled.

Each handler has its own copy of the context that the server was started in.
"""

import asyncio
import contextvars
import sys
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from typing_extensions import override

from kvstack.component.parking import Wait, stepping

Handling: TypeAlias = Coroutine[Any, Any, None]
OnEnd: TypeAlias = Callable[[BaseException | None], None]
_T = TypeVar("_T")


class Spare(Coroutine[object, None, None]):
    """The coroutine of a spare task: it waits for a handler that has begun to wait.

    `task` is the task until the handler has ended.
    """

    __slots__ = (
        "__weakref__",
        "_context",
        "_coroutine",
        "_gate",
        "_is_retired",
        "_waits_for",
        "on_end",
        "task",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, context: contextvars.Context) -> None:
        self._gate: asyncio.Future[None] = loop.create_future()
        self._coroutine: Handling | None = None
        self._is_retired = False
        self._context = context
        self._waits_for: asyncio.Future[Any] | None = None  # not yet returned to the task
        self.on_end: OnEnd | None = None
        # Not by a task factory: an eager one would run the gate here.
        self.task = asyncio.Task(self, loop=loop, name="http request", context=context)

    @property
    def is_spent(self) -> bool:
        """Whether the task was cancelled before it had a handler."""
        return self._gate.done() or self.task.cancelling() > 0

    def retire(self) -> None:
        """Let the task end without a handler."""
        self._is_retired = True
        if not self._gate.done():
            self._gate.set_result(None)

    def adopt(
        self,
        coroutine: Handling,
        context: contextvars.Context,
        waits_for: asyncio.Future[Any] | None,
    ) -> None:
        """Run a handler that was stepped once and waits for a future (None: one loop iteration)."""
        self._coroutine = coroutine
        self._context = context
        self._waits_for = waits_for
        if not self._gate.done():
            self._gate.set_result(None)

    @override
    def send(self, value: None, /) -> object:
        if self._coroutine is None:
            if self._is_retired:
                del self.task
                raise StopIteration
            return self._gate.__await__().send(None)
        if self._waits_for is not None:
            waits_for, self._waits_for = self._waits_for, None
            return waits_for  # as if the task had made the first step itself
        return self._step(self._coroutine.send, value)

    @override
    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> object:
        error = typ if isinstance(typ, BaseException) else typ()
        if self._coroutine is None:
            raise error  # cancelled before it had a handler
        waits_for, self._waits_for = self._waits_for, None
        if waits_for is not None and waits_for.cancel():
            return waits_for  # the awaited future is cancelled first, as by Task.cancel
        return self._step(self._coroutine.throw, error)

    @override
    def close(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()

    @override
    def __await__(self) -> Generator[Any, None, None]:
        raise TypeError("a spare is only run by its task")

    def _step(self, step: Callable[[_T], Any], value: _T) -> object:
        try:
            return self._context.run(step, value)
        except StopIteration:
            self._end(None)
            raise
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit) as error:
            self._end(error)
            raise
        except BaseException as error:  # noqa: BLE001 - on_end has it; nothing awaits the task
            self._end(error)
            raise StopIteration from None

    def _end(self, error: BaseException | None) -> None:
        on_end, self.on_end = self.on_end, None
        # The task has this coroutine: together they would stay until cycles are collected.
        del self.task
        if on_end is not None:
            on_end(error)


class Parked:
    """A parked handler, until its Wait is done."""

    __slots__ = ("_context", "_coroutine", "_spare", "_tasks", "_wait", "on_end")

    def __init__(
        self, tasks: "HandlerTasks", coroutine: Handling, context: contextvars.Context
    ) -> None:
        self._tasks = tasks
        self._coroutine = coroutine
        self._context = context
        self._wait: Wait[Any] | None = None
        self._spare: Spare | None = None  # that runs the rest
        self.on_end: OnEnd | None = None

    @property
    def task(self) -> "asyncio.Task[None]":
        """The task that runs the rest, until that has ended; made when it is first asked for."""
        if self._spare is None:
            assert self._wait is not None, "it waits"
            self.pass_on(self._tasks.make_spare(), _blocking(self._wait))
            self._wait = None
        assert self._spare is not None, "it was just made"
        return self._spare.task

    def put_aside(self, wait: Wait[Any]) -> None:
        """Step the handler again when this is done."""
        self._wait = wait
        wait.park(self)

    def pass_on(self, spare: Spare, waits_for: Any) -> None:  # noqa: ANN401
        """Let a spare run the rest."""
        self._spare = spare
        spare.on_end = self.on_end
        spare.adopt(self._coroutine, self._context, waits_for)

    def wake(self) -> None:
        """Step the handler in the next iteration of the loop."""
        self._tasks.step_soon(self)

    def step(self) -> Any:  # noqa: ANN401 - a Wait, a future or None
        """Step it; returns what it waits for. StopIteration at its end."""
        self._wait = None  # which knows it, too
        return self._context.run(self._coroutine.send, None)

    @property
    def has_task(self) -> bool:
        """Whether a task runs the rest."""
        return self._spare is not None


class HandlerTasks:
    """Steps handlers; use it on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()
        self._spare: Spare | None = None
        self._references = 0  # to the spare task, when only the loop and this object have one
        self._woken: list[Parked] = []  # to be stepped in the next iteration of the loop

    def enter(self) -> None:
        """Make the spare the current task; call it in a callback of the loop, before begin."""
        spare = self._spare
        if spare is None or spare.is_spent:
            spare = self._spare = self.make_spare()
        _enter_task(self._loop, spare.task)
        stepping.task = spare.task
        self._references = sys.getrefcount(spare.task)

    def leave(self) -> None:
        """End what enter began."""
        stepping.task = None
        if self._spare is not None:
            _leave_task(self._loop, self._spare.task)

    def begin(self, coroutine: Handling) -> Spare | Parked | None:
        """Step a handler; return who runs the rest, None if it has ended.

        Errors of the first step are raised. The caller sets `on_end` of who runs the rest.
        """
        spare = self._spare
        assert spare is not None, "enter comes first"
        context = self._context.copy()
        try:
            waits_for = context.run(coroutine.send, None)
        except BaseException as error:
            self._discard_used(spare)
            if isinstance(error, StopIteration):
                return None
            raise
        if isinstance(waits_for, Wait):
            if not self._is_used(spare):
                parked = Parked(self, coroutine, context)
                parked.put_aside(waits_for)
                return parked
            waits_for = _blocking(waits_for)
        self._replace_spare()
        spare.adopt(coroutine, context, waits_for)
        return spare

    def make_spare(self) -> Spare:
        """Return a new spare."""
        return Spare(self._loop, self._context)

    # Parked handlers.

    def step_soon(self, parked: Parked) -> None:
        """Step a parked handler in the next iteration of the loop."""
        self._woken.append(parked)
        if len(self._woken) == 1:
            self._loop.call_soon(self._step_woken)

    def _step_woken(self) -> None:
        woken, self._woken = self._woken, []
        self.enter()
        try:
            for each in woken:
                if not each.has_task:
                    self._step_again(each)
        finally:
            self.leave()

    def _step_again(self, parked: Parked) -> None:
        spare = self._spare
        assert spare is not None, "enter comes first"
        try:
            waits_for = parked.step()
        except BaseException as error:
            self._discard_used(spare)
            if parked.on_end is not None:
                parked.on_end(None if isinstance(error, StopIteration) else error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            return
        if isinstance(waits_for, Wait):
            if not self._is_used(spare):
                parked.put_aside(waits_for)
                return
            waits_for = _blocking(waits_for)
        self._replace_spare()
        parked.pass_on(spare, waits_for)

    def close(self) -> None:
        """Discard the spare."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.retire()

    def _is_used(self, spare: Spare) -> bool:
        """Return whether a handler has done something to the spare task, or kept a reference."""
        return spare.is_spent or sys.getrefcount(spare.task) != self._references

    def _discard_used(self, spare: Spare) -> None:
        if self._is_used(spare):
            spare.retire()
            self._replace_spare()

    def _replace_spare(self) -> None:
        """Make another spare the current task."""
        self.leave()
        self._spare = None
        self.enter()


def _blocking(wait: Wait[Any]) -> "asyncio.Future[None]":
    """Return the future of a Wait as a coroutine gives it to its task."""
    future = wait.future()
    future._asyncio_future_blocking = True  # noqa: SLF001 - as its own __await__ does
    return future
