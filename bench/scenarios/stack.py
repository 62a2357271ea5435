"""The whole stack in one process: its start, what it costs idle, how fast pods come, and many pods.

Nodes are hollow, so that nothing is measured but the control plane: a pod is ready as soon as its
node has heard of it. The rate is a Deployment's: from its POST until all its pods are ready.
"""

import time
from typing import Any, Final

from bench.procfs import Meter, cpu_seconds, memory
from bench.reporting.figures import OURS, Better, Measure
from bench.restarts import MEMORY_KINDS, MIB, memory_measure, seconds_of
from bench.run import Run, Scenario
from bench.stacks import Stack

_START_S: Final = 2.0
_IDLE_MIB: Final = 200.0
_IDLE_PERCENT: Final = 1.0
_IDLE_S: Final = 20.0
_PODS: Final = 1_000
_NODES: Final = 100
_MANY_PODS: Final = 30_000
_MANY_NODES: Final = 1_000
_LIMIT_S: Final = 3600.0
_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"


def play(run: Run) -> None:
    """Start it again and again, idle; then a Deployment at a time; then many at once."""
    for number in run.rounds():
        with run.step(f"round {number + 1}: start, idle"):
            _start(run, number)
    pods, nodes = run.size(_PODS, 20, "pods"), run.size(_NODES, 4)
    with Stack.started(run.directory / "rate", *_hollow(nodes)) as stack:
        stack.wait_ready()
        for number in run.rounds():
            with run.step(f"round {number + 1}: {pods:,} pods"):
                _rate(run, stack, f"web-{number}", pods)
                _remove(stack, f"web-{number}")
    many, nodes = run.size(_MANY_PODS, 40, "many-pods"), run.size(_MANY_NODES, 8, "nodes")
    with (
        run.step(f"{many:,} pods on {nodes:,} nodes"),
        Stack.started(run.directory / "many", *_hollow(nodes)) as stack,
    ):
        _many(run, stack, many, pods, nodes)
    run.note("One process is store, API server, controllers, scheduler and hollow nodes.")
    run.note("Start: from the start of the process, modules loaded from compiled files.")


def _start(run: Run, number: int) -> None:
    directory = run.directory / f"start-{number}"
    for what in ("on a fresh directory", "on the same directory again"):
        began_s = time.perf_counter()
        with Stack.started(directory, *_hollow(1)) as stack:
            stack.wait_ready()
            ready_s = time.perf_counter() - began_s
            cpu_s = cpu_seconds(stack.pid)
            _make(stack, f"web-{what.rpartition(' ')[2]}", 1)
            pod_s = time.perf_counter() - began_s
            add, lower = run.figures.add, Better.LOWER
            add(Measure(f"start {what}, to the first answer", "s", lower), OURS, ready_s)
            add(Measure(f"start {what}, to the first answer: CPU", "s", lower), OURS, cpu_s)
            runs = Measure(f"start {what}, to a pod that is ready", "s", lower, limit=_START_S)
            add(runs, OURS, pod_s)
            if what.endswith("again"):
                _idle(run, stack, "idle, one node")


def _idle(run: Run, stack: Stack, when: str, *, has_limits: bool = True) -> None:
    seconds = run.seconds(_IDLE_S)
    time.sleep(seconds)  # what was begun is over by then
    meter = Meter((stack.pid,))
    took_s = seconds_of(lambda: time.sleep(seconds))
    percent = Measure(
        f"{when}: CPU", "% of a core", Better.LOWER, limit=_IDLE_PERCENT if has_limits else None
    )
    run.figures.add(percent, OURS, meter.used_s()[0] / took_s * 100)
    rss = Measure(
        f"{when}: memory, rss", "MiB", Better.LOWER, limit=_IDLE_MIB if has_limits else None
    )
    run.figures.add(rss, OURS, memory(stack.pid).rss_bytes / MIB)


def _rate(run: Run, stack: Stack, name: str, pods: int) -> None:
    meter = Meter((stack.pid,))
    took_s = seconds_of(lambda: _make(stack, name, pods))
    what = f"a Deployment of {pods:,}, from its POST until all are ready"
    run.figures.add(Measure(what, "pods/s", Better.HIGHER), OURS, pods / took_s)
    cpu = Measure(f"{what}: CPU of all", "ms/pod", Better.LOWER)
    run.figures.add(cpu, OURS, meter.used_s()[0] / pods * 1e3)


def _many(run: Run, stack: Stack, pods: int, at_once: int, nodes: int) -> None:
    took_s = seconds_of(stack.wait_ready)
    start = Measure(f"start with {nodes:,} new nodes, to the first answer", "s", Better.LOWER)
    run.figures.add(start, OURS, took_s)
    meter = Meter((stack.pid,))
    began_s = time.perf_counter()
    for number in range(pods // at_once):
        _make(stack, f"many-{number}", at_once)
    took_s = time.perf_counter() - began_s
    when = f"{pods:,} pods on {nodes:,} nodes"
    made = f"{when}, a Deployment of {at_once:,} after the other"
    run.figures.add(Measure(made, "pods/s", Better.HIGHER), OURS, pods / took_s)
    cpu = Measure(f"{made}: CPU of all", "ms/pod", Better.LOWER)
    run.figures.add(cpu, OURS, meter.used_s()[0] / pods * 1e3)
    _idle(run, stack, f"then idle, {when}", has_limits=False)
    for kind, value in zip(MEMORY_KINDS, memory(stack.pid), strict=True):
        run.figures.add(memory_measure(f"with {when}", kind, None), OURS, value / MIB)


def _make(stack: Stack, name: str, pods: int) -> None:
    stack.ask("POST", _DEPLOYMENTS, _deployment(name, pods))
    stack.wait_for(f"{_DEPLOYMENTS}/{name}", "readyReplicas", pods, _LIMIT_S)


def _remove(stack: Stack, name: str) -> None:
    stack.ask("DELETE", f"{_DEPLOYMENTS}/{name}")
    end_s = time.monotonic() + _LIMIT_S
    while stack.ask("GET", "/api/v1/namespaces/default/pods?limit=1")["items"]:
        if time.monotonic() > end_s:
            raise RuntimeError(f"pods of {name} are still there after {_LIMIT_S:g} s")
        time.sleep(0.1)


def _hollow(nodes: int) -> tuple[str, ...]:
    return ("--without=node", f"--nodes={nodes}", "--log-level=error")


def _deployment(name: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "c", "image": "image:1", "resources": {"requests": {"cpu": "10m"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


SCENARIO: Final = Scenario(
    "stack",
    "The stack in one process",
    "`kvstack up` with hollow nodes",
    rounds=3,
    play=play,
    sizes=("pods", "many-pods", "nodes"),
    columns=("kvstack", "-"),
)
