"""Settled clusters, and clusters with clocks of their own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.standalone.in_memory.background import (
    BackgroundCluster,
    NotSettledError,
    Settings,
    make_authorities,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.virtual_time.loop import VirtualLoop
from tests.agents.standalone.in_memory.requests import call

pytestmark = pytest.mark.slow

Start = Callable[..., BackgroundCluster]

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
PODS = "/api/v1/namespaces/default/pods"
HALF_HOUR = timedelta(minutes=30)
LOOKS = ("leases/", "events/")


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("authorities")
    make_authorities(directory)
    return directory


@pytest.fixture
def start(tmp_path: Path, authorities: Path) -> Iterator[Start]:
    """Return what starts clusters."""
    with ExitStack() as running:

        def start_one(clock: str, **more: Any) -> BackgroundCluster:
            settings = Settings(more.pop("nodes", 2), clock=clock, **more)
            directory = tmp_path / f"cluster-{len(list(tmp_path.iterdir()))}"
            cluster = BackgroundCluster(directory, settings, authorities=authorities)
            return running.enter_context(cluster)

        yield start_one


def template(**spec: Any) -> Object:
    labels = {"app": "web"}
    container = {"name": "web", "image": "web:1"}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}}


def deployment(replicas: int) -> Object:
    selector = {"matchLabels": {"app": "web"}}
    return {
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": selector, "template": template()},
    }


def job() -> Object:
    return {
        "metadata": {"name": "once"},
        "spec": {"template": template(restartPolicy="Never"), "ttlSecondsAfterFinished": 100},
    }


def ready_pods(cluster: BackgroundCluster) -> int:
    pods = call(cluster, "GET", PODS)["items"]
    return sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"])
        for pod in pods
    )


def written(cluster: BackgroundCluster) -> dict[str, int]:
    """Return what there is but for leases and events, with its revisions."""
    rows = {each.key.decode(): each.mod_revision for each in cluster.rows().records}
    return {k: v for k, v in rows.items() if not k.removeprefix("/registry/").startswith(LOOKS)}


@pytest.mark.parametrize("clock", ["real", "virtual", "paused"])
def test_a_settled_cluster_has_done_what_was_asked_and_does_no_more(
    start: Start, clock: str
) -> None:
    cluster = start(clock)
    call(cluster, "POST", DEPLOYMENTS, deployment(7))
    state = cluster.settle()
    assert state.is_settled
    assert state.revision > 0
    assert ready_pods(cluster) == 7
    assert call(cluster, "GET", DEPLOYMENTS)["items"][0]["status"]["availableReplicas"] == 7
    if clock == "paused":
        before = written(cluster)
        cluster.clock.advance(10)
        assert written(cluster) == before


def test_time_that_stands_goes_on_only_as_far_as_settling_needs(start: Start) -> None:
    cluster = start("paused")
    call(cluster, "POST", JOBS, job())
    before = cluster.clock.now()
    with pytest.raises(
        NotSettledError, match=r"not settled after 0 s: .*kubelet pod default/once-"
    ):
        cluster.settle(timeout_s=0)
    state = cluster.settle()
    assert timedelta(seconds=0.5) <= cluster.clock.now() - before < timedelta(seconds=5)
    assert call(cluster, "GET", JOBS)["items"][0]["status"]["succeeded"] == 1
    assert [(each.who, each.what) for each in state.due] == [
        ("ttl-after-finished-controller", "default/once")
    ]
    cluster.clock.advance(100)
    assert call(cluster, "GET", JOBS)["items"] == []


def test_half_an_hour_of_a_cron_job(start: Start) -> None:
    cluster = start("paused", nodes=1, without=frozenset(["metrics"]))
    spec = {
        "schedule": "*/10 * * * *",
        "jobTemplate": {"spec": {"template": template(restartPolicy="Never")}},
        "successfulJobsHistoryLimit": 100,
    }
    call(cluster, "POST", CRON_JOBS, {"metadata": {"name": "often"}, "spec": spec})
    before = cluster.clock.now()
    cluster.clock.advance(minutes=30)
    assert cluster.clock.now() - before == pytest.approx(HALF_HOUR, abs=timedelta(seconds=1))
    jobs = call(cluster, "GET", JOBS)["items"]
    assert len(jobs) == 3
    assert all(each["status"]["succeeded"] == 1 for each in jobs)
    assert all(each["metadata"]["creationTimestamp"][15] == "0" for each in jobs)
    leases = call(cluster, "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    renewed = datetime.fromisoformat(leases["items"][0]["spec"]["renewTime"])
    assert timedelta() <= cluster.clock.now() - renewed < timedelta(seconds=601)


def test_an_hour_costs_what_happens_in_it(start: Start) -> None:
    """Nothing ticks: some writes an hour, and less than a round of the loop in two seconds."""
    cluster = start("paused", nodes=1)
    cluster.settle()

    async def hour() -> tuple[int, int]:
        live, loop = cluster._live, cluster._loop
        assert live.time is not None
        assert isinstance(loop, VirtualLoop)
        revision, rounds = live.server.registry.watch_cache.revision, loop.rounds
        await live.time.advance(3600)
        return live.server.registry.watch_cache.revision - revision, loop.rounds - rounds

    writes, rounds = cluster.call(hour())
    assert 6 <= writes < 60  # six renewals of the node's lease
    assert rounds < 1_800


def test_the_same_seed_gives_the_same_names_and_uids(start: Start) -> None:
    found = []
    for seed in (5, 5, 6):
        cluster = start("paused", seed=seed)
        call(cluster, "POST", DEPLOYMENTS, deployment(3))
        cluster.settle()
        pods = call(cluster, "GET", PODS)["items"]
        found.append(
            {(p["metadata"]["name"], p["metadata"]["uid"], p["spec"]["nodeName"]) for p in pods}
        )
    assert found[0] == found[1]
    assert not found[0] & found[2]


def test_a_copy_of_the_same_seed_gives_other_uids(start: Start) -> None:
    """What its rows have already is not given again."""
    maps = "/api/v1/namespaces/default/configmaps"

    def make_uids(cluster: BackgroundCluster, name: str) -> set[str]:
        bodies = [{"metadata": {"name": f"{name}-{number}"}} for number in range(40)]
        return {call(cluster, "POST", maps, body)["metadata"]["uid"] for body in bodies}

    one = start("paused", seed=5)
    of_one = make_uids(one, "one")
    copied = start("paused", seed=5, rows=one.rows())
    assert len(of_one | make_uids(copied, "copy")) == 80


def test_what_no_node_takes_is_settled_too(start: Start) -> None:
    cluster = start("paused", nodes=0)
    call(cluster, "POST", DEPLOYMENTS, deployment(1))
    assert cluster.settle().is_settled
    (pod,) = call(cluster, "GET", PODS)["items"]
    assert pod["status"]["conditions"][0]["reason"] == "Unschedulable"


def test_a_clock_goes_so_many_times_as_fast(start: Start) -> None:
    cluster = start("virtual")
    cluster.clock.pause()
    before = cluster.clock.now()
    assert cluster.clock.now() == before
    cluster.clock.set_rate(1000)
    while cluster.clock.now() - before < timedelta(minutes=1):
        call(cluster, "GET", "/version")
    cluster.clock.resume()


def test_a_clock_that_is_not_there_or_cannot_go_so(start: Start) -> None:
    with pytest.raises(ComponentError, match='use clock="virtual"'):
        _ = start("real").clock
    clock = start("paused").clock
    for wrong in (-1.0, float("nan"), 1e12):
        with pytest.raises(ComponentError, match=r"advance by \S+ s: 0 to"):
            clock.advance(wrong)
        with pytest.raises(ComponentError, match="rate"):
            clock.set_rate(wrong)
    with pytest.raises(ConfigError, match="clock 'fast': one of real, virtual, paused"):
        start("fast")
