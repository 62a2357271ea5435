"""Small worlds at every commit, the same twice, and bugs planted to see whether they are found."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.canaries import ALONE, TOGETHER
from tests.sim.checks import Violation
from tests.sim.member import Member
from tests.sim.seeds import once_failed
from tests.sim.world import World

SEEDS = range(1, 21)
STEPS = 100
CANARY_SEEDS = range(1, 13)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_keeps_its_promises(seed: int) -> None:
    report = World(seed).run(STEPS)
    assert report.answers > 0


@pytest.mark.parametrize("case", once_failed(), ids=str)
def test_what_failed_once_does_not_again(case: tuple[int, int, int | None]) -> None:
    seed, steps, members = case
    World(seed, members=members).run(steps)


def test_a_seed_has_one_trace() -> None:
    def traces(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "tests.sim", "--seed=5", "--seeds=3", "--steps=40"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    first = traces("1")
    assert first.count("trace") == 3
    assert traces("1") == first
    assert traces("2") == first


@pytest.mark.parametrize(
    ("planted", "members"),
    [(each, 1) for each in ALONE] + [(each, 3) for each in TOGETHER],
)
def test_a_planted_bug_is_found(planted: type[Member], members: int) -> None:
    class Planted(World):
        member_type = planted

    def fails(seed: int) -> bool:
        try:
            Planted(seed, members=members).run(STEPS)
        except Violation:
            return True
        return False

    assert any(fails(seed) for seed in CANARY_SEEDS)


def test_troubles_do_happen() -> None:
    happened: Counter[str] = Counter()
    for seed in range(117, 127):
        world = World(seed)
        world.options.trouble = 0.2
        report = world.run(STEPS)
        happened += world.happened
        happened["events"] += report.events
    kinds = ("power", "kill", "stop", "died", "rot", "torn", "events", "snapshots", "removed")
    assert {kind for kind in kinds if not happened[kind]} == set()
