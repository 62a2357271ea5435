"""The scheduler: how fast waiting pods are bound, its start included, and what it costs.

The nodes are objects and nothing more: no kubelet answers for them. Store, API server and scheduler
are processes of their own on the same processors.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench.api_servers import COLUMNS, SCHEDULER, Contender, contenders
from bench.loads import kvload
from bench.peer_stacks import scheduler_configuration
from bench.procfs import Meter
from bench.reporting.figures import OURS, Better, Measure
from bench.run import Run, Scenario
from tests.apiserver.support.kube_files import make_namespace, write_kubeconfig
from tests.apiserver.support.requests import Connection

_PODS: Final = 4_000
_NODES: Final = (100, 1_000, 5_000)
_NAMESPACE: Final = "scheduling"
_PODS_PATH: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_WAITING: Final = f"{_PODS_PATH}?fieldSelector=spec.nodeName%3D&limit=1"
_POLL_S: Final = 0.1
_LIMIT_S: Final = 600.0
_OURS: Final = (sys.executable, "-m", "kvstack", "scheduler")
_KINDS: Final = ("plain", "spread")


def play(run: Run) -> None:
    """For each number of nodes: make pods, start the scheduler, wait until all are bound."""
    if why := kvload.missing():
        run.skip(why)
        return
    pods = run.size(_PODS, 20, "pods")
    counts = (run.size(10, 10, "nodes"),) if run.is_quick or "nodes" in run.sizes else _NODES
    with contenders(run) as servers:
        if SCHEDULER not in run.programs:
            servers = {OURS: servers[OURS]}
        for contender in servers.values():
            make_namespace(contender.api, _NAMESPACE)
        made = 0
        for count in counts:
            for name, contender in servers.items():
                with run.step(f"{name}: {count:,} nodes"):
                    _make_nodes(contender, count - made, f"n{count}")
            made = count
            for round_number in run.rounds():
                for kind in _KINDS:
                    for name in run.order(round_number):
                        if name in servers:
                            with run.step(f"round {round_number + 1}, {name}: {kind}, {count:,}"):
                                _bind(run, name, servers[name], kind, pods, count)


def _bind(run: Run, name: str, contender: Contender, kind: str, pods: int, nodes: int) -> None:
    body = contender.body(kind, json.dumps(_pod(kind)))
    contender.load(
        "api", method="POST", path=_PODS_PATH, body=body, objects=pods, calls=pods,
        connections=10, in_flight=10, seconds=3600,
    )  # fmt: skip
    began_s = time.monotonic()
    with _scheduler(run, name, contender) as process:
        meter = Meter((process.pid,))
        _until_bound(contender, process)
        took_s = time.monotonic() - began_s
        cpu_s = meter.used_s()[0]
    what = f"{kind} pods on {nodes:,} nodes"
    run.figures.add(Measure(f"{what}: bound", "pods/s", Better.HIGHER), name, pods / took_s)
    cpu = Measure(f"{what}: scheduler CPU", "µs/pod", Better.LOWER)
    run.figures.add(cpu, name, cpu_s / pods * 1e6)
    _delete_pods(contender)


@contextmanager
def _scheduler(run: Run, name: str, contender: Contender) -> Iterator[subprocess.Popen[bytes]]:
    """Run a scheduler."""
    kubeconfig = write_kubeconfig(
        contender.scratch / "kubeconfig", contender.api, authority=contender.authority
    )
    config = contender.body("scheduler", json.dumps(scheduler_configuration(kubeconfig)))
    command = _OURS if name == OURS else (run.programs[SCHEDULER],)
    flags = (f"--config={config}", "--secure-port=0")
    log = contender.scratch / "scheduler.log"
    with log.open("ab") as file:
        process = subprocess.Popen([*command, *flags], stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _until_bound(contender: Contender, scheduler: subprocess.Popen[bytes]) -> None:
    limit_s = time.monotonic() + _LIMIT_S
    while _ask(contender, "GET", _WAITING)["items"]:
        if scheduler.poll() is not None or time.monotonic() > limit_s:
            log = (contender.scratch / "scheduler.log").read_text()[-4000:]
            raise RuntimeError(f"the scheduler ended, or binds no more: {log}")
        time.sleep(_POLL_S)


def _make_nodes(contender: Contender, count: int, prefix: str) -> None:
    body = contender.body("node", json.dumps(_node(prefix)))
    many: dict[str, Any] = {
        "objects": count, "calls": count, "connections": 10, "in_flight": 10, "seconds": 3600,
    }  # fmt: skip
    contender.load("api", method="POST", path="/api/v1/nodes", body=body, **many)
    # Admission taints every new node until somebody has seen that it is ready.
    ready = contender.body("ready", '{"spec":{"taints":null}}')
    path = f"/api/v1/nodes/{prefix}-{{n}}"
    merge = "application/merge-patch+json"
    contender.load("api", method="PATCH", path=path, body=ready, content_type=merge, **many)


def _delete_pods(contender: Contender) -> None:
    _ask(contender, "DELETE", f"{_PODS_PATH}?gracePeriodSeconds=0")
    while _ask(contender, "GET", f"{_PODS_PATH}?limit=1")["items"]:
        time.sleep(_POLL_S)


def _ask(contender: Contender, method: str, path: str) -> dict[str, Any]:
    connection = Connection(contender.api, timeout_s=_LIMIT_S)
    try:
        found: dict[str, Any] = connection.ask(method, path)
    finally:
        connection.close()
    return found


def _node(prefix: str) -> dict[str, Any]:
    name = f"{prefix}-{{n}}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
            },
        },
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"},
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(kind: str) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "100Mi"}
    container = {"name": "main", "image": "service:1", "resources": {"requests": requests}}
    spec: dict[str, Any] = {"containers": [container]}
    if kind == "spread":
        selector = {"matchLabels": {"app": "service"}}
        hostname = "kubernetes.io/hostname"
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 5,
                "topologyKey": hostname,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            }
        ]
        term = {"labelSelector": selector, "topologyKey": hostname}
        preferred = [{"weight": 100, "podAffinityTerm": term}]
        spec["affinity"] = {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod-{n}", "labels": {"app": "service"}},
        "spec": spec,
    }


SCENARIO: Final = Scenario(
    "scheduling",
    "Waiting pods that are bound",
    "4,000 pods, TLS, a bearer token; store, API server and scheduler on the same processors",
    3,
    play,
    sizes=("pods", "nodes"),
    columns=COLUMNS,
)
