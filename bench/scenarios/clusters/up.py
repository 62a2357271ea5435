"""`kvstack up` with all its parts: its start to a pod that is ready, and what it costs idle.

Store, API server, controllers, scheduler, a node that runs processes, proxy, DNS, metrics and the
dashboard: what a user gets without flags. As root the node makes its network on this machine.
"""

import time
from pathlib import Path
from typing import Final

from bench import stacks
from bench.reporting.figures import OURS, Better, Measure
from bench.run import Run, Scenario
from bench.scenarios.clusters.stack import (
    DEPLOYMENTS,
    LIMIT_S,
    deployment,
    idle_percent,
    remove,
)
from bench.stacks import Stack

_POD_S: Final = 1.3
_IDLE_MB: Final = 160.0
_IDLE_PERCENT: Final = 1.2
_IDLE_S: Final = 30.0
_SETTLE_S: Final = 20.0
"""What was begun is over by then, and the first passes of the jobs."""
_MB: Final = 1e6
_WEB: Final = deployment(
    "web",
    1,
    {
        "containers": [
            {"name": "web", "image": "host:latest", "command": ["sleep", "100000"]},
        ],
        "terminationGracePeriodSeconds": 0,
    },
)


def play(run: Run) -> None:
    """Start on a fresh directory, and on the same one again, round by round."""
    for number in run.rounds():
        directory = run.directory / f"up-{number}"
        for again in (False, True):
            what = "on the same directory again" if again else "on a fresh directory"
            with run.step(f"round {number + 1}: start {what}"):
                _start(run, directory, what, is_again=again)


def _start(run: Run, directory: Path, what: str, *, is_again: bool) -> None:
    add, lower = run.figures.add, Better.LOWER
    began_s = time.perf_counter()
    with stacks.started(directory) as stack:
        stack.wait_ready()
        ready_s = time.perf_counter() - began_s
        add(Measure(f"start {what}, to the first answer", "s", lower), OURS, ready_s)
        stack.ask("POST", DEPLOYMENTS, _WEB)
        stack.wait_for(f"{DEPLOYMENTS}/web", "readyReplicas", 1, LIMIT_S)
        limit = _POD_S if is_again else None
        to_pod = Measure(f"start {what}, to a pod that is ready", "s", lower, limit=limit)
        add(to_pod, OURS, time.perf_counter() - began_s)
        cpu = Measure(f"start {what}, to a pod that is ready: CPU", "s", lower)
        add(cpu, OURS, stack.cpu_s())
        if is_again:
            _idle(run, stack)
        remove(stack, "web")


def _idle(run: Run, stack: Stack) -> None:
    percent = idle_percent(stack, run.seconds(_SETTLE_S), run.seconds(_IDLE_S))
    add, lower = run.figures.add, Better.LOWER
    add(Measure("idle, one pod: CPU", "% of a core", lower, limit=_IDLE_PERCENT), OURS, percent)
    found = stack.memory()
    rss = Measure("idle, one pod: memory, rss", "MB", lower, limit=_IDLE_MB)
    add(rss, OURS, found.rss_bytes / _MB)
    anonymous = Measure("idle, one pod: memory, anonymous", "MB", lower)
    add(anonymous, OURS, found.anon_bytes / _MB)


SCENARIO: Final = Scenario(
    "up",
    "`kvstack up` as a user gets it",
    "one process with all parts, and a node that runs processes",
    rounds=5,
    play=play,
    columns=("kvstack up", "-"),
)
