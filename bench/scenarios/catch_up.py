"""A member that was away while 100,000 entries came: until it has applied what the leader had.

Twice, since servers have two ways to bring a member up: from the log, where the leader still has
all entries, and by a snapshot, where it has thrown them away (both do at --snapshot-count=10000).
"""

import shutil
import time
from typing import Final

from bench.clusters import Cluster, check_received, one_cluster, wait_applied
from bench.loads import kvload
from bench.reporting.figures import Better, Measure
from bench.run import Run, Scenario

_MEMBERS: Final = 3
_ENTRIES: Final = 100_000
_PUT_TIMEOUT_S: Final = 600
_LOG, _SNAPSHOT = "from the log", "by a snapshot"


def play(run: Run) -> None:
    """A new cluster each time: what came before would be sent along."""
    if why := kvload.missing():
        run.skip(why)
        return
    entries = run.size(_ENTRIES, 7_000, "entries")
    for round_number in run.rounds():
        for way, count in ((_LOG, 10_000_000), (_SNAPSHOT, run.size(10_000, 500))):
            for name in run.order(round_number):
                with run.step(f"round {round_number + 1}, {name}: {way}"):
                    directory = run.directory / f"{round_number}-{name}-{count}"
                    flags = [f"--snapshot-count={count}"]
                    with one_cluster(directory, name, _MEMBERS, extra=flags) as cluster:
                        _measure(run, cluster, way, entries)
                    shutil.rmtree(directory)
    run.note(f"{entries:,} puts of 256 B to 100,000 keys; the member was killed before them.")
    run.note("The time counts from the start of the process, so what a start takes is part of it.")


def _measure(run: Run, cluster: Cluster, way: str, entries: int) -> None:
    away = cluster.followers()[0]
    away.kill()
    leader = cluster.leader()
    puts = kvload.run(
        leader,
        "unary",
        kind="put",
        connections=100,
        in_flight=10,
        rate=0,
        seconds=_PUT_TIMEOUT_S,
        calls=entries,
    )
    if puts.done < entries:
        raise RuntimeError(f"{cluster.who} took only {puts.done} of {entries} puts")
    index = leader.status().raftAppliedIndex
    begin = time.perf_counter()
    away.start(wait=False)
    answering_s = wait_applied(away, index)
    whole_s = time.perf_counter() - begin
    add, lower = run.figures.add, Better.LOWER
    what = f"a member that missed {entries:,} entries, {way}"
    if way == _SNAPSHOT:
        check_received(away)
    add(Measure(what, "s", lower, 1.0), cluster.who, whole_s)
    after = Measure(f"{what}: after its first answer", "s", lower, is_detail=True)
    add(after, cluster.who, answering_s)
    meanwhile = Measure(f"puts with 2 of 3 members, {way}", "calls/s", Better.HIGHER)
    add(meanwhile, cluster.who, puts.rate)


SCENARIO: Final = Scenario(
    "catch-up",
    "Catching up",
    "three members, one of them away for 100,000 puts",
    5,
    play,
    sizes=("entries",),
)
