"""Leases in a cluster: counted down by the leader, asked about anywhere, never ended early."""

import pytest

from kvstore.errors import NO_LEADER, TIMEOUT
from kvstore.raft.model import MessageType
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.cluster.harness import SECOND, Cluster, ClusterMember
from tests.support.cluster.network import MS


@pytest.fixture
def three() -> Cluster:
    """Three members that have joined."""
    cluster = Cluster(3)
    cluster.start()
    return cluster


def others(cluster: Cluster, member: ClusterMember) -> list[ClusterMember]:
    return [each for each in cluster.members if each is not member]


def grant(cluster: Cluster, member: ClusterMember, ttl_s: int) -> int:
    lease: int = cluster.call(member, rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=ttl_s)).ID
    return lease


def ttl(cluster: Cluster, member: ClusterMember, lease: int) -> int:
    request = pb.LeaseTimeToLiveRequest(ID=lease, keys=True)
    seconds: int = cluster.call(member, rpc.LEASE_TIME_TO_LIVE, request).TTL
    return seconds


def renew(cluster: Cluster, member: ClusterMember, stream: int, lease: int) -> int:
    """Send a keep-alive and return the seconds of its answer."""
    count = len(cluster.delivered[stream])
    cluster.say(member, stream, pb.LeaseKeepAliveRequest(ID=lease))
    cluster.run_until(lambda: len(cluster.delivered[stream]) > count or stream in cluster.ended)
    assert stream not in cluster.ended, cluster.ended[stream]
    answer = pb.LeaseKeepAliveResponse.FromString(cluster.delivered[stream][-1])
    assert lease == answer.ID
    assert answer.header.member_id == member.id
    return answer.TTL


def test_a_lease_ends_everywhere_by_the_leaders_revoke(three: Cluster) -> None:
    follower = three.followers()[0]
    lease = grant(three, follower, 5)
    three.put(follower, b"k", b"v", lease)
    three.run_for(4 * SECOND)
    assert three.get(three.members[0], b"k") == b"v"
    three.run_until(lambda: three.get(follower, b"k") is None)
    three.settle()
    assert three.leader().parts.state.lessor.leases() == []


def test_keep_alives_on_every_member_keep_a_lease(three: Cluster) -> None:
    lease = grant(three, three.leader(), 5)
    three.put(three.leader(), b"k", b"v", lease)
    streams = [(each, three.open(each, rpc.LEASE_KEEP_ALIVE)) for each in three.members]
    for number in range(10):
        member, stream = streams[number % 3]
        three.run_for(3 * SECOND)
        assert renew(three, member, stream, lease) == 5
    assert three.get(three.leader(), b"k") == b"v"


def test_the_time_to_live_is_the_leaders_on_every_member(three: Cluster) -> None:
    lease = grant(three, three.leader(), 60)
    three.put(three.leader(), b"k", b"v", lease)
    three.run_for(10 * SECOND)
    assert {ttl(three, each, lease) for each in three.members} == {49}
    request = pb.LeaseTimeToLiveRequest(ID=lease, keys=True)
    found = three.call(three.followers()[0], rpc.LEASE_TIME_TO_LIVE, request)
    assert (found.grantedTTL, list(found.keys)) == (60, [b"k"])
    assert found.header.member_id == three.followers()[0].id
    assert {ttl(three, each, 4711) for each in three.members} == {-1}


def test_keep_alives_of_a_lease_that_is_not_there_say_zero(three: Cluster) -> None:
    for member in three.members:
        stream = three.open(member, rpc.LEASE_KEEP_ALIVE)
        assert renew(three, member, stream, 4711) == 0


def test_answers_on_a_stream_keep_the_order_of_the_requests(three: Cluster) -> None:
    follower = three.followers()[0]
    leases = [grant(three, follower, 60) for _ in range(40)]
    stream = three.open(follower, rpc.LEASE_KEEP_ALIVE)
    for lease in leases:
        three.say(follower, stream, pb.LeaseKeepAliveRequest(ID=lease))
    three.run_until(lambda: len(three.delivered[stream]) == len(leases))
    answers = [pb.LeaseKeepAliveResponse.FromString(each) for each in three.delivered[stream]]
    assert [each.ID for each in answers] == leases


def test_a_new_leader_gives_every_lease_its_full_time(three: Cluster) -> None:
    leader = three.leader()
    lease = grant(three, leader, 10)
    three.put(leader, b"k", b"v", lease)
    three.run_for(8 * SECOND)
    follower = three.followers()[0]
    stream = three.open(follower, rpc.LEASE_KEEP_ALIVE)
    assert renew(three, follower, stream, lease) == 10
    renewed_ns = three.clock.now_ns
    leader.kill()
    new = three.leader()
    three.run_until(lambda: not new.parts.state.lessor.exists(lease), 40 * SECOND)
    assert three.clock.now_ns - renewed_ns >= 10 * SECOND


def test_keep_alives_wait_for_a_leader(three: Cluster) -> None:
    leader, follower = three.leader(), three.followers()[0]
    lease = grant(three, follower, 30)
    stream = three.open(follower, rpc.LEASE_KEEP_ALIVE)
    leader.kill()
    three.run_until(lambda: follower.parts.raft.lead == 0)
    assert renew(three, follower, stream, lease) == 30


def test_keep_alives_and_lookups_end_without_a_leader(three: Cluster) -> None:
    follower = three.followers()[0]
    lease = grant(three, follower, 30)
    stream = three.open(follower, rpc.LEASE_KEEP_ALIVE)
    for each in others(three, follower):
        each.kill()
    three.run_until(lambda: follower.parts.raft.lead == 0)
    three.say(follower, stream, pb.LeaseKeepAliveRequest(ID=lease))
    call = three.send(follower, rpc.LEASE_TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=lease))
    three.run_until(lambda: stream in three.ended and call in three.answers)
    assert three.ended[stream] == (NO_LEADER.code, NO_LEADER.text)
    assert three.answers[call] == (NO_LEADER.code, NO_LEADER.text.encode())


def test_a_leader_that_was_stopped_renews_nothing_before_a_quorum_confirms_it(
    three: Cluster,
) -> None:
    leader = three.leader()
    lease = grant(three, leader, 60)
    rest = others(three, leader)
    stream = three.open(leader, rpc.LEASE_KEEP_ALIVE)
    renew(three, leader, stream, lease)
    # The process is stopped for longer than an election takes, shorter than it would notice.
    node, leader.node = leader.node, None
    three.run_until(lambda: any(each.is_leader for each in rest), 1900 * MS)
    leader.node = node
    three.network.partition([leader.id], [each.id for each in rest])
    three.network._due.clear()
    assert leader.is_leader
    three.say(leader, stream, pb.LeaseKeepAliveRequest(ID=lease))
    three.run_for(200 * MS)
    assert len(three.delivered[stream]) == 1
    three.network.heal()
    three.run_until(lambda: len(three.delivered[stream]) == 2)
    assert not leader.is_leader


def test_a_leader_that_was_stopped_and_is_confirmed_renews_again(three: Cluster) -> None:
    leader = three.leader()
    lease = grant(three, leader, 60)
    stream = three.open(leader, rpc.LEASE_KEEP_ALIVE)
    renew(three, leader, stream, lease)
    node, leader.node = leader.node, None
    three.run_for(500 * MS)
    leader.node = node
    three.network.sent.clear()
    assert renew(three, leader, stream, lease) == 60
    asked = [m for _, m in three.network.sent if m.type == MessageType.HEARTBEAT and m.context]
    assert asked
    assert leader.is_leader


def test_a_renewal_that_does_not_reach_the_leader_times_out(three: Cluster) -> None:
    follower = three.followers()[0]
    lease = grant(three, follower, 60)
    three._run_task = lambda member, task: None
    stream = three.open(follower, rpc.LEASE_KEEP_ALIVE)
    three.say(follower, stream, pb.LeaseKeepAliveRequest(ID=lease))
    three.run_until(lambda: stream in three.ended)
    assert three.ended[stream] == (TIMEOUT.code, TIMEOUT.text)
