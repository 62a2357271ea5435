"""Linearizable reads on every member of a cluster, and what ends them."""

import pytest

from kvstore.errors import LEADER_CHANGED, TIMEOUT
from kvstore.raft.model import MessageType
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


def test_a_read_anywhere_sees_what_was_acknowledged_anywhere(three: Cluster) -> None:
    for number in range(30):
        three.put(three.members[number % 3], b"k", b"%d" % number)
        assert three.get(three.members[(number + 1) % 3], b"k") == b"%d" % number


def test_the_reads_of_a_turn_share_one_read_index(three: Cluster) -> None:
    follower = three.followers()[0]
    three.run_for(SECOND)
    three.network.sent.clear()
    calls = [three.send(follower, rpc.RANGE, pb.RangeRequest(key=b"k")) for _ in range(50)]
    for call in calls:
        three.wait(call)
    asked = [m for _, m in three.network.sent if m.type == MessageType.READ_INDEX]
    assert len(asked) == 1


def test_a_lost_read_index_is_requested_again_after_half_a_second(three: Cluster) -> None:
    leader, follower = three.leader(), three.followers()[0]
    three.run_for(SECOND)
    three.network.cut = {(follower.id, leader.id)}
    began_ns = three.clock.now_ns
    call = three.send(follower, rpc.RANGE, pb.RangeRequest(key=b"k"))
    three.run_for(300 * MS)
    three.network.heal()
    three.wait(call)
    assert 500 * MS <= three.clock.now_ns - began_ns < 700 * MS


def test_a_read_waits_for_what_it_must_see(three: Cluster) -> None:
    leader, follower = three.leader(), three.followers()[0]
    three.run_for(SECOND)
    three.network.delay_ns = (20 * MS, 20 * MS)
    three.put(leader, b"k", b"new")  # the follower has it, and does not know that it is committed
    assert three.get(follower, b"k", serializable=True) is None
    assert three.get(follower, b"k") == b"new"


def test_a_cut_off_leader_answers_no_linearizable_read(three: Cluster) -> None:
    leader = three.leader()
    rest = others(three, leader)
    three.put(leader, b"k", b"old")
    three.network.partition([leader.id], [each.id for each in rest])
    call = three.send(leader, rpc.RANGE, pb.RangeRequest(key=b"k"))
    three.run_until(lambda: any(each.is_leader for each in rest))
    three.put(rest[0], b"k", b"new")
    assert call not in three.answers
    assert three.get(leader, b"k", serializable=True) == b"old"
    three.network.heal()
    with pytest.raises(CallError) as refused:
        three.wait(call)
    assert refused.value.text == LEADER_CHANGED.text
    assert three.get(leader, b"k") == b"new"


def test_reads_under_way_end_with_their_leader(three: Cluster) -> None:
    leader, follower = three.leader(), three.followers()[0]
    leader.kill()
    call = three.send(follower, rpc.RANGE, pb.RangeRequest(key=b"k"))
    stream = three.send(follower, rpc.RANGE_STREAM, pb.RangeRequest(key=b"k"))
    for waiting in (call, stream):
        with pytest.raises(CallError) as refused:
            three.wait(waiting)
        assert refused.value.text == LEADER_CHANGED.text
    assert stream in three.ended
    assert three.get(follower, b"k") is None


def test_reads_without_a_leader_time_out(three: Cluster) -> None:
    follower = three.followers()[0]
    for each in others(three, follower):
        each.kill()
    began_ns = three.clock.now_ns
    with pytest.raises(CallError) as refused:
        three.get(follower, b"k")
    assert refused.value.text == TIMEOUT.text
    assert three.clock.now_ns - began_ns >= 7 * SECOND


def test_transactions_and_member_lists_read_as_linearizably(three: Cluster) -> None:
    leader, follower = three.leader(), three.followers()[0]
    three.network.delay_ns = (20 * MS, 20 * MS)
    three.put(leader, b"k", b"new")
    read = pb.TxnRequest(success=[pb.RequestOp(request_range=pb.RangeRequest(key=b"k"))])
    found = three.call(follower, rpc.TXN, read)
    assert found.responses[0].response_range.kvs[0].value == b"new"
    listed = three.call(follower, rpc.MEMBER_LIST, pb.MemberListRequest(linearizable=True))
    assert len(listed.members) == 3
    for each in others(three, follower):
        each.kill()
    three.run_until(lambda: follower.parts.raft.lead == 0)
    assert len(three.call(follower, rpc.MEMBER_LIST, pb.MemberListRequest()).members) == 3
    with pytest.raises(CallError):
        three.call(follower, rpc.MEMBER_LIST, pb.MemberListRequest(linearizable=True))
