"""Calls as fast as they go, at several concurrencies; what the server pays for each.

h2load sends one body for the whole of a run, so its loads work on one key or one range. Loads whose
requests differ (sequential keys, swaps that expect the last revision, keep-alives) are kvload's.
Before an h2load counts, it is checked: puts must have moved the revision, ranges must have brought
all the bytes. kvload checks its answers itself.
"""

import asyncio
from typing import Any, Final, NamedTuple

from bench.loads import h2, kvload
from bench.loads.client import Client
from bench.loads.load import VALUE, call_all, fill
from bench.loads.unary import NO_TARGETS, Result, Shape, Targets, Unary, of_kvload, play_unary
from bench.reporting.figures import Better, Measure
from bench.run import Run, Scenario
from bench.servers import FLAGS, Pair, pair
from kvstore.transport import native
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.servers import Server, ours, running

_KEY: Final = b"rate-key"
_RANGE_KEY: Final = b"r-%06d"
_KEYS: Final = 1_000  # of these, which are a range of their own: etcd counts what a limit cuts off
_LEASES: Final = 1_000
_TTL_S: Final = 36_000
_SECONDS: Final = 1  # a round; h2load takes whole ones
_STREAMS: Final = 20
_WINDOW: Final = 20
_GRPCIO_LOADS: Final = ("put", "range of a key")


class Varied(NamedTuple):
    """Requests that differ, by kvload."""

    name: str
    kind: str
    shapes: dict[Shape, Targets]


def _loads() -> list[Unary | Varied]:
    put = pb.PutRequest(key=_KEY, value=VALUE).SerializeToString()
    one = pb.RangeRequest(key=_KEY).SerializeToString()
    local = pb.RangeRequest(key=_KEY, serializable=True).SerializeToString()
    every: dict[str, Any] = {"key": _RANGE_KEY % 0, "range_end": _RANGE_KEY % _KEYS}
    many = pb.RangeRequest(**every).SerializeToString()
    many_local = pb.RangeRequest(**every, serializable=True).SerializeToString()
    many_bytes = _KEYS * len(VALUE)
    of_put: dict[Shape, Targets] = {
        (1, 1): (1.2, None),
        (10, 1): (1.8, 0.5),
        (100, 1): NO_TARGETS,
        (100, 10): (2.5, 0.35),
    }
    of_range: dict[Shape, Targets] = {
        (1, 1): NO_TARGETS,
        (10, 1): NO_TARGETS,
        (100, 10): (1.4, 0.7),
    }
    of_many: dict[Shape, Targets] = {(1, 1): NO_TARGETS, (10, 1): (1.5, 0.7)}
    of_swap: dict[Shape, Targets] = {(100, 10): (2.0, 0.5)}
    return [
        Unary("put", "Put", put, True, 0, of_put),
        Varied("put, sequential keys", "put", {(100, 10): (2.5, 0.35)}),
        Varied("txn, compare and swap", "cas", of_swap),
        Varied("txn, compare and swap, contended", "contended", of_swap),
        Varied("txn, mixed puts and reads", "mixed", {(100, 10): NO_TARGETS}),
        Unary("range of a key", "Range", one, False, len(VALUE), of_range),
        Unary(
            "range of a key, serializable",
            "Range",
            local,
            False,
            len(VALUE),
            {(100, 10): NO_TARGETS},
        ),
        Unary("range of 1,000 keys", "Range", many, False, many_bytes, of_many),
        Unary(
            "range of 1,000 keys, serializable",
            "Range",
            many_local,
            False,
            many_bytes,
            {(10, 1): NO_TARGETS},
        ),
    ]


def play(run: Run) -> None:
    """Every load at every concurrency, on each server in turn, round by round."""
    if why := h2.missing() or kvload.missing():
        run.skip(why)
        return
    cells = [(load, shape) for load in _loads() for shape in load.shapes]
    with pair(run.directory) as servers:
        for server in servers.values():
            _prepare(server)
        for round_number in run.rounds():
            for load, shape in cells:
                what = f"{load.name}, {shape[0]}x{shape[1]}"
                for name in run.order(round_number):
                    with run.step(f"round {round_number + 1}, {name}: {what}"):
                        result = _play_one(run, servers[name], load, shape)
                        _note(run, name, what, result, load.shapes[shape])
            _keep_alive(run, servers, round_number)
    _note_transports(run)
    run.note("C x N: connections x requests in flight on each. h2load's puts are of one key.")
    run.note(f"Contended: {100 * 10} in flight on one key, of which one wins; the others read.")


def _note_transports(run: Run) -> None:
    """Say what served, and what those get for whom the native transport is not built."""
    run.note(f"kvstore served through {'native' if native.is_available() else 'grpcio'}.")
    server = ours(run.directory / "grpcio", extra=FLAGS, env={"KVSTORE_TRANSPORT": "grpcio"})
    found = []
    with running(server):
        _prepare(server)
        for load in _loads():
            if isinstance(load, Unary) and load.name in _GRPCIO_LOADS:
                with run.step(f"grpcio transport: {load.name}"):
                    result = play_unary(server, load, (100, 10), _SECONDS, run.directory)
                    found.append(f"{load.name} {result.rate:,.0f}")
    run.note(f"Without Rust, through grpcio, calls/s at 100x10: {', '.join(found)}.")


def _prepare(server: Server) -> None:
    fill(server.endpoint, (_RANGE_KEY % number for number in range(_KEYS)), VALUE)
    with Client(server.endpoint) as client:
        client.put(_KEY, VALUE)
    grants = (pb.LeaseGrantRequest(ID=number, TTL=_TTL_S) for number in range(1, _LEASES + 1))
    asyncio.run(call_all(server.endpoint, "Lease", "LeaseGrant", grants, 64))


def _play_one(run: Run, server: Server, load: Unary | Varied, shape: Shape) -> Result:
    if isinstance(load, Unary):
        return play_unary(server, load, shape, _SECONDS, run.directory)
    connections, in_flight = shape
    found = kvload.run(
        server,
        "unary",
        kind=load.kind,
        connections=connections,
        in_flight=in_flight,
        rate=0,
        seconds=_SECONDS,
    )
    return of_kvload(found)


def _note(run: Run, name: str, what: str, result: Result, targets: Targets) -> None:
    of_rate, of_cpu = targets
    add, lower = run.figures.add, Better.LOWER
    add(Measure(what, "calls/s", Better.HIGHER, of_rate), name, result.rate)
    cpu = Measure(f"{what}: server CPU", "µs/call", lower, of_cpu)
    add(cpu, name, result.server_cpu_s / result.calls * 1e6)
    add(Measure(f"{what}: p50", "ms", lower, is_detail=True), name, result.p50_ms)
    add(Measure(f"{what}: p99", "ms", lower), name, result.p99_ms)


def _keep_alive(run: Run, servers: Pair, round_number: int) -> None:
    what = f"lease keep-alive, {_STREAMS} streams x {_WINDOW}"
    for name in run.order(round_number):
        with run.step(f"round {round_number + 1}, {name}: {what}"):
            found = kvload.run(
                servers[name],
                "keepalive",
                streams=_STREAMS,
                window=_WINDOW,
                leases=_LEASES,
                connections=10,
                seconds=_SECONDS,
            )
        _note(run, name, what, of_kvload(found), (1.5, None))


SCENARIO: Final = Scenario(
    "rates", "Calls as fast as they go", "8 B key, 256 B value; h2load and kvload", 5, play
)
