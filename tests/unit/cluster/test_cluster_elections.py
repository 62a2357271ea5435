"""A cluster of real nodes in one process: elections, replication, what becomes of waiting calls."""

from collections.abc import Sequence

import pytest

from kvstore.errors import (
    LEADER_CHANGED,
    NO_LEADER,
    TIMEOUT,
    TIMEOUT_CONNECTION_LOST,
    Code,
)
from kvstore.raft.model import Entry, HardState, MessageType
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.cluster.harness import SECOND, Cluster, ClusterMember
from tests.support.cluster.network import MS
from tests.support.node.harness import CallError


@pytest.fixture
def three() -> Cluster:
    """Three members that have joined."""
    cluster = Cluster(3)
    cluster.start()
    return cluster


def others(cluster: Cluster, member: ClusterMember) -> list[ClusterMember]:
    return [each for each in cluster.members if each is not member]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_members_elect_one_leader_and_have_the_same_data(size: int) -> None:
    cluster = Cluster(size, seed=size)
    cluster.start()
    leader = cluster.leader()
    assert [each for each in cluster.running if each.is_leader] == [leader]
    for number, member in enumerate(cluster.members):
        cluster.put(member, b"k%d" % number, b"v")
    cluster.settle()
    assert {each.parts.state.store.revision for each in cluster.running} == {1 + size}


def test_every_member_publishes_its_name_and_the_version_is_set_once_by_the_leader(
    three: Cluster,
) -> None:
    listed = three.leader().parts.state.membership
    assert sorted(each.name for each in listed.members.values()) == ["m1", "m2", "m3"]
    assert listed.cluster_version == "3.7.0"


def test_a_write_on_a_follower_is_answered_there_and_applied_once(three: Cluster) -> None:
    follower = three.followers()[0]
    response = three.put(follower, b"k", b"v")
    assert response.header.revision == 2
    assert response.header.member_id == follower.id
    three.settle()
    assert three.leader().parts.state.store.revision == 2


def test_many_writes_on_all_members_at_once_are_each_applied_once(three: Cluster) -> None:
    calls = [
        three.send(member, rpc.PUT, pb.PutRequest(key=b"%d-%d" % (each, number), value=b"v"))
        for each in range(100)
        for number, member in enumerate(three.members)
    ]
    for call in calls:
        three.wait(call)
    three.settle()
    assert three.leader().parts.state.store.revision == 301


def test_messages_lost_and_doubled_change_nothing(three: Cluster) -> None:
    three.network.loss, three.network.duplication = 0.1, 0.2
    done = 0
    for number in range(100):
        request = pb.PutRequest(key=b"%d" % number, value=b"v")
        call = three.send(three.members[number % 3], rpc.PUT, request)
        three.run_until(lambda call=call: call in three.answers)  # type: ignore[misc]
        assert three.answers[call][0] in (Code.OK, Code.UNAVAILABLE)
        done += three.answers[call][0] == Code.OK
    three.network.loss = three.network.duplication = 0.0
    three.settle()
    assert done > 50
    assert done <= three.leader().parts.state.store.revision - 1 <= 100


def test_a_new_leader_has_everything_acknowledged(three: Cluster) -> None:
    leader = three.leader()
    for number in range(20):
        three.put(three.members[number % 3], b"%d" % number, b"v")
    leader.kill()
    new = three.leader()
    assert new is not leader
    assert new.parts.state.store.key_count == 20
    leader.start()
    three.settle()


def test_writes_wait_for_the_next_leader(three: Cluster) -> None:
    leader = three.leader()
    follower = three.followers()[0]
    leader.kill()
    three.run_until(lambda: follower.parts.raft.lead == 0)
    call = three.send(follower, rpc.PUT, pb.PutRequest(key=b"k", value=b"v"))
    three.wait(call)
    three.settle()
    assert three.leader().parts.state.store.revision == 2


def test_a_write_forwarded_to_a_dead_leader_times_out(
    three: Cluster,
) -> None:
    leader, follower = three.leader(), three.followers()[0]
    three.network.cut = {(follower.id, leader.id)}  # messages are lost without notice
    began_ns = three.clock.now_ns
    call = three.send(follower, rpc.PUT, pb.PutRequest(key=b"k", value=b"v"))
    with pytest.raises(CallError) as refused:
        three.wait(call)
    assert refused.value.code == Code.UNAVAILABLE
    assert refused.value.text.startswith("etcdserver: request timed out")
    assert three.clock.now_ns - began_ns >= 7 * SECOND
    three.network.heal()
    three.settle()
    assert three.leader().parts.state.store.revision == 1


def test_a_leader_without_a_quorum_steps_down_and_its_writes_time_out(three: Cluster) -> None:
    leader = three.leader()
    rest = others(three, leader)
    three.run_for(SECOND)
    three.network.partition([leader.id], [each.id for each in rest])
    call = three.send(leader, rpc.PUT, pb.PutRequest(key=b"k", value=b"lost"))
    three.run_until(lambda: not leader.is_leader, 3 * SECOND)
    with pytest.raises(CallError) as refused:
        three.wait(call)
    assert refused.value.text == TIMEOUT.text
    three.put(rest[0], b"k", b"won")
    three.network.heal()
    three.settle()
    assert three.get(leader, b"k") == b"won"


def test_an_overwritten_write_is_answered_that_the_leader_changed(three: Cluster) -> None:
    leader = three.leader()
    rest = others(three, leader)
    three.network.partition([leader.id], [each.id for each in rest])
    call = three.send(leader, rpc.PUT, pb.PutRequest(key=b"k", value=b"lost"))
    three.run_until(lambda: any(each.is_leader for each in rest))
    three.network.heal()
    with pytest.raises(CallError) as refused:
        three.wait(call)
    assert refused.value.text == LEADER_CHANGED.text
    three.settle()
    assert three.get(leader, b"k") is None


def test_a_write_of_an_old_leader_that_the_new_one_commits_is_acknowledged(three: Cluster) -> None:
    leader = three.leader()
    sent: list[int] = []
    three.network.cut = {(each.id, leader.id) for each in others(three, leader)}  # no answers back
    sent.append(three.send(leader, rpc.PUT, pb.PutRequest(key=b"k", value=b"kept")))
    three.run_until(lambda: not leader.is_leader)
    three.network.heal()
    assert three.wait(sent[0])
    three.settle()
    assert three.leader().parts.state.store.revision == 2


def test_a_lost_connection_is_named(three: Cluster) -> None:
    leader, follower = three.leader(), three.followers()[0]
    three.run_for(SECOND)
    call = three.send(follower, rpc.PUT, pb.PutRequest(key=b"k", value=b"v"))
    three.network.cut = {(follower.id, leader.id)}
    three.network._note_changes()  # the connection is broken, and appends still come
    with pytest.raises(CallError) as refused:
        three.wait(call)
    assert refused.value.text == TIMEOUT_CONNECTION_LOST.text


def test_calls_that_need_a_leader_are_refused_without_one(three: Cluster) -> None:
    leader = three.leader()
    follower = three.followers()[0]
    for each in others(three, follower):
        each.kill()
    three.run_until(lambda: follower.parts.raft.lead == 0)
    request = pb.RangeRequest(key=b"k", serializable=True)
    with pytest.raises(CallError) as refused:
        three.call(follower, rpc.RANGE, request, {"hasleader": "true"})
    assert refused.value.text == NO_LEADER.text
    assert three.get(follower, b"k", serializable=True) is None
    status = three.call(follower, rpc.STATUS, pb.StatusRequest())
    assert (status.leader, list(status.errors)) == (0, [NO_LEADER.text])
    assert not leader.is_leader


def test_streams_that_need_a_leader_end_when_there_is_none_for_long(three: Cluster) -> None:
    follower = three.followers()[0]
    needing = three.open(follower, rpc.WATCH, {"hasleader": "true"})
    patient = three.open(follower, rpc.WATCH)
    renewing = three.open(follower, rpc.LEASE_KEEP_ALIVE, {"hasleader": "true"})
    for each in others(three, follower):
        each.kill()
    three.run_until(lambda: follower.parts.raft.lead == 0)
    lost_ns = three.clock.now_ns
    three.run_until(lambda: needing in three.ended)
    assert three.clock.now_ns - lost_ns >= 3 * SECOND
    assert three.ended[needing] == three.ended[renewing] == (Code.UNAVAILABLE, NO_LEADER.text)
    assert patient not in three.ended
    late = three.open(follower, rpc.WATCH, {"hasleader": "true"})
    three.run_for(10 * MS)
    assert three.ended[late] == (Code.UNAVAILABLE, NO_LEADER.text)


def test_a_member_that_comes_back_does_not_disturb(three: Cluster) -> None:
    leader, follower = three.leader(), three.followers()[0]
    term = leader.parts.raft.term
    three.network.partition([follower.id], [each.id for each in others(three, follower)])
    three.run_for(20 * SECOND)
    three.network.heal()
    three.settle()
    assert three.leader() is leader
    assert leader.parts.raft.term == term


def test_a_member_that_starts_beside_others_waits_less_for_its_leader() -> None:
    cluster = Cluster(3)
    for member in cluster.members:
        member.start()
    began_ns = cluster.clock.now_ns
    cluster.leader()
    assert cluster.clock.now_ns - began_ns < SECOND + 300 * MS
    patient = Cluster(3, flags=["--initial-election-tick-advance=false"])
    for member in patient.members:
        member.start()
    began_ns = patient.clock.now_ns
    patient.leader()
    assert patient.clock.now_ns - began_ns >= SECOND


def test_the_leader_sends_appends_before_its_own_disk_is_done(three: Cluster) -> None:
    leader = three.leader()
    three.run_for(SECOND)
    three.network.sent.clear()
    saved: list[int] = []
    log = leader.parts.replication.log
    original = log.save

    def save(hard_state: HardState | None, entries: Sequence[Entry], *, sync: bool) -> None:
        if entries:
            appends = [m for _, m in three.network.sent if m.type == MessageType.APP and m.entries]
            saved.append(len(appends))
        original(hard_state, entries, sync=sync)

    log.save = save
    three.put(leader, b"k", b"v")
    assert saved == [2]


def stall(member: ClusterMember, stall_ns: int) -> None:
    """Let every sync of a member's disk take that long by its own clock."""
    member.faults.stall_ns = stall_ns
    member.parts.counters.clock = lambda: member.faults.stalled_ns


def test_a_leader_with_a_slow_disk_transfers_leadership(three: Cluster) -> None:
    leader = three.leader()
    three.run_for(SECOND)
    stall(leader, 400 * MS)
    for number in range(5):
        three.put(leader, b"%d" % number, b"v")
    assert leader.is_leader
    stall(leader, 600 * MS)
    for number in range(5):
        three.put(leader, b"%d" % number, b"v")
    three.run_for(SECOND)
    assert not leader.is_leader
    assert "transferring leadership: the log's disk is slow" in {msg for msg, _ in leader.log}


def test_leadership_is_not_transferred_all_the_time_when_all_disks_are_slow(three: Cluster) -> None:
    three.run_for(SECOND)
    for member in three.members:
        stall(member, 600 * MS)
    for number in range(30):
        three.put(three.leader(), b"%d" % number, b"v")
        three.run_for(SECOND)
    told = [msg for each in three.members for msg, _ in each.log if "disk is slow" in msg]
    assert 1 <= len(told) <= 3


def test_a_leader_that_was_stopped_for_long_steps_down(three: Cluster) -> None:
    leader = three.leader()
    for each in others(three, leader):
        each.kill()  # no other member that could replace it
    node, leader.node = leader.node, None
    three.clock.now_ns += 3 * SECOND
    leader.node = node
    leader.turn()
    assert not leader.is_leader
