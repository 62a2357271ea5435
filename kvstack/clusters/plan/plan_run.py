"""Makes a change on a fork in virtual time, and returns what there was before and after.

    result = run_plan(contents, change, PlanSettings(), directory, log, progress)

    fork ──► rests ──► before ──► the change ──► rests ──► after

At rest nothing moves, nothing is due within REST_S, and two rounds of those who only look around
have found nothing. Who does not come to rest within the horizon is named. It runs on a loop of its
own, in the caller's thread; nothing of the fork is left.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.in_process import InProcess
from kvstack.agents.standalone.in_memory.cluster_time import ClusterTime
from kvstack.agents.standalone.in_memory.memory_cluster import MemoryCluster, Virtual
from kvstack.agents.standalone.in_memory.settling import NotSettledError, Settled, look, settle
from kvstack.apimachinery.attributes import AUTHENTICATED, PRIVILEGED, User
from kvstack.apiserver.webhooks.outbound import Unasked
from kvstack.clusters.comparison.comparison import RESTLESS
from kvstack.clusters.contents import ROOT, Contents, LeftOut, Origin, is_left_behind
from kvstack.clusters.forks.fork_cluster import ForkCluster
from kvstack.clusters.forks.fork_settings import ForkSettings
from kvstack.clusters.plan.change import Change, Outcome, Site
from kvstack.clusters.plan.writes import PLAN_USER, Writes
from kvstack.clusters.sources.source import Progress
from kvstack.component.logger import Logger
from kvstack.component.virtual_time.loop import VirtualLoop
from kvstack.component.virtual_time.timeline import AT_ONCE, REAL, Timeline
from kvstore.client import Store
from kvstore.client.values import KeyValue, prefix_end

REST_S: Final = 30.0
_ROUND_S: Final = 35.0
"""In which everybody who looks around has looked twice."""
HORIZON_S: Final = 600.0
BEFORE_S: Final = 120.0
"""How long the fork may take to come to rest before anything is changed."""
SEED: Final = 20_260_101


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How a plan is made."""

    horizon_s: float = HORIZON_S
    """How far ahead it looks, in the fork's time."""
    fork: ForkSettings = field(default_factory=lambda: ForkSettings(ready_after_s=5.0))


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
    line = Timeline(AT_ONCE, real_s=time.monotonic())
    with asyncio.Runner(loop_factory=partial(VirtualLoop, line)) as runner:
        run = _Run(contents, change, settings, directory, log, progress)
        try:
            return runner.run(run.result())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


class _Run:
    """One plan."""

    def __init__(
        self,
        contents: Contents,
        change: Change,
        settings: PlanSettings,
        directory: Path,
        log: Logger,
        progress: Progress,
    ) -> None:
        self._contents: Contents | None = contents
        self._change: Final = change
        self._settings: Final = settings
        self._directory: Final = directory
        self._log: Final = log
        self._progress: Final = progress

    async def result(self) -> PlanResult:
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
        rng = Random(SEED)  # noqa: S311 - of names and uids, of no secrets
        virtual = Virtual(own_time, rng)
        self._progress.say(f"starting a fork: {len(contents.rows)} objects")
        fork = ForkCluster(
            contents,
            self._settings.fork,
            self._directory,
            self._log,
            virtual=virtual,
            changes=writes,
        )
        del contents
        async with fork:
            try:
                # Nobody elsewhere asks: time is waited for only by who has nothing else to do.
                return await self._planned(fork, own_time, writes)
            finally:
                own_time.set_rate(REAL)  # sockets need real time to end

    async def _planned(
        self, fork: ForkCluster, own_time: ClusterTime, writes: Writes
    ) -> PlanResult:
        cluster = fork.cluster
        self._progress.say("waiting until the fork rests")
        began_with = await rest(cluster, own_time, BEFORE_S)
        before = await _contents(cluster.store, own_time.now_s, "before")
        unasked_before = {(each.what, each.name): each.times for each in fork.unasked}
        writes.begin()
        self._progress.say("making the change")
        user = User(PLAN_USER, groups=(PRIVILEGED, AUTHENTICATED))
        local = fork.server.local
        api = Api(InProcess(local.transport, local.token_for(user)), Options(user_agent=PLAN_USER))
        site = Site(api, fork.kubeconfig, writes, own_time.advance, own_time.going_at)
        outcome = await self._change.make(site)
        state = await rest(
            cluster,
            own_time,
            self._settings.horizon_s,
            lambda: self._progress.say(f"{writes.passed_s:.0f} s have gone by in the fork"),
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
        )


async def rest(
    cluster: MemoryCluster,
    own_time: ClusterTime,
    horizon_s: float,
    on_round: Callable[[], None] = lambda: None,
) -> Settled:
    """Let time go by until a cluster rests, or up to the horizon; return how it is then."""
    until_s = own_time.now_s + horizon_s
    while True:
        on_round()
        try:
            left_s = max(until_s - own_time.now_s, 0.0)
            await settle(cluster, within_s=REST_S, timeout_s=left_s)
        except NotSettledError as error:
            return error.state
        changed_at = _changed_at(cluster)
        await own_time.advance(_ROUND_S)
        state = await look(cluster)
        if _changed_at(cluster) == changed_at or own_time.now_s >= until_s:
            return state


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
