"""An event loop on a timeline: time goes on while nobody has anything to do.

    run(story())                                  as in a simulation: as fast as everybody is done
    loop = VirtualLoop(Timeline(STANDING))        of a cluster: time stands until it is told to go
    await loop.idle()                             until everybody on the loop waits

A moment for which somebody waits comes when all that is to be done before it is done, so nothing is
skipped and nothing comes out of order, however fast time goes. Sockets are served meanwhile: who
comes over one finds the time that is now. Those who never stop asking cannot stop time: it goes on
once they have kept the loop busy for `FAIR_S`.

Work that is given to threads is done at once, in the loop's own: else it would depend on the
machine what comes of it. Only names of hosts are looked up aside, and time stands meanwhile, as it
does while something outside is asked (`hold`). On a timeline that is real (`Timeline.is_real`), all
of it is as with any loop.
"""

import asyncio
import math
import selectors
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from typing_extensions import TypeVarTuple, override

from kvstack.component.virtual_time.timeline import Timeline

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

FAIR_S: Final = 0.05
"""How long, in real time, those who come over sockets may keep time from going on."""
HOLD_S_MAX: Final = 60.0
_BUSY: Final = 100
_RESOLUTION_S: Final = 1e-9
_LOOKUPS: Final[tuple[object, ...]] = (socket.getaddrinfo, socket.getnameinfo)


def resolution_s(now_s: float) -> float:
    """Return the smallest time that counts: more than floats around a moment can tell apart."""
    return max(_RESOLUTION_S, 2 * math.ulp(now_s))


class StandstillError(RuntimeError):
    """Everybody waits for something that will not come, or nobody ever waits."""


class _Selector(selectors.PollSelector):
    """Instead of waiting for a timer, lets its time come, where the timeline allows it.

    Nothing of it is in the kernel, so that a process that was forked has one of its own.
    """

    def __init__(self, line: Timeline, patience_s: float, still_max: int) -> None:
        super().__init__()
        self.line: Final = line
        self.rounds = 0
        self.pipe = -1
        """The descriptor by which other threads wake the loop."""
        self.next_due_s: Callable[[], float] = lambda: math.inf
        self.goes_on: Callable[[], bool] = lambda: False
        self.waiters: list[asyncio.Future[None]] = []
        """Of `idle`."""
        self._patience_s: Final = patience_s
        self._still_max: Final = still_max
        self._still = 0
        self._busy_since_s: float | None = None
        self._holds: dict[object, float] = {}
        """Until when, in real time, time stands."""

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        line = self.line
        self.rounds += 1
        if line.is_real and not self.waiters:
            found = super().select(timeout)
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
        """Let time go on, or wait for somebody outside."""
        if self.waiters:
            self._tell_waiters()
            return []
        line, real_s = self.line, time.monotonic()
        due_s = math.inf if timeout is None else line.now_s + timeout
        held_s = self._held_s(real_s)
        if held_s:
            return super().select(held_s)
        if line.is_standing and self.goes_on():
            found = super().select(None if due_s == math.inf else due_s - line.now_s)
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
            found = super().select(self._patience_s)
            if not found:
                raise StandstillError("everybody waits for something that will not come")
            return found
        found = super().select(wait_s)
        if limit_s != math.inf:
            line.now_s = max(line.now_s, min(due_s, line.limit_s(time.monotonic())))
        return found

    def _tell_waiters(self) -> None:
        waiters, self.waiters = self.waiters, []
        for each in waiters:
            if not each.done():
                each.set_result(None)

    def _be_fair(self) -> None:
        """Let time go on although others keep the loop busy, once they did for a while."""
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
            # Timers come early by up to the resolution; who finds that they did sets them again.
            line.now_s += resolution_s(line.now_s)
        if self._still > self._still_max:
            self._still = 0
            raise StandstillError("time stands still")

    def hold(self, until_real_s: float) -> object:
        """Let time stand until `release`, or until a moment of real time."""
        token = object()
        self._holds[token] = until_real_s
        return token

    def release(self, token: object) -> None:
        """End a hold."""
        self._holds.pop(token, None)

    def _held_s(self, real_s: float) -> float:
        """Return for how long time must stand; 0: it need not."""
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
        """Begin at the timeline's time.

        patience_s: how long, in real time, to wait for others where no time is to come; after that,
        and after so many rounds in which time stood, StandstillError.
        """
        self.line: Final = line or Timeline()
        self._virtual: Final = _Selector(self.line, patience_s, still_max)
        super().__init__(self._virtual)
        self._note_pipe()
        self._virtual.next_due_s = self._next_due_s

    @property
    def _clock_resolution(self) -> float:
        """How early asyncio lets timers come: the loop lives longer than machines do."""
        return resolution_s(self.line.now_s)

    @_clock_resolution.setter
    def _clock_resolution(self, value: float) -> None:
        """Take none: asyncio sets that of the machine's clock."""

    def go_on_while(self, is_asked: Callable[[], bool]) -> None:
        """Let time that stands go as real time does while somebody outside waits for an answer.

        Else what he asked for would never come if it takes time, however little.
        """
        self._virtual.goes_on = is_asked

    @property
    def rounds(self) -> int:
        """How often it has looked for what is to be done."""
        return self._virtual.rounds

    @override
    def time(self) -> float:
        """Return the seconds that have passed."""
        if self.line.is_real:
            return self.line.limit_s(time.monotonic())
        return self.line.now_s

    async def idle(self) -> None:
        """Wait until everybody on this loop waits: for a time, for somebody outside, or for this.

        Where several wait so, each may find that another goes on. Those outside who never stop
        asking are not waited for.
        """
        waiter = self.create_future()
        self._virtual.waiters.append(waiter)
        await waiter

    async def real_sleep(self, seconds: float) -> None:
        """Wait so long by the machine's clock, whatever the loop's time does meanwhile."""
        if self.line.is_real:
            await asyncio.sleep(seconds)
            return
        future = self.create_future()
        # Nobody on this loop can tell: its timers go by its own time.
        timer = threading.Timer(seconds, self._wake_from_thread, (future,))
        timer.daemon = True
        timer.start()
        try:
            await future
        finally:
            timer.cancel()

    def _wake_from_thread(self, future: "asyncio.Future[None]") -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.call_soon_threadsafe(_wake, future)

    @contextmanager
    def hold(self, limit_s: float = HOLD_S_MAX) -> Iterator[None]:
        """Let time stand meanwhile, for so much real time at most."""
        token = self._virtual.hold(time.monotonic() + limit_s)
        try:
            yield
        finally:
            self._virtual.release(token)

    def set_rate(self, rate: float) -> None:
        """Let time go on at another rate; RateError."""
        self.line.now_s = self.time()
        self.line.set_rate(rate, time.monotonic())

    def free_until(self, until_s: float) -> None:
        """Let time go by at once up to a moment, and stand there until `bind`."""
        self.line.now_s = self.time()
        self.line.free_until(until_s)

    def bind(self) -> None:
        """Let time go on at its rate."""
        self.line.bind(time.monotonic())

    def after_fork(self) -> None:
        """Be the loop of a process that was forked while this loop did not run."""
        loop = cast("Any", self)
        loop._close_self_pipe()  # noqa: SLF001 - asyncio has no other way to part from a parent
        loop._make_self_pipe()  # noqa: SLF001 - the same
        self._note_pipe()
        self.bind()

    @override
    def run_in_executor(
        self, executor: "Executor | None", func: Callable[[*Ts], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        """Do something that waits: in a thread on a real timeline, else at once."""
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
    """Let the running loop's time stand while something outside is asked, if it is virtual."""
    loop = asyncio.get_running_loop()
    return loop.hold(limit_s) if isinstance(loop, VirtualLoop) else nullcontext()


async def real_sleep(seconds: float) -> None:
    """Wait so long by the machine's clock, on any loop."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualLoop):
        await loop.real_sleep(seconds)
    else:
        await asyncio.sleep(seconds)


def run(main: Coroutine[Any, Any, T], *, patience_s: float = 60.0, still_max: int = 100_000) -> T:
    """Run a coroutine in virtual time that goes on at once, as a simulation does."""

    def loop() -> VirtualLoop:
        return VirtualLoop(patience_s=patience_s, still_max=still_max)

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)


async def pass_time(loop: VirtualLoop, for_s: float) -> None:
    """Let so much time go by at once, and return when all that was due then is done.

    One at a time: who calls it sees to that.
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
