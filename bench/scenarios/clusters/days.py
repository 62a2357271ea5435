"""Days of virtual time: what it takes to let 24 hours of a cluster go by at once.

    idle       a node, and nothing to do
    in use     three nodes, a CronJob each five minutes whose Jobs are deleted by their TTL, and a
               Deployment that a HorizontalPodAutoscaler looks after each 15 seconds
    a farm     `POST /clusters/NAME/clock {"advance": "24h"}`, of an idle cluster

CPU time is that of the process of the cluster, from before until all that was due is done. The day
in use is checked: it has as many writes as its Jobs take.
"""

import asyncio
import http.client
import time
from pathlib import Path
from typing import Final

import orjson

from bench.procfs import cpu_seconds
from bench.reporting.figures import OURS, Better, Measure
from bench.run import Run, Scenario
from bench.scenarios.clusters.forks import farm, post
from bench.scenarios.clusters.stack import deployment
from kvstack.agents.client.api import Api
from kvstack.agents.client.kubeconfig import connect, load
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.agents.standalone.in_memory.cluster_time import PAUSED

IDLE_S_MAX: Final = 2.0
NODES: Final = 3
CRON_MINUTES: Final = 5
TTL_S: Final = 100
_WRITES_OF_JOB_MIN: Final = 20
"""Of its CronJob, itself, its pod and their events, until it is deleted."""
_CONTAINER: Final = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
_CRON_JOB: Final = {
    "metadata": {"name": "often"},
    "spec": {
        "schedule": f"*/{CRON_MINUTES} * * * *",
        "jobTemplate": {
            "spec": {
                "ttlSecondsAfterFinished": TTL_S,
                "template": {"spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}},
            }
        },
    },
}
_DEPLOYMENT: Final = deployment("web", 2, {"containers": [_CONTAINER]})
_AUTOSCALER: Final = {
    "metadata": {"name": "web"},
    "spec": {
        "minReplicas": 2,
        "maxReplicas": 6,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 50},
                },
            }
        ],
    },
}
_IN_USE: Final = (
    ("/apis/apps/v1/namespaces/default/deployments", _DEPLOYMENT),
    ("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", _AUTOSCALER),
    ("/apis/batch/v1/namespaces/default/cronjobs", _CRON_JOB),
)


def play(run: Run) -> None:
    """Let days go by, in rounds."""
    hours = 1 if run.is_quick else 24
    for number in run.rounds():
        with run.step(f"round {number + 1}: an idle day"):
            _measure_idle(run, run.directory / f"idle-{number}", hours)
        with run.step(f"round {number + 1}: a day in use"):
            _measure_in_use(run, run.directory / f"in-use-{number}", hours)
    with farm(run.directory / "farm-run") as socket:
        for number in run.rounds():
            with run.step(f"round {number + 1}: a day of a farm's cluster"):
                _measure_farmed(run, socket, hours)
    run.note("Where other work runs on the machine, CPU time is what can be compared.")
    run.note(
        f"In use: {NODES} nodes; a CronJob each {CRON_MINUTES} minutes, whose Jobs are deleted "
        f"{TTL_S} s after their end; two pods of a Deployment, and a HorizontalPodAutoscaler."
    )


def _measure_idle(run: Run, directory: Path, hours: int) -> None:
    with BackgroundCluster(directory, Settings(nodes=1, clock=PAUSED)) as cluster:
        cluster.settle()
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        cluster.clock.advance(hours=hours)
        cpu_s, seconds = time.process_time() - cpu_s, time.perf_counter() - begin_s
    what = f"{hours} h of an idle cluster with a node, in virtual time"
    _add(run, what, seconds, cpu_s, IDLE_S_MAX)


def _measure_in_use(run: Run, directory: Path, hours: int) -> None:
    with BackgroundCluster(directory, Settings(nodes=NODES, clock=PAUSED)) as cluster:
        asyncio.run(_put_in_use(cluster.kubeconfig))
        cluster.settle()
        before = cluster.rows().revision
        begin_s, cpu_s = time.perf_counter(), time.process_time()
        cluster.clock.advance(hours=hours)
        cpu_s, seconds = time.process_time() - cpu_s, time.perf_counter() - begin_s
        writes = cluster.rows().revision - before
    jobs = hours * 60 // CRON_MINUTES
    if writes < jobs * _WRITES_OF_JOB_MIN:
        raise RuntimeError(f"{jobs} Jobs took {writes} writes: not all have run")
    _add(run, f"{hours} h of a cluster in use, in virtual time", seconds, cpu_s, None)


async def _put_in_use(kubeconfig: Path) -> None:
    api = Api(connect(load(str(kubeconfig))))
    try:
        for path, obj in _IN_USE:
            await api.call("POST", path, body=orjson.dumps(obj))
    finally:
        await api.close()


def _measure_farmed(run: Run, socket: Path, hours: int) -> None:
    made = post(socket, "/clusters", {"clock": PAUSED}, http.client.CREATED)
    target = f"/clusters/{made['name']}/clock"
    begin_s, cpu_s = time.perf_counter(), cpu_seconds(made["pid"])
    post(socket, target, {"advance": f"{hours}h"}, http.client.OK)
    cpu_s, seconds = cpu_seconds(made["pid"]) - cpu_s, time.perf_counter() - begin_s
    _add(run, f"{hours} h of an idle cluster of a farm, by its route", seconds, cpu_s, IDLE_S_MAX)


def _add(run: Run, what: str, seconds: float, cpu_s: float, limit: float | None) -> None:
    run.figures.add(Measure(what, "s", Better.LOWER, limit=limit), OURS, seconds)
    run.figures.add(Measure(f"{what}: CPU", "s", Better.LOWER), OURS, cpu_s)


SCENARIO: Final = Scenario(
    "days",
    "Days of virtual time",
    "what it takes to advance the clock of a cluster by a day, until all that was due is done",
    rounds=3,
    play=play,
    columns=("cluster", "—"),
)
