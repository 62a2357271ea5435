"""Long work through the turn: which calls wait for it, and that others do not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.batch import Inbox
from kvstore.wire import rpc
from kvstore.wire.gen import health_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.harness import CallError, Disk, Harness

KEYS = 60
SECOND_NS = 1_000_000_000


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, Disk(in_memory=True))
    limits = harness.parts.limits
    limits.hash_rows = limits.compaction_rows = 5
    yield harness
    harness.close()


def fill(harness: Harness) -> None:
    for number in range(KEYS):
        harness.call(rpc.PUT, pb.PutRequest(key=b"k%d" % (number % 10), value=b"%d" % number))


def test_a_physical_compaction_is_answered_when_its_rows_are_gone(harness: Harness) -> None:
    fill(harness)
    (slow,) = harness.start((rpc.COMPACT, pb.CompactionRequest(revision=KEYS, physical=True)))
    (quick,) = harness.start((rpc.PUT, pb.PutRequest(key=b"other")))
    assert slow not in harness.answers
    assert quick in harness.answers
    harness.wait(slow)
    assert not harness.parts.state.store.compaction_pending


def test_a_plain_compaction_is_answered_at_once(harness: Harness) -> None:
    fill(harness)
    (call_id,) = harness.start((rpc.COMPACT, pb.CompactionRequest(revision=KEYS)))
    assert call_id in harness.answers
    assert harness.parts.state.store.compaction_pending
    with pytest.raises(CallError, match="has been compacted"):
        harness.call(rpc.RANGE, pb.RangeRequest(key=b"k0", revision=5))


def test_hashes_and_compactions_wait_for_each_other(harness: Harness) -> None:
    fill(harness)
    (before,) = harness.start((rpc.HASH_KV, pb.HashKVRequest(revision=KEYS)))
    (compacted,) = harness.start(
        (rpc.COMPACT, pb.CompactionRequest(revision=KEYS - 5, physical=True))
    )
    (after,) = harness.start((rpc.HASH_KV, pb.HashKVRequest(revision=KEYS)))
    first = pb.HashKVResponse.FromString(harness.wait(before))
    harness.wait(compacted)
    second = pb.HashKVResponse.FromString(harness.wait(after))
    assert (first.compact_revision, second.compact_revision) == (-1, KEYS - 5)
    again = harness.call(rpc.HASH_KV, pb.HashKVRequest(revision=KEYS))
    assert again.hash == second.hash != first.hash


def test_hash_of_a_future_revision_is_refused(harness: Harness) -> None:
    with pytest.raises(CallError, match="future revision"):
        harness.call(rpc.HASH_KV, pb.HashKVRequest(revision=1000))


def test_a_hash_whose_client_disconnected_does_not_block_compactions(harness: Harness) -> None:
    fill(harness)
    (call_id,) = harness.start((rpc.HASH_KV, pb.HashKVRequest()))
    harness.turn(Inbox(gone=[call_id]))
    harness.call(rpc.COMPACT, pb.CompactionRequest(revision=KEYS, physical=True))


def test_defragment_answers_all_who_wait_and_runs_beside_puts(harness: Harness) -> None:
    fill(harness)
    first, second = harness.start(
        (rpc.DEFRAGMENT, pb.DefragmentRequest()), (rpc.DEFRAGMENT, pb.DefragmentRequest())
    )
    harness.call(rpc.PUT, pb.PutRequest(key=b"meanwhile"))
    assert (harness.wait(first), harness.wait(second)) == (b"", b"")


def test_a_snapshot_is_streamed_after_a_commit(harness: Harness) -> None:
    harness.start((rpc.PUT, pb.PutRequest(key=b"k")))
    stream_id = harness.take_id()
    out = harness.turn(Inbox(calls=[(stream_id, rpc.SNAPSHOT, b"")]))
    assert [each for each, _ in out.snapshots] == [stream_id]
    assert harness.parts.state.backend.pending_ops() == 0


def test_over_the_quota_the_alarm_comes_before_the_answer(tmp_path: Path) -> None:
    harness = Harness(tmp_path, Disk(in_memory=True), ["--quota-backend-bytes=40000"])
    put = pb.PutRequest(key=b"k", value=b"x" * 40000)
    with pytest.raises(CallError, match="8: etcdserver: mvcc: database space exceeded"):
        harness.call(rpc.PUT, put)
    listed = harness.call(rpc.ALARM, pb.AlarmRequest())
    assert [alarm.alarm for alarm in listed.alarms] == [pb.AlarmType.NOSPACE]
    status = harness.call(rpc.STATUS, pb.StatusRequest())
    assert "NOSPACE" in status.errors[0]
    with pytest.raises(CallError, match="database space exceeded"):
        harness.call(rpc.PUT, pb.PutRequest(key=b"small"))
    with pytest.raises(CallError, match="database space exceeded"):
        harness.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=60))
    harness.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"k"))
    alarm = listed.alarms[0]
    harness.call(
        rpc.ALARM,
        pb.AlarmRequest(
            action=pb.AlarmRequest.DEACTIVATE, memberID=alarm.memberID, alarm=alarm.alarm
        ),
    )
    harness.call(rpc.PUT, pb.PutRequest(key=b"small"))
    harness.close()


def test_a_lease_ends_through_the_log_never_early(harness: Harness) -> None:
    granted = harness.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=5))
    harness.call(rpc.PUT, pb.PutRequest(key=b"leased", lease=granted.ID))
    revision = harness.parts.state.store.revision
    promised_ns = harness.clock.now_ns + 4 * SECOND_NS
    while harness.clock.now_ns < promised_ns:
        harness.turn()
    assert harness.call(rpc.RANGE, pb.RangeRequest(key=b"leased")).count == 1
    harness.clock.now_ns += 2 * SECOND_NS
    while harness.parts.state.lessor.exists(granted.ID):
        harness.turn()
    gone = harness.call(rpc.RANGE, pb.RangeRequest(key=b"leased"))
    assert (gone.count, gone.header.revision) == (0, revision + 1)
    left = harness.call(rpc.LEASE_TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=granted.ID))
    assert left.TTL == -1


def test_keep_alives_are_answered_in_order_and_end_with_the_stream(harness: Harness) -> None:
    granted = harness.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=30))
    stream_id = harness.open(rpc.LEASE_KEEP_ALIVE)
    harness.send(stream_id, pb.LeaseKeepAliveRequest(ID=granted.ID))
    harness.send(stream_id, pb.LeaseKeepAliveRequest(ID=12345))
    harness.turn(Inbox(half_closed=[stream_id]))
    answers = [pb.LeaseKeepAliveResponse.FromString(body) for body in harness.delivered[stream_id]]
    assert [(answer.ID, answer.TTL) for answer in answers] == [(granted.ID, 30), (12345, 0)]
    assert harness.ended[stream_id] == (0, "")


def test_a_malformed_keep_alive_ends_its_stream_only(harness: Harness) -> None:
    bad, good = harness.open(rpc.LEASE_KEEP_ALIVE), harness.open(rpc.LEASE_KEEP_ALIVE)
    harness.turn(Inbox(frames=[(bad, b"\xff"), (good, b"\x08\x07")]))
    assert harness.ended[bad][0] == 13
    assert pb.LeaseKeepAliveResponse.FromString(harness.delivered[good][0]).TTL == 0


def test_the_frames_of_one_turn_go_to_their_streams_each_in_order(harness: Harness) -> None:
    granted = harness.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(ID=(1 << 63) - 1, TTL=30))
    one, two, bad = (harness.open(rpc.LEASE_KEEP_ALIVE) for _ in range(3))
    watch = harness.open(rpc.WATCH)
    renew = pb.LeaseKeepAliveRequest(ID=granted.ID).SerializeToString()
    unknown = pb.LeaseKeepAliveRequest(ID=-7).SerializeToString()
    create = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"k")).SerializeToString()
    harness.turn(
        Inbox(
            frames=[
                (one, unknown),
                (bad, renew),
                (two, renew),
                (bad, b"\xff"),
                (watch, create),
                (bad, renew),  # its stream has ended
                (one, renew),
            ]
        )
    )
    found = {
        stream: [pb.LeaseKeepAliveResponse.FromString(each) for each in harness.delivered[stream]]
        for stream in (one, two, bad)
    }
    expected = {one: [(-7, 0), (granted.ID, 30)], two: [(granted.ID, 30)], bad: [(granted.ID, 30)]}
    assert {
        stream: [(each.ID, each.TTL) for each in answers] for stream, answers in found.items()
    } == expected
    assert pb.WatchResponse.FromString(harness.delivered[watch][0]).created
    assert list(harness.ended) == [bad]


def test_a_request_over_the_limit_is_refused_by_its_size_in_the_log(harness: Harness) -> None:
    limit = harness.parts.limits.request_bytes_max
    fits = pb.PutRequest(key=b"k", value=b"x" * (limit - 60))
    harness.call(rpc.PUT, fits)
    with pytest.raises(CallError, match="3: etcdserver: request is too large"):
        harness.call(rpc.PUT, pb.PutRequest(key=b"k", value=b"x" * limit))


def test_has_leader_is_answered_while_there_is_one(harness: Harness) -> None:
    call_id = harness.take_id()
    harness.turn(
        Inbox(
            calls=[(call_id, rpc.RANGE, pb.RangeRequest(key=b"k").SerializeToString())],
            metadata={call_id: {"hasleader": "true"}},
        )
    )
    harness.wait(call_id)


def test_health(harness: Harness) -> None:
    serving = harness.call(rpc.HEALTH_CHECK, health_pb2.HealthCheckRequest())
    assert serving.status == health_pb2.HealthCheckResponse.SERVING
    listed = harness.call(rpc.HEALTH_LIST, health_pb2.HealthListRequest())
    assert dict(listed.statuses) == {"": serving}
    with pytest.raises(CallError, match="5: unknown service"):
        harness.call(rpc.HEALTH_CHECK, health_pb2.HealthCheckRequest(service="nobody"))


def test_a_single_member_waits_for_nothing_at_its_start(tmp_path: Path) -> None:
    for _ in ("founded", "started again"):
        member = Harness(tmp_path, Disk(in_memory=False))
        assert member.slept_ns == 0
        member.close()


def test_an_idle_node_sleeps_until_the_next_tick(harness: Harness) -> None:
    fill(harness)
    heartbeat_ns = harness.parts.limits.heartbeat_ns
    for _ in range(20):
        harness.turn()
    assert harness.clock.now_ns < harness.node.wake_ns <= harness.clock.now_ns + heartbeat_ns
