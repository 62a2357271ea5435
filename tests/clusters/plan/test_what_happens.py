"""A plan is what happens: the same change is planned, then made on the cluster itself."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.clusters.forks.fork_settings import ForkSettings
from kvstack.clusters.plan.change import Site
from kvstack.clusters.plan.file_change import FileChange
from kvstack.clusters.plan.plan_run import PlanSettings
from kvstack.clusters.plan.writes import Writes
from tests.clusters.plan.planning import SHOP, applied, differences, edited, plan
from tests.clusters.support.sources import api_of, read

pytestmark = pytest.mark.slow

AT_ONCE = PlanSettings(fork=ForkSettings(ready_after_s=0.0))
CHANGES = {
    "image": edited(("web:1.4", "web:1.5"), kind="Deployment"),
    "more": edited(("replicas: 4", "replicas: 7"), kind="Deployment"),
    "fewer": edited(("replicas: 4", "replicas: 1"), kind="Deployment"),
    "ready_late": edited(
        ("web:1.4", "web:1.5"),
        ("  replicas: 4\n", "  replicas: 4\n  minReadySeconds: 60\n"),
        kind="Deployment",
    ),
    "too_large": edited(("cpu: 500m", 'cpu: "300"'), kind="Deployment"),
    "another_selector": edited(("app: web", "app: wep"), kind="Service", name="web"),
    "stateful_set": edited(("db:15", "db:16"), kind="StatefulSet"),
    "no_right": edited(("[get, update, patch]", "[get]"), kind="Role"),
}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    """Return a cluster with all of the shop but its nodes, which it has of its own."""
    settings = Settings(nodes=2, without=frozenset(("metrics",)), clock="virtual")
    documents = [each for each in SHOP.read_text().split("---\n") if "kind: Node\n" not in each]
    with BackgroundCluster(tmp_path_factory.mktemp("source") / "cluster", settings) as running:
        make(running, applied("---\n".join(documents)))
        yield running


def make(cluster: BackgroundCluster, change: FileChange) -> None:
    """Make a change on a cluster, and wait until it is settled."""

    async def main() -> None:
        api = api_of(cluster.kubeconfig)

        async def wait(seconds: float) -> None:
            await asyncio.sleep(seconds)

        try:
            writes = Writes(lambda: 0.0)
            site = Site(api, cluster.kubeconfig, writes, wait, lambda _: nullcontext())
            await change.make(site)
        finally:
            await api.close()

    asyncio.run(main())
    cluster.settle(within_s=5)
    cluster.clock.advance(minutes=5)  # whatever is due because of the change has come
    cluster.settle(within_s=5)


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_planned_happens(cluster: BackgroundCluster, name: str) -> None:
    before = read(cluster)
    result = plan(before, CHANGES[name](), AT_ONCE)
    make(cluster, CHANGES[name]())
    happened = differences(before, read(cluster))
    assert happened
    assert differences(result.before, result.after) == happened
