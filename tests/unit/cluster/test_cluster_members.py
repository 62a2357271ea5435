"""Who leads and who belongs: transfers, hand-over at the end, additions, removals, learners."""

import pytest

from kvstore.errors import (
    BAD_LEADER_TRANSFEREE,
    LEARNER_NOT_SUPPORTED,
    NOT_LEADER,
    TIMEOUT_LEADER_TRANSFER,
)
from kvstore.raft.model import ConfChange, ConfChangeType
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.members import Member, encode_member
from tests.support.cluster.harness import SECOND, Cluster, ClusterMember
from tests.support.cluster.network import MS
from tests.support.node.harness import CallError


@pytest.fixture
def three() -> Cluster:
    """Three members that have joined."""
    cluster = Cluster(3)
    cluster.start()
    return cluster


def propose(via: ClusterMember, kind: ConfChangeType, member: Member) -> list[str]:
    """Propose a change of members through one of them; return where its answers go."""
    parts = via.parts
    context = b"" if kind == ConfChangeType.REMOVE_NODE else encode_member(member)
    change = ConfChange(parts.replication.request_ids.next(), kind, member.id, context)
    answers: list[str] = []
    parts.replication.pending.add_change(
        change, 1, lambda refusal, _: answers.append(refusal.text if refusal else "")
    )
    via.add_to_inbox(lambda _: None)
    return answers


def change(cluster: Cluster, via: ClusterMember, kind: ConfChangeType, member: Member) -> str:
    answers = propose(via, kind, member)
    cluster.run_until(lambda: bool(answers))
    assert len(answers) == 1
    return answers[0]


def joined(cluster: Cluster, kind: ConfChangeType = ConfChangeType.ADD_NODE) -> ClusterMember:
    """Add a member and start it."""
    new = cluster.add()
    member = Member(0xADD + new.number, "", new.urls, [], kind == ConfChangeType.ADD_LEARNER_NODE)
    assert change(cluster, cluster.followers()[0], kind, member) == ""
    new.start()
    return new


def move(cluster: Cluster, via: ClusterMember, to: int) -> int:
    return cluster.send(via, rpc.MOVE_LEADER, pb.MoveLeaderRequest(targetID=to))


def test_leadership_moves_and_the_call_is_answered_then(three: Cluster) -> None:
    leader, target = three.leader(), three.followers()[1]
    three.wait(move(three, leader, target.id))
    assert target.is_leader
    three.settle()


def test_leadership_moves_only_from_the_leader_to_a_voter(three: Cluster) -> None:
    leader, follower = three.leader(), three.followers()[0]
    for via, to, text in (
        (follower, leader.id, NOT_LEADER.text),
        (leader, 4711, BAD_LEADER_TRANSFEREE.text),
    ):
        with pytest.raises(CallError) as refused:
            three.wait(move(three, via, to))
        assert refused.value.text == text
    assert three.wait(move(three, leader, leader.id)) == b""


def test_a_move_to_a_member_out_of_reach_times_out(three: Cluster) -> None:
    leader, target = three.leader(), three.followers()[0]
    target.kill()
    with pytest.raises(CallError) as refused:
        three.wait(move(three, leader, target.id))
    assert refused.value.text == TIMEOUT_LEADER_TRANSFER.text
    assert leader.is_leader


def test_writes_during_a_move_wait_and_succeed(three: Cluster) -> None:
    leader, target = three.leader(), three.followers()[0]
    calls = [move(three, leader, target.id)]
    for number in range(50):
        request = pb.PutRequest(key=b"%d" % number, value=b"v")
        calls.append(three.send(leader, rpc.PUT, request))
        three.step()
    for call in calls:
        three.wait(call)
    three.settle()
    assert target.parts.state.store.revision == 51


def test_a_leader_that_ends_transfers_leadership_to_the_voter_connected_longest(
    three: Cluster,
) -> None:
    leader = three.leader()
    late, longest = three.followers()
    late.kill()
    late.start()
    three.settle()
    assert leader.node is not None
    leader.node.transfer_leadership(three.clock.now_ns)
    began_ns = three.clock.now_ns
    three.run_until(lambda: leader.node is not None and not leader.node.is_transferring_leadership)
    assert longest.is_leader
    assert three.clock.now_ns - began_ns < 500 * MS
    leader.stop()
    three.put(late, b"k", b"v")


def test_a_leader_transfer_is_aborted_after_an_election_timeout(three: Cluster) -> None:
    leader = three.leader()
    assert leader.node is not None
    three.run_for(SECOND)
    three.network.cut = {(leader.id, each.id) for each in three.followers()}
    leader.node.transfer_leadership(three.clock.now_ns)
    assert leader.node.is_transferring_leadership
    three.run_for(1100 * MS)
    assert not leader.node.is_transferring_leadership


def test_a_follower_and_a_single_member_transfer_nothing(three: Cluster) -> None:
    alone = Cluster(1)
    alone.start()
    for member in (alone.members[0], three.followers()[0]):
        assert member.node is not None
        member.node.transfer_leadership(member.cluster.clock.now_ns)
        assert not member.node.is_transferring_leadership


def test_a_member_joins_and_takes_part(three: Cluster) -> None:
    for number in range(20):
        three.put(three.leader(), b"%d" % number, b"v")
    new = joined(three)
    three.settle()
    assert new.parts.state.store.key_count == 20
    three.put(new, b"k", b"v")
    assert new.parts.state.membership.members[new.id].name == new.name
    three.leader().kill()
    three.leader()
    three.settle()
    three.put(new, b"l", b"v")


def test_a_member_that_joins_twice_is_refused(three: Cluster) -> None:
    taken = Member(4711, "", three.members[0].urls)
    text = change(three, three.leader(), ConfChangeType.ADD_NODE, taken)
    assert text == "etcdserver: Peer URLs already exists"
    three.settle()


def test_concurrent_changes_are_made_one_after_the_other(three: Cluster) -> None:
    answers = [
        propose(via, ConfChangeType.ADD_NODE, Member(4711 + n, "", [f"http://10.1.0.{n}:2380"]))
        for n, via in enumerate((three.leader(), three.leader(), three.leader()))
    ]
    three.run_until(lambda: all(answers))
    assert answers == [[""]] * 3
    assert len(three.leader().parts.state.membership.members) == 6


def test_a_removed_member_ends_a_second_later(three: Cluster) -> None:
    leader, follower = three.leader(), three.followers()[0]
    assert change(three, leader, ConfChangeType.REMOVE_NODE, Member(follower.id)) == ""
    three.run_until(lambda: bool(follower.parts.state.membership.removed))
    began_ns = three.clock.now_ns
    three.run_until(lambda: follower.node is None)
    assert SECOND <= three.clock.now_ns - began_ns < 2 * SECOND
    three.put(leader, b"k", b"v")
    three.settle()


def test_a_leader_may_remove_itself(three: Cluster) -> None:
    leader = three.leader()
    assert change(three, leader, ConfChangeType.REMOVE_NODE, Member(leader.id)) == ""
    three.run_until(lambda: leader.node is None)
    new = three.leader()
    three.put(new, b"k", b"v")
    three.settle()
    assert len(new.parts.state.membership.members) == 2


def test_links_follow_the_list_of_members(three: Cluster) -> None:
    leader, follower = three.leader(), three.followers()[0]
    change(three, leader, ConfChangeType.REMOVE_NODE, Member(follower.id))
    three.run_until(lambda: follower.node is None)
    new = joined(three)
    three.settle()
    for member in three.running:
        expected = {each.id: tuple(each.urls) for each in three.running if each is not member}
        assert three.network.links[member.id].members == expected
    assert new.parts.replication.remotes == {}


def test_a_learner_serves_little(three: Cluster) -> None:
    learner = joined(three, ConfChangeType.ADD_LEARNER_NODE)
    three.settle()
    three.put(three.leader(), b"k", b"v")
    three.settle()
    assert three.get(learner, b"k", serializable=True) == b"v"
    assert three.call(learner, rpc.STATUS, pb.StatusRequest()).isLearner
    with pytest.raises(CallError) as refused:
        three.get(learner, b"k")
    assert refused.value.text == LEARNER_NOT_SUPPORTED.text
    with pytest.raises(CallError):
        three.put(learner, b"k", b"v")
    stream = three.open(learner, rpc.WATCH)
    three.run_for(MS)
    assert three.ended[stream] == (LEARNER_NOT_SUPPORTED.code, LEARNER_NOT_SUPPORTED.text)
