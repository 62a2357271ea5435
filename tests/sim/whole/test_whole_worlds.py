"""The whole under faults: seeds in every test run, the same trace twice, planted bugs."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
from typing_extensions import override

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import PODS
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.attributes import PRIVILEGED, User
from kvstack.apimachinery.objects.status import ApiError
from tests.sim.seeds import regression_seeds
from tests.sim.stack.links import Bug, SimTransport
from tests.sim.violation import Violation
from tests.sim.whole.canaries import CANARIES, Canary, planted
from tests.sim.whole.world import WholeWorld

SEEDS = range(1, 12)
MORE_SEEDS = [seed for seed in range(12, 41) if seed not in (16, 18)]  # which seeds.txt has
STEPS = 8
CANARY_SEEDS = 12  # at most


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*SEEDS, *(pytest.param(each, marks=pytest.mark.long) for each in MORE_SEEDS)]
)
def test_the_whole_keeps_its_promises_and_settles(seed: int) -> None:
    world = WholeWorld(seed, steps=STEPS)
    world.run()
    assert world.promises.checked


@pytest.mark.parametrize("case", regression_seeds(Path(__file__).with_name("seeds.txt")), ids=str)
def test_a_seed_that_found_a_bug_passes(case: tuple[int, int, int | None]) -> None:
    seed, steps, _ = case
    WholeWorld(seed, steps=steps).run()


@pytest.mark.slow
def test_a_seed_has_one_trace() -> None:
    world = WholeWorld(2, steps=5)
    world.run()
    other = subprocess.run(
        [sys.executable, "-m", "tests.sim.whole", "--seed=2", "--steps=5"],
        env={**os.environ, "PYTHONHASHSEED": "17"},
        cwd=Path(__file__).parents[3],
        check=True,
        capture_output=True,
        text=True,
    )
    assert f"trace {world.trace.hexdigest()}" in other.stdout


@pytest.mark.slow
@pytest.mark.parametrize("canary", CANARIES, ids=lambda each: each.alter.__name__)
def test_a_planted_bug_is_found(canary: Canary) -> None:
    class World(WholeWorld):
        settled_s = 60.0
        planted: ClassVar[tuple[Bug, ...]] = (planted(canary),)

    assert canary.words in _violation_of(World, canary.words, canary.often)


@pytest.mark.slow
def test_a_collector_that_deletes_what_is_owned_is_found() -> None:
    class World(WholeWorld):
        settled_s = 60.0

        @override
        async def live(self) -> None:
            self.spawn(self._collect(), "rogue collector")
            await super().live()

        async def _collect(self) -> None:
            name = "system:serviceaccount:kube-system:generic-garbage-collector"
            api = Api(SimTransport(self.network, "rogue", User(name, groups=(PRIVILEGED,))))
            while True:
                await self.sleep(1.0)
                for pod in self.objects.all("pods")[:1]:
                    meta = pod["metadata"]
                    try:
                        await api.delete(PODS, meta["namespace"], meta["name"], uid=meta["uid"])
                    except (ApiError, UnreachableError) as error:
                        self.note("refused", str(error)[:80])

    assert "of the living" in _violation_of(World, "of the living")


def _violation_of(kind: type[WholeWorld], words: str, often: str = "") -> str:
    """Return the violation with these words that some seed finds, or what was found instead."""
    seen: list[str] = []
    for seed in range(1, 1 + CANARY_SEEDS):
        try:
            world = kind(seed, steps=STEPS)
            world.fault_rate, world.pause_s = 0.0, 0.2
            world.often = often
            world.members_count = world.servers_count = world.managers_count = 1
            world.run()
        except Violation as violation:
            seen.append(str(violation)[:200])
            if words in seen[-1]:
                return seen[-1]
    return str(Counter(seen))
