"""The whole control plane: its start, what it costs idle, how fast pods come, and many pods.

Nodes are hollow, so that nothing is measured but the control plane: a pod is ready as soon as its
node has heard of it. The rate is a Deployment's: from its POST until all its pods are ready.

`kvstack up` is one process, with its nodes inside or, beside the real programs, in another process
that is not counted; the same nodes serve both sides.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench import peer_stacks, stacks
from bench.reporting.figures import OURS, PEER, Better, Measure
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
LIMIT_S: Final = 3600.0
_REMOVED_POLL_S: Final = 0.1
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"


def play(run: Run) -> None:
    """Start it again and again, idle; then a Deployment at a time; then many at once."""
    for number in run.rounds():
        with run.step(f"round {number + 1}: start, idle"):
            _start(run, number)
    pods, nodes = run.size(_PODS, 20, "pods"), run.size(_NODES, 4)
    with stacks.started(run.directory / "rate", *inside(nodes)) as stack:
        stack.wait_ready()
        stack.wait_nodes(nodes)
        for number in run.rounds():
            with run.step(f"round {number + 1}: {pods:,} pods"):
                _rate(run, OURS, stack, f"web-{number}", pods, "nodes inside")
                remove(stack, f"web-{number}")
    for number in run.rounds():
        for name in _contenders(run, number):
            with run.step(f"round {number + 1}, {name}: {pods:,} pods"):
                _beside(run, name, number, pods, nodes)
    many, nodes = run.size(_MANY_PODS, 40, "many-pods"), run.size(_MANY_NODES, 8, "nodes")
    for name in _contenders(run, 0):
        with run.step(f"{name}: {many:,} pods on {nodes:,} nodes"):
            _many(run, name, many, pods, nodes)
    run.note("`kvstack up` is one process: store, API server, controllers, scheduler.")
    run.note("Start: from the start of the process, modules loaded from compiled files.")
    if PEER in _contenders(run, 0):
        run.note(peer_stacks.NOTE)
    else:
        run.note(f"Not all of {', '.join(peer_stacks.NEEDED)} were given (--program).")


def _contenders(run: Run, round_number: int) -> tuple[str, ...]:
    """Return who is measured beside whom, in the order of a round."""
    has_peer = set(peer_stacks.NEEDED) <= run.programs.keys()
    return run.order(round_number) if has_peer else (OURS,)


@contextmanager
def _nodes_elsewhere(run: Run, name: str, directory: str, nodes: int) -> Iterator[Stack]:
    """Run a control plane that is ready, and its hollow nodes in a process of their own."""
    place = run.directory / f"{directory}-{name}"
    if name == OURS:
        running = stacks.started(place, "--without=node,nodes", "--log-level=error")
    else:
        running = peer_stacks.started(run, place)
    with running as stack:
        stack.wait_ready()
        with stacks.hollow_nodes(stack, place, nodes):
            yield stack


def _start(run: Run, number: int) -> None:
    directory = run.directory / f"start-{number}"
    for what in ("on a fresh directory", "on the same directory again"):
        began_s = time.perf_counter()
        with stacks.started(directory, *inside(1)) as stack:
            stack.wait_ready()
            ready_s = time.perf_counter() - began_s
            cpu_s = stack.cpu_s()
            make(stack, f"web-{what.rpartition(' ')[2]}", 1)
            pod_s = time.perf_counter() - began_s
            add, lower = run.figures.add, Better.LOWER
            add(Measure(f"start {what}, to the first answer", "s", lower), OURS, ready_s)
            add(Measure(f"start {what}, to the first answer: CPU", "s", lower), OURS, cpu_s)
            runs = Measure(f"start {what}, to a pod that is ready", "s", lower, limit=_START_S)
            add(runs, OURS, pod_s)
            if what.endswith("again"):
                _idle(run, OURS, stack, "idle, one node", has_limits=True)


def _idle(run: Run, name: str, stack: Stack, when: str, *, has_limits: bool = False) -> None:
    seconds = run.seconds(_IDLE_S)
    used_percent = idle_percent(stack, seconds, seconds)
    percent = Measure(
        f"{when}: CPU", "% of a core", Better.LOWER, limit=_IDLE_PERCENT if has_limits else None
    )
    run.figures.add(percent, name, used_percent)
    rss = Measure(
        f"{when}: memory, rss", "MiB", Better.LOWER, limit=_IDLE_MIB if has_limits else None
    )
    run.figures.add(rss, name, stack.memory().rss_bytes / MIB)


def idle_percent(stack: Stack, settle_s: float, seconds: float) -> float:
    """Return the share of a core that an idle cluster uses, once what was begun is over."""
    stack.close()  # servers end connections that are idle for long
    time.sleep(settle_s)
    used_s = stack.cpu_s()
    took_s = seconds_of(lambda: time.sleep(seconds))
    return (stack.cpu_s() - used_s) / took_s * 100


def _rate(run: Run, who: str, stack: Stack, name: str, pods: int, where: str) -> None:
    used_s = stack.cpu_s()
    took_s = seconds_of(lambda: make(stack, name, pods))
    what = f"a Deployment of {pods:,}, {where}: from its POST until all are ready"
    run.figures.add(Measure(what, "pods/s", Better.HIGHER), who, pods / took_s)
    cpu = Measure(f"a Deployment of {pods:,}, {where}: CPU of all", "ms/pod", Better.LOWER)
    run.figures.add(cpu, who, (stack.cpu_s() - used_s) / pods * 1e3)


def _beside(run: Run, name: str, number: int, pods: int, nodes: int) -> None:
    """Start a control plane with its nodes elsewhere, and make a Deployment."""
    began_s = time.perf_counter()
    with _nodes_elsewhere(run, name, f"beside-{number}", nodes) as stack:
        make(stack, "first", 1)
        first_s = time.perf_counter() - began_s
        what = f"start with {nodes:,} nodes elsewhere, to a pod that is ready"
        run.figures.add(Measure(what, "s", Better.LOWER), name, first_s)
        stack.wait_nodes(nodes)
        _rate(run, name, stack, "web", pods, "nodes elsewhere")


def _many(run: Run, name: str, pods: int, at_once: int, nodes: int) -> None:
    with _nodes_elsewhere(run, name, "many", nodes) as stack:
        begin_s = time.perf_counter()
        stack.wait_nodes(nodes)
        took_s = time.perf_counter() - begin_s
        until = Measure(f"{nodes:,} new nodes, until all take pods", "s", Better.LOWER)
        run.figures.add(until, name, took_s)
        used_s = stack.cpu_s()
        began_s = time.perf_counter()
        for number in range(pods // at_once):
            make(stack, f"many-{number}", at_once)
        took_s = time.perf_counter() - began_s
        when = f"{pods:,} pods on {nodes:,} nodes"
        made = f"{when}, a Deployment of {at_once:,} after the other"
        run.figures.add(Measure(made, "pods/s", Better.HIGHER), name, pods / took_s)
        cpu = Measure(f"{made}: CPU of all", "ms/pod", Better.LOWER)
        run.figures.add(cpu, name, (stack.cpu_s() - used_s) / pods * 1e3)
        _idle(run, name, stack, f"then idle, {when}")
        for kind, value in zip(MEMORY_KINDS, stack.memory(), strict=True):
            run.figures.add(memory_measure(f"with {when}", kind, None), name, value / MIB)


def make(stack: Stack, name: str, pods: int) -> None:
    """Make a Deployment, and wait until all its pods are ready."""
    stack.ask("POST", DEPLOYMENTS, _deployment(name, pods))
    stack.wait_for(f"{DEPLOYMENTS}/{name}", "readyReplicas", pods, LIMIT_S)


def remove(stack: Stack, name: str) -> None:
    """Delete a Deployment, and wait until no pod is left."""
    stack.ask("DELETE", f"{DEPLOYMENTS}/{name}")
    end_s = time.monotonic() + LIMIT_S
    while stack.ask("GET", "/api/v1/namespaces/default/pods?limit=1")["items"]:
        if time.monotonic() > end_s:
            raise RuntimeError(f"pods of {name} are still there after {LIMIT_S:g} s")
        time.sleep(_REMOVED_POLL_S)


def inside(nodes: int) -> tuple[str, ...]:
    """Return the flags of a cluster with hollow nodes of its own."""
    return ("--without=node", f"--nodes={nodes}", "--log-level=error")


def _deployment(name: str, replicas: int) -> dict[str, Any]:
    container = {"name": "c", "image": "image:1", "resources": {"requests": {"cpu": "10m"}}}
    return deployment(name, replicas, {"containers": [container]})


def deployment(name: str, replicas: int, pod: dict[str, Any]) -> dict[str, Any]:
    """Return a Deployment; pod: the spec of its pods."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


SCENARIO: Final = Scenario(
    "stack",
    "The whole control plane",
    "`kvstack up` with hollow nodes, beside the real programs with the same nodes",
    rounds=3,
    play=play,
    sizes=("pods", "many-pods", "nodes"),
    columns=("kvstack", "kubernetes, etcd"),
)
