"""One million revisions of one thousand keys: restart, reads of the past, compaction under load."""

import random
import time
from collections.abc import Iterator
from typing import Final

from bench.loads.client import Client
from bench.loads.load import PUTS_PER_TXN, VALUE, keys_of, load
from bench.loads.paced import RATE, during
from bench.reporting.figures import Better, Measure, percentile
from bench.restarts import measure_restarts, note_memory, seconds_of
from bench.run import Run, Scenario
from bench.servers import Pair, pair

_KEYS: Final = 1_000
_REVISIONS: Final = 1_000_000
_READS: Final = 300
_OLD_READ: Final = Measure("read of one key at an old revision, p50", "ms", Better.LOWER)
_OLD_RANGE: Final = Measure("range of all keys at an old revision", "ms", Better.LOWER)
_COMPACTION: Final = Measure("compaction of a part of the history", "s", Better.LOWER)
_PUT_P99: Final = Measure("put during the compaction, p99", "ms", Better.LOWER, 1.0)
_PUT_MAX: Final = Measure("put during the compaction, longest", "ms", Better.LOWER)
_REFUSED: Final = Measure("put during the compaction, refused", "puts", Better.LOWER)
_QUIET_P99: Final = Measure("put beside no other work, p99", "ms", Better.LOWER)


def play(run: Run) -> None:
    """Load both, restart them, read the past, then take it away piece by piece."""
    revisions = run.size(_REVISIONS, 10_000)
    with pair(run.directory) as servers:
        for name, server in servers.items():
            load(run, name, server, _cycle(revisions), revisions, VALUE)
            note_memory(run, name, server, "after loading")
        measure_restarts(run, servers, read=False)
        for round_number in run.rounds():
            for name in run.order(round_number):
                with run.step(f"round {round_number + 1}, {name}: read the past"):
                    _read_past(run, name, servers)
        for round_number in run.rounds():
            for name in run.order(round_number):
                with run.step(f"round {round_number + 1}, {name}: compact"):
                    _compact(run, name, servers, revisions, round_number)
    run.note(f"Puts come at a fixed {RATE} a second; latency counts from when one is due.")


def _cycle(revisions: int) -> Iterator[bytes]:
    for _ in range(revisions // _KEYS):
        yield from keys_of(_KEYS)


def _read_past(run: Run, name: str, servers: Pair) -> None:
    rng = random.Random(7)
    keys = list(keys_of(_KEYS))
    with Client(servers[name].endpoint) as client:
        now = client.revision()
        times = [
            seconds_of(lambda: client.get(rng.choice(keys), revision=rng.randrange(20, now)))
            for _ in range(run.size(_READS, 20))
        ]
        run.figures.add(_OLD_READ, name, percentile(times, 0.5) * 1000)
        middle = now // 2
        times = [seconds_of(lambda: client.range_all(revision=middle)) for _ in range(5)]
        run.figures.add(_OLD_RANGE, name, percentile(times, 0.5) * 1000)


def _compact(run: Run, name: str, servers: Pair, revisions: int, round_number: int) -> None:
    """Compact the next piece of the history; a transaction is one main revision."""
    server = servers[name]
    step = revisions // PUTS_PER_TXN // (run.round_count + 1)
    with Client(server.endpoint) as client:
        quiet = during(server.endpoint, lambda: _wait(run))
        seen = during(server.endpoint, lambda: client.compact(1 + step * (round_number + 1)))
    run.figures.add(_QUIET_P99, name, percentile(quiet.latencies_ms, 0.99))
    run.figures.add(_COMPACTION, name, seen.seconds)
    run.figures.add(_PUT_P99, name, percentile(seen.latencies_ms, 0.99))
    run.figures.add(_REFUSED, name, seen.refused)
    run.figures.add(_PUT_MAX, name, max(seen.latencies_ms))


def _wait(run: Run) -> None:
    time.sleep(run.size(3, 1))


SCENARIO: Final = Scenario(
    "history",
    "A long history",
    "1 M changes of 1,000 keys, 256 B values",
    3,
    play,
)
