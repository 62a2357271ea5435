"""Defragmentation and snapshot of a database of half a gigabyte, while clients put."""

import time
from itertools import islice
from typing import Final

from bench.loads.client import Client
from bench.loads.load import fill, keys_of, load
from bench.loads.paced import RATE, Paced, during
from bench.reporting.figures import Better, Measure, percentile
from bench.restarts import MIB
from bench.run import Run, Scenario
from bench.servers import Pair, pair

_KEYS: Final = 400_000
_VALUE: Final = b"d" * 1024
_SHARE_FREED: Final = 5  # one in so many keys is written anew and compacted before each round
_QUIET_S: Final = 3
_FREED: Final = Measure("space given back by a defragmentation", "MiB", Better.HIGHER)
_SIZE: Final = Measure("database", "MiB", Better.LOWER)


def play(run: Run) -> None:
    """Fill both; then each round free some space, defragment and take a snapshot."""
    keys = run.size(_KEYS, 4_000)
    with pair(run.directory) as servers:
        for name, server in servers.items():
            load(run, name, server, keys_of(keys), keys, _VALUE)
        for round_number in run.rounds():
            for name in run.order(round_number):
                label = f"round {round_number + 1}, {name}"
                with run.step(f"{label}: make free space"):
                    _free_some(servers, name, keys)
                with run.step(f"{label}: defragment and snapshot under load"):
                    _measure(run, servers, name)
    run.note(f"Puts come at a fixed {RATE} a second; latency counts from when one is due.")
    run.note("etcd answers nothing while it defragments; its snapshots read beside the traffic.")


def _free_some(servers: Pair, name: str, keys: int) -> None:
    """Write a share of the keys anew and compact what they were."""
    endpoint = servers[name].endpoint
    fill(endpoint, islice(keys_of(keys), keys // _SHARE_FREED), _VALUE)
    with Client(endpoint) as client:
        client.compact(client.revision())


def _measure(run: Run, servers: Pair, name: str) -> None:
    endpoint = servers[name].endpoint
    with Client(endpoint) as client:
        _note(run, name, "no other work", during(endpoint, lambda: time.sleep(_QUIET_S)), None)
        before, _ = client.db_sizes()
        _note(run, name, "a defragmentation", during(endpoint, client.defragment), 1.0)
        after, _ = client.db_sizes()
        run.figures.add(_SIZE, name, before / MIB)
        run.figures.add(_FREED, name, (before - after) / MIB)
        _note(run, name, "a snapshot", during(endpoint, client.snapshot), 1.0)


def _note(run: Run, name: str, beside: str, seen: Paced, target: float | None) -> None:
    lower = Better.LOWER
    if target is not None:
        run.figures.add(Measure(f"{beside}: duration", "s", lower), name, seen.seconds)
        refused = Measure(f"put beside {beside}, refused", "puts", lower)
        run.figures.add(refused, name, seen.refused)
    p99 = Measure(f"put beside {beside}, p99", "ms", lower, target)
    run.figures.add(p99, name, percentile(seen.latencies_ms, 0.99))
    longest = Measure(f"put beside {beside}, longest", "ms", lower)
    run.figures.add(longest, name, max(seen.latencies_ms))


SCENARIO: Final = Scenario(
    "defrag",
    "Defragmentation and snapshot under load",
    "400,000 keys with 1 KiB values, a fifth of the file freed before each round",
    3,
    play,
)
