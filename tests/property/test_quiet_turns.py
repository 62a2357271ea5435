"""A quiet turn sends what the same turn sends when it enters every stage.

Two members get the same inboxes at the same times. One may take quiet turns, the other never does.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.batch import Inbox, Outbox, messages
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.harness import TURN_NS, Disk, Harness

KEYS = (b"a", b"b", b"c", b"d")
LEASES = (1, 2, 3)
SLICE_KEYS = 2
MS_NS = 1_000_000
METADATA = {"hasleader": "true"}

Call = tuple[int, Message | bytes]
Turn = tuple[list[Call], Message | None, bool, int, int | None, int]


def _swap(key: bytes, mod: int, lease: int) -> pb.TxnRequest:
    compare = pb.Compare(key=key, target=pb.Compare.MOD, result=pb.Compare.EQUAL, mod_revision=mod)
    put = pb.RequestOp(request_put=pb.PutRequest(key=key, value=b"swapped", lease=lease))
    get = pb.RequestOp(request_range=pb.RangeRequest(key=key))
    return pb.TxnRequest(compare=[compare], success=[put], failure=[get])


ONE_KEY = st.sampled_from(KEYS)
LEASE = st.sampled_from(LEASES)
ALL = pb.RangeRequest(key=b"a", range_end=b"z")
PLAIN = st.one_of(
    st.builds(
        lambda key, value: (rpc.PUT, pb.PutRequest(key=key, value=value)),
        ONE_KEY,
        st.binary(max_size=3),
    ),
    st.builds(lambda key: (rpc.RANGE, pb.RangeRequest(key=key)), ONE_KEY),
    st.builds(lambda key: (rpc.RANGE, pb.RangeRequest(key=key, serializable=True)), ONE_KEY),
    st.builds(
        lambda key, mod, lease: (rpc.TXN, _swap(key, mod, lease)),
        ONE_KEY,
        st.integers(0, 9),
        st.sampled_from((0, *LEASES)),
    ),
)
OTHER = st.one_of(
    st.builds(lambda key, lease: (rpc.PUT, pb.PutRequest(key=key, lease=lease)), ONE_KEY, LEASE),
    st.builds(lambda key: (rpc.PUT, pb.PutRequest(key=key, prev_kv=True)), ONE_KEY),
    st.builds(lambda key: (rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=key)), ONE_KEY),
    st.just((rpc.RANGE, ALL)),
    st.just((rpc.RANGE_STREAM, ALL)),
    st.builds(lambda lease: (rpc.LEASE_GRANT, pb.LeaseGrantRequest(ID=lease, TTL=1)), LEASE),
    st.builds(lambda lease: (rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease)), LEASE),
    st.builds(
        lambda lease: (rpc.LEASE_TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=lease, keys=True)),
        LEASE,
    ),
    st.builds(
        lambda revision: (rpc.COMPACT, pb.CompactionRequest(revision=revision)), st.integers(1, 6)
    ),
    st.just((rpc.STATUS, pb.StatusRequest())),
    st.just((rpc.PUT, b"\xff")),  # no message
)
CALLS = st.lists(st.one_of(PLAIN, PLAIN, PLAIN, OTHER), max_size=4)
FRAMES = st.sampled_from(
    [
        pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"a")),
        pb.WatchRequest(
            create_request=pb.WatchCreateRequest(
                key=b"a", range_end=b"z", start_revision=1, prev_kv=True
            )
        ),
        pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"b", progress_notify=True)),
        pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=0)),
        pb.WatchRequest(progress_request=pb.WatchProgressRequest()),
        pb.LeaseKeepAliveRequest(ID=1),
    ]
)
TURNS = st.lists(
    st.tuples(
        CALLS,
        st.one_of(st.none(), st.none(), FRAMES),
        st.booleans(),  # whether the calls carry metadata
        st.sampled_from((0, 0, 0, 0, 1, 200, 3000)),  # ms more than usual since the last turn
        st.one_of(st.none(), st.none(), st.none(), st.integers(0, 30)),  # a call or stream gone
        st.sampled_from((0, 0, 0, 1 << 30)),  # bytes unsent on each stream
    ),
    max_size=40,
)


@contextmanager
def _members() -> Iterator[tuple[Harness, Harness]]:
    with tempfile.TemporaryDirectory() as directory:
        members = []
        try:
            for name in ("quiet", "loud"):
                member = Harness(Path(directory) / name, Disk(in_memory=True))
                member.parts.limits.range_slice_keys = SLICE_KEYS
                members.append(member)
            yield members[0], members[1]
        finally:
            for member in members:
                member.close()


def _columns(out: Outbox) -> list[object]:
    # A delivery's message is head + tail, however it is cut.
    deliveries = [(stream, head + tail) for stream, head, tail in messages(out.deliveries)]
    return [out.replies, deliveries, out.ends, out.tasks]


def _inbox(member: Harness, streams: list[int], turn: Turn) -> Inbox:
    calls, frame, has_metadata, _, gone, unsent_bytes = turn
    inbox = Inbox(
        calls=[
            (
                member.take_id(),
                method,
                body if isinstance(body, bytes) else body.SerializeToString(),
            )
            for method, body in calls
        ]
    )
    if has_metadata:
        inbox.metadata = {call_id: METADATA for call_id, _, _ in inbox.calls}
    if frame is not None:
        stream = streams[isinstance(frame, pb.LeaseKeepAliveRequest)]
        inbox.frames = [(stream, frame.SerializeToString())]
    if gone is not None:
        inbox.gone = [gone]
    if unsent_bytes:
        inbox.backlog = dict.fromkeys(streams, unsent_bytes)
    return inbox


@settings(max_examples=40, deadline=None)
@given(TURNS)
def test_quiet_turns_send_the_same(turns: list[Turn]) -> None:
    with _members() as members:
        streams = [
            [member.open(method) for method in (rpc.WATCH, rpc.LEASE_KEEP_ALIVE)]
            for member in members
        ]
        assert streams[0] == streams[1]
        for turn in turns:
            outs = []
            for member in members:
                member.clock.now_ns += turn[3] * MS_NS
                inbox = _inbox(member, streams[0], turn)
                if member is members[1]:
                    member.node._upkeep_ns = 0
                outs.append(member.turn(inbox))
            quiet, loud = members
            assert _columns(outs[0]) == _columns(outs[1])
            assert quiet.node.wake_ns <= max(loud.node.wake_ns, quiet.clock.now_ns)
        assert _state(members[0]) == _state(members[1])


def _state(member: Harness) -> tuple[Message, Message]:
    everything = pb.RangeRequest(key=b"\0", range_end=b"\0")
    return member.call(rpc.RANGE, everything), member.call(
        rpc.LEASE_LEASES, pb.LeaseLeasesRequest()
    )


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Harness]:
    alone = Harness(tmp_path / "data", Disk(in_memory=True))
    alone.turn()
    yield alone
    alone.close()


def _is_quiet(member: Harness, *calls: Call, **columns: object) -> bool:
    """Take a turn soon after the last; tell whether it was quiet."""
    member.clock.now_ns += 1 - TURN_NS  # no tick of raft's clock is due so soon
    ids = [(member.take_id(), method, body.SerializeToString()) for method, body in calls]  # type: ignore[union-attr]
    member.turn(Inbox(calls=ids, **columns))  # type: ignore[arg-type]
    return member.node._is_quiet


PUT = (rpc.PUT, pb.PutRequest(key=b"k", value=b"v"))
GET = (rpc.RANGE, pb.RangeRequest(key=b"k"))


def test_which_turns_are_quiet(member: Harness) -> None:
    assert _is_quiet(member)
    assert _is_quiet(member, PUT, GET, PUT, (rpc.TXN, _swap(b"k", 0, 0)))
    assert not _is_quiet(member, (rpc.LEASE_GRANT, pb.LeaseGrantRequest(ID=1, TTL=60)))
    assert not _is_quiet(member, PUT, (rpc.STATUS, pb.StatusRequest()))
    stream = member.open(rpc.WATCH)
    assert _is_quiet(member, PUT)
    assert not _is_quiet(member, PUT, frames=[(stream, b"")])
    assert not _is_quiet(member, PUT, gone=[stream])
    assert _is_quiet(member, PUT)


def test_a_turn_with_a_tick_is_not_quiet(member: Harness) -> None:
    assert _is_quiet(member, PUT)
    member.clock.now_ns += member.parts.limits.heartbeat_ns
    assert not _is_quiet(member, PUT)


def test_a_read_over_several_turns_is_not_left(member: Harness) -> None:
    member.parts.limits.range_slice_keys = SLICE_KEYS
    member.start(*((rpc.PUT, pb.PutRequest(key=b"%d" % at)) for at in range(10 * SLICE_KEYS)))
    (call_id,) = member.start((rpc.RANGE, pb.RangeRequest(key=b"0", range_end=b"z")))
    turns = 0
    while call_id not in member.answers:
        assert not _is_quiet(member, PUT)
        turns += 1
        assert turns < 20 * SLICE_KEYS
    assert turns > 1


def test_a_quiet_turn_catches_watchers_up(member: Harness) -> None:
    stream = member.open(rpc.WATCH)
    member.start(PUT)
    create = pb.WatchCreateRequest(key=b"k", start_revision=1)
    request = pb.WatchRequest(create_request=create).SerializeToString()
    paused = {stream: 1 << 30}
    assert not _is_quiet(member, frames=[(stream, request)], backlog=paused)
    (created,) = member.delivered.pop(stream)
    assert pb.WatchResponse.FromString(created).created
    assert _is_quiet(member, PUT, backlog=paused)
    assert stream not in member.delivered
    assert _is_quiet(member, backlog={})
    events = [
        event.kv.mod_revision
        for message in member.delivered[stream]
        for event in pb.WatchResponse.FromString(message).events
    ]
    assert events == [2, 3]
