"""The cluster of compose.yaml as processes, each of which is killed while a workload changes."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kvstore.transport import native
from tests.agents.topology.trouble import (
    ALIASES,
    LEASES,
    admin,
    faults_after,
    lasting,
    one_of_each,
)
from tests.support.compose import COMPOSE, Topology

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("topology"),
    pytest.mark.skipif(not native.is_available(), reason="the store has TLS by the crate alone"),
]


def play(
    directory: Path, seed: int, choose: Callable[[list[str], random.Random], list[str]]
) -> None:
    with Topology(COMPOSE, directory, extra=LEASES, aliases=ALIASES) as topology:
        topology.up()
        rng = random.Random(seed)
        kills = choose(lasting(topology), rng)
        faults = faults_after(admin(topology), topology.kill, kills, rng)
        assert not faults, "\n".join(faults)
        # Leaders that lost their lease ended by themselves.
        assert topology.restarts >= len(kills)


def test_any_process_may_be_killed(tmp_path: Path) -> None:
    play(tmp_path, 1, one_of_each)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_processes_are_killed_for_minutes(seed: int, tmp_path: Path) -> None:
    play(tmp_path, seed, lambda names, rng: rng.choices(names, k=60))
