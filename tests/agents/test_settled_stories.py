"""Settled is right: of every recorded story, nothing is written before what is said to be due."""

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.controllers.table import controllers
from kvstack.agents.standalone.in_memory.cluster_time import ClusterTime
from kvstack.agents.standalone.in_memory.settling import settle
from kvstack.component.virtual_time.loop import VirtualLoop
from kvstack.component.virtual_time.timeline import AT_ONCE, Timeline
from kvstore.client import Store
from kvstore.client.values import prefix_end
from tests.agents.stories.recorded import stories
from tests.agents.stories.settings import CHOSEN, story_options
from tests.agents.stories.story import Telling
from tests.agents.support.cluster import TestCluster

pytestmark = pytest.mark.slow

HORIZON_S = 10.0
PATIENCE_S = 3.0
BEFORE_S = 0.01
"""So long before something is due nothing of it has happened."""
ROOT = b"/registry/"
EVENTS = b"/registry/events/"
SERVERS_OWN = (b"/registry/masterleases/", b"/registry/leases/")
"""Kept by the API server itself, all the time."""


async def written(store: Store) -> dict[bytes, int]:
    """Return the keys of all objects, with their revisions.

    Of Events only when they were made: that something still waits is told again and again.
    """
    found: dict[bytes, int] = {}
    async for page in store.pages(ROOT, prefix_end(ROOT)):
        for kv in page.kvs:
            is_event = kv.key.startswith(EVENTS)
            found[kv.key] = kv.create_revision if is_event else kv.mod_revision
    return {key: at for key, at in found.items() if not key.startswith(SERVERS_OWN)}


async def nothing_comes_unforeseen(cluster: TestCluster) -> None:
    """Settle a cluster, and let HORIZON_S go by: nothing is written but what is said to be due."""
    own = cluster.time
    assert own is not None
    until_s = own.now_s + HORIZON_S
    while (left_s := until_s - own.now_s) > 0:
        state = await settle(cluster, within_s=2 * BEFORE_S)
        before = await written(cluster.store)
        due_s = state.due[0].in_s - BEFORE_S if state.due else left_s
        await own.advance(min(left_s, due_s))
        assert await written(cluster.store) == before, f"due were: {state.due[:5]}"
        await own.advance(2 * BEFORE_S)


async def play(story: dict[str, Any], directory: Path) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with TestCluster(directory, own_time=ClusterTime(loop)) as cluster:
        running = controllers(story_options(cluster, story["name"]), CHOSEN)
        await cluster.run_controllers(running)
        components = {each.identity.event_component for each in running}
        await Telling(cluster, story, components=components, patience_s=PATIENCE_S).play()
        await nothing_comes_unforeseen(cluster)


@pytest.mark.parametrize("story", stories(), ids=lambda story: story["name"])
def test_nothing_is_written_before_it_is_due(story: dict[str, Any], tmp_path: Path) -> None:
    line = Timeline(AT_ONCE, real_s=time.monotonic())
    with asyncio.Runner(loop_factory=partial(VirtualLoop, line)) as runner:
        runner.run(play(story, tmp_path))
