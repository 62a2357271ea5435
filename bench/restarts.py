"""Restarts and memory: what the scenarios with much data have in common."""

import time
from collections.abc import Callable

from bench.loads.client import Client
from bench.procfs import memory
from bench.reporting.figures import Better, Measure
from bench.run import Run
from bench.servers import Pair, start_to_first_read_s
from tests.support.servers import Server

MIB = 1 << 20

RESTART = Measure("restart after SIGTERM, to the first read", "s", Better.LOWER, 1.0)
RESTART_KILLED = Measure("restart after SIGKILL, to the first read", "s", Better.LOWER, 1.0)
STOP = Measure("clean stop", "s", Better.LOWER)
MEMORY_KINDS = ("rss", "anonymous", "file")


def memory_measure(when: str, kind: str, target: float | None) -> Measure:
    """Return the measure of a kind of memory; only the whole of it has a target."""
    return Measure(f"memory {when}, {kind}", "MiB", Better.LOWER, target if kind == "rss" else None)


def note_memory(run: Run, name: str, server: Server, when: str, target: float | None = 1.0) -> None:
    """Add the resident memory of a server, whole and by kind."""
    for kind, value in zip(MEMORY_KINDS, memory(server.pid), strict=True):
        run.figures.add(memory_measure(when, kind, target), name, value / MIB)


def warm_files(server: Server) -> None:
    """Read the data directory once, so that every start finds it in the page cache."""
    for path in server.data_dir.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(8 * MIB):
                    pass


def measure_restarts(run: Run, servers: Pair, *, read: bool = True) -> None:
    """Restart each server each round, first after SIGTERM, then after SIGKILL."""
    for round_number in run.rounds():
        for name in run.order(round_number):
            server = servers[name]
            label = f"round {round_number + 1}, {name}"
            with run.step(f"{label}: restart after SIGTERM"):
                run.figures.add(STOP, name, seconds_of(server.stop))
                warm_files(server)
                run.figures.add(RESTART, name, start_to_first_read_s(server))
            if read:
                with run.step(f"{label}: count, then read all"):
                    _read(run, name, server)
            with run.step(f"{label}: restart after SIGKILL"):
                server.kill()
                warm_files(server)
                run.figures.add(RESTART_KILLED, name, start_to_first_read_s(server))


def _read(run: Run, name: str, server: Server) -> None:
    with Client(server.endpoint) as client:
        client.count()
        note_memory(run, name, server, "after a restart and a count")
        client.read_all()
        note_memory(run, name, server, "after reading everything")


def seconds_of(action: Callable[[], object]) -> float:
    """Do something; return how long it took."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin
