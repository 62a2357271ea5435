import pytest

from kvstore.wire import splice
from kvstore.wire.gen import kv_pb2, rpc_pb2
from kvstore.wire.varint import WireError

FOO = bytes.fromhex("0a03666f6f10021802 20012a03626172")
HEADER = splice.HeaderMaker(2**64 - 1, 5)


def test_key_values_are_etcds_bytes() -> None:
    assert splice.encode_kv(b"foo", 2, 2, 1, b"bar", 0) == FOO
    leased = splice.encode_kv(b"x", 7, 7, 1, b"v", 0x68A1A1FCAD21920A)
    assert leased.hex() == "0a01781007180720012a0176308aa486e9cabfe8d068"
    assert splice.encode_tombstone(b"b") == bytes.fromhex("0a0162")
    assert splice.encode_kv(b"", 0, 0, 0, b"", 0) == b""


def test_parts_of_a_key_value() -> None:
    assert splice.kv_key(FOO) == b"foo"
    assert splice.parse_kv(FOO) == (b"foo", 2, 2, 1, b"bar", 0)
    assert splice.strip_value(FOO) == FOO[:-5]


def test_the_record_without_a_key() -> None:
    assert splice.kv_key(b"") == b""
    assert splice.parse_kv(b"") == (b"", 0, 0, 0, b"", 0)


@pytest.mark.parametrize("size", [1, 127, 128, 16383, 16384, 1_000_000])
def test_keys_of_all_sizes(size: int) -> None:
    key = b"k" * size
    kv = splice.encode_kv(key, 1, 1, 1, b"", 0)
    assert (
        kv
        == kv_pb2.KeyValue(
            key=key, create_revision=1, mod_revision=1, version=1
        ).SerializeToString()
    )
    assert splice.kv_key(kv) == key


@pytest.mark.parametrize("kv", [b"\n\x05ab", b"\n", b"\n\x80", b"\n\x85\x01ab", b"\xff"])
def test_bytes_that_are_no_key_value(kv: bytes) -> None:
    for read in (splice.kv_key, splice.parse_kv, splice.strip_value):
        with pytest.raises(WireError):
            read(kv)


def test_the_header_is_cached_until_something_changes() -> None:
    maker = splice.HeaderMaker(1, 2)
    first = maker.field(3, 4)
    assert maker.field(3, 4) is first
    assert first == bytes.fromhex("0a08 0801 1002 1803 2004")
    assert maker.field(5, 4) != first
    assert maker.field(5, 6) == b"\n\x08" + maker.message(5, 6)
    assert maker.field(0, 6) == bytes.fromhex("0a06 0801 1002 2006")


def test_header_alone_is_a_whole_response() -> None:
    put = rpc_pb2.PutResponse.FromString(splice.put_response(HEADER.field(9, 2), None))
    assert (put.header.cluster_id, put.header.member_id) == (2**64 - 1, 5)
    assert (put.header.revision, put.header.raft_term) == (9, 2)
    assert not put.HasField("prev_kv")


def test_previous_value_of_a_put_keeps_what_is_set() -> None:
    data = splice.put_response(b"", b"")
    assert rpc_pb2.PutResponse.FromString(data).HasField("prev_kv")


def test_transaction_around_spliced_answers() -> None:
    inner = splice.revision_field(7)
    data = splice.txn_response(
        HEADER.field(7, 2),
        True,
        [
            splice.response_op(1, splice.range_response(inner, [FOO], False, 1)),
            splice.response_op(2, splice.put_response(inner, None)),
            splice.response_op(3, splice.delete_response(inner, 1, [FOO])),
            splice.response_op(4, splice.txn_response(b"\n\0", False, [])),
        ],
    )
    message = rpc_pb2.TxnResponse.FromString(data)
    assert message.SerializeToString() == data
    assert [op.WhichOneof("response") for op in message.responses] == [
        "response_range",
        "response_put",
        "response_delete_range",
        "response_txn",
    ]
    assert message.responses[0].response_range.header.revision == 7
    assert message.responses[2].response_delete_range.prev_kvs[0].key == b"foo"


def test_watch_head_and_shared_tail() -> None:
    tail = splice.encode_event(splice.PUT, FOO, None) + splice.encode_event(
        splice.DELETE, splice.encode_tombstone(b"foo"), FOO
    )
    head = splice.watch_head(HEADER.field(7, 2), 3)
    message = rpc_pb2.WatchResponse.FromString(head + tail)
    assert message.SerializeToString() == head + tail
    assert [event.type for event in message.events] == [0, 1]
    assert message.events[1].prev_kv.value == b"bar"
    assert message.watch_id == 3


def test_canceled_watch() -> None:
    data = splice.watch_head(
        HEADER.field(7, 2), -1, created=True, canceled=True, compact_revision=5, cancel_reason="é"
    )
    message = rpc_pb2.WatchResponse.FromString(data)
    assert message.watch_id == -1
    assert message.created
    assert message.canceled
    assert message.compact_revision == 5
    assert message.cancel_reason == "é"
    assert message.SerializeToString() == data


def test_lease_responses() -> None:
    data = splice.lease_response(b"", -7, 10)
    assert rpc_pb2.LeaseKeepAliveResponse.FromString(data).ID == -7
    assert rpc_pb2.LeaseGrantResponse.FromString(data).TTL == 10


def test_stream_chunk() -> None:
    data = splice.range_stream_response(splice.range_response(b"", [FOO], False, 0))
    assert rpc_pb2.RangeStreamResponse.FromString(data).range_response.kvs[0].key == b"foo"
