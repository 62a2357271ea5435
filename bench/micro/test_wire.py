"""What the hand-written codecs cost, beside the protobuf library doing the same.

`pytest bench/micro/test_wire.py` prints the table; inside the whole test run each body runs once.
"""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvstore.raft.model import Entry
from kvstore.wire import internal, raft_codec, splice
from kvstore.wire.checks import check_txn
from kvstore.wire.gen import kv_pb2, rpc_pb2

KEY, VALUE, REVISION = b"/registry/pods/default/web-7f9c", b"x" * 256, 1_234_567
KV = splice.encode_kv(KEY, REVISION - 2, REVISION, 3, VALUE, 0)
HEADER = splice.HeaderMaker(2**63 + 1, 2**63 + 2).field(REVISION, 7)
PUT = rpc_pb2.PutRequest(key=KEY, value=VALUE).SerializeToString()
LOGGED = internal.wrap(internal.Field.PUT, PUT, 0xE8A1A1FCAB3A5303)
ENTRY = Entry(0, 7, REVISION, LOGGED)
SWAP = rpc_pb2.TxnRequest(
    compare=[rpc_pb2.Compare(key=KEY, target=rpc_pb2.Compare.MOD, mod_revision=REVISION)],
    success=[rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=KEY, value=VALUE))],
    failure=[rpc_pb2.RequestOp(request_range=rpc_pb2.RangeRequest(key=KEY))],
)


def library_kv() -> bytes:
    return kv_pb2.KeyValue(
        key=KEY, create_revision=REVISION - 2, mod_revision=REVISION, version=3, value=VALUE
    ).SerializeToString()


def library_range() -> bytes:
    kvs = [kv_pb2.KeyValue.FromString(KV)] * 50
    return rpc_pb2.RangeResponse(kvs=kvs, count=50).SerializeToString()


BODIES: dict[str, Callable[[], Any]] = {
    "key value": lambda: splice.encode_kv(KEY, REVISION - 2, REVISION, 3, VALUE, 0),
    "key value, library": library_kv,
    "key value read": lambda: splice.parse_kv(KV),
    "key of key value": lambda: splice.kv_key(KV),
    "range of 50": lambda: splice.range_response(HEADER, [KV] * 50, False, 50),
    "range of 50, library": library_range,
    "event": lambda: splice.encode_event(splice.PUT, KV, None),
    "wrap": lambda: internal.wrap(internal.Field.PUT, PUT, 0xE8A1A1FCAB3A5303),
    "unwrap": lambda: internal.unwrap(LOGGED),
    "entry": lambda: raft_codec.encode_entry(ENTRY),
    "check of a swap": lambda: check_txn(SWAP, 128),
}


@pytest.mark.parametrize("name", BODIES)
def test_cost(name: str, benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(BODIES[name], rounds=20, iterations=1000, warmup_rounds=1)
