"""Plays whole recordings: python -m tests.agents.stories FILE.jsonl.gz [--only PART] [--show N]."""

import argparse
import asyncio
import gzip
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kvstack.agents.controllers.table import controllers
from tests.agents.stories.differences import DIFFERENCES
from tests.agents.stories.settings import CHOSEN, story_options
from tests.agents.stories.story import Telling
from tests.agents.support.cluster import TestCluster


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("--patience", type=float, default=8.0)
    given = parser.parse_args()
    stories: list[dict[str, Any]] = []
    for path in given.files:
        with gzip.open(path, "rt") as file:
            stories += [json.loads(line) for line in file]
    equal = total = known = 0
    for story in stories:
        if given.only not in story["name"]:
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as directory:
            async with TestCluster(Path(directory)) as cluster:
                running = controllers(story_options(cluster, story["name"]), CHOSEN)
                await cluster.run_controllers(running)
                telling = Telling(
                    cluster,
                    story,
                    components={each.identity.event_component for each in running},
                    patience_s=given.patience,
                )
                told = await telling.play()
        same = sum(not each for each in told)
        equal += same
        total += len(told)
        took_s = time.perf_counter() - began
        _say(f"{story['name']}: {same} of {len(told)} stages, {took_s:.1f} s")
        for number, lines in enumerate(told):
            why = DIFFERENCES.get((story["name"], number), "")
            if lines and why:
                known += 1
                _say(f"  {number}: known: {why}")
                continue
            for line in lines[: given.show]:
                _say(f"  {number}: {line}")
    _say(f"{equal} of {total} stages the same, {known} differ as is known")
    return 0 if equal + known == total else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
