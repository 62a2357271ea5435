"""An embedded member: how soon it serves, and what a thread that computes beside it costs.

Each measurement is a process of its own. The busy thread and the member share the interpreter's
lock, so what a call waits depends on the switch interval: the default of 5 ms, and a shorter one.
"""

from typing import Final

from bench.loads import embedded_load
from bench.reporting.figures import OURS, PEER, Better, Measure
from bench.run import Run, Scenario

_START_S: Final = 0.2
_SECONDS: Final = 2.0
_INTERVALS_S: Final = (0.005, 0.0005, 0.0001)
_IS_BUSY: Final = {OURS: False, PEER: True}


def play(run: Run) -> None:
    """Members in memory and on disk, with and without a busy thread, at each interval."""
    for round_number in run.rounds():
        for storage in ("in memory", "on disk"):
            for interval_s in _INTERVALS_S:
                for who in run.order(round_number):
                    what = f"{storage}, switch interval {interval_s * 1e3:g} ms"
                    with run.step(f"round {round_number + 1}, {who}: {what}"):
                        directory = run.directory / f"{round_number}-{interval_s}-{who}"
                        found = embedded_load.run(
                            directory if storage == "on disk" else None,
                            interval_s=interval_s,
                            seconds=run.seconds(_SECONDS),
                            is_busy=_IS_BUSY[who],
                        )
                    _note(run, who, storage, what, found)
    run.note("Start: from the call until it serves, as the second member of its process.")
    run.note("Latencies are of one client that calls one after the other; values are of 256 bytes.")


def _note(run: Run, who: str, storage: str, what: str, found: embedded_load.MemberFigures) -> None:
    add, lower = run.figures.add, Better.LOWER
    if who == OURS:  # nothing is busy before it serves
        add(Measure(f"start, {storage}", "s", lower, limit=_START_S), who, found.start_s)
    add(Measure(f"{what}: calls", "calls/s", Better.HIGHER), who, found.rate)
    add(Measure(f"get, {what}: p50", "ms", lower), who, found.get_p50_ms)
    add(Measure(f"get, {what}: p99", "ms", lower), who, found.get_p99_ms)
    add(Measure(f"put, {what}: p50", "ms", lower), who, found.put_p50_ms)
    add(Measure(f"put, {what}: p99", "ms", lower), who, found.put_p99_ms)


SCENARIO: Final = Scenario(
    "embedded",
    "A member inside another program",
    "`kvstore.embed`, beside a thread that computes without pause and alone",
    rounds=5,
    play=play,
    columns=("alone", "beside a busy thread"),
)
