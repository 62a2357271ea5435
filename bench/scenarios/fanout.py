"""Watch events as fast as they come, what each costs, and how late they are at fixed rates.

    10 streams x 100 watchers of one key      a put is 1,000 events
    1,000 streams x 1 watcher of one key      a put is 1,000 events
    100 streams x 100 watchers of 10,000 keys a put is 1 event
    10 streams x 10 watchers of a range       a put is 100 events; its 1,000 keys are put in turn

At the maximum a put is made when the events of the put so many before it have come: what is
measured is delivered, not queued. "1 put ahead" is one put after the other. How many are ahead
matters: a watch stream of etcd's that falls behind waits for its next turn, 10 to 100 ms, and then
gets many events in one message. So the table has both ends, and not only the one that suits us.
"""

from typing import Any, Final, NamedTuple

from bench.loads import kvload
from bench.reporting.figures import Better, Measure
from bench.run import Run, Scenario
from bench.servers import pair
from tests.support.servers import Server

_CONNECTIONS: Final = 10
_SECONDS: Final = 1


class Shape(NamedTuple):
    """How the watches are spread, how many puts are under way, and at which fixed rate."""

    name: str
    streams: int
    watchers: int
    distinct: int  # 0: one key, 1: a key each, 2: one range
    window: int
    put_rate: int  # a second; 0: not measured at a fixed rate
    rate_target: float | None
    cpu_target: float | None


_SHAPES: Final = (
    Shape("10 streams x 100 watchers, one key, 256 puts ahead", 10, 100, 0, 256, 0, 1.5, 0.3),
    Shape("10 streams x 100 watchers, one key, 1 put ahead", 10, 100, 0, 1, 50, 1.5, 0.3),
    Shape("1,000 streams x 1 watcher, one key, 64 puts ahead", 1_000, 1, 0, 64, 50, None, None),
    Shape("10,000 watchers, a key each, 1,024 puts ahead", 100, 100, 1, 1_024, 2_000, None, None),
    Shape("a range watched by 100, 64 puts ahead", 10, 10, 2, 64, 500, None, None),
)


def play(run: Run) -> None:
    """Every shape, first as fast as it goes, then at its fixed rate."""
    if why := kvload.missing():
        run.skip(why)
        return
    shape = _SHAPES[0]
    with run.step("kvload's own limit"):
        limit = kvload.own_limit("watch", **options(shape, 0))
    run.note(
        f"kvload itself, {shape.name}: {limit.rate:,.0f} events/s from a server that does nothing"
        f" else, {limit.cpu_share:.0%} of a core its own. Its share near 1: the figure is its own."
    )
    with pair(run.directory) as servers:
        for round_number in run.rounds():
            for shape in _SHAPES:
                for name in run.order(round_number):
                    with run.step(f"round {round_number + 1}, {name}: {shape.name}"):
                        _measure(run, name, servers[name], shape)


def options(shape: Shape, rate: int, seconds: float = _SECONDS) -> dict[str, Any]:
    """Return what kvload is told; rate: puts a second, 0: as fast as it goes."""
    return {
        "streams": shape.streams,
        "watchers": shape.watchers,
        "distinct": shape.distinct,
        "window": shape.window,
        "connections": _CONNECTIONS,
        "rate": rate,
        "seconds": seconds,
    }


def _measure(run: Run, name: str, server: Server, shape: Shape) -> None:
    add, lower = run.figures.add, Better.LOWER
    fast = kvload.run(server, "watch", **options(shape, 0))
    rate = Measure(shape.name, "events/s", Better.HIGHER, shape.rate_target)
    add(rate, name, fast.rate)
    cpu = Measure(f"{shape.name}: server CPU", "µs/event", lower, shape.cpu_target)
    add(cpu, name, fast.server_cpu_s / fast.done * 1e6)
    add(Measure(f"{shape.name}: kvload's share of a core", "", lower), name, fast.cpu_share)
    if not shape.put_rate:
        return
    paced = kvload.run(server, "watch", **options(shape, shape.put_rate))
    at = f"{shape.name.rpartition(', ')[0]}, {shape.put_rate:,} puts/s: delivery"
    add(Measure(f"{at}, p50", "ms", lower), name, paced.p50_ms)
    add(Measure(f"{at}, p99", "ms", lower), name, paced.p99_ms)


SCENARIO: Final = Scenario(
    "fanout", "Watch events", "256 B values, 10 connections; kvload", 5, play
)
