"""The ten rows that matter, in three minutes: `make bench ARGS="quick --program etcd=FILE"`.

It takes the best load generator that is there: h2load or kvload, and where neither can be had,
Python (`bench.loads.portable`), whose own limit the rates then are. The rows say so.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.clusters import clusters
from bench.loads import h2, kvload, portable
from bench.loads.client import Client
from bench.loads.load import VALUE, call_all, fill
from bench.loads.unary import Result, Shape, Unary, of_kvload, play_unary
from bench.reporting.figures import Better, Measure
from bench.run import Run, Scenario
from bench.servers import Pair, pair
from kvstore.transport import native
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.servers import Server

_MEMBERS: Final = 3
_LEASES: Final = 1_000
_TTL_S: Final = 36_000
_SECONDS: Final = 1  # a load; h2load takes whole ones
_H2LOAD, _KVLOAD, _PYTHON = "h2load", "kvload", "Python"


@dataclass(frozen=True, slots=True)
class _Generators:
    """Which load generators there are, and what lacks for the others."""

    h2load: str | None  # None: it is there
    kvload: str | None

    def best(self, load: "_Load") -> str:
        """Return which one makes a load."""
        if load.body is not None and self.h2load is None:
            return _H2LOAD
        return _KVLOAD if load.is_of_kvload and self.kvload is None else _PYTHON


@dataclass(frozen=True, slots=True)
class _Load:
    """One row: its name, and how each generator is asked for it."""

    name: str
    unit: str
    command: str
    options: dict[str, Any]
    small: dict[str, int]  # options of a smoke test
    body: Unary | None = None  # for h2load
    is_of_kvload: bool = True


def _unary(name: str, kind: str, shape: Shape, body: Unary | None = None) -> _Load:
    connections, in_flight = shape
    return _Load(
        f"{name}, {connections}x{in_flight}",
        "call",
        "unary",
        {"kind": kind, "connections": connections, "in_flight": in_flight, "rate": 0},
        {"connections": min(connections, 4), "in_flight": min(in_flight, 2)},
        body,
        is_of_kvload=kind != "many",
    )


def _body(method: str, message: Any, bytes_min: int) -> Unary:  # noqa: ANN401
    is_write = method == "Put"
    return Unary(method, method, message.SerializeToString(), is_write, bytes_min, {})


def _watch(window: int, ahead: str) -> _Load:
    options = {"streams": 10, "watchers": 100, "distinct": 0, "connections": 10, "rate": 0}
    return _Load(
        f"watch, 1,000 watchers of a key, {ahead} ahead",
        "event",
        "watch",
        {**options, "window": window},
        {"streams": 2, "watchers": 5, "connections": 2, "window": min(window, 4)},
    )


def _loads() -> list[_Load]:
    put = _body("Put", pb.PutRequest(key=portable.KEY, value=VALUE), 0)
    one = _body("Range", pb.RangeRequest(key=portable.KEY), len(VALUE))
    ends = (portable.many_key(0), portable.many_key(portable.MANY))
    every = pb.RangeRequest(key=ends[0], range_end=ends[1])
    many = _body("Range", every, portable.MANY * len(VALUE))
    keep_alive = {"streams": 20, "window": 20, "leases": _LEASES, "connections": 10}
    return [
        _unary("put", "put", (1, 1), put),
        _unary("put", "put", (10, 1), put),
        _unary("put", "put", (100, 10), put),
        _unary("txn, compare and swap", "cas", (100, 10)),
        _unary("range of a key", "range", (100, 10), one),
        _unary("range of 1,000 keys", "many", (10, 1), many),
        _watch(256, "256 puts"),
        _watch(1, "1 put"),
        _Load(
            "lease keep-alive, 20 streams x 20",
            "call",
            "keepalive",
            keep_alive,
            {"streams": 2, "window": 4, "connections": 2},
        ),
    ]


def _cluster_load() -> _Load:
    put = _body("Put", pb.PutRequest(key=portable.KEY, value=VALUE), 0)
    return _unary(f"{_MEMBERS} members: put", "put", (100, 10), put)


def play(run: Run) -> None:
    """A server each, then three members each."""
    with run.step("build kvload: a minute, the first time"):
        there = _Generators(h2.missing(), kvload.missing())
    with pair(run.directory) as servers:
        for server in servers.values():
            _prepare(server)
        _play(run, servers, {name: (each.pid,) for name, each in servers.items()}, _loads(), there)
    with clusters(run.directory / "clusters", _MEMBERS) as found:
        leaders: Pair = {name: cluster.leader() for name, cluster in found.items()}
        pids = {name: cluster.pids() for name, cluster in found.items()}
        _play(run, leaders, pids, [_cluster_load()], there)
    run.note(
        "C x N: connections x requests in flight on each. CPU is the servers', of all members."
    )
    run.note(f"kvstore served through {'native' if native.is_available() else 'grpcio'}.")
    if not native.is_available():
        run.note(
            "The native transport is not built: install a Rust toolchain (cargo) and `make run`."
        )
    for what in filter(None, (there.h2load, there.kvload)):
        run.note(f"Missing: {what}.")


def _play(
    run: Run,
    servers: Pair,
    pids: Mapping[str, Sequence[int]],
    loads: list[_Load],
    there: _Generators,
) -> None:
    for round_number in run.rounds():
        for load in loads:
            for name in run.order(round_number):
                with run.step(f"round {round_number + 1}, {name}: {load.name}"):
                    generator = there.best(load)
                    result = _measure(run, servers[name], pids[name], load, generator)
                    _note(run, name, load, generator, result)


def _prepare(server: Server) -> None:
    fill(server.endpoint, map(portable.many_key, range(portable.MANY)), VALUE)
    with Client(server.endpoint) as client:
        client.put(portable.KEY, VALUE)
        client.put(bytes(8), VALUE)  # kvload's only key, with --keys 1
    grants = (pb.LeaseGrantRequest(ID=number, TTL=_TTL_S) for number in range(1, _LEASES + 1))
    asyncio.run(call_all(server.endpoint, "Lease", "LeaseGrant", grants, 64))


def _measure(run: Run, server: Server, pids: Sequence[int], load: _Load, generator: str) -> Result:
    options = {**load.options, **(load.small if run.is_quick else {})}
    if generator == _H2LOAD and load.body is not None:
        shape = options["connections"], options["in_flight"]
        return play_unary(server, load.body, shape, _SECONDS, run.directory, pids)
    more: dict[str, Any] = {"pids": pids, "seconds": run.seconds(_SECONDS)}
    if generator == _PYTHON:
        more["program"] = kvload.PORTABLE
    elif load.command == "unary":
        more["keys"] = 1
    return of_kvload(kvload.run(server, load.command, **more, **options))


def _note(run: Run, name: str, load: _Load, generator: str, result: Result) -> None:
    what = load.name if generator != _PYTHON else f"{load.name} (load from Python)"
    add, lower = run.figures.add, Better.LOWER
    add(Measure(what, f"{load.unit}s/s", Better.HIGHER), name, result.rate)
    cpu = Measure(f"{what}: server CPU", f"µs/{load.unit}", lower)
    add(cpu, name, result.server_cpu_s / result.calls * 1e6)
    if generator == _PYTHON:
        run.note(
            "Load from Python makes some thousand calls a second and is the limit of these rates:"
            " compare the CPU, and the rates at 1x1 alone."
        )


SCENARIO: Final = Scenario(
    "quick",
    "The rows that matter",
    "256 B values; h2load and kvload",
    5,
    play,
    is_apart=True,
)
