"""What happens to a cluster while its workload changes: parts of it are killed, one after another.

faults = faults_after(cluster, topology.kill, ["lb", "apiserver1"], random.Random(7))
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.kubeconfig import Cluster, connect, load
from tests.agents.topology.workload import Churn, Programs
from tests.support.compose import Topology, restarts
from tests.support.waiting import answered

SETTLE_S: Final = 180.0
ALIASES: Final = {"api": "lb"}  # both API servers have this name
_PUBLISHED: Final = "6443"
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


def faults_after(
    cluster: Cluster,
    kill: Callable[[str], object],
    names: list[str],
    rng: random.Random,
    *,
    programs: Programs | None = None,
    restore: Callable[[], object] = lambda: None,
    look: Callable[[Churn], object] = lambda _: None,
) -> list[str]:
    """Kill services while the workload changes, and restore what is still away at the end.

    Return what is then not as the manifests say, or what is left when they are deleted.
    look: called between the two.
    """

    async def body() -> list[str]:
        api = Api(connect(cluster), Options(timeout_s=5.0))
        churn = Churn(api, rng, programs)
        try:
            await _trouble(kill, names, churn)
            await asyncio.to_thread(restore)
            if faults := await _settled(churn):
                return faults
            await asyncio.to_thread(look, churn)
            await churn.end()
            return await _settled(churn)
        finally:
            await api.close()

    return asyncio.run(body())


def one_of_each(names: list[str], rng: random.Random) -> list[str]:
    """Choose one service of each kind, in any order."""
    kinds = {name.rstrip("0123456789") for name in names}
    chosen = [
        rng.choice([name for name in names if name.startswith(kind)]) for kind in sorted(kinds)
    ]
    return rng.sample(chosen, len(chosen))


def lasting(topology: Topology) -> list[str]:
    """Return the services that are started again when they end."""
    return [name for name, each in topology.services.items() if restarts(each)]


def admin(topology: Topology) -> Cluster:
    """Return how the administrator reaches a cluster."""
    cluster = load(topology.path("certs", "/certs/kubernetes/admin.conf"))
    assert cluster.server == topology.url(_PUBLISHED)
    return cluster


async def _trouble(kill: Callable[[str], object], names: list[str], churn: Churn) -> None:
    await churn.begin()
    for name in names:
        await asyncio.to_thread(kill, name)
        await churn.step()
        await asyncio.sleep(0.3)


async def _settled(churn: Churn) -> list[str]:
    async def is_settled() -> bool:
        return not await churn.faults()

    try:
        await answered(is_settled, within_s=SETTLE_S, every_s=0.2)
    except AssertionError:
        return await churn.faults()
    return []
