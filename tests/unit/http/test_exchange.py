"""When a leader sends what: before its own save, commit notifications, late acknowledgements."""

from collections.abc import Sequence

import pytest

from kvstore.batch import Inbox
from kvstore.raft.model import Entry, HardState, Message, MessageType
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.cluster.harness import SECOND, Cluster, ClusterMember
from tests.support.cluster.network import MS

LONE_PUTS = 6  # after so many, the next one is expected


@pytest.fixture
def three() -> Cluster:
    """Three members that have joined, and have nothing more to do."""
    cluster = Cluster(3)
    cluster.start()
    cluster.run_for(SECOND)
    return cluster


def others(cluster: Cluster, member: ClusterMember) -> list[ClusterMember]:
    return [each for each in cluster.members if each is not member]


def word(cluster: Cluster) -> int:
    """The number of messages with nothing but a commit index, since the last call."""
    sent = [message for _, message in cluster.network.sent]
    cluster.network.sent.clear()
    return sum(each.type == MessageType.APP and not each.entries for each in sent)


def test_replies_are_sent_before_new_entries_are_saved(three: Cluster) -> None:
    leader = three.leader()
    log, raft, node = leader.parts.replication.log, leader.parts.raft, leader.node
    assert node is not None
    follower = others(three, leader)[0]
    for each in others(three, leader):
        three.network.slow_ns[each.id, leader.id] = SECOND  # what they answer comes by hand
    first = three.send(leader, rpc.PUT, pb.PutRequest(key=b"a", value=b"v"))
    three.run_for(10 * MS)
    original, saved = log.save, []

    def save(hard_state: HardState | None, entries: Sequence[Entry], *, sync: bool) -> None:
        saved.append(len(entries))
        original(hard_state, entries, sync=sync)

    log.save = save
    answer = Message(MessageType.APP_RESP, leader.id, follower.id, raft.term, index=raft.last_index)
    second = pb.PutRequest(key=b"b", value=b"v").SerializeToString()
    inbox = Inbox(
        three.clock.now_ns,
        three.clock.unix_ms(),
        calls=[(first + 1000, rpc.PUT, second)],
        messages=[answer],
    )
    out = node.answer(inbox)
    assert [call_id for call_id, _, _ in out.replies] == [first]
    assert saved == []
    node.save(inbox, out)
    assert saved == [1]
    assert len(out.replies) == 1


def test_a_commit_notification_is_sent_with_the_next_write_of_a_client(three: Cluster) -> None:
    leader = three.leader()
    for _ in range(LONE_PUTS):
        three.put(leader, b"k", b"v")
    word(three)
    for _ in range(4):
        three.put(leader, b"k", b"v")
    assert word(three) == 0
    three.run_for(10 * MS)
    assert word(three) == 2
    applied = leader.parts.raft.applied
    assert {each.parts.raft.applied for each in three.members} == {applied}


def test_a_commit_notification_is_sent_at_once_when_no_write_is_expected(three: Cluster) -> None:
    leader = three.leader()
    for _ in range(LONE_PUTS):
        three.put(leader, b"k", b"v")
        three.run_for(5 * MS)
    word(three)
    three.put(leader, b"k", b"v")
    three.run_for(0)
    assert word(three) == 2


def test_a_commit_notification_does_not_wait_while_followers_forward_requests(
    three: Cluster,
) -> None:
    leader = three.leader()
    follower = others(three, leader)[0]
    for _ in range(LONE_PUTS):
        three.put(leader, b"k", b"v")
    three.put(follower, b"k", b"v")
    word(three)
    three.put(leader, b"k", b"v")
    assert word(three) == 2


def test_late_acknowledgements_do_not_wake_a_leader_that_waits_for_nothing_else(
    three: Cluster,
) -> None:
    leader = three.leader()
    slow = others(three, leader)[0]
    three.network.slow_ns[slow.id, leader.id] = 20 * MS
    links = leader.links
    three.put(leader, b"k", b"v")
    assert (
        links.deferred_ns > 0
    )  # one has acknowledged, the other's acknowledgement changes nothing
    three.send(leader, rpc.PUT, pb.PutRequest(key=b"k", value=b"v"))
    three.run_for(MS // 8)
    assert links.deferred_ns == 0  # now the next acknowledgement counts
    three.run_for(SECOND)
    assert links.deferred_ns == 0  # all have come
