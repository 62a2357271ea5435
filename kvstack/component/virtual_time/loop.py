"""An event loop on a timeline: time advances while no task can run.

    run(story())                                  as in a simulation: as fast as the work is done
    loop = VirtualLoop(Timeline(STANDING))        of a cluster: time stands until a rate is set
    await loop.idle()                             until all tasks on the loop wait

A timer fires when everything due before it is done, so nothing is skipped or reordered, however
fast time advances. Sockets are served meanwhile, at the current time. Clients that send requests
without pause cannot stop time: it advances once they have kept the loop busy for `FAIR_S`.

Work for threads (executors) runs at once, in the loop's own thread: otherwise results would depend
on the machine. Only host names are looked up in another thread, and time stands meanwhile, as it
does during requests to the outside (`hold`). On a real timeline (`Timeline.is_real`) it behaves
like any loop.
"""

import asyncio
import heapq
import math
import selectors
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from typing_extensions import TypeVarTuple, override

from kvstack.component.virtual_time.timeline import Timeline

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

FAIR_S: Final = 0.05
"""How long, in real time, clients on sockets may keep time from advancing."""
HOLD_S_MAX: Final = 60.0
_BUSY: Final = 100
_RESOLUTION_S: Final = 1e-9
_LOOKUPS: Final[tuple[object, ...]] = (socket.getaddrinfo, socket.getnameinfo)


def resolution_s(now_s: float) -> float:
    """Return the resolution of time at a moment: above the precision of a float there."""
    return max(_RESOLUTION_S, 2 * math.ulp(now_s))


class StandstillError(RuntimeError):
    """All tasks wait for something that will not happen, or tasks never wait."""


class RealTimer:
    """A callback at a moment of real time."""

    __slots__ = ("_timers", "callback", "due_real_s")

    def __init__(
        self, timers: "list[RealTimer]", due_real_s: float, callback: Callable[[], object]
    ) -> None:
        """timers: a heap, to which it is added."""
        self.due_real_s: Final = due_real_s
        self.callback: Final = callback
        self._timers: Final = timers
        heapq.heappush(timers, self)

    def __lt__(self, other: "RealTimer") -> bool:
        """Return whether it is due earlier."""
        return self.due_real_s < other.due_real_s

    def cancel(self) -> None:
        """Do not call; too late, it does nothing."""
        if self in self._timers:
            self._timers.remove(self)
            heapq.heapify(self._timers)


class _Selector(selectors.PollSelector):
    """A selector that advances the time to the next timer, where the timeline allows it.

    It has no kernel object, so that a forked process has one of its own.
    """

    def __init__(self, line: Timeline, patience_s: float, still_max: int) -> None:
        super().__init__()
        self.line: Final = line
        self.rounds = 0
        self.pipe = -1
        """The descriptor by which other threads wake the loop."""
        self.next_due_s: Callable[[], float] = lambda: math.inf
        self.call_soon: Callable[[Callable[[], object]], object] = lambda _: None
        self.goes_on: Callable[[], bool] = lambda: False
        self.waiters: list[asyncio.Future[None]] = []
        """The waiters of `idle`."""
        self._patience_s: Final = patience_s
        self._still_max: Final = still_max
        self._still = 0
        self._busy_since_s: float | None = None
        self._holds: dict[object, float] = {}
        """The real time until which time stands."""
        self.real_timers: Final[list[RealTimer]] = []
        """A heap."""

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        line = self.line
        self.rounds += 1
        if self.real_timers and self._fire_real_timers():
            return super().select(0)
        if line.is_real and not self.waiters:
            found = self._wait(timeout)
            line.now_s = line.limit_s(time.monotonic())
            return found
        before_s = line.now_s
        found = super().select(0)
        if not found and timeout != 0:
            self._busy_since_s = None
            found = self._all_wait(timeout)
        elif any(key.fd != self.pipe for key, _ in found):
            self._be_fair()
            return found
        self._count_still(before_s)
        return found

    def _all_wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Advance time, or wait for events from outside."""
        if self.waiters:
            self._tell_waiters()
            return []
        line, real_s = self.line, time.monotonic()
        due_s = math.inf if timeout is None else line.now_s + timeout
        held_s = self._held_s(real_s)
        if held_s:
            return self._wait(held_s)
        if line.is_standing and self.goes_on():
            found = self._wait(None if due_s == math.inf else due_s - line.now_s)
            line.now_s = min(due_s, line.now_s + time.monotonic() - real_s)
            return found
        limit_s = line.limit_s(real_s)
        if due_s <= limit_s and due_s != math.inf:
            line.now_s = due_s
            return []
        if limit_s != math.inf:
            line.now_s = limit_s
        wait_s = None if due_s == math.inf else line.real_wait_s(due_s, real_s)
        if wait_s is None and self._patience_s != math.inf:
            has_timer = bool(self.real_timers)
            found = self._wait(self._patience_s)
            if not found and not has_timer:
                raise StandstillError("all tasks wait for something that will not happen")
            return found
        found = self._wait(wait_s)
        if limit_s != math.inf:
            line.now_s = max(line.now_s, min(due_s, line.limit_s(time.monotonic())))
        return found

    def _wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events from outside, at most until the next timer of real time."""
        if self.real_timers:
            left_s = max(self.real_timers[0].due_real_s - time.monotonic(), 0.0)
            timeout = left_s if timeout is None else min(timeout, left_s)
        return super().select(timeout)

    def _fire_real_timers(self) -> bool:
        """Have the callbacks of what is due called in this round; return whether there are any."""
        timers, real_s = self.real_timers, time.monotonic()
        fired = False
        while timers and timers[0].due_real_s <= real_s:
            self.call_soon(heapq.heappop(timers).callback)
            fired = True
        return fired

    def _tell_waiters(self) -> None:
        waiters, self.waiters = self.waiters, []
        for each in waiters:
            if not each.done():
                each.set_result(None)

    def _be_fair(self) -> None:
        """Advance time although clients keep the loop busy, once they did for a while."""
        real_s = time.monotonic()
        if self._busy_since_s is None:
            self._busy_since_s = real_s
        elif real_s - self._busy_since_s > FAIR_S and not self._held_s(real_s):
            self._tell_waiters()
            limit_s = min(self.next_due_s(), self.line.limit_s(real_s))
            if limit_s != math.inf:
                self.line.now_s = max(self.line.now_s, limit_s)
                self._busy_since_s = real_s

    def _count_still(self, before_s: float) -> None:
        line = self.line
        if line.now_s != before_s:
            self._still = 0
            return
        self._still += 1
        if self._still > _BUSY:
            # Timers fire early by up to the resolution; their callbacks then set them again.
            line.now_s += resolution_s(line.now_s)
        if self._still > self._still_max:
            self._still = 0
            raise StandstillError("time stands still")

    def hold(self, until_real_s: float) -> object:
        """Stop time until `release`, or until a moment of real time."""
        token = object()
        self._holds[token] = until_real_s
        return token

    def release(self, token: object) -> None:
        """End a hold."""
        self._holds.pop(token, None)

    def _held_s(self, real_s: float) -> float:
        """Return for how long time must stand; 0: not at all."""
        if not self._holds:
            return 0.0
        for token in [each for each, until in self._holds.items() if until <= real_s]:
            del self._holds[token]
        return min(self._holds.values()) - real_s if self._holds else 0.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(
        self,
        line: Timeline | None = None,
        *,
        patience_s: float = math.inf,
        still_max: int = 1 << 62,
    ) -> None:
        """Start at the timeline's time.

        patience_s: how long, in real time, to wait for outside events if there is no timer; after
        that, and after a number of rounds in which time stood, StandstillError.
        """
        self.line: Final = line or Timeline()
        self._virtual: Final = _Selector(self.line, patience_s, still_max)
        super().__init__(self._virtual)
        self._note_pipe()
        self._virtual.next_due_s = self._next_due_s
        self._virtual.call_soon = self.call_soon

    @property
    def _clock_resolution(self) -> float:
        """How early asyncio fires timers; it depends on the time, which may be far ahead."""
        return resolution_s(self.line.now_s)

    @_clock_resolution.setter
    def _clock_resolution(self, value: float) -> None:
        """Ignore the value: asyncio sets the resolution of the machine's clock."""

    def go_on_while(self, is_asked: Callable[[], bool]) -> None:
        """Let standing time advance like real time while an outside client waits for an answer.

        Otherwise an answer that takes any time would never be sent.
        """
        self._virtual.goes_on = is_asked

    @property
    def rounds(self) -> int:
        """The number of iterations so far."""
        return self._virtual.rounds

    @override
    def time(self) -> float:
        """Return the seconds that have passed."""
        if self.line.is_real:
            return self.line.limit_s(time.monotonic())
        return self.line.now_s

    async def idle(self) -> None:
        """Wait until all tasks on this loop wait: for a timer, for the outside, or for this.

        With several such waiters, each may find that another one continues. Clients that send
        requests without pause are not waited for.
        """
        waiter = self.create_future()
        self._virtual.waiters.append(waiter)
        await waiter

    async def real_sleep(self, seconds: float) -> None:
        """Sleep by the machine's clock, whatever the loop's time does meanwhile."""
        future = self.create_future()
        timer = self.call_real_later(seconds, partial(_wake, future))
        try:
            await future
        finally:
            timer.cancel()

    def call_real_later(self, seconds: float, callback: Callable[[], object]) -> RealTimer:
        """Call something when so much time has passed by the machine's clock."""
        return RealTimer(self._virtual.real_timers, time.monotonic() + seconds, callback)

    @contextmanager
    def hold(self, limit_s: float = HOLD_S_MAX) -> Iterator[None]:
        """Stop time for the duration of the block, at most for this much real time."""
        token = self._virtual.hold(time.monotonic() + limit_s)
        try:
            yield
        finally:
            self._virtual.release(token)

    def set_rate(self, rate: float) -> None:
        """Set the rate of time; RateError."""
        self.line.now_s = self.time()
        self.line.set_rate(rate, time.monotonic())

    def free_until(self, until_s: float) -> None:
        """Let time pass at once up to a moment, and stand there until `bind`."""
        self.line.now_s = self.time()
        self.line.free_until(until_s)

    def bind(self) -> None:
        """Let time advance at its rate again."""
        self.line.bind(time.monotonic())

    def after_fork(self) -> None:
        """Reinitialize in a process that was forked while this loop did not run."""
        loop = cast("Any", self)
        loop._close_self_pipe()  # noqa: SLF001 - asyncio has no other way to part from a parent
        loop._make_self_pipe()  # noqa: SLF001 - the same
        self._note_pipe()
        self.bind()

    @override
    def run_in_executor(
        self, executor: "Executor | None", func: Callable[[*Ts], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        """Run a blocking function: in a thread on a real timeline, else at once."""
        if self.line.is_real:
            return super().run_in_executor(executor, func, *args)
        if func in _LOOKUPS:
            held = self._virtual.hold(time.monotonic() + HOLD_S_MAX)
            aside = super().run_in_executor(executor, func, *args)
            aside.add_done_callback(lambda _: self._virtual.release(held))
            return aside
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            done.set_exception(error)
        return done

    def _note_pipe(self) -> None:
        self._virtual.pipe = cast("Any", self)._ssock.fileno()  # noqa: SLF001 - of this very class

    def _next_due_s(self) -> float:
        scheduled: list[asyncio.TimerHandle] = cast("Any", self)._scheduled  # noqa: SLF001 - of this very class
        return scheduled[0].when() if scheduled else math.inf


def standing(limit_s: float = HOLD_S_MAX) -> "AbstractContextManager[None]":
    """Stop the running loop's time, if it is virtual, during a request to the outside."""
    loop = asyncio.get_running_loop()
    return loop.hold(limit_s) if isinstance(loop, VirtualLoop) else nullcontext()


def call_real_later(
    loop: asyncio.AbstractEventLoop, seconds: float, callback: Callable[[], object]
) -> asyncio.TimerHandle | RealTimer:
    """Call something when so much time has passed by the machine's clock, on any loop."""
    if isinstance(loop, VirtualLoop):
        return loop.call_real_later(seconds, callback)
    return loop.call_later(seconds, callback)


async def real_sleep(seconds: float) -> None:
    """Sleep by the machine's clock, on any loop."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualLoop):
        await loop.real_sleep(seconds)
    else:
        await asyncio.sleep(seconds)


def run(main: Coroutine[Any, Any, T], *, patience_s: float = 60.0, still_max: int = 100_000) -> T:
    """Run a coroutine in virtual time that passes at once, as in a simulation."""

    def loop() -> VirtualLoop:
        return VirtualLoop(patience_s=patience_s, still_max=still_max)

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)


async def pass_time(loop: VirtualLoop, for_s: float) -> None:
    """Let this much time pass at once, and return when everything due in it is done.

    Callers must not call it concurrently.
    """
    until_s = loop.time() + for_s
    loop.free_until(until_s)
    try:
        due = loop.create_future()
        timer = loop.call_at(until_s, _wake, due)
        try:
            await due
        finally:
            timer.cancel()
        await loop.idle()
    finally:
        loop.bind()


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
