"""Some seeds in every test run, the same trace twice, and planted bugs that must be found."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kvstore.errors import KvstoreError
from tests.sim.canaries import CANARIES, Canary
from tests.sim.seeds import regression_seeds
from tests.sim.violation import Violation, reporter
from tests.sim.world import World

LONGEST = (5, 10, 11)
SEEDS = range(1, 10)
MORE_SEEDS = range(10, 17)
STEPS = 100
CANARY_SEEDS = 12  # at most


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.long] if seed in (*LONGEST, *MORE_SEEDS) else [])
        for seed in (*SEEDS, *MORE_SEEDS)
    ],
)
def test_a_world_keeps_all_promises(seed: int) -> None:
    report = World(seed).run(STEPS)
    assert report.answers > 0


@pytest.mark.parametrize("case", regression_seeds(), ids=str)
def test_a_seed_that_found_a_bug_passes(case: tuple[int, int, int | None]) -> None:
    seed, steps, members = case
    World(seed, members=members).run(steps)


def test_a_seed_has_one_trace() -> None:
    def traces(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "tests.sim", "--seed=8", "--seeds=2", "--steps=40"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    first = traces("1")
    assert first.count("trace") == 2
    assert traces("2") == first


@pytest.mark.parametrize(
    ("canary", "members"),
    [(each, members) for each in CANARIES for members in each.members],
    ids=lambda each: each.member.__name__ if isinstance(each, Canary) else str(each),
)
def test_a_planted_bug_is_found(canary: Canary, members: int) -> None:
    class Planted(World):
        member_type = canary.member

    def reports(seed: int) -> str:
        """Return which function found a promise broken."""
        try:
            Planted(seed, members=members, auth=canary.auth, often=canary.often).run(STEPS)
        except Violation as violation:
            return reporter(violation)
        except (KvstoreError, ValueError) as error:
            return repr(error)
        return "nobody"

    seen = []
    for seed in range(canary.first_seed, canary.first_seed + CANARY_SEEDS):
        seen.append(reports(seed))
        if seen[-1] in canary.checks:
            return
    raise AssertionError(f"that {canary.promise} was not seen to be broken: {Counter(seen)}")


def test_faults_are_injected() -> None:
    kinds = ("power", "kill", "stop", "died", "rot", "torn", "events", "snapshots", "removed")
    counts: Counter[str] = Counter()
    for seed in range(125, 145):
        world = World(seed)
        world.options.fault_rate = 0.2
        report = world.run(STEPS)
        counts += world.counts
        counts["events"] += report.events
        if all(counts[kind] for kind in kinds):
            return
    raise AssertionError(f"never: {[kind for kind in kinds if not counts[kind]]}")
