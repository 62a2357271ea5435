"""Three members each: calls as fast as they go, and what all members pay for one.

Writes and linearizable reads go to the leader, of both contenders alike; serializable reads go to a
follower, who answers them alone. CPU is that of all members, and of it that of the member asked.
"""

from typing import Final

from bench.clusters import Cluster, Member, clusters
from bench.loads import h2
from bench.loads.client import Client
from bench.loads.load import VALUE
from bench.loads.unary import NO_TARGETS, Result, Shape, Targets, Unary, play_unary
from bench.reporting.figures import Better, Measure
from bench.restarts import MIB
from bench.run import Run, Scenario
from kvstore.wire.gen import rpc_pb2 as pb

_MEMBERS: Final = 3
_KEY: Final = b"rate-key"
_SECONDS: Final = 2  # a load; h2load takes whole ones
_FOLLOWER: Final = "range of a key, serializable, at a follower"


def _loads() -> list[Unary]:
    put = pb.PutRequest(key=_KEY, value=VALUE).SerializeToString()
    one = pb.RangeRequest(key=_KEY).SerializeToString()
    local = pb.RangeRequest(key=_KEY, serializable=True).SerializeToString()
    of_put: dict[Shape, Targets] = {
        (1, 1): (1.0, None),
        (10, 1): (1.5, None),
        (100, 10): (2.0, None),
    }
    return [
        Unary("put", "Put", put, True, 0, of_put),
        Unary("range of a key", "Range", one, False, len(VALUE), {(100, 10): (1.2, None)}),
        Unary(_FOLLOWER, "Range", local, False, len(VALUE), {(100, 10): NO_TARGETS}),
    ]


def play(run: Run) -> None:
    """Every load on each cluster in turn, round by round."""
    if why := h2.missing():
        run.skip(why)
        return
    cells = [(load, shape) for load in _loads() for shape in load.shapes]
    if run.is_quick:
        cells = cells[-3:]  # one of each load
    with clusters(run.directory, _MEMBERS) as found:
        for cluster in found.values():
            with Client(cluster.leader().endpoint) as client:
                client.put(_KEY, VALUE)
            cluster.wait_equal()
        for round_number in run.rounds():
            for load, shape in cells:
                for name in run.order(round_number):
                    _measure(run, f"round {round_number + 1}", found[name], load, shape)
        for name, cluster in found.items():
            total = Measure(f"memory of {_MEMBERS} members after it all, rss", "MiB", Better.LOWER)
            run.figures.add(total, name, cluster.rss_bytes() / MIB)
    run.note("C x N: connections x requests in flight on each, all of them to the leader.")
    run.note("All members, and the load generator, share the cores of one machine.")


def _measure(run: Run, label: str, cluster: Cluster, load: Unary, shape: Shape) -> None:
    what = f"{_MEMBERS} members: {load.name}, {shape[0]}x{shape[1]}"
    with run.step(f"{label}, {cluster.who}: {what}"):
        leader = cluster.leader()
        at = cluster.followers()[0] if load.name == _FOLLOWER else leader
        seconds, pids = run.size(_SECONDS, 1), cluster.pids(at)
        result = play_unary(at, load, shape, seconds, run.directory, pids)
        _note(run, cluster.who, what, result, load.shapes[shape])
        _check(run, cluster, leader)


def _note(run: Run, name: str, what: str, result: Result, targets: Targets) -> None:
    add, lower = run.figures.add, Better.LOWER
    add(Measure(what, "calls/s", Better.HIGHER, targets[0]), name, result.rate)
    unit = "µs/call"
    all_s, asked_s = result.server_cpu_s, result.first_cpu_s
    add(Measure(f"{what}: CPU of all members", unit, lower), name, all_s / result.calls * 1e6)
    add(
        Measure(f"{what}: CPU of the member asked", unit, lower), name, asked_s / result.calls * 1e6
    )
    add(Measure(f"{what}: p50", "ms", lower, is_detail=True), name, result.p50_ms)
    add(Measure(f"{what}: p99", "ms", lower), name, result.p99_ms)


def _check(run: Run, cluster: Cluster, leader: Member) -> None:
    """Say so if the leadership went while something was measured."""
    if cluster.leader() is not leader:
        run.note(f"{cluster.who} changed its leader under a load.")


SCENARIO: Final = Scenario(
    "cluster-rates",
    "Three members: calls as fast as they go",
    "8 B key, 256 B value; h2load to the leader",
    5,
    play,
)
