"""Watch events from a follower: puts go to the leader, everybody watches at one other member."""

from typing import Any, Final

from bench.clusters import Cluster, clusters
from bench.loads import kvload
from bench.reporting.figures import Better, Measure
from bench.run import Run, Scenario
from bench.scenarios.fanout import Shape, options

_MEMBERS: Final = 3
_SECONDS: Final = 1
_SHAPES: Final = (
    Shape("10 streams x 100 watchers, one key, 256 puts ahead", 10, 100, 0, 256, 0, None, None),
    Shape("10 streams x 100 watchers, one key, 1 put ahead", 10, 100, 0, 1, 50, None, None),
    Shape("10,000 watchers, a key each, 1,024 puts ahead", 100, 100, 1, 1_024, 2_000, None, None),
)


def play(run: Run) -> None:
    """Every shape as fast as it goes; then at its fixed rate."""
    if why := kvload.missing():
        run.skip(why)
        return
    with clusters(run.directory, _MEMBERS) as found:
        for round_number in run.rounds():
            for shape in _SHAPES:
                for name in run.order(round_number):
                    with run.step(f"round {round_number + 1}, {name}: {shape.name}"):
                        _measure(run, found[name], shape)
    run.note("kvload's share near 1: the figure is its own limit, not the cluster's.")


def _measure(run: Run, cluster: Cluster, shape: Shape) -> None:
    add, lower, name = run.figures.add, Better.LOWER, cluster.who
    follower = cluster.followers()[0]
    to: dict[str, Any] = {"pids": cluster.pids(follower), "puts_to": cluster.leader().endpoint}
    what = f"at a follower: {shape.name}"
    seconds = run.seconds(_SECONDS)
    fast = kvload.run(follower, "watch", **to, **options(shape, 0, seconds))
    add(Measure(what, "events/s", Better.HIGHER, shape.rate_target), name, fast.rate)
    all_us, follower_us = (used / fast.done * 1e6 for used in (fast.server_cpu_s, fast.first_cpu_s))
    add(Measure(f"{what}: CPU of all members", "µs/event", lower), name, all_us)
    add(Measure(f"{what}: CPU of the follower", "µs/event", lower), name, follower_us)
    add(Measure(f"{what}: kvload's share of a core", "", lower), name, fast.cpu_share)
    if not shape.put_rate:
        return
    paced = kvload.run(follower, "watch", **to, **options(shape, shape.put_rate, seconds))
    at = f"{what.rpartition(', ')[0]}, {shape.put_rate:,} puts/s: delivery"
    add(Measure(f"{at}, p50", "ms", lower), name, paced.p50_ms)
    add(Measure(f"{at}, p99", "ms", lower), name, paced.p99_ms)


SCENARIO: Final = Scenario(
    "cluster-fanout",
    "Three members: watch events from a follower",
    "256 B values, 10 connections, puts to the leader; kvload",
    5,
    play,
)
