"""Keys under a prefix: requests get it, answers lose it."""

import pytest

from kvstore.proxy.namespace import Namespace
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb


@pytest.mark.parametrize(
    ("prefix", "key", "end", "expected"),
    [
        ("p/", b"a", b"", (b"p/a", b"")),
        ("p/", b"a", b"b", (b"p/a", b"p/b")),
        ("p/", b"a", b"\0", (b"p/a", b"p0")),
        ("p/", b"\0", b"\0", (b"p/\0", b"p0")),
        ("p/", b"", b"\0", (b"p/", b"p0")),
        ("p\udcff", b"a", b"\0", (b"p\xffa", b"q\0")),
        ("\udcff\udcff", b"a", b"\0", (b"\xff\xffa", b"\0")),
    ],
)
def test_ranges(prefix: str, key: bytes, end: bytes, expected: tuple[bytes, bytes]) -> None:
    assert Namespace(prefix).interval(key, end) == expected


def test_transactions_at_any_depth() -> None:
    inner = pb.TxnRequest(
        compare=[pb.Compare(key=b"c", range_end=b"d")],
        success=[
            pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=b"e", range_end=b"\0"))
        ],
        failure=[pb.RequestOp(request_put=pb.PutRequest(key=b"f", value=b"f"))],
    )
    outer = pb.TxnRequest(
        compare=[pb.Compare(key=b"a", mod_revision=3)],
        success=[
            pb.RequestOp(request_range=pb.RangeRequest(key=b"b", range_end=b"c")),
            pb.RequestOp(request_txn=inner),
        ],
    )
    Namespace("p/").add_to_txn(outer)
    assert (outer.compare[0].key, outer.compare[0].range_end) == (b"p/a", b"")
    read, nested = outer.success
    assert (read.request_range.key, read.request_range.range_end) == (b"p/b", b"p/c")
    inner = nested.request_txn
    assert (inner.compare[0].key, inner.compare[0].range_end) == (b"p/c", b"p/d")
    deleted = inner.success[0].request_delete_range
    assert (deleted.key, deleted.range_end) == (b"p/e", b"p0")
    put = inner.failure[0].request_put
    assert (put.key, put.value) == (b"p/f", b"f")


def row(key: bytes) -> kv_pb2.KeyValue:
    return kv_pb2.KeyValue(key=key, value=b"p/v")


def test_answers_of_transactions_at_any_depth() -> None:
    found = pb.TxnResponse(
        responses=[
            pb.ResponseOp(response_range=pb.RangeResponse(kvs=[row(b"p/a"), row(b"p/")])),
            pb.ResponseOp(
                response_txn=pb.TxnResponse(
                    responses=[
                        pb.ResponseOp(response_put=pb.PutResponse(prev_kv=row(b"p/b"))),
                        pb.ResponseOp(
                            response_delete_range=pb.DeleteRangeResponse(prev_kvs=[row(b"p/c")])
                        ),
                        pb.ResponseOp(response_put=pb.PutResponse()),
                    ]
                )
            ),
        ]
    )
    Namespace("p/").strip_txn(found)
    assert [each.key for each in found.responses[0].response_range.kvs] == [b"a", b""]
    inner = found.responses[1].response_txn.responses
    assert inner[0].response_put.prev_kv == row(b"b")
    assert inner[1].response_delete_range.prev_kvs[0].key == b"c"
    assert not inner[2].response_put.HasField("prev_kv")


def test_events_and_leases() -> None:
    namespace = Namespace("p/")
    watched = pb.WatchResponse(
        events=[kv_pb2.Event(kv=row(b"p/a"), prev_kv=row(b"p/a")), kv_pb2.Event(kv=row(b"p/b"))]
    )
    namespace.strip_watch(watched)
    assert [(each.kv.key, each.prev_kv.key) for each in watched.events] == [
        (b"a", b"a"),
        (b"b", b""),
    ]
    lease = pb.LeaseTimeToLiveResponse(keys=[b"p/a", b"other", b"p/", b"p"])
    namespace.strip_lease(lease)
    assert list(lease.keys) == [b"a", b""]
