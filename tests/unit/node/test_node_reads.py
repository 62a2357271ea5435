"""Reads through the turn: long ones are cut into slices, with the same results."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstore.apply.plain_requests import plain_get
from kvstore.batch import Inbox
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.harness import CallError, Disk, Harness

KEYS = 50
SLICE_KEYS = 7
EVERYTHING: dict[str, Any] = {"key": b"\0", "range_end": b"\0"}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, Disk(in_memory=True))
    harness.parts.limits.range_slice_keys = SLICE_KEYS
    for number in range(KEYS):
        harness.call(rpc.PUT, pb.PutRequest(key=b"k%03d" % number, value=b"v%d" % (KEYS - number)))
    yield harness
    harness.close()


def stream_messages(harness: Harness, stream_id: int) -> list[pb.RangeResponse]:
    while stream_id not in harness.ended:
        harness.turn()
    return [
        pb.RangeStreamResponse.FromString(body).range_response
        for body in harness.delivered[stream_id]
    ]


def slow_then_whole(harness: Harness, request: pb.RangeRequest) -> tuple[Any, Any]:
    sliced = harness.call(rpc.RANGE, request)
    harness.parts.limits.range_slice_keys = 10 * KEYS
    whole = harness.call(rpc.RANGE, request)
    harness.parts.limits.range_slice_keys = SLICE_KEYS
    return sliced, whole


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"limit": 20},
        {"limit": KEYS},
        {"limit": KEYS + 1},
        {"keys_only": True},
        {"sort_order": pb.RangeRequest.DESCEND},
        {"sort_order": pb.RangeRequest.ASCEND, "sort_target": pb.RangeRequest.VALUE},
        {"limit": 9, "sort_target": pb.RangeRequest.MOD, "sort_order": pb.RangeRequest.DESCEND},
        {"min_mod_revision": 10, "max_mod_revision": 40},
        {"revision": 30},
    ],
)
def test_a_sliced_range_answers_as_one_in_one_go(harness: Harness, options: dict[str, Any]) -> None:
    sliced, whole = slow_then_whole(harness, pb.RangeRequest(**EVERYTHING, **options))
    assert sliced == whole
    assert len(sliced.kvs) > 0


def test_a_long_range_takes_several_turns_and_sees_one_revision(harness: Harness) -> None:
    (call_id,) = harness.start((rpc.RANGE, pb.RangeRequest(**EVERYTHING)))
    assert call_id not in harness.answers
    harness.call(rpc.PUT, pb.PutRequest(key=b"k049", value=b"later"))
    harness.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"k048"))
    found = pb.RangeResponse.FromString(harness.wait(call_id))
    assert [kv.key for kv in found.kvs] == [b"k%03d" % number for number in range(KEYS)]
    assert found.kvs[-1].value == b"v1"
    assert found.header.revision == KEYS + 1


def test_a_compaction_past_a_long_range_does_not_fail_it(harness: Harness) -> None:
    (call_id,) = harness.start((rpc.RANGE, pb.RangeRequest(**EVERYTHING)))
    harness.call(rpc.PUT, pb.PutRequest(key=b"k000", value=b"later"))
    harness.call(rpc.COMPACT, pb.CompactionRequest(revision=KEYS + 2))
    found = pb.RangeResponse.FromString(harness.wait(call_id))
    assert len(found.kvs) == KEYS


def test_a_cancelled_long_range_is_not_answered(harness: Harness) -> None:
    (call_id,) = harness.start((rpc.RANGE, pb.RangeRequest(**EVERYTHING)))
    harness.turn(Inbox(gone=[call_id]))
    for _ in range(2 * KEYS):
        harness.turn()
    assert call_id not in harness.answers


@pytest.mark.parametrize(
    "options",
    [{}, {"limit": 25}, {"limit": 1}, {"limit": KEYS}, {"keys_only": True}, {"revision": 20}],
)
def test_a_range_stream_concatenates_to_the_range(
    harness: Harness, options: dict[str, Any]
) -> None:
    request = pb.RangeRequest(**EVERYTHING, **options)
    whole = harness.call(rpc.RANGE, request)
    (stream_id,) = harness.start((rpc.RANGE_STREAM, request))
    messages = stream_messages(harness, stream_id)
    assert [kv for message in messages for kv in message.kvs] == list(whole.kvs)
    assert (messages[-1].count, messages[-1].more) == (whole.count, whole.more)
    assert messages[-1].header == whole.header
    for message in messages[:-1]:
        assert (message.HasField("header"), message.count, message.more) == (False, 0, False)
        assert len(message.kvs) > 0
    assert harness.ended[stream_id] == (0, "")


@pytest.mark.parametrize("target", pb.RangeRequest.SortTarget.values())
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"limit": 25},
        {"limit": 5},
        {"limit": KEYS},
        {"keys_only": True},
        {"revision": 20, "limit": 15},
        {"count_only": True},
        {"key": b"k007", "range_end": b""},
        {"key": b"none", "range_end": b""},
    ],
)
def test_a_range_stream_without_order_is_sorted_as_the_range(
    harness: Harness, target: int, options: dict[str, Any]
) -> None:
    """Order NONE with a target: ascending by the target, over all chunks."""
    harness.parts.limits.request_bytes_max = 200  # a few KeyValues
    request = pb.RangeRequest(**{**EVERYTHING, "sort_target": target, **options})
    whole = harness.call(rpc.RANGE, request)
    (stream_id,) = harness.start((rpc.RANGE_STREAM, request))
    messages = stream_messages(harness, stream_id)
    assert [kv for message in messages for kv in message.kvs] == list(whole.kvs)
    assert (messages[-1].count, messages[-1].more) == (whole.count, whole.more)
    assert messages[-1].header == whole.header
    for message in messages[:-1]:
        assert (message.HasField("header"), message.count, message.more) == (False, 0, False)
        assert len(message.kvs) > 0
    assert harness.ended[stream_id] == (0, "")
    if len(whole.kvs) == KEYS and target != pb.RangeRequest.KEY:
        assert len(messages) >= 4


def test_a_sorted_range_stream_sees_one_revision_and_waits_for_its_client(harness: Harness) -> None:
    harness.parts.limits.request_bytes_max = 200
    request = pb.RangeRequest(**EVERYTHING, sort_target=pb.RangeRequest.VALUE)
    whole = harness.call(rpc.RANGE, request)
    (stream_id,) = harness.start((rpc.RANGE_STREAM, request))
    harness.call(rpc.PUT, pb.PutRequest(key=b"k049", value=b"later"))
    full = harness.parts.limits.stream_backlog_bytes_max + 1
    before = len(harness.delivered.get(stream_id, []))
    for _ in range(20):
        harness.turn(Inbox(backlog={stream_id: full}))
    assert len(harness.delivered.get(stream_id, [])) == before
    messages = stream_messages(harness, stream_id)
    assert [kv for message in messages for kv in message.kvs] == list(whole.kvs)


def test_a_compaction_past_a_sorted_range_stream_ends_it(harness: Harness) -> None:
    request = pb.RangeRequest(**EVERYTHING, sort_target=pb.RangeRequest.MOD)
    (stream_id,) = harness.start((rpc.RANGE_STREAM, request))
    harness.call(rpc.PUT, pb.PutRequest(key=b"k000", value=b"later"))
    harness.call(rpc.COMPACT, pb.CompactionRequest(revision=KEYS + 2))
    while stream_id not in harness.ended:
        harness.turn()
    assert stream_id not in harness.delivered
    code, text = harness.ended[stream_id]
    assert (code, text) == (11, "etcdserver: mvcc: required revision has been compacted")


def test_a_count_stream_is_one_message(harness: Harness) -> None:
    (stream_id,) = harness.start((rpc.RANGE_STREAM, pb.RangeRequest(**EVERYTHING, count_only=True)))
    (message,) = stream_messages(harness, stream_id)
    assert (message.count, len(message.kvs)) == (KEYS, 0)
    assert message.header.revision == KEYS + 1


def test_a_range_stream_waits_for_its_client(harness: Harness) -> None:
    (stream_id,) = harness.start((rpc.RANGE_STREAM, pb.RangeRequest(**EVERYTHING)))
    before = len(harness.delivered[stream_id])
    full = harness.parts.limits.stream_backlog_bytes_max + 1
    for _ in range(20):
        harness.turn(Inbox(backlog={stream_id: full}))
    assert len(harness.delivered[stream_id]) == before
    assert sum(len(message.kvs) for message in stream_messages(harness, stream_id)) == KEYS


def test_a_range_stream_behind_a_compaction_ends_as_etcds(harness: Harness) -> None:
    (stream_id,) = harness.start((rpc.RANGE_STREAM, pb.RangeRequest(**EVERYTHING)))
    harness.call(rpc.PUT, pb.PutRequest(key=b"k000", value=b"later"))
    (compact_id,) = harness.start((rpc.COMPACT, pb.CompactionRequest(revision=KEYS + 2)))
    harness.wait(compact_id)
    stream_messages(harness, stream_id)
    assert harness.ended[stream_id] == (
        11,
        "etcdserver: mvcc: required revision has been compacted",
    )


def test_refused_streams_are_ended_not_answered(harness: Harness) -> None:
    (stream_id,) = harness.start((rpc.RANGE_STREAM, pb.RangeRequest()))
    assert harness.ended[stream_id] == (3, "etcdserver: key is not provided")
    assert stream_id not in harness.answers


def test_reads_of_one_turn_share_one_read_index_and_see_its_writes(harness: Harness) -> None:
    put_id, range_id, txn_id = harness.start(
        (rpc.PUT, pb.PutRequest(key=b"new", value=b"1")),
        (rpc.RANGE, pb.RangeRequest(key=b"new")),
        (
            rpc.TXN,
            pb.TxnRequest(
                success=[pb.RequestOp(request_range=pb.RangeRequest(key=b"new"))],
            ),
        ),
    )
    revision = pb.PutResponse.FromString(harness.wait(put_id)).header.revision
    found = pb.RangeResponse.FromString(harness.wait(range_id))
    assert (found.kvs[0].value, found.header.revision) == (b"1", revision)
    txn = pb.TxnResponse.FromString(harness.wait(txn_id))
    assert txn.responses[0].response_range.kvs[0].value == b"1"


def test_the_same_range_is_read_once_a_turn(harness: Harness) -> None:
    whole = pb.RangeRequest(key=b"k00", range_end=b"k01", limit=SLICE_KEYS)
    stale = pb.RangeRequest(key=b"k00", range_end=b"k01", limit=SLICE_KEYS, serializable=True)
    part = pb.RangeRequest(key=b"k00", range_end=b"k01", limit=2)
    put = (rpc.PUT, pb.PutRequest(key=b"k000", value=b"later"))
    asked = [(rpc.RANGE, each) for each in (whole, stale, part, whole)]
    before, *same = [harness.wait(each) for each in harness.start(*asked)]
    assert same[0] is same[2] is before
    _, *after = [harness.wait(each) for each in harness.start(put, *asked)]
    assert after[0] is after[3]
    for old, new, limit in ((before, after[0], SLICE_KEYS), (same[1], after[2], 2)):
        one, other = pb.RangeResponse.FromString(old), pb.RangeResponse.FromString(new)
        assert len(one.kvs) == len(other.kvs) == limit
        assert (one.kvs[0].value, other.kvs[0].value) == (b"v%d" % KEYS, b"later")
        assert other.header.revision == one.header.revision + 1


@pytest.mark.parametrize("is_serializable", [False, True])
def test_gets_of_a_turn_are_answered_as_ranges_are(
    harness: Harness, *, is_serializable: bool
) -> None:
    long_key, large = b"k" * 128, b"v" * 5000
    harness.call(rpc.PUT, pb.PutRequest(key=long_key, value=b"1"))
    harness.call(rpc.PUT, pb.PutRequest(key=b"large", value=large))
    keys = [b"k007", b"nobody's", long_key, b"large", b"k007"]
    gets = [
        (rpc.RANGE, pb.RangeRequest(key=key, serializable=is_serializable))
        for key in (*keys, b"new")
    ]
    # A limit keeps a range from being a get.
    ranges = [(rpc.RANGE, pb.RangeRequest(key=key, limit=1)) for key in (*keys, b"new")]
    put = (rpc.PUT, pb.PutRequest(key=b"new", value=b"1"))
    _, *found = [harness.wait(each) for each in harness.start(put, *gets, *ranges)]
    assert found[: len(gets)] == found[len(gets) :]
    counts = [pb.RangeResponse.FromString(each).count for each in found[: len(gets)]]
    assert counts == [1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"\x0a\x01k", True),
        (b"\x0a\x01k\x38\x01", True),
        (b"\x38\x01\x0a\x01k", False),  # also a get, in an unusual order
        (b"\x0a\x7f" + b"k" * 127, True),
        (b"\x0a\x80\x01" + b"k" * 128, False),  # also a get, but not recognized by its size
        (b"", False),
        (b"\x0a\x00", False),
        (b"\x0a\x01k\x18\x01", False),  # limit
        (b"\x0a\x01k\x38\x00", False),  # serializable, set to false
        (b"\x0a\x01k\x38\x01\x40\x01", False),  # keys only
        (b"\x0a\x01k\x12\x01z", False),  # an end
        (b"\x0a\x01k\xf8\x07\x01", False),  # an unknown field
        (b"\x0a\x01j\x0a\x01k", False),  # the key twice
    ],
)
def test_a_get_is_known_by_its_size(body: bytes, *, expected: bool) -> None:
    assert (plain_get(body) is not None) is expected


def test_an_invalid_call_does_not_affect_others(harness: Harness) -> None:
    inbox = Inbox(
        calls=[
            (9001, rpc.PUT, b"\xff\xff"),
            (9002, rpc.PUT, pb.PutRequest(key=b"good", value=b"1").SerializeToString()),
            (9003, rpc.PUT, pb.PutRequest().SerializeToString()),
            (9004, rpc.RANGE, pb.RangeRequest(key=b"good").SerializeToString()),
        ]
    )
    harness.turn(inbox)
    with pytest.raises(CallError, match="13: grpc: error unmarshalling request"):
        harness.wait(9001)
    with pytest.raises(CallError, match="key is not provided"):
        harness.wait(9003)
    harness.wait(9002)
    assert pb.RangeResponse.FromString(harness.wait(9004)).count == 1
