"""API servers under faults: some seeds in every test run, the same trace twice, planted bugs."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.api.canaries import CANARIES, Canary, planted
from tests.sim.api.world import ApiWorld
from tests.sim.seeds import regression_seeds
from tests.sim.violation import Violation, reporter

SEEDS = range(1, 9)
STEPS = 12
CANARY_SEEDS = 12  # at most


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_see_what_the_store_has(seed: int) -> None:
    world = ApiWorld(seed, steps=STEPS)
    world.run()
    assert world.counts["lists"]
    assert world.counts["events"]


@pytest.mark.parametrize("case", regression_seeds(Path(__file__).with_name("seeds.txt")), ids=str)
def test_a_seed_that_found_a_bug_passes(case: tuple[int, int, int | None]) -> None:
    seed, steps, _ = case
    ApiWorld(seed, steps=steps).run()


def test_a_seed_has_one_trace() -> None:
    world = ApiWorld(3, steps=6)
    world.run()
    other = subprocess.run(
        [sys.executable, "-m", "tests.sim.api", "--seed=3", "--steps=6"],
        env={**os.environ, "PYTHONHASHSEED": "17"},
        cwd=Path(__file__).parents[3],
        check=True,
        capture_output=True,
        text=True,
    )
    assert f"trace {world.trace.hexdigest()}" in other.stdout


@pytest.mark.parametrize("canary", CANARIES, ids=lambda each: each.store.__name__)
def test_a_planted_bug_is_found(canary: Canary) -> None:
    class World(ApiWorld):
        server_type = planted(canary)

    seen = []
    for seed in range(1, 1 + CANARY_SEEDS):
        world = World(seed, steps=STEPS)
        world.often = canary.fault
        try:
            world.run()
        except Violation as violation:
            seen.append(reporter(violation))
        else:
            seen.append("nobody")
        if seen[-1] in canary.checks:
            return
    raise AssertionError(f"not found: {Counter(seen)}")
