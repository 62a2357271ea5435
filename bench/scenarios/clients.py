"""What a call costs its caller: the project's client beside grpc.aio, against the same server.

Each load runs in a process of its own (`bench.loads.store_load`), on one asyncio loop; the two take
turns round by round. CPU is that of the client. The rate is also bounded by the server, which
shares the machine with it, and for changes by its disk: it has a target for reads alone.
"""

from typing import Final

from bench.loads import store_load
from bench.loads.unary import NO_TARGETS, Targets
from bench.reporting.figures import OURS, PEER, Better, Measure
from bench.run import Run, Scenario
from bench.servers import FLAGS
from kvstack.component import crate
from tests.support.servers import ours, running

_CLIENT_OF: Final = {OURS: "native", PEER: "grpc.aio"}
_SECONDS: Final = 2.0
_RATE_TARGET: Final = 4.0
_CPU_TARGET: Final = 0.2
# (kind, in flight, targets of the ratios of rate and of CPU per call)
_LOADS: Final = (
    ("get", 200, (_RATE_TARGET, _CPU_TARGET)),
    ("put", 200, (None, _CPU_TARGET)),
    ("create", 200, (None, _CPU_TARGET)),
    ("get", 10, NO_TARGETS),
    ("get", 1, NO_TARGETS),
    ("watch", 1, NO_TARGETS),
)
_NAMES: Final = {
    "get": "get",
    "put": "put",
    "create": "txn, put if absent",
    "watch": "watch, events",
}


def play(run: Run) -> None:
    """Every load by both clients, round by round, on one server."""
    if not crate.is_available():
        run.skip(f"the crate was not built: {crate.MISSING}")
        return
    with running(ours(run.directory / "server", extra=FLAGS)) as server:
        for round_number in run.rounds():
            for kind, in_flight, targets in _LOADS:
                for who in run.order(round_number):
                    client = _CLIENT_OF[who]
                    label = f"round {round_number + 1}, {client}: {_NAMES[kind]}, {in_flight}"
                    with run.step(label):
                        seconds = run.seconds(_SECONDS)
                        found = store_load.run(server, client, kind, in_flight, seconds)
                    _note(run, who, kind, in_flight, found, targets)
    run.note("Values are of 256 bytes; the server syncs every change before it answers.")


def _note(
    run: Run,
    who: str,
    kind: str,
    in_flight: int,
    found: store_load.Loaded,
    targets: Targets,
) -> None:
    name = _NAMES[kind] if kind == "watch" else f"{_NAMES[kind]}, {in_flight} in flight"
    unit = "events/s" if kind == "watch" else "calls/s"
    each = "event" if kind == "watch" else "call"
    run.figures.add(Measure(name, unit, Better.HIGHER, targets[0]), who, found.rate)
    cpu = Measure(f"{name}: client's CPU", f"µs/{each}", Better.LOWER, targets[1])
    run.figures.add(cpu, who, found.cpu_us)


SCENARIO: Final = Scenario(
    "clients",
    "The client beside grpc.aio",
    "Calls of one asyncio loop to one member of kvstore, by `kvstore.client` and by grpc.aio",
    rounds=5,
    play=play,
    columns=("kvstore.client", "grpc.aio"),
)
