"""A new member gets a gigabyte by snapshot, while clients put at a fixed rate.

It joins as a learner: that changes no quorum, and it can leave again. The log is settled before, so
that the leader no longer has the entries and a snapshot is the only way; that one came is checked
by the member's own metrics.
"""

import shutil
import time
from typing import Any, Final

import grpc

from bench.clusters import Cluster, Member, check_received, clusters, end, wait_applied, wait_until
from bench.loads import kvload
from bench.loads.client import Client
from bench.loads.load import fill, keys_of
from bench.loads.paced import RATE, Paced, during
from bench.reporting.figures import Better, Measure, percentile
from bench.restarts import MIB
from bench.run import Run, Scenario
from kvstore.wire.gen import rpc_pb2 as pb

_MEMBERS: Final = 3
_MIB: Final = 1024
_VALUE: Final = b"s" * 4096
_SETTLE_PUTS: Final = 20_001  # two snapshots of the log, at --snapshot-count=10000
_TIMEOUT_S: Final = 600.0
_QUIET_S: Final = 3
_SIZE: Final = Measure("database", "MiB", Better.LOWER)
_TIME: Final = Measure("a new member, from its start to the leader's index", "s", Better.LOWER)
_RATE: Final = Measure("of it: database size over time", "MiB/s", Better.HIGHER)


def play(run: Run) -> None:
    """Fill both; then each round a member joins and leaves again."""
    if why := kvload.missing():
        run.skip(why)
        return
    keys = max(run.size(_MIB, 8, "mib") * MIB // len(_VALUE), 100)
    flags = ("--snapshot-count=500",) if run.is_quick else ()
    with clusters(run.directory, _MEMBERS, extra=flags) as found:
        for name, cluster in found.items():
            with run.step(f"{name}: put {keys} keys of 4 KiB", keys) as tell:
                fill(cluster.leader().endpoint, keys_of(keys), _VALUE, tell)
            with run.step(f"{name}: settle the log"):
                _settle(cluster, run.size(_SETTLE_PUTS, 6_500))
        for round_number in run.rounds():
            for name in run.order(round_number):
                with run.step(f"round {round_number + 1}, {name}: a new member"):
                    _measure(run, found[name], round_number)
    run.note(f"Puts come at a fixed {RATE} a second; latency counts from when one is due.")
    run.note("All members share one disk: its bandwidth is a part of these figures.")


def _settle(cluster: Cluster, puts: int) -> None:
    """Push the entries of the filling out of the leader's log; wait for the followers."""
    options: dict[str, Any] = {"connections": 10, "in_flight": 10, "rate": 0, "keys": 1}
    kvload.run(cluster.leader(), "unary", kind="put", **options, seconds=_TIMEOUT_S, calls=puts)
    cluster.wait_equal()


def _measure(run: Run, cluster: Cluster, round_number: int) -> None:
    leader, name = cluster.leader(), cluster.who
    quiet = during(leader.endpoint, lambda: time.sleep(run.seconds(_QUIET_S)))
    _note(run, name, "no other work", quiet)
    index = leader.status().raftAppliedIndex
    member = Member(name, run.directory / name / f"new-{round_number}", extra=leader.extra)
    with Client(leader.endpoint) as client:
        member_id = _announce(client, member)
        listed = [*cluster.members, member]
        member.initial_cluster = ",".join(f"{each.name}={each.peer_url}" for each in listed)
        member.is_joining = True
        try:
            seen = during(leader.endpoint, lambda: _bring_up(member, index))
            check_received(member)
            size_mib = client.db_sizes()[0] / MIB
            client.call("Cluster", "MemberRemove", pb.MemberRemoveRequest(ID=member_id))
        finally:
            end(member)
    shutil.rmtree(member.data_dir)
    run.figures.add(_SIZE, name, size_mib)
    run.figures.add(_TIME, name, seen.seconds)
    run.figures.add(_RATE, name, size_mib / seen.seconds)
    _note(run, name, "a snapshot to a new member", seen)


def _announce(client: Client, member: Member) -> int:
    """Add a member as a learner; return its id. Refused until all have been up for 5 s."""
    request = pb.MemberAddRequest(peerURLs=[member.peer_url], isLearner=True)
    ids: list[int] = []

    def is_granted() -> bool:
        try:
            ids.append(client.call("Cluster", "MemberAdd", request).member.ID)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        return bool(ids)

    wait_until(is_granted, "a cluster healthy enough for a new member")
    return ids[0]


def _bring_up(member: Member, index: int) -> None:
    member.start(wait=False)
    wait_applied(member, index, _TIMEOUT_S)


def _note(run: Run, name: str, beside: str, seen: Paced) -> None:
    add, lower = run.figures.add, Better.LOWER
    p99 = percentile(seen.latencies_ms, 0.99)
    add(Measure(f"put beside {beside}, p99", "ms", lower), name, p99)
    add(Measure(f"put beside {beside}, longest", "ms", lower), name, max(seen.latencies_ms))
    add(Measure(f"put beside {beside}, refused", "puts", lower, is_detail=True), name, seen.refused)


SCENARIO: Final = Scenario(
    "snapshot",
    "A snapshot to a new member",
    "three members with a gigabyte, a fourth one joins",
    5,
    play,
    sizes=("mib",),
)
