"""Makes a change on a fork in virtual time, and returns what there was before and after.

    result = run_plan(contents, change, PlanSettings(), directory, log, progress)

    fork ──► rests ──► before ──► the change ──► rests ──► after
                         └─ fork ──► so much time goes by ──► unchanged

At rest nothing moves, nothing is due within REST_S, nothing that follows from the change is due
before the horizon, and two rounds of those who only look around have found nothing. Who does not
come to rest within the horizon is named. The second fork is made where something was due in that
time anyway: what comes in it does not follow from the change. They run on loops of their own, in
the caller's thread; nothing of them is left.
"""

import asyncio
import math
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.in_process import InProcess
from kvstack.agents.standalone.agent_settings import agent_options
from kvstack.agents.standalone.in_memory.cluster_time import ClusterTime
from kvstack.agents.standalone.in_memory.memory_cluster import MemoryCluster, Virtual
from kvstack.agents.standalone.in_memory.settling import NotSettledError, Settled, look, settle
from kvstack.apimachinery.attributes import AUTHENTICATED, PRIVILEGED, User
from kvstack.apiserver.webhooks.outbound import Unasked
from kvstack.clusters.comparison.comparison import RESTLESS
from kvstack.clusters.contents import ROOT, Contents, LeftOut, Origin, is_left_behind
from kvstack.clusters.forks.fork_cluster import ForkCluster
from kvstack.clusters.forks.fork_settings import NO_NODES, ForkSettings
from kvstack.clusters.plan.change import Change, Outcome, Site
from kvstack.clusters.plan.writes import PLAN_USER, Writes
from kvstack.clusters.sources.source import Progress
from kvstack.component.logger import Logger
from kvstack.component.virtual_time.loop import VirtualLoop
from kvstack.component.virtual_time.timeline import AT_ONCE, REAL, Timeline
from kvstore.client import Store
from kvstore.client.values import KeyValue, prefix_end

if TYPE_CHECKING:
    from kvstack.agents.standalone.local_agents import AgentOptions
    from kvstack.agents.standalone.stack_settings import StackOptions

T = TypeVar("T")

REST_S: Final = 30.0
_ROUND_S: Final = 35.0
"""In which everybody who looks around has looked twice."""
HORIZON_S: Final = 600.0
BEFORE_S: Final = 120.0
"""How long the fork may take to come to rest before anything is changed."""
SEED: Final = 20_260_101
WATCHES_PROGRESS: Final = "deployment-controller"
"""What it will look at is whether a rollout has stopped: nothing follows from that."""
_SOONER_S: Final = 1.0
Expected: TypeAlias = Mapping[tuple[str, str], float]
"""Moments, by who does something to what."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How a plan is made."""

    horizon_s: float = HORIZON_S
    """How far ahead it looks, in the fork's time."""
    fork: ForkSettings = field(default_factory=lambda: ForkSettings(ready_after_s=5.0))
    agents: "Callable[[StackOptions], AgentOptions]" = agent_options
    """Their settings, once there are keys."""


class PlanResult(NamedTuple):
    """What came of a change."""

    before: Contents
    after: Contents
    writes: Writes
    outcome: Outcome
    state: Settled
    """At the end: what still moves, and what comes later."""
    began_with: Settled
    """Before the change."""
    unasked: list[Unasked]
    left_out: list[LeftOut]
    passed_s: float
    ready_after_s: float
    unchanged: Contents
    """How it would be without the change; `before` if nothing was due."""
    unchanged_state: Settled


def run_plan(
    contents: Contents,
    change: Change,
    settings: PlanSettings,
    directory: Path,
    log: Logger,
    progress: Progress,
) -> PlanResult:
    """Make a change on a fork of contents; raises ComponentError.

    directory: for the fork's keys and kubeconfigs, which nobody else may enter.
    SIGTERM ends it as SIGINT does: with KeyboardInterrupt, once nothing is left of it.
    """
    run = _Run(contents, settings, directory, log, progress)
    del contents
    planned = _run(run.planned(change))
    if not _comes_by_itself(planned):
        return planned
    progress.say(f"running a fork without the change for {planned.passed_s:.0f} s")
    # Nodes in place of those of the source are among the contents by now.
    nodes = settings.fork.nodes if settings.fork.nodes == NO_NODES else ""
    settings = replace(settings, fork=settings.fork._replace(nodes=nodes))
    rows = [kv for kv in planned.before.rows if not kv.lease]  # without Events
    again = _Run(replace(planned.before, rows=rows), settings, directory, log, progress)
    unchanged, state = _run(again.unchanged(planned.after.time_s))
    return planned._replace(unchanged=unchanged, unchanged_state=state)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run something on a loop in virtual time."""
    line = Timeline(AT_ONCE, real_s=time.monotonic())
    with asyncio.Runner(loop_factory=partial(VirtualLoop, line)) as runner:
        try:
            return runner.run(work)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


def _comes_by_itself(planned: PlanResult) -> bool:
    """Whether something would have come in the time of a plan without the change, too."""
    began_with = planned.began_with
    return bool(began_with.moving) or any(each.in_s <= planned.passed_s for each in began_with.due)


class _Run:
    """One fork of a plan."""

    def __init__(
        self,
        contents: Contents,
        settings: PlanSettings,
        directory: Path,
        log: Logger,
        progress: Progress,
    ) -> None:
        self._contents: Contents | None = contents
        self._settings: Final = settings
        self._directory: Final = directory
        self._log: Final = log
        self._progress: Final = progress

    async def planned(self, change: Change) -> PlanResult:
        """Return what comes of a change."""
        async with self._fork() as (fork, own_time, writes):
            return await self._changed(change, fork, own_time, writes)

    async def unchanged(self, until_s: float) -> tuple[Contents, Settled]:
        """Return how it is at a moment if nobody changes anything."""
        async with self._fork() as (fork, own_time, _):
            await own_time.advance(max(until_s - own_time.now_s, 0.0))
            state = await look(fork.cluster, REST_S)
            return await _contents(fork.cluster.store, own_time.now_s, "unchanged"), state

    @asynccontextmanager
    async def _fork(self) -> AsyncIterator[tuple[ForkCluster, ClusterTime, Writes]]:
        """Run a fork in virtual time."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        task = asyncio.current_task()
        if task is not None and threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
        contents, self._contents = self._contents, None
        assert contents is not None
        began_ms = round(contents.time_s * 1000) or None
        own_time = ClusterTime(loop, began_ms)
        writes = Writes(own_time.clock.now_s)
        # Others than those of a plan that these contents came from.
        seed = SEED + int(contents.time_s) // 10
        rng = Random(seed)  # noqa: S311 - of names and uids, of no secrets
        virtual = Virtual(own_time, rng)
        self._progress.say(f"starting a fork: {len(contents.rows)} objects")
        fork = ForkCluster(
            contents,
            self._settings.fork,
            self._directory,
            self._log,
            virtual=virtual,
            changes=writes,
            agents=self._settings.agents,
        )
        del contents
        async with fork:
            try:
                # Nobody elsewhere asks: time is waited for only by who has nothing else to do.
                yield fork, own_time, writes
            finally:
                own_time.set_rate(REAL)  # sockets need real time to end

    async def _changed(
        self, change: Change, fork: ForkCluster, own_time: ClusterTime, writes: Writes
    ) -> PlanResult:
        cluster = fork.cluster
        self._progress.say("waiting until the fork rests")
        began_with = await rest(cluster, own_time, BEFORE_S)
        before = await _contents(cluster.store, own_time.now_s, "before")
        expected = expected_of(began_with, own_time.now_s)
        unasked_before = {(each.what, each.name): each.times for each in fork.unasked}
        writes.begin()
        self._progress.say("making the change")
        user = User(PLAN_USER, groups=(PRIVILEGED, AUTHENTICATED))
        local = fork.server.local
        api = Api(InProcess(local.transport, local.token_for(user)), Options(user_agent=PLAN_USER))
        site = Site(api, fork.kubeconfig, writes, own_time.advance, own_time.going_at)
        outcome = await change.make(site)
        state = await rest(
            cluster,
            own_time,
            self._settings.horizon_s,
            lambda: self._progress.say(f"{writes.passed_s:.0f} s have gone by in the fork"),
            expected,
        )
        after = await _contents(cluster.store, own_time.now_s, "after")
        unasked = [
            each._replace(times=each.times - unasked_before.get((each.what, each.name), 0))
            for each in fork.unasked
        ]
        return PlanResult(
            before,
            after,
            writes,
            outcome,
            state,
            began_with,
            [each for each in unasked if each.times],
            fork.left_out,
            writes.passed_s,
            self._settings.fork.ready_after_s,
            before,
            began_with,
        )


async def rest(
    cluster: MemoryCluster,
    own_time: ClusterTime,
    horizon_s: float,
    on_round: Callable[[], None] = lambda: None,
    expected: Expected | None = None,
) -> Settled:
    """Let time go by until a cluster rests, or up to the horizon; return how it is then.

    expected: what was due before the change; what came to be due since is waited for. None: nothing
    that is due later is waited for.
    """
    until_s = own_time.now_s + horizon_s
    while True:
        on_round()
        try:
            left_s = max(until_s - own_time.now_s, 0.0)
            state = await settle(cluster, within_s=REST_S, timeout_s=left_s)
        except NotSettledError as error:
            return error.state
        wait_s = math.inf if expected is None else _follows_in(state, expected, own_time.now_s)
        if own_time.now_s + wait_s <= until_s:
            await own_time.advance(wait_s)
            continue
        changed_at = _changed_at(cluster)
        await own_time.advance(_ROUND_S)
        state = await look(cluster)
        if _changed_at(cluster) == changed_at or own_time.now_s >= until_s:
            return state


def expected_of(state: Settled, now_s: float) -> Expected:
    """Return when what is due now will come, by who does it to what."""
    return {(each.who, each.what): now_s + each.in_s for each in state.due}


def _follows_in(state: Settled, expected: Expected, now_s: float) -> float:
    """Return after which time the first comes of what was not due before, or later than now."""
    return min(
        (
            each.in_s
            for each in state.due
            if each.who != WATCHES_PROGRESS
            and now_s + each.in_s < expected.get((each.who, each.what), math.inf) - _SOONER_S
        ),
        default=math.inf,
    )


def _changed_at(cluster: MemoryCluster) -> int:
    """Return the revision of the last change of what does not change all the time."""
    collections = cluster.server.registry.watch_cache.collections.values()
    return max(each.revision for each in collections if each.resource not in RESTLESS)


async def _contents(store: Store, now_s: float, name: str) -> Contents:
    """Return what a store holds now."""
    rows: list[KeyValue] = []
    revision = 0
    async for page in store.pages(ROOT, prefix_end(ROOT)):
        revision = revision or page.revision
        rows += [kv for kv in page.kvs if not is_left_behind(kv.key)]
    return Contents(rows, revision, Origin("plan", name), now_s)
