"""Requests of an API server, with TLS and a token; what each costs it in CPU.

kvload checks that every answer is a good one and of the size it must have. Creations have names
that are never used again, patches change a value every time: a patch that changes nothing would
write nothing.
"""

import json
import time
from typing import Any, Final, NamedTuple

from bench.api_servers import APPLY, COLUMNS, JSON, MERGE, Contender, contenders
from bench.loads import kvload
from bench.loads.unary import NO_TARGETS, Targets
from bench.procfs import Meter, memory
from bench.reporting.figures import Better, Measure
from bench.restarts import MIB
from bench.ruled import OBJECT, SPEC
from bench.run import Run, Scenario
from tests.apiserver.support.hook_server import HookServer, allowing
from tests.apiserver.support.kube_files import make_namespace
from tests.apiserver.support.requests import send

_OBJECTS: Final = 500
_WATCHERS: Final = 1_000
_SECONDS: Final = 3.0
_IDLE_S: Final = 5.0
_VALUE: Final = "v" * 256
_MAPS: Final = "/api/v1/namespaces/bench/configmaps"
_NEW: Final = "/api/v1/namespaces/new/configmaps"
_WATCHED: Final = "/api/v1/namespaces/watched/configmaps"
_HOOKED: Final = "/api/v1/namespaces/hooked/configmaps"
_HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_MAP: Final = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%s"},"data":{"v":"%s"}}'
_NEW_MAP: Final = _MAP % ("{i}", _VALUE)
_GROUP: Final = "bench.example.com"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RULED: Final = f"/apis/{_GROUP}/v1/namespaces/new/ruleds"
_DEFINITION: Final = {
    "metadata": {"name": f"ruleds.{_GROUP}"},
    "spec": {
        "group": _GROUP,
        "names": {"plural": "ruleds", "singular": "ruled", "kind": "Ruled"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC}}},
            }
        ],
    },
}
_NEW_RULED: Final = json.dumps(
    {"apiVersion": f"{_GROUP}/v1", "kind": "Ruled", **OBJECT, "metadata": {"name": "w-{i}"}}
)
_NEW_PODS: Final = "/api/v1/namespaces/new/pods"
_NEW_POD: Final = (
    '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p-{i}","labels":{"app":"bench"}},'
    '"spec":{"containers":[{"name":"main","image":"registry.example/service:1.2.3",'
    '"resources":{"requests":{"cpu":"100m","memory":"128Mi"}},'
    '"ports":[{"name":"http","containerPort":8080}]}]}}'
)
"""Admission adds its priority, tolerations, and the volume with the token of its account."""


class Load(NamedTuple):
    """One kind of request."""

    name: str
    method: str
    path: str
    body: str
    content_type: str
    bytes_min: int
    shape: tuple[int, int]  # connections, requests in flight on each
    targets: Targets  # of the ratios of rate and of CPU per request


_LOADS: Final = (
    Load("GET of a ConfigMap", "GET", f"{_MAPS}/c-{{n}}", "", JSON, 256, (10, 10), (4.0, None)),
    Load("LIST of 500", "GET", _MAPS, "", JSON, _OBJECTS * 256, (4, 4), (5.0, None)),
    Load("POST of a ConfigMap", "POST", _NEW, _NEW_MAP, JSON, 256, (10, 10), (2.0, None)),
    Load("POST of a Pod", "POST", _NEW_PODS, _NEW_POD, JSON, 1024, (10, 10), NO_TARGETS),
    Load(
        "PATCH, merge",
        "PATCH",
        f"{_MAPS}/c-{{n}}",
        '{"data":{"i":"{i}"}}',
        MERGE,
        256,
        (10, 10),
        (1.5, None),
    ),
    Load(
        "PATCH, apply",
        "PATCH",
        f"{_MAPS}/c-{{n}}?fieldManager=bench&force=true",
        _MAP % ("{n}", "{i}"),
        APPLY,
        100,
        (10, 10),
        (1.5, None),
    ),
    Load(
        "POST of a custom resource with ten rules",
        "POST",
        _RULED,
        _NEW_RULED,
        JSON,
        100,
        (10, 10),
        NO_TARGETS,
    ),
    Load("POST, one validating webhook", "POST", _HOOKED, _NEW_MAP, JSON, 256, (4, 1), NO_TARGETS),
    Load("GET, one at a time", "GET", f"{_MAPS}/c-{{n}}", "", JSON, 256, (1, 1), NO_TARGETS),
    Load("POST, one at a time", "POST", _NEW, _NEW_MAP, JSON, 256, (1, 1), NO_TARGETS),
)  # fmt: skip


def play(run: Run) -> None:
    """Start, idle, then every load on each server in turn, round by round."""
    if why := kvload.missing():
        run.skip(why)
        return
    with HookServer() as hooks, contenders(run) as servers:
        hooks.answers["/allow"] = allowing()
        _starts(run, servers)
        for name, contender in servers.items():
            with run.step(f"{name}: {_OBJECTS} objects"):
                _prepare(contender, hooks)
        for round_number in run.rounds():
            for number, load in enumerate(_LOADS):
                for name in run.order(round_number):
                    if name in servers:
                        with run.step(f"round {round_number + 1}, {name}: {load.name}"):
                            first = (round_number * len(_LOADS) + number) * 1_000_000
                            found = _play_one(run, servers[name], load, first)
                            _note(run, name, load, found)
            _watches(run, servers, round_number)
        for name, contender in servers.items():
            size = Measure("memory after it all", "MiB", Better.LOWER)
            run.figures.add(size, name, memory(contender.api.pid).rss_bytes / MIB)
    run.note("TLS and a bearer token; CPU is that of the API server, the store is another process.")
    run.note("100 requests in flight on 10 connections; 16 on 4 for lists.")


def _starts(run: Run, servers: dict[str, Contender]) -> None:
    """The first start made what a cluster begins with; these find it there."""
    for round_number in run.rounds():
        for name in run.order(round_number):
            if name not in servers:
                continue
            api = servers[name].api
            with run.step(f"round {round_number + 1}, {name}: start"):
                api.stop()
                begin = time.perf_counter()
                api.start()
                seconds = time.perf_counter() - begin
            run.figures.add(Measure("start, until /readyz is ok", "s", Better.LOWER), name, seconds)
            size = Measure("memory when ready", "MiB", Better.LOWER)
            run.figures.add(size, name, memory(api.pid).rss_bytes / MIB)
            with run.step(f"round {round_number + 1}, {name}: idle"):
                meter, idle_s = Meter((api.pid,)), run.seconds(_IDLE_S)
                time.sleep(idle_s)
                share = Measure("idle, of a core", "%", Better.LOWER)
                run.figures.add(share, name, 100 * meter.used_s()[0] / idle_s)


def _prepare(contender: Contender, hooks: HookServer) -> None:
    for namespace in ("bench", "new", "watched", "hooked"):
        make_namespace(contender.api, namespace)
    send(contender.api, "POST", _DEFINITIONS, _DEFINITION)
    send(contender.api, "POST", _HOOKS, _webhook(hooks))
    body = contender.body("prepare", _MAP % ("{n}", _VALUE))
    for path, count in ((_MAPS, _OBJECTS), (_WATCHED, 1)):
        contender.load(
            "api", method="POST", path=path, body=body, objects=count, calls=count,
            connections=1, in_flight=1, seconds=600,
        )  # fmt: skip


def _webhook(hooks: HookServer) -> dict[str, Any]:
    """Return the configuration of a webhook that sees one namespace; it is a thread of ours."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    webhook = {
        "name": "allow.example.com",
        "clientConfig": {"url": f"{hooks.url}/allow", "caBundle": hooks.ca},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "hooked"}},
    }
    return {"metadata": {"name": "bench"}, "webhooks": [webhook]}


def _play_one(run: Run, contender: Contender, load: Load, first: int) -> kvload.Loaded:
    connections, in_flight = load.shape
    return contender.load(
        "api",
        method=load.method,
        path=load.path,
        body=contender.body("body", load.body),
        content_type=load.content_type,
        objects=_OBJECTS,
        first=first,
        bytes_min=load.bytes_min,
        connections=connections,
        in_flight=in_flight,
        seconds=run.seconds(_SECONDS),
    )


def _note(run: Run, name: str, load: Load, found: kvload.Loaded) -> None:
    of_rate, of_cpu = load.targets
    add, lower = run.figures.add, Better.LOWER
    add(Measure(load.name, "requests/s", Better.HIGHER, of_rate), name, found.rate)
    cpu = Measure(f"{load.name}: server CPU", "µs/request", lower, of_cpu)
    add(cpu, name, found.first_cpu_s / found.done * 1e6)
    store = Measure(f"{load.name}: the store's CPU", "µs/request", lower, is_detail=True)
    add(store, name, (found.server_cpu_s - found.first_cpu_s) / found.done * 1e6)
    add(Measure(f"{load.name}: p50", "ms", lower), name, found.p50_ms)
    add(Measure(f"{load.name}: p99", "ms", lower), name, found.p99_ms)
    share = Measure(f"{load.name}: kvload's share of a core", "", lower, is_detail=True)
    add(share, name, found.cpu_share)


def _watches(run: Run, servers: dict[str, Contender], round_number: int) -> None:
    watchers = run.size(_WATCHERS, 20, "watchers")
    what = f"{watchers:,} watches of one resource"
    for name in run.order(round_number):
        if name not in servers:
            continue
        contender = servers[name]
        listed = send(contender.api, "GET", f"{_WATCHED}?limit=1")
        revision = listed["metadata"]["resourceVersion"]
        with run.step(f"round {round_number + 1}, {name}: {what}"):
            found = contender.load(
                "watches",
                method="PATCH",
                path=f"{_WATCHED}/c-000000",
                body=contender.body("body", '{"data":{"i":"{i}"}}'),
                content_type=MERGE,
                first=round_number * 1_000_000,
                watch=f"{_WATCHED}?watch=1&resourceVersion={revision}",
                watchers=watchers,
                connections=10,
                window=1,
                seconds=run.seconds(_SECONDS),
            )
        add, lower = run.figures.add, Better.LOWER
        add(Measure(what, "events/s", Better.HIGHER), name, found.rate)
        add(
            Measure(f"{what}: server CPU", "µs/event", lower),
            name,
            found.first_cpu_s / found.done * 1e6,
        )
        add(Measure(f"{what}: p99", "ms", lower), name, found.p99_ms)


SCENARIO: Final = Scenario(
    "api-server",
    "Requests of the API server",
    "ConfigMaps of 256 B, TLS, a bearer token, RBAC; kvload",
    3,
    play,
    sizes=("watchers",),
    columns=COLUMNS,
)
