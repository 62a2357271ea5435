"""The cluster of compose.yaml as processes, each of which is killed while a workload changes."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.kubeconfig import connect, load
from kvstore.transport import native
from tests.agents.topology.workload import Churn
from tests.support.compose import COMPOSE, Topology

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("topology"),
    pytest.mark.skipif(not native.is_available(), reason="the store has TLS by the crate alone"),
]

# Another leads soon, so that a test need not wait long.
LEASE = (
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=1s",
)
LED = ("controller-manager1", "controller-manager2", "scheduler1", "scheduler2")
PUBLISHED = "6443"
ALIASES = {"api": "lb"}  # both API servers have this name
SETTLE_S = 180.0


async def trouble(topology: Topology, api: Api, churn: Churn, kills: list[str]) -> list[str]:
    """Kill services one after the other while the workload changes; return what is wrong then."""
    await churn.begin()
    for name in kills:
        await asyncio.to_thread(topology.kill, name)
        await churn.step()
        await asyncio.sleep(0.3)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_S
    while faults := await churn.faults():
        if loop.time() > deadline:
            return faults
        await asyncio.sleep(0.2)
    return []


def play(
    directory: Path, seed: int, choose: Callable[[list[str], random.Random], list[str]]
) -> None:
    extra = dict.fromkeys(LED, LEASE)
    with Topology(COMPOSE, directory, extra=extra, aliases=ALIASES) as topology:
        topology.up()
        chance = random.Random(seed)
        lasting = [name for name, each in topology.services.items() if each.get("restart")]
        kills = choose(lasting, chance)

        async def body() -> list[str]:
            cluster = load(topology.path("apiserver1", "/certs/kubernetes/admin.conf"))
            assert cluster.server == topology.url(PUBLISHED)
            api = Api(connect(cluster), Options(timeout_s=5.0))
            try:
                return await trouble(topology, api, Churn(api, chance), kills)
            finally:
                await api.close()

        faults = asyncio.run(body())
        assert not faults, "\n".join(faults)
        # Leaders that lost their lease ended by themselves.
        assert topology.restarts >= len(kills)


def one_of_each(names: list[str], chance: random.Random) -> list[str]:
    """Choose one service of each kind, in any order."""
    kinds = {name.rstrip("0123456789") for name in names}
    chosen = [
        chance.choice([name for name in names if name.startswith(kind)]) for kind in sorted(kinds)
    ]
    return chance.sample(chosen, len(chosen))


def test_any_process_may_be_killed(tmp_path: Path) -> None:
    play(tmp_path, 1, one_of_each)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_processes_are_killed_for_minutes(seed: int, tmp_path: Path) -> None:
    play(tmp_path, seed, lambda names, chance: chance.choices(names, k=60))
