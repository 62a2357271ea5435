"""Many pods: what they take in the API server's memory, and how fast they are listed in pages."""

import json
from functools import partial
from typing import Any, Final

from bench.api_servers import COLUMNS, Contender, contenders
from bench.loads import kvload
from bench.procfs import memory
from bench.reporting.figures import Better, Measure
from bench.restarts import MIB, seconds_of
from bench.run import Run, Scenario
from tests.apiserver.support.api_servers import ApiServer
from tests.apiserver.support.kube_files import make_namespace

_PODS: Final = 100_000
_POD_BYTES: Final = 4_000
_SECONDS: Final = 3.0
_PATH: Final = "/api/v1/namespaces/pods/pods"
_PAGE: Final = 500
_READY_S: Final = 600.0


def play(run: Run) -> None:
    """Create the pods, then list pages of them and start again with them there."""
    if why := kvload.missing():
        run.skip(why)
        return
    pods = run.size(_PODS, 200, "pods")
    with contenders(run) as servers:
        for name, contender in servers.items():
            make_namespace(contender.api, "pods")
            with run.step(f"{name}: create {pods:,} pods"):
                _fill(run, name, contender, pods)
        for round_number in run.rounds():
            for name in run.order(round_number):
                if name in servers:
                    with run.step(f"round {round_number + 1}, {name}: pages"):
                        _pages(run, name, servers[name], min(pods, _PAGE))
        for name, contender in servers.items():
            _note_memory(run, name, contender, f"with {pods:,} pods")
            with run.step(f"{name}: start with {pods:,} pods"):
                contender.api.stop()
                start_s = seconds_of(partial(_start, contender.api))
            again = Measure(f"start with {pods:,} pods, until /readyz is ok", "s", Better.LOWER)
            run.figures.add(again, name, start_s)
            _note_memory(run, name, contender, f"after a start with {pods:,} pods")


def _start(api: ApiServer) -> None:
    api.start(wait=False)
    api.wait_ready(_READY_S)


def _fill(run: Run, name: str, contender: Contender, pods: int) -> None:
    body = contender.body("pod", json.dumps(_pod()))
    found = contender.load(
        "api", method="POST", path=_PATH, body=body, objects=pods, calls=pods,
        connections=10, in_flight=10, seconds=3600,
    )  # fmt: skip
    run.figures.add(Measure("POST of a Pod", "requests/s", Better.HIGHER), name, found.rate)
    cpu = Measure("POST of a Pod: server CPU", "µs/request", Better.LOWER)
    run.figures.add(cpu, name, found.first_cpu_s / found.done * 1e6)


def _pages(run: Run, name: str, contender: Contender, page: int) -> None:
    found = contender.load(
        "api",
        method="GET",
        path=f"{_PATH}?limit={_PAGE}",
        bytes_min=page * _POD_BYTES // 2,
        connections=4,
        in_flight=4,
        seconds=run.seconds(_SECONDS),
    )
    what = f"LIST, a page of {_PAGE} pods"
    run.figures.add(Measure(what, "requests/s", Better.HIGHER), name, found.rate)
    cpu = Measure(f"{what}: server CPU", "µs/request", Better.LOWER)
    run.figures.add(cpu, name, found.first_cpu_s / found.done * 1e6)


def _note_memory(run: Run, name: str, contender: Contender, when: str) -> None:
    size = Measure(f"memory {when}", "MiB", Better.LOWER)
    run.figures.add(size, name, memory(contender.api.pid).rss_bytes / MIB)


def _pod() -> dict[str, Any]:
    """Return a pod of about 4 kB as it is stored; {n} becomes a part of its name."""
    container = {
        "name": "main",
        "image": "registry.example/team/service:1.2.3",
        "args": ["--listen=:8080", "--verbose"],
        "env": [{"name": f"SETTING_{number}", "value": "x" * 60} for number in range(16)],
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"cpu": "500m", "memory": "256Mi"},
        },
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "pod-{n}",
            "labels": {"app": "service", "tier": "backend", "release": "r1"},
            "annotations": {"example.com/note": "y" * 200},
        },
        "spec": {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]},
    }


SCENARIO: Final = Scenario(
    "api-pods",
    "100,000 pods in the API server",
    "Pods of 4 kB, TLS, a bearer token, RBAC; kvload",
    3,
    play,
    sizes=("pods",),
    columns=COLUMNS,
)
