"""Recorded stories of upstream's controllers, played against ours."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.controllers.table import controllers
from tests.agents.stories.differences import DIFFERENCES
from tests.agents.stories.recorded import stories
from tests.agents.stories.settings import CHOSEN, story_options
from tests.agents.stories.story import Telling
from tests.agents.support.cluster import TestCluster

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("story", stories(), ids=lambda story: story["name"])
def test_story(story: dict[str, Any], tmp_path: Path) -> None:
    """After each stage objects and events are as they were upstream."""

    async def play() -> list[list[str]]:
        async with TestCluster(tmp_path) as cluster:
            running = controllers(story_options(cluster, story["name"]), CHOSEN)
            await cluster.run_controllers(running)
            components = {each.identity.event_component for each in running}
            known = [number for name, number in DIFFERENCES if name == story["name"]]
            return await Telling(
                cluster, story, components=components, patience_s=60.0, known=known
            ).play()

    told = asyncio.run(play())
    for number, lines in enumerate(told):
        if (story["name"], number) not in DIFFERENCES:
            assert lines == [], f"stage {number}: {story['stages'][number].get('note')}"
