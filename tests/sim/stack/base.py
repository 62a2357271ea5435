"""What worlds of coroutines have in common: one seed, one loop, one trace, and failures that count.

    class World(BaseWorld):
        async def live(self) -> None: …

    World(7).run()      raises what was found; the same seed repeats it

A world starts a store of several members and some API servers before `live`, and ends all of them
after it. What any task raises, what the loop cannot tell anybody, and what a server logs as an
error ends the world.
"""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar, Final
from unittest.mock import patch

from kvstack.apiserver.registry import collection
from kvstack.apiserver.registry.window import CHANGES_MAX, Window
from kvstore.client.channel_store import ChannelStore
from kvstore.client.options import ClientOptions
from tests.apiserver.support.virtual_time import VirtualLoop, run
from tests.sim.stack.channel import Link, SimChannel
from tests.sim.stack.links import Bug, Network, Weather
from tests.sim.stack.members import StoreMembers
from tests.sim.stack.servers import Environment, ServerProcess
from tests.sim.trace import Trace
from tests.sim.violation import Violation, demand

_START_S: Final = 60.0
_ROUNDS_MAX: Final = 400_000
_LOOK_AGAIN_S: Final = 0.05


class SimLog:
    """A log whose lines go into the trace; errors end the world."""

    def __init__(self, world: "BaseWorld") -> None:
        self._world = world

    def debug(self, msg: str, **fields: object) -> None:
        """Keep nothing."""

    def info(self, msg: str, **fields: object) -> None:
        """Add a line."""
        self._world.say("info", msg, fields)

    def warning(self, msg: str, **fields: object) -> None:
        """Add a line."""
        self._world.say("warning", msg, fields)

    def error(self, msg: str, **fields: object) -> None:
        """Add a line; the world fails."""
        self._world.say("error", msg, fields)
        if msg not in self._world.expected_errors:
            self._world.fail(Violation(f"an error was logged: {msg} {fields}"))


class BaseWorld:
    """The world of one seed."""

    server_type: ClassVar[type[ServerProcess]] = ServerProcess
    planted: ClassVar[tuple[Bug, ...]] = ()
    """A planted bug of clients, or none."""

    def __init__(self, seed: int, *, keep_lines: bool = False) -> None:
        """Draw nothing but sizes yet."""
        self.seed: Final = seed
        self.rng: Final = random.Random(seed)
        self.trace: Final = Trace(keep_lines=keep_lines)
        self.counts: Final[Counter[str]] = Counter()
        """What happened: faults and the like."""
        self.log: Final = SimLog(self)
        self.weather: Final = Weather()
        self.members_count = self.rng.choice((1, 3, 3))
        self.servers_count = self.rng.choice((2, 2, 3))
        self._window = partial(Window, changes_max=self.rng.choice((3, 30, CHANGES_MAX)))
        self.virtual_s = 0.0
        self.expected_errors: set[str] = set()
        """Lines of the log that faults explain."""
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def run(self) -> None:
        """Live; raises Violation, or whatever else was found."""
        was_enabled = gc.isenabled()
        gc.disable()  # so that what it finishes does not depend on what was there before
        try:
            with patch.object(collection, "Window", self._window):
                run(self._main())
        finally:
            if was_enabled:
                gc.enable()

    async def live(self) -> None:
        """Be the world."""
        raise NotImplementedError

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unheard)
        self._failed: asyncio.Future[None] = loop.create_future()
        self.members = StoreMembers(self.rng, self.members_count)
        self.members.start()
        await self._within(self.members.ready())
        parts = Environment(self.members, self.rng, self.trace, self.log)
        self.servers = [self.server_type("abc"[at], parts) for at in range(self.servers_count)]
        self.network = Network(
            self.servers, self.weather, self.rng, self.trace, planted=self.planted
        )
        try:
            for server in self.servers:
                server.start()
            await self._within(self.servers_ready())
            await self.live()
        finally:
            await self._end()
        if self._failed.done():
            self._failed.result()
        left = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        if left:
            raise Violation(f"tasks are left over: {left}")

    async def _end(self) -> None:
        self.virtual_s = asyncio.get_running_loop().time()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self.servers:
            await server.stop()
        self.members.stop()

    # Parts.

    def observer(self) -> ChannelStore:
        """Return a store that has a way without faults to the members."""
        channel = SimChannel("observer", self.members, Link(), self.rng, self.trace)
        return ChannelStore(channel, ClientOptions(seed=0))

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Run something until the world ends; its failure ends the world."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def _unheard(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.fail(error or Violation(f"the loop tells: {context.get('message')}"))

    def fail(self, error: BaseException) -> None:
        """Let the world end with the first thing that was found."""
        if not self._failed.done():
            self._failed.set_exception(error)

    def say(self, level: str, msg: str, fields: dict[str, object]) -> None:
        """Add a line to the trace; it does not count in the hash."""
        if self.trace.keeps_lines:
            now_s = asyncio.get_running_loop().time()
            self.trace.lines.append(f"{now_s:.6f} {level} {msg} {fields}")

    def note(self, *words: object) -> None:
        """Add something that happened to the trace."""
        self.trace.note(round(asyncio.get_running_loop().time(), 6), *words)

    # Time.

    async def sleep(self, for_s: float) -> None:
        """Let time pass; raises what was found meanwhile."""
        await asyncio.wait((self._failed,), timeout=for_s)
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            demand(loop.rounds < _ROUNDS_MAX, "more than", _ROUNDS_MAX, "rounds of the loop")
        if self._failed.done():
            self._failed.result()

    async def until(self, holds: Callable[[], Any], within_s: float, what: str) -> None:
        """Wait until something holds; Violation: it does not in time. holds: returns what lacks."""
        until_s = asyncio.get_running_loop().time() + within_s
        while lacks := holds():
            if asyncio.get_running_loop().time() > until_s:
                raise Violation(f"{what} within {within_s:g} s: {lacks}")
            await self.sleep(_LOOK_AGAIN_S)

    async def servers_ready(self) -> None:
        """Wait until all API servers are ready."""
        while not all(each.is_ready for each in self.servers):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _within(self, work: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(_START_S):
            await work
