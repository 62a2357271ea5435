"""How long a put takes at a fixed rate: at half of etcd's maximum, and beside heavy work.

Both servers get the same puts at the same moments, and a put's time counts from when it was due
(kvload; see `bench.loads.paced` for why). The work beside them begins half a second after the puts.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from bench.loads import h2, kvload
from bench.loads.client import Client
from bench.loads.load import VALUE, fill, keys_of
from bench.reporting.figures import PEER, Better, Measure
from bench.run import Run, Scenario
from bench.servers import pair
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.servers import Server

_KEYS: Final = 100_000
_RANGE_KEYS: Final = 18_000  # of 256 B and what etcd adds: 5 MB
_RANGE_BYTES_MIN: Final = 5_000_000
_READERS: Final = 10
_CHURN_KEYS: Final = 50_000  # put anew before each compaction
_SECONDS: Final = 2
_RATE: Final = 1_000  # puts a second beside other work
_HEAD_START_S: Final = 0.5


def play(run: Run) -> None:
    """Find etcd's maximum, then measure each server at half of it and beside other work."""
    if why := h2.missing() or kvload.missing():
        run.skip(why)
        return
    with pair(run.directory) as servers:
        for name, server in servers.items():
            with run.step(f"{name}: put {_KEYS} keys", _KEYS) as tell:
                fill(server.endpoint, keys_of(_KEYS), VALUE, tell)
        with run.step("etcd's maximum"):
            half = round(_maximum(servers[PEER]) / 2, -2)
        for round_number in run.rounds():
            for name in run.order(round_number):
                label = f"round {round_number + 1}, {name}"
                with run.step(f"{label}: {half:,.0f} puts/s"):
                    _note(run, name, "at half of etcd's maximum", _paced(servers[name], half, 100))
                _beside(run, label, name, servers[name])
    run.note(f"Half of etcd's maximum (puts, 100x10) was {half:,.0f} puts/s here.")
    run.note(f"Beside other work puts come at {_RATE:,} a second for {_SECONDS} s.")


def _maximum(etcd: Server) -> float:
    return kvload.run(
        etcd, "unary", kind="put", connections=100, in_flight=10, rate=0, seconds=2
    ).rate


def _beside(run: Run, label: str, name: str, server: Server) -> None:
    with Client(server.endpoint) as client:
        with run.step(f"{label}: puts beside reads of 5 MB"):
            _note(run, name, "while 10 clients read 5 MB ranges", _while_reading(run, name, server))
        with run.step(f"{label}: make history"):
            fill(server.endpoint, islice(keys_of(_CHURN_KEYS), run.size(_CHURN_KEYS, 5_000)), VALUE)
            revision = client.revision()
        with run.step(f"{label}: puts beside a compaction"):
            found = _paced(server, _RATE, 10, lambda: client.compact(revision))
            _note(run, name, "while a compaction goes on", found)
        with run.step(f"{label}: puts beside a defragmentation"):
            found = _paced(server, _RATE, 10, client.defragment)
            _note(run, name, "while a defragmentation goes on", found)


def _paced(
    server: Server, rate: float, connections: int, action: Callable[[], object] | None = None
) -> kvload.Loaded:
    def begin_action() -> None:
        if action is not None:
            time.sleep(_HEAD_START_S)
            action()

    return kvload.run(
        server,
        "unary",
        meanwhile=begin_action,
        kind="put",
        connections=connections,
        in_flight=1,
        rate=rate,
        seconds=_SECONDS,
    )


def _while_reading(run: Run, name: str, server: Server) -> kvload.Loaded:
    """Put while h2load reads all the time; it begins before the puts and ends after them."""
    keys = sorted(keys_of(_KEYS))
    message = pb.RangeRequest(key=keys[0], range_end=keys[_RANGE_KEYS]).SerializeToString()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(
            h2.run,
            f"{server.client_url}/etcdserverpb.KV/Range",
            message,
            connections=_READERS,
            in_flight=1,
            seconds=_SECONDS + 1,
            scratch=run.directory,
        )
        time.sleep(_HEAD_START_S)
        puts = _paced(server, _RATE, 10)
        reads = reading.result()
    if reads.data_bytes < reads.requests * _RANGE_BYTES_MIN:
        raise RuntimeError(f"{reads.requests} answers of {reads.data_bytes} bytes in all")
    done = Measure("reads of 5 MB meanwhile", "calls/s", Better.HIGHER)
    run.figures.add(done, name, reads.rate)
    return puts


def _note(run: Run, name: str, when: str, found: kvload.Loaded) -> None:
    add, lower = run.figures.add, Better.LOWER
    add(Measure(f"put {when}, p50", "ms", lower), name, found.p50_ms)
    add(Measure(f"put {when}, p99", "ms", lower, 1.0), name, found.p99_ms)
    add(Measure(f"put {when}, longest", "ms", lower, is_detail=True), name, found.max_ms)
    if found.refused:
        run.note(f"{name} refused {found.refused} puts {when} in a round.")


SCENARIO: Final = Scenario(
    "latency", "Puts at a fixed rate", "100,000 keys, 256 B values; kvload", 5, play
)
