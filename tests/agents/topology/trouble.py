"""Kills services of a cluster while its workload changes, and waits until all is as written."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.kubeconfig import connect, load
from tests.agents.topology.workload import Churn
from tests.support.compose import Topology

SETTLE_S: Final = 180.0
ALIASES: Final = {"api": "lb"}  # both API servers have this name
PUBLISHED: Final = "6443"
_LED: Final = ("controller-manager1", "controller-manager2", "scheduler1", "scheduler2")
# Another leads soon, so that a test need not wait long.
LEASES: Final = dict.fromkeys(
    _LED,
    (
        "--leader-elect-lease-duration=8s",
        "--leader-elect-renew-deadline=6s",
        "--leader-elect-retry-period=1s",
    ),
)


async def trouble(topology: Topology, churn: Churn, kills: list[str]) -> list[str]:
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


def lasting(topology: Topology) -> list[str]:
    """Return the services that are started again when they end."""
    return [name for name, each in topology.services.items() if each.get("restart")]


@asynccontextmanager
async def admin(topology: Topology) -> AsyncIterator[Api]:
    """Return a client that is the administrator."""
    cluster = load(topology.path("apiserver1", "/certs/kubernetes/admin.conf"))
    assert cluster.server == topology.url(PUBLISHED)
    api = Api(connect(cluster), Options(timeout_s=5.0))
    try:
        yield api
    finally:
        await api.close()


def one_of_each(names: list[str], chance: random.Random) -> list[str]:
    """Choose one service of each kind, in any order."""
    kinds = {name.rstrip("0123456789") for name in names}
    chosen = [
        chance.choice([name for name in names if name.startswith(kind)]) for kind in sorted(kinds)
    ]
    return chance.sample(chosen, len(chosen))
