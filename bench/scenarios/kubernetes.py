"""What Kubernetes asks of its store: guarded transactions, reads, pages, and a watch a kind.

bench/native/src/kubernetes.rs says what the calls are, and checks every answer.
"""

from typing import Final

from bench.loads import kvload
from bench.loads.client import Client
from bench.reporting.figures import Better, Measure
from bench.restarts import MIB, note_memory
from bench.run import Run, Scenario
from bench.servers import pair
from tests.support.servers import Server

_OBJECTS: Final = 100_000
_SECONDS: Final = 5
_WARM_UP_S: Final = 1
_PARTS: Final = {
    "writes": "create, update or delete",
    "reads": "read of an object",
    "pages": "page of 500 objects",
    "delivery": "call to event, at its watch",
}


def play(run: Run) -> None:
    """Create the objects, then load each server in turn."""
    if why := kvload.missing():
        run.skip(why)
        return
    objects = run.size(_OBJECTS, 1_000, "objects")
    with pair(run.directory) as servers:
        for name, server in servers.items():
            with run.step(f"{name}: create {objects} objects"):
                _load(server, objects, run.seconds(_WARM_UP_S))
        for round_number in run.rounds():
            for name in run.order(round_number):
                with run.step(f"round {round_number + 1}, {name}"):
                    _note(run, name, _load(servers[name], objects, run.seconds(_SECONDS)))
        for name, server in servers.items():
            note_memory(run, name, server, "after it all", None)
            with Client(server.endpoint) as client:
                size = Measure("database after it all", "MiB", Better.LOWER)
                run.figures.add(size, name, client.db_sizes()[0] / MIB)
    run.note(
        "Of 100 calls 60 write (8 delete, 8 create), 39 read an object, 1 a page; 10x10 in flight."
    )
    run.note("Every transaction is guarded by mod_revision; ten watches with prev_kv hear of all.")
    run.note("Nothing is compacted meanwhile: the server that writes more holds more history.")


def _load(server: Server, objects: int, seconds: float) -> kvload.Loaded:
    """Create what objects are absent, then load for so long."""
    return kvload.run(
        server, "kubernetes", objects=objects, connections=10, in_flight=10, seconds=seconds
    )


def _note(run: Run, name: str, found: kvload.Loaded) -> None:
    add, lower = run.figures.add, Better.LOWER
    add(Measure("all calls", "calls/s", Better.HIGHER), name, found.rate)
    cpu_us = found.server_cpu_s / found.done * 1e6
    add(Measure("all calls: server CPU", "µs/call", lower), name, cpu_us)
    for part, what in _PARTS.items():
        add(Measure(f"{what}, p50", "ms", lower), name, found.parts[part]["p50_ms"])
        add(Measure(f"{what}, p99", "ms", lower), name, found.parts[part]["p99_ms"])
    share = Measure("kvload's share of a core", "", lower, is_detail=True)
    add(share, name, found.cpu_share)


SCENARIO: Final = Scenario(
    "kubernetes",
    "Load as Kubernetes makes it",
    "one member, 100,000 objects of 1 to 4 KB of 10 kinds; kvload",
    5,
    play,
    sizes=("objects",),
)
