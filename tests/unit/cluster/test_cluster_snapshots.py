"""Snapshots to members whose log is too far behind, cut off at every point of taking one."""

from collections.abc import Callable

import pytest

from kvstore.backend import Table
from kvstore.errors import TIMEOUT_LEADER_FAIL
from kvstore.raft.model import MessageType
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.sim.disk_faults import PowerCut
from tests.support.cluster.harness import SECOND, Cluster, ClusterMember
from tests.support.cluster.network import MS
from tests.support.node.harness import CallError


def make(size: int = 3) -> Cluster:
    cluster = Cluster(size, snapshot_count=20, snapshot_catchup_entries=5)
    cluster.start()
    return cluster


@pytest.fixture
def three() -> Cluster:
    """Three members with short logs."""
    return make()


def fill(cluster: Cluster, via: ClusterMember, count: int, prefix: bytes = b"") -> None:
    for number in range(count):
        cluster.put(via, prefix + b"%d" % number, b"v")


def cut_off(cluster: Cluster, member: ClusterMember) -> None:
    rest = [each.id for each in cluster.members if each is not member]
    cluster.network.partition([member.id], rest)


def installed(member: ClusterMember) -> int:
    return sum(msg == "applied snapshot" for msg, _ in member.log)


def test_a_member_that_was_away_for_long_is_sent_the_state(three: Cluster) -> None:
    leader, slow = three.leader(), three.followers()[0]
    lease = three.call(leader, rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=100)).ID
    three.put(leader, b"leased", b"v", lease)
    cut_off(three, slow)
    three.call(leader, rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"leased"))
    second = three.call(leader, rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=100)).ID
    three.put(leader, b"other", b"v", second)
    fill(three, leader, 60)
    alarm = pb.AlarmRequest(action=pb.AlarmRequest.ACTIVATE, memberID=7, alarm=pb.AlarmType.NOSPACE)
    three.call(leader, rpc.ALARM, alarm)
    three.network.heal()
    three.settle()
    assert installed(slow) == 1
    assert slow.parts.state.alarms.no_space
    assert slow.parts.state.lessor.keys(second) == [b"other"]
    assert three.get(slow, b"59") == b"v"


def test_a_snapshot_names_the_commit_it_was_sent_with(three: Cluster) -> None:
    leader, slow = three.leader(), three.followers()[0]
    cut_off(three, slow)
    fill(three, leader, 60)
    three.network.heal()
    three.network.sent.clear()
    three.settle()
    snaps = [m for _, m in three.network.sent if m.type == MessageType.SNAP]
    assert len(snaps) == 1
    assert snaps[0].snapshot is not None
    metadata = snaps[0].snapshot.metadata
    assert metadata.conf_state.voters == tuple(sorted(each.id for each in three.members))
    assert snaps[0].snapshot.data.startswith(b'{"Root"')


def test_after_a_restart_the_snapshot_is_what_the_log_begins_with(three: Cluster) -> None:
    leader, slow = three.leader(), three.followers()[0]
    cut_off(three, slow)
    fill(three, leader, 60)
    three.network.heal()
    three.settle()
    for end in (slow.kill, slow.cut_power, slow.stop):
        end()
        slow.start()
        three.settle()
    fill(three, slow, 30, b"again")
    three.settle()
    assert installed(slow) == 1


def test_a_member_whose_name_comes_with_a_snapshot_is_ready_at_once(three: Cluster) -> None:
    leader, slow = three.leader(), three.followers()[0]
    slow.kill()
    fill(three, leader, 60)
    three.network.snapshot_loss = 1.0
    slow.start()
    three.run_for(SECOND)  # the leader takes its name into the log meanwhile
    three.network.snapshot_loss = 0.0
    node = slow.node
    assert node is not None
    three.run_until(lambda: node.is_ready, within_ns=2 * SECOND)
    assert installed(slow) == 1


def test_a_stale_tail_is_replaced_and_does_not_come_back(three: Cluster) -> None:
    old, (one, two) = three.leader(), three.followers()
    three.network.partition([old.id], [one.id, two.id])
    for number in range(50):  # entries that no other member will have
        three.send(old, rpc.PUT, pb.PutRequest(key=b"lost%d" % number, value=b"v"))
    three.run_until(lambda: one.is_leader or two.is_leader)
    new = three.leader()
    fill(three, new, 30)
    assert old.parts.raft.last_index > new.parts.raft.first_index
    three.network.heal()
    three.settle()
    assert installed(old) == 1
    old.cut_power()
    old.start()
    three.settle()
    assert three.get(old, b"lost0") is None


def test_waiting_calls_that_a_snapshot_covers_are_answered(three: Cluster) -> None:
    old, (one, two) = three.leader(), three.followers()
    three.network.partition([old.id], [one.id, two.id])
    call = three.send(old, rpc.PUT, pb.PutRequest(key=b"lost", value=b"v"))
    three.run_until(lambda: one.is_leader or two.is_leader)
    fill(three, three.leader(), 60)
    three.network.heal()
    with pytest.raises(CallError) as refused:
        three.wait(call)
    assert refused.value.text == TIMEOUT_LEADER_FAIL.text
    three.settle()


def watch(cluster: Cluster, member: ClusterMember, start: int) -> int:
    stream = cluster.open(member, rpc.WATCH)
    create = pb.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=start)
    cluster.say(member, stream, pb.WatchRequest(create_request=create))
    cluster.run_until(lambda: bool(cluster.delivered[stream]))
    return stream


def responses_of(cluster: Cluster, stream: int) -> list[pb.WatchResponse]:
    return [pb.WatchResponse.FromString(each) for each in cluster.delivered[stream]]


def test_watchers_continue_from_history(three: Cluster) -> None:
    leader, slow = three.leader(), three.followers()[0]
    three.put(leader, b"first", b"v")
    three.settle()
    stream = watch(three, slow, 2)
    cut_off(three, slow)
    fill(three, leader, 60)
    three.network.heal()
    three.settle()
    three.put(leader, b"last", b"v")
    three.run_for(SECOND)
    revisions = [
        event.kv.mod_revision for each in responses_of(three, stream) for event in each.events
    ]
    assert revisions == list(range(2, 64))
    assert installed(slow) == 1


def test_watchers_are_canceled_when_history_is_compacted(three: Cluster) -> None:
    leader, slow = three.leader(), three.followers()[0]
    three.put(leader, b"first", b"v")
    three.settle()
    stream = watch(three, slow, 2)
    cut_off(three, slow)
    fill(three, leader, 60)
    three.call(leader, rpc.COMPACT, pb.CompactionRequest(revision=50))
    three.network.heal()
    three.settle()
    three.run_for(SECOND)
    last = responses_of(three, stream)[-1]
    assert (last.canceled, last.compact_revision) == (True, 50)


def test_work_under_way_starts_again_on_the_new_state(three: Cluster) -> None:
    leader, slow = three.leader(), three.followers()[0]
    fill(three, leader, 30, b"before")
    three.settle()
    slow.parts.limits.hash_rows = 1  # a hash takes as many turns as there are rows
    cut_off(three, slow)
    fill(three, leader, 60)
    three.network.heal()
    three.run_until(lambda: three.network.next_ns() is not None)
    call = three.send(slow, rpc.HASH_KV, pb.HashKVRequest())
    three.run_until(lambda: installed(slow) == 1)
    mine = pb.HashKVResponse.FromString(three.wait(call))
    theirs = three.call(leader, rpc.HASH_KV, pb.HashKVRequest(revision=mine.hash_revision))
    assert mine.hash == theirs.hash


def test_both_sides_serve_while_a_snapshot_is_on_its_way(three: Cluster) -> None:
    leader, slow = three.leader(), three.followers()[0]
    cut_off(three, slow)
    fill(three, leader, 60)
    three.network.snapshot_ns = 5 * SECOND
    three.network.heal()
    three.run_for(SECOND)
    fill(three, leader, 60, b"meanwhile")
    assert three.get(slow, b"nothing", serializable=True) is None
    assert three.get(slow, b"0", serializable=True) is None
    three.settle()
    # The log was kept from there on, so one snapshot was enough.
    assert installed(slow) == 1


def test_a_snapshot_that_gets_lost_is_sent_again(three: Cluster) -> None:
    leader, slow = three.leader(), three.followers()[0]
    cut_off(three, slow)
    fill(three, leader, 60)
    three.network.snapshot_ns = SECOND
    three.network.heal()
    three.run_for(500 * MS)
    slow.kill()
    three.network.links[leader.id].snapshots_sent.append((slow.id, False))
    three.run_for(SECOND)
    slow.start()
    three.settle()
    assert installed(slow) == 1


def test_received_states_that_raft_does_not_use_are_deleted(three: Cluster) -> None:
    leader, slow = three.leader(), three.followers()[0]
    cut_off(three, slow)
    fill(three, leader, 60)
    three.network.heal()
    three.network.sent.clear()
    three.settle()
    snap = next(m for _, m in three.network.sent if m.type == MessageType.SNAP)
    assert leader.backend.copy_committed() is not None
    three.network.send(leader.id, snap, leader.backend.copy_committed())
    three.run_for(SECOND)
    assert installed(slow) == 1
    assert not slow.backend._received


def count_calls(run: Callable[[Cluster, ClusterMember], None]) -> int:
    """Return how many calls of its disk a member makes while it takes a snapshot."""
    cluster = make()
    slow = cluster.followers()[0]
    prepare(cluster, slow)
    before = slow.faults.calls
    run(cluster, slow)
    return slow.faults.calls - before


def prepare(cluster: Cluster, slow: ClusterMember) -> None:
    """Bring a member to the point where the snapshot is in its inbox, and not taken."""
    leader = cluster.leader()
    cut_off(cluster, slow)
    fill(cluster, leader, 60)
    cluster.network.heal()
    cluster.run_until(lambda: any(snap is not None for *_, snap in cluster.network._due))


def take(cluster: Cluster, slow: ClusterMember) -> None:
    cluster.run_until(lambda: installed(slow) == 1)


@pytest.mark.parametrize("with_power", [False, True])
def test_a_crash_anywhere_in_an_installation_leaves_the_old_or_the_new_state(
    *, with_power: bool
) -> None:
    calls = count_calls(take)
    assert calls > 10
    for at in range(1, calls + 1):
        cluster = make()
        slow = cluster.followers()[0]
        prepare(cluster, slow)
        old, new = slow.parts.raft.applied, 0
        slow.faults.cut_in = at
        with pytest.raises(PowerCut):
            take(cluster, slow)
        if with_power:
            slow.cut_power()
        else:
            slow.kill()
        slow.start()
        new = slow.parts.raft.applied
        assert new >= old
        assert int.from_bytes(slow.backend.get(Table.META, b"consistent_index") or b"") <= new
        cluster.settle()
        slow.cut_power()
        slow.start()
        cluster.settle()
