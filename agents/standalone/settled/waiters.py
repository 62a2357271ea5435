"""Waits until a cluster is settled, for any number of clients that share one look.

    waiters = Waiters(cluster, others)
    outcome = await waiters.wait(timeout_s=10.0, quiet_s=0.2)
    outcome.is_settled, outcome.state, outcome.others

    while requests wait:   look ──► pass the result to all ──► answer those content with it, or late
                            ▲                                    │
                            └── a rest: nine times the look, 20 ms at least ◄┘

With a virtual clock, the cluster's time is advanced until it is settled, and no further; while only
other clients are waited for, it is paused. A client that disconnects is removed.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from kvstack.agents.client.activity import Moving
from kvstack.agents.standalone.in_memory.settling import LOOK_S, STEP_S, Cluster, Settled, look
from kvstack.apiserver.registry.watch_cache import BehindError
from kvstack.component.virtual_time.loop import real_sleep
from kvstore.client.errors import StoreError

if TYPE_CHECKING:
    from kvstack.agents.standalone.settled.others import Others, OthersState

WAITERS_MAX: Final = 1000
_REST_SHARE: Final = 9.0
_REST_S_MAX: Final = 1.0


class TooManyWaitersError(Exception):
    """WAITERS_MAX wait already."""


class Outcome(NamedTuple):
    """The state of a cluster at the last look."""

    state: Settled
    others: "OthersState"
    quiet_s: float
    waited_s: float
    """Real time."""

    @property
    def moving(self) -> tuple[Moving, ...]:
        """Why it is not settled; none: it is."""
        found = [*self.state.moving, *self.others.moving]
        if self.others.clients and self.others.silent_s < self.quiet_s:
            last = min(self.others.clients, key=lambda each: each.asked_s)
            why = f"asked {self.others.silent_s * 1000:.0f} ms ago"
            found.append(Moving(last.agent or last.user, "", why))
        return tuple(found)


class _Waiter(NamedTuple):
    """A request that waits."""

    future: asyncio.Future[Outcome]
    quiet_s: float
    began_s: float
    until_s: float
    """The deadline in real time."""
    until_own_s: float
    """The deadline in the loop's time."""


class Waiters:
    """The requests that wait for one cluster; used on its loop only."""

    def __init__(self, cluster: Cluster, others: "Others") -> None:
        self._cluster: Final = cluster
        self._others: Final = others
        self._waiters: set[_Waiter] = set()
        self._looking: asyncio.Task[None] | None = None
        self.looks = 0
        """The number of looks."""

    async def wait(self, timeout_s: float, quiet_s: float) -> Outcome:
        """Return how the cluster is, once it is settled or the time is over.

        timeout_s: by the machine's clock, and by the cluster's. quiet_s: for how long clients over
        the network must have been silent, if there are any. Raises TooManyWaitersError.
        """
        if len(self._waiters) >= WAITERS_MAX:
            raise TooManyWaitersError
        loop, now_s = asyncio.get_running_loop(), time.monotonic()
        future: asyncio.Future[Outcome] = loop.create_future()
        waiter = _Waiter(future, quiet_s, now_s, now_s + timeout_s, loop.time() + timeout_s)
        self._waiters.add(waiter)
        if self._looking is None:
            self._looking = loop.create_task(self._look_on(), name="looks whether it is settled")
        try:
            return await future
        finally:
            self._waiters.discard(waiter)

    async def _look_on(self) -> None:
        """Look as long as requests wait."""
        last = -1
        try:
            while self._waiters:
                began_s = time.monotonic()
                state = await self._look()
                # In real time, requests may have changed the store during the look.
                is_steady = self._cluster.time is not None or state.revision == last
                last = state.revision
                self._answer(state, is_steady=is_steady)
                if self._waiters:
                    await self._rest(state, time.monotonic() - began_s)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            for each in self._waiters:
                if not each.future.done():
                    each.future.set_exception(error)
        finally:
            self._looking = None

    async def _look(self) -> Settled:
        self.looks += 1
        own = self._cluster.time
        if own is not None and own.is_advancing:
            return self._not_yet(Moving("clock", "", "time is let go by"))
        if own is not None:
            await own.idle()
        try:
            return await look(self._cluster)
        except (BehindError, StoreError):
            return self._not_yet(Moving("store", "", "does not answer"))

    def _not_yet(self, why: Moving) -> Settled:
        return Settled(self._cluster.server.registry.watch_cache.revision, (why,), ())

    def _answer(self, state: Settled, *, is_steady: bool) -> None:
        """Answer requests that are content with the state, and those whose deadline has passed."""
        loop, now_s = asyncio.get_running_loop(), time.monotonic()
        others = self._others.look()
        for each in list(self._waiters):
            outcome = Outcome(state, others, each.quiet_s, now_s - each.began_s)
            is_late = now_s >= each.until_s or loop.time() >= each.until_own_s
            if each.future.done():
                self._waiters.discard(each)
            elif is_late or (is_steady and not outcome.moving):
                each.future.set_result(outcome)
                self._waiters.discard(each)

    async def _rest(self, state: Settled, took_s: float) -> None:
        """Wait a little, in the time that is waited for."""
        own = self._cluster.time
        if own is not None and not state.is_settled and not own.is_advancing:
            await own.advance(STEP_S)
            return
        rest_s = min(max(LOOK_S, took_s * _REST_SHARE), _REST_S_MAX)
        await real_sleep(rest_s)
