"""How requests and durations read in a log line."""

import pytest
from google.protobuf.message import Message

from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field
from kvstore.wire.loggable import TEXT_CHARS_MAX, duration_text, loggable, loggable_entry

SECRET = b"hunter2"


def nested() -> pb.TxnRequest:
    put = pb.RequestOp(request_put=pb.PutRequest(key=b"k", value=SECRET, lease=7))
    inner = pb.TxnRequest(failure=[put])
    inner.compare.add(key=b"c", target=pb.Compare.VALUE, value=SECRET)
    found = pb.RequestOp(request_range=pb.RangeRequest(key=b"r", limit=2))
    return pb.TxnRequest(success=[pb.RequestOp(request_txn=inner), found])


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (pb.PutRequest(), ""),
        (pb.PutRequest(key=b"a\xff", value=SECRET), 'key:"a\\377" value_size:7'),
        (pb.PutRequest(key=b"a", prev_kv=True), 'key:"a" prev_kv:true'),
        (
            pb.RangeRequest(key=b"a", range_end=b"b", sort_order=pb.RangeRequest.DESCEND),
            'key:"a" range_end:"b" sort_order:DESCEND',
        ),
        (
            nested(),
            "compare:<> success:<request_txn:<"
            'compare:<target:VALUE key:"c" value_size:7> success:<> '
            'failure:<request_put:<key:"k" lease:7 value_size:7>>> '
            'request_range:{key:"r" limit:2}> failure:<>',
        ),
    ],
)
def test_requests(request_: Message, text: str) -> None:
    assert loggable(request_) == text


def test_entries() -> None:
    put = pb.PutRequest(key=b"a", value=SECRET).SerializeToString()
    assert loggable_entry(Field.PUT, put) == 'put:<key:"a" value_size:7>'
    checkpoint = pb.LeaseCheckpointRequest(checkpoints=[pb.LeaseCheckpoint(ID=1)])
    assert (
        loggable_entry(Field.LEASE_CHECKPOINT, checkpoint.SerializeToString())
        == "lease_checkpoint:<checkpoints:{ID:1}>"
    )
    assert loggable_entry(Field.TXN, b"\xff") == "txn"
    user = pb.AuthUserAddRequest(name="alice", password="hunter2").SerializeToString()
    assert loggable_entry(Field.AUTH_USER_ADD, user) == "auth_user_add"
    assert loggable_entry(4711, b"") == "4711"


def test_long_requests_are_cut() -> None:
    text = loggable(pb.PutRequest(key=b"x" * 10_000))
    assert len(text) < TEXT_CHARS_MAX + 40
    assert text.endswith("... (10006 characters)")


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (1_234_567, "1.234567ms"),
        (2_000_000_000, "2s"),
        (60_000_000_000, "1m0s"),
        (3_723_500_000_000, "1h2m3.5s"),
        (-1_500_000, "-1.5ms"),
    ],
)
def test_durations_are_written_as_go_does(duration_ns: int, text: str) -> None:
    assert duration_text(duration_ns) == text
