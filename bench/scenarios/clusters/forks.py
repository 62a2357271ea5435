"""Forks of clusters of several sizes: how long until one answers, and what it holds.

The source is an API server of this project that has the objects in memory: `kvstack open` of a
packed file. What is measured is `kvstack fork` of its context, a process of its own each time, from
the start of the command until a list of the fork's namespaces is answered. A fork of a cluster
without objects is what a process costs by itself.
"""

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson

from bench.procfs import cpu_seconds, memory
from bench.reporting.figures import OURS, Better, Measure
from bench.run import Run, Scenario
from bench.scenarios.clusters.stack import deployment
from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import CONFIG_MAPS, DEPLOYMENTS
from kvstack.agents.client.kubeconfig import connect, load
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.clusters.contents import Contents, Origin
from kvstack.clusters.pack.packed_file import write_pack
from kvstore.client.values import KeyValue

MIB: Final = 1 << 20
SIZES: Final = (1_000, 10_000, 100_000)
QUICK: Final = (100,)
_LIMITS_S: Final = {1_000: 1.0, 10_000: 3.0, 100_000: 30.0}
_PODS_A_NODE: Final = 50
FARMED: Final = 50
FARMED_QUICK: Final = 3
_PODS_OF_TEN: Final = 6
_KVSTACK: Final = (sys.executable, "-m", "kvstack")


def play(run: Run) -> None:
    """Fork clusters of each size, in rounds."""
    sizes = QUICK if run.is_quick else SIZES
    bare = 0.0
    for number in (0, *sizes):
        with run.step(f"making a cluster of {number} objects"):
            packed = run.directory / f"{number}.kvs"
            write_pack(packed, Contents(rows_of(number), number + 10, Origin("bench", "x")), None)
        with _opened(run.directory, packed) as source:
            for round_number in run.rounds():
                with run.step(f"round {round_number + 1}: a fork of {number} objects"):
                    bare = _note(run, source, number, bare)
    with run.step("clusters of a farm"):
        _measure_farm(run)
    for number in run.rounds():
        with run.step(f"round {number + 1}: a session of tests"):
            _measure_session(run, run.directory / f"session-{number}")
    with run.step("plans"):
        _measure_plan(run, run.directory / "plan")
    run.note(
        "Six objects of ten are pods that run, fifty on a node; the others ConfigMaps. Values are "
        "those of pods of a real cluster in size (2 KiB)."
    )
    run.note("Where other work runs on the machine, CPU time is what can be compared.")
    run.note(
        "A session of tests is what the pytest plugin does in it, without pytest. Fifty clusters "
        "of a farm are asked for one right after the other, so the spare is not always ready."
    )


def _note(run: Run, source: "_User", number: int, bare: float) -> float:
    """Measure one fork; return the memory of one without objects."""
    add, lower = run.figures.add, Better.LOWER
    begin = time.perf_counter()
    name = source.fork()
    seconds = time.perf_counter() - begin
    source.run("wait", "--settled", f"--fork={name}", "--timeout=300s")
    [fork] = [each for each in source.forks() if each["name"] == name]
    held, cpu_s = memory(fork["pid"]).anon_bytes, cpu_seconds(fork["pid"])
    source.run("delete", "fork", name)
    if not number:
        add(Measure("memory of a fork without objects, anonymous", "MiB", lower), OURS, held / MIB)
        add(Measure("a fork without objects, to a first answer", "s", lower), OURS, seconds)
        return held
    what = f"{number:,} objects"
    limit = _LIMITS_S.get(number)
    add(Measure(f"{what}: to a first answer", "s", lower, limit=limit), OURS, seconds)
    add(Measure(f"{what}: CPU of the fork until it is settled", "s", lower), OURS, cpu_s)
    more = (held - bare) / MIB
    add(
        Measure(
            f"{what}: memory over a fork without objects, anonymous",
            "MiB",
            lower,
            limit=60.0 if number == 1_000 else None,
        ),
        OURS,
        more,
    )
    add(Measure(f"{what}: memory, anonymous", "MiB", lower, limit=1024.0), OURS, held / MIB)
    return bare


class _User:
    """Runs commands with a kubeconfig and a registry of forks of its own."""

    def __init__(self, directory: Path, kubeconfig: str = "") -> None:
        self.environment = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(directory),
            "KUBECONFIG": kubeconfig or str(directory / "none"),
        }
        # As where it is installed: modules are not compiled anew by each process.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [*_KVSTACK, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != code:
            raise RuntimeError(f"kvstack {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def fork(self) -> str:
        """Fork the current context and ask for its namespaces; return the name of the fork."""
        said = self.run("fork", "--add-context=false", "--name=measured")
        file = said.splitlines()[1].removeprefix("export KUBECONFIG=")
        ask(file)
        return "measured"

    def forks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("get", "forks", "-o", "json"))
        return found


def ask(kubeconfig: str) -> None:
    """Ask the server of a kubeconfig for its namespaces."""

    async def main() -> None:
        api = Api(connect(load(kubeconfig)))
        try:
            await api.call("GET", "/api/v1/namespaces")
        finally:
            await api.close()

    asyncio.run(main())


def _measure_farm(run: Run) -> None:
    """Measure how long a cluster of a farm takes, and what many of them hold."""
    add, lower = run.figures.add, Better.LOWER
    with farm(run.directory / "farm-run") as socket_path:
        number = FARMED_QUICK if run.is_quick else FARMED
        pids = []
        for _ in range(number):
            begin = time.perf_counter()
            made = post(socket_path, "/clusters", {}, http.client.CREATED)
            pids.append(made["pid"])
            ask(made["kubeconfig"])
            seconds = time.perf_counter() - begin
            add(
                Measure("a farm: from POST to a first answer", "ms", lower, limit=50.0),
                OURS,
                seconds * 1000,
            )
        for pid in pids:
            what = f"a farm: memory of one of {number} clusters, without what they share"
            add(Measure(what, "MiB", lower, limit=20.0), OURS, _own_bytes(pid) / MIB)


@contextmanager
def farm(directory: Path) -> Iterator[Path]:
    """Run a farm; yield the path of its socket."""
    directory.mkdir(mode=0o700)
    path = directory / "farm.sock"
    process = subprocess.Popen(
        [*_KVSTACK, "farm", f"--listen=unix://{path}"],
        env=_User(directory).environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield path
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


_SESSION: Final = """
import sys
from pathlib import Path
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, make_authorities
from bench.scenarios.clusters.forks import ask
directory = Path(sys.argv[1])
make_authorities(directory / "keys")
for name in ("first", "next"):
    with BackgroundCluster(directory / name, authorities=directory / "keys") as cluster:
        ask(str(cluster.kubeconfig))
        print(name, flush=True)
        sys.stdin.readline()
"""
"""What the pytest plugin does in a session of tests."""


def _measure_session(run: Run, directory: Path) -> None:
    """Measure how long the first cluster of a session of tests takes, and the next."""
    directory.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", _SESSION, str(directory)],
        env=_User(directory).environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    begin = time.perf_counter()
    for name in ("first", "next"):
        if process.stdout.readline().strip() != name:
            raise RuntimeError(f"the {name} cluster of a session did not answer")
        seconds = time.perf_counter() - begin
        whence = "from the start of Python" if name == "first" else "from the end of the one before"
        what = f"a session of tests: the {name} cluster, {whence} to a first answer"
        run.figures.add(Measure(what, "s", Better.LOWER), OURS, seconds)
        begin = time.perf_counter()
        process.stdin.write("\n")
        process.stdin.flush()
    process.stdin.close()
    process.stdout.close()
    if process.wait():
        raise RuntimeError("a session of tests failed")


PLANNED: Final = 1_000
PLANNED_PODS: Final = 50


def _measure_plan(run: Run, directory: Path) -> None:
    """Measure a plan of another image for a Deployment, in a cluster of many objects."""
    directory.mkdir()
    pods = 5 if run.is_quick else PLANNED_PODS
    number = 50 if run.is_quick else PLANNED
    with BackgroundCluster(directory / "cluster", Settings(nodes=10)) as cluster:
        asyncio.run(_fill(cluster, pods, number))
        cluster.settle()
        runtime = directory / "run"
        runtime.mkdir(mode=0o700)
        user = _User(runtime, str(cluster.kubeconfig))
        change = directory / "web.json"
        change.write_bytes(orjson.dumps(_deployment(pods, "1.5")))
        what = f"a plan: {number:,} objects, a Deployment of {pods} gets another image"
        measure = Measure(what, "s", Better.LOWER, limit=2.0)
        for _ in run.rounds():
            begin = time.perf_counter()
            said = user.run("plan", "-f", str(change), code=1)
            run.figures.add(measure, OURS, time.perf_counter() - begin)
            if f"{pods} deleted" not in said:
                raise RuntimeError(f"the plan is not one of this change: {said}")


async def _fill(cluster: BackgroundCluster, pods: int, number: int) -> None:
    """Make a Deployment, and ConfigMaps until there are so many objects."""
    api = Api(connect(load(cluster.kubeconfig)))
    try:
        await api.create(DEPLOYMENTS, "default", _deployment(pods, "1.4"))
        for each in range(max(0, number - len(list(cluster.rows().records)) - 2 * pods)):
            data = {"content": f"{each} " * 200}
            config_map = {"metadata": {"name": f"c{each}"}, "data": data}
            await api.create(CONFIG_MAPS, "default", config_map)
    finally:
        await api.close()


def _deployment(pods: int, version: str) -> dict[str, Any]:
    container = {"name": "web", "image": f"registry.example/web:{version}"}
    return deployment("web", pods, {"containers": [container]})


def post(path: Path, target: str, body: object, code: int) -> dict[str, Any]:
    """Send a request to a farm and return its answer; RuntimeError: it has another code."""
    connection = http.client.HTTPConnection("farm")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    connection.request("POST", target, json.dumps(body))
    answer = connection.getresponse()
    found: dict[str, Any] = json.load(answer)
    connection.close()
    if answer.status != code:
        raise RuntimeError(str(found))
    return found


def _own_bytes(pid: int) -> int:
    """Return the memory that a process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    found = (line.split() for line in lines if line.startswith("Private_"))
    return sum(int(each[1]) << 10 for each in found)


@contextmanager
def _opened(directory: Path, packed: Path) -> Iterator[_User]:
    """Serve a packed file; yield a user whose context it is."""
    runtime = directory / f"{packed.stem}-run"
    runtime.mkdir(mode=0o700)
    owner = _User(runtime)
    said = owner.run(
        "open", str(packed), "--add-context=false", "--name=source", "--max-objects=1000000"
    )
    kubeconfig = said.splitlines()[1].removeprefix("export KUBECONFIG=")
    try:
        yield _User(runtime, kubeconfig)
    finally:
        owner.run("delete", "fork", "--all")


def rows_of(number: int) -> list[KeyValue]:
    """Return the objects of a cluster: nodes besides, as many as its pods need."""
    pods = number * _PODS_OF_TEN // 10
    nodes = -(-pods // _PODS_A_NODE)
    objects = {
        **{f"minions/n{each}": _node(each) for each in range(nodes)},
        **{f"pods/bench/p{each}": _pod(each, nodes) for each in range(pods)},
        **{f"configmaps/bench/c{each}": _config_map(each) for each in range(number - pods - nodes)},
    }
    found = []
    for at, (key, obj) in enumerate(sorted(objects.items()), 2):
        found.append(KeyValue(f"/registry/{key}".encode(), orjson.dumps(obj) + b"\n", at, at, 1, 0))
    return found


def _meta(name: str, **more: object) -> dict[str, object]:
    return {
        "name": name,
        "uid": f"00000000-0000-0000-0000-{abs(hash(name)) % 10**12:012d}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **more,
    }


def _node(number: int) -> dict[str, object]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _meta(f"n{number}"),
        "spec": {"podCIDR": f"10.{64 + number // 256}.{number % 256}.0/24"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def _config_map(number: int) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(f"c{number}", namespace="bench"),
        "data": {"content": f"{number} " * 200},
    }


def _pod(number: int, nodes: int) -> dict[str, object]:
    moment = "2026-01-01T00:00:00Z"
    node, ip = f"n{number % nodes}", f"10.{64 + number % nodes // 256}.{number % nodes % 256}.9"
    fields = {
        "f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"web"}': {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}
            }
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _meta(
            f"p{number}",
            namespace="bench",
            labels={"app": f"app-{number % 100}", "pod-template-hash": "5f68bcd7c8"},
            managedFields=[
                {
                    "manager": "kube-controller-manager",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": moment,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": fields,
                }
            ],
        ),
        "spec": {
            "nodeName": node,
            "restartPolicy": "Always",
            "serviceAccountName": "default",
            "containers": [
                {
                    "name": "web",
                    "image": "registry.example/team/web:1.4.2",
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                    "env": [{"name": "MODE", "value": "production"}],
                }
            ],
            "tolerations": [
                {"key": f"node.kubernetes.io/{each}", "operator": "Exists", "effect": "NoExecute"}
                for each in ("not-ready", "unreachable")
            ],
        },
        "status": {
            "phase": "Running",
            "startTime": moment,
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [
                {"type": each, "status": "True", "lastTransitionTime": moment}
                for each in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {
                    "name": "web",
                    "image": "registry.example/team/web:1.4.2",
                    "imageID": "registry.example/team/web@sha256:1",
                    "containerID": f"containerd://{number:064d}",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": moment}},
                }
            ],
        },
    }


SCENARIO: Final = Scenario(
    "forks",
    "Forks of clusters",
    "`kvstack fork` of a context, to a first answer of the fork, and what it holds then at rest",
    rounds=3,
    play=play,
    columns=("fork", "—"),
)
