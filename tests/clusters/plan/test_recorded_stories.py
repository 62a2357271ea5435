"""Plans of the recorded stories of upstream's controllers: what is planned is what was recorded.

And it is what happens: each story is also played on a living cluster in virtual time, and differs
from what was recorded in the same, if in anything.

Each stage of a story is planned on what the plan of the stage before has come to, so that every
plan begins as one of a user does: with the contents of a cluster that it has not seen before.
Scheduler and kubelet are played as they were when the stories were recorded; all else is as in any
plan. Objects are compared as sets; names, uids and times that are made up are matched up.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from kvstack.agents.client.api import Api
from kvstack.agents.client.informers import Informers
from kvstack.agents.controllers.options import AutoscalerOptions, NodeLifecycleOptions
from kvstack.agents.controllers.table import controllers
from kvstack.agents.standalone.agent_settings import agent_options
from kvstack.agents.standalone.in_memory.cluster_time import ClusterTime
from kvstack.agents.standalone.local_agents import AgentOptions
from kvstack.agents.standalone.parts import METRICS, SCHEDULER
from kvstack.agents.standalone.stack_settings import StackOptions
from kvstack.apimachinery.objects.json_object import Object
from kvstack.clusters.contents import Contents, Origin
from kvstack.clusters.forks.fork_settings import NO_NODES, ForkSettings
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.plan.change import Change, Outcome, Site
from kvstack.clusters.plan.plan_run import PlanSettings
from kvstack.component.clock import Clock
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.virtual_time.clock import LoopClock
from kvstack.component.virtual_time.loop import VirtualLoop
from kvstack.component.virtual_time.timeline import AT_ONCE, Timeline
from tests.agents.stories.differences import DIFFERENCES
from tests.agents.stories.recorded import stories
from tests.agents.stories.settings import CHOSEN, story_options
from tests.agents.stories.story import Telling
from tests.agents.support.cluster import TestCluster
from tests.clusters.plan.planning import TIME_S, plan, without_events

pytestmark = pytest.mark.slow


NEVER_S = 7200.0
EVERY_S = 1.0
PATIENCE_S = 3.0
"""Of virtual time, for what differs from what was recorded."""
ALWAYS = frozenset(
    (
        "clusterrole-aggregation",
        "deploy-rolling",
        "gc-chains",
        "job-indexed",
        "ns-finalizer",
        "pv-prebound",
        "sts-parallel",
    )
)
"""Stories that are planned in every run."""


@dataclass(frozen=True)
class Played:
    """A fork that a stage of a story is played on."""

    admin: Api
    informers: Informers
    clock: Clock


class StageChange(Change):
    """The actions of a stage, beside a scheduler and a kubelet that are played."""

    def __init__(self, telling: Telling, stage: Object, time_s: float) -> None:
        """time_s: of the contents that the plan begins with."""
        self._telling = telling
        self._stage = stage
        self._time_s = time_s
        self.failures: list[str] = []

    @override
    async def make(self, site: Site) -> Outcome:
        clock = LoopClock(round(self._time_s * 1000), asyncio.get_running_loop())
        informers = Informers(site.api, clock, lambda: 0.5, LineLogger([], "fatal"))
        self._telling.move(Played(site.api, informers, clock))
        await self._telling.follow()  # until the plan's loop ends
        self.failures = await self._telling.do_actions(self._stage)
        return Outcome(site.writes.passed_s)


def settings_of(name: str) -> PlanSettings:
    """Return the settings of plans with the controllers that a story was recorded with."""
    period_s = 1.0 if name == "node-taints" else NEVER_S

    def agents(stack: StackOptions) -> AgentOptions:
        given = agent_options(stack)
        controllers = replace(
            given.controllers,
            nodes=NodeLifecycleOptions(period_s, NEVER_S, NEVER_S),
            autoscaler=AutoscalerOptions(sync_period_s=2.0),
        )
        return replace(given, controllers=controllers, chosen=CHOSEN)

    without = frozenset((SCHEDULER, METRICS))
    return PlanSettings(fork=ForkSettings(NO_NODES, without), agents=agents)


def objects_of(contents: Contents) -> Iterator[Object]:
    """Yield the objects of contents, those that were made first before others."""
    rows = sorted(contents.rows, key=lambda kv: kv.create_revision)
    for key_of, obj in Kinds.of(rows).objects(rows):
        newest = key_of.rows[0]  # it is stored in another version
        yield {**obj, "apiVersion": newest.group_version}


def happened(story: Object, directory: Path) -> list[list[str]]:
    """Return how a living cluster differs from what was recorded, stage by stage."""

    async def main() -> list[list[str]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with TestCluster(directory, own_time=ClusterTime(loop)) as cluster:
            running = controllers(story_options(cluster, story["name"]), CHOSEN)
            await cluster.run_controllers(running)
            components = {each.identity.event_component for each in running}
            telling = Telling(cluster, story, components=components, patience_s=PATIENCE_S)
            found = await telling.play()
            # Events are none of the contents of a plan.
            return [[line for line in each if not line.startswith("event ")] for each in found]

    line = Timeline(AT_ONCE, real_s=time.monotonic())
    with asyncio.Runner(loop_factory=partial(VirtualLoop, line)) as runner:
        return runner.run(main())


def shared() -> list[Any]:
    """Return the stories as parameters; most of them take part where there is time."""
    return [
        pytest.param(
            each, id=each["name"], marks=[] if each["name"] in ALWAYS else [pytest.mark.long]
        )
        for each in stories()
    ]


@pytest.mark.parametrize("story", shared())
def test_what_is_planned_is_what_was_recorded_and_what_happens(
    story: Object, tmp_path: Path
) -> None:
    settings = settings_of(story["name"])
    contents = Contents([], 1, Origin("test", "empty"), TIME_S)
    telling = Telling(None, story, components=(), every_s=EVERY_S)
    planned = []
    for number, stage in enumerate(story["stages"]):
        change = StageChange(telling, stage, contents.time_s)
        contents = without_events(plan(contents, change, settings, tmp_path / "plan").after)
        planned.append(change.failures + telling.compared(number, objects_of(contents)))
    assert planned == happened(story, tmp_path / "living")
    told = {
        number: lines
        for number, lines in enumerate(planned)
        if lines and (story["name"], number) not in DIFFERENCES
    }
    assert told == {}


def test_the_stories_that_differ_are_there() -> None:
    known = {each["name"]: len(each["stages"]) for each in stories()}
    assert known.keys() >= ALWAYS
    # Not all that were recorded are kept among the tests.
    kept = [each for each in DIFFERENCES if each[0] in known]
    assert kept
    assert [each for each in kept if each[1] >= known[each[0]]] == []
