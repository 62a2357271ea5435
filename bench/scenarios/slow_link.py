"""Five members, one of them behind a slow link: the others must not wait for it.

Each turn measures the same cluster twice: with all links alike, then with the slow one. The slow
member never leads. After it, the link is fast again until the member has caught up.
"""

import time
from contextlib import ExitStack
from typing import Any, Final

from bench.clusters import Cluster, Member, one_cluster
from bench.loads import kvload
from bench.reporting.figures import CONTENDERS, Better, Measure
from bench.run import Run, Scenario
from bench.slow_link import SlowLink, slow_link

_MEMBERS: Final = 5
_SECONDS: Final = 2
_PACED: Final = 500  # puts a second
_EFFECT_S: Final = 1.0  # until queues have built up
_ALIKE, _SLOW = "all links alike", "one slow link"


def play(run: Run) -> None:
    """Both clusters stand; each turn loads one of them, without and with its slow link."""
    if why := kvload.missing():
        run.skip(why)
        return
    with ExitStack() as stack:
        links, found = {}, {}
        for number, name in enumerate(CONTENDERS):
            link = links[name] = stack.enter_context(slow_link(number))
            places = [link.slow, *[link.others] * (_MEMBERS - 1)]
            making = one_cluster(run.directory / name, name, _MEMBERS, hosts=places)
            found[name] = stack.enter_context(making)
            run.note(f"The slow link of {name}: {link.how}.")
        for round_number in run.rounds():
            for name in run.order(round_number):
                _measure(run, f"round {round_number + 1}, {name}", found[name], links[name])
    run.note(f"Latency at {_PACED} puts a second, to the leader, from when each was due.")
    run.note("A slow member also takes less of the cores that all share: a ratio can exceed 1.")


def _measure(run: Run, label: str, cluster: Cluster, link: SlowLink) -> None:
    slow = cluster.members[0]
    if cluster.leader() is slow:
        cluster.lead_by(cluster.members[1])
    leader = cluster.leader()
    with run.step(f"{label}: {_ALIKE}"):
        alike = _load(run, leader, cluster.who, _ALIKE)
    link.begin(slow)
    try:
        with run.step(f"{label}: {_SLOW}"):
            time.sleep(run.seconds(_EFFECT_S))
            slowed = _load(run, leader, cluster.who, _SLOW)
    finally:
        link.end(slow)
    with run.step(f"{label}: catching up"):
        cluster.wait_equal()
        if cluster.leader() is not leader:
            run.note(f"{cluster.who} changed its leader in a round.")
    of_rate = Measure("put, 100x10: rate with the slow link, of that without", "", Better.HIGHER)
    of_p99 = Measure("put, p99 with the slow link, of that without", "", Better.LOWER)
    run.figures.add(of_rate, cluster.who, slowed[0] / alike[0])
    run.figures.add(of_p99, cluster.who, slowed[1] / alike[1])


def _load(run: Run, leader: Member, name: str, links: str) -> tuple[float, float]:
    """Load the leader; return (puts a second at most, p99 at a fixed rate in ms)."""
    add, seconds = run.figures.add, run.seconds(_SECONDS)
    options: dict[str, Any] = {"kind": "put", "seconds": seconds}
    paced = kvload.run(leader, "unary", connections=10, in_flight=1, rate=_PACED, **options)
    if paced.refused:
        raise RuntimeError(f"{name} refused {paced.refused} puts with {links}")
    add(Measure(f"put, {links}, p50", "ms", Better.LOWER), name, paced.p50_ms)
    add(Measure(f"put, {links}, p99", "ms", Better.LOWER), name, paced.p99_ms)
    fast = kvload.run(leader, "unary", connections=100, in_flight=10, rate=0, **options)
    add(Measure(f"put, 100x10, {links}", "calls/s", Better.HIGHER), name, fast.rate)
    return fast.rate, paced.p99_ms


SCENARIO: Final = Scenario(
    "slow-link",
    "Five members, one slow link",
    "256 B values to the leader; kvload",
    5,
    play,
)
