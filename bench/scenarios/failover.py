"""The gap in service after the leader of three members is killed: how long no put gets through.

    puts at a steady pace, each at the next member that answers, each for at most TRY_S
    ──ok──ok──ok──X kill -9 the leader ............ ok──ok
                  └──────────── the gap ───────────┘

Both run with etcd's default timeouts (heartbeat 100 ms, election 1000 ms), so most of the gap is
the election timeout, drawn by the members between one and two of it.
"""

import time
from pathlib import Path
from typing import Final

import grpc

from bench.loads.client import Client
from bench.reporting.figures import OURS, Better, Measure
from bench.run import Run, Scenario
from tests.support.cluster.servers import Cluster, Member, cluster

_KINDS: Final = {OURS: "ooo"}
_PEER_KINDS: Final = "eee"
_TRY_S: Final = 0.1
_LIMIT_S: Final = 30.0
_FLAGS: Final = ("--heartbeat-interval=100", "--election-timeout=1000", "--log-level=warn")
_GAP: Final = Measure("no put gets through", "ms", Better.LOWER)  # a draw: it has no target
_BACK: Final = Measure("the killed member answers again", "ms", Better.LOWER)


def play(run: Run) -> None:
    """Kill the leaders of both in turns; the clusters run one at a time."""
    for round_number in run.rounds():
        for name in run.order(round_number):
            with run.step(f"round {round_number + 1}, {name}: kill the leader"):
                _measure(run, name, run.directory / f"{name}-{round_number}")
    run.note("The killed member is started again at once; it answers when it has joined.")


def _measure(run: Run, name: str, directory: Path) -> None:
    directory.mkdir()
    with cluster(directory, _KINDS.get(name, _PEER_KINDS), extra=_FLAGS) as members:
        clients = {each.name: Client(each.endpoint) for each in members.members}
        try:
            _kill_once(run, name, members, clients)
        finally:
            for client in clients.values():
                client.channel.close()


def _kill_once(run: Run, name: str, members: Cluster, clients: dict[str, Client]) -> None:
    for _ in range(20):  # everybody is connected, and the members know each other for a while
        for client in clients.values():
            client.put(b"warm", b"up")
    victim = members.leader()
    others = [clients[each.name] for each in members.members if each is not victim]
    begin = time.perf_counter()
    victim.kill()
    run.figures.add(_GAP, name, _first_put_s(others, begin) * 1000)
    begin = time.perf_counter()
    _start(victim)
    run.figures.add(_BACK, name, (time.perf_counter() - begin) * 1000)


def _first_put_s(clients: list[Client], begin: float) -> float:
    """Return the time since begin at which a put got through at one of the members."""
    while time.perf_counter() - begin < _LIMIT_S:
        for client in clients:
            try:
                client.put(b"after", b"the kill", timeout_s=_TRY_S)
            except grpc.RpcError:
                continue
            return time.perf_counter() - begin
    raise RuntimeError(f"no put gets through within {_LIMIT_S:g} s of a leader's end")


def _start(victim: Member) -> None:
    victim.start(wait=False)
    victim.wait_ready()


SCENARIO: Final = Scenario(
    "failover",
    "The leader of three is killed",
    "kill -9, heartbeat 100 ms, election timeout 1000 ms, puts tried at the other members",
    10,
    play,
)
