"""What the client's codecs and its way to a channel cost, beside the protobuf library for the same.

`pytest bench/micro/test_client.py` prints the table; inside the whole test run each body runs once.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvstack.component import crate
from kvstore.client import ClientOptions
from kvstore.client.channel_store import ChannelStore
from kvstore.client.codec import encode
from kvstore.client.codec.decode import Decoder, PortableDecoder, make_decoder
from kvstore.client.values import Compare, Put, Range
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.fake_channel import FakeChannel

KEY, VALUE, REVISION = b"/registry/pods/default/web-7f9c", b"x" * 256, 1_234_567
HEADER = pb.ResponseHeader(
    cluster_id=2**63 + 1, member_id=2**63 + 2, revision=REVISION, raft_term=7
)
KV = kv_pb2.KeyValue(key=KEY, create_revision=7, mod_revision=REVISION, version=3, value=VALUE)
COMPARES = [Compare.mod_revision(KEY, REVISION)]
SUCCESS = [Put(KEY, VALUE)]
FAILURE = [Range(KEY)]
GOT = pb.RangeResponse(header=HEADER, kvs=[KV], count=1).SerializeToString()
PAGE = pb.RangeResponse(header=HEADER, kvs=[KV] * 500, count=500).SerializeToString()
CHANGED = pb.TxnResponse(
    header=HEADER,
    succeeded=True,
    responses=[pb.ResponseOp(response_put=pb.PutResponse(header=HEADER))],
).SerializeToString()
EVENTS = pb.WatchResponse(
    header=HEADER, watch_id=3, events=[kv_pb2.Event(kv=KV)] * 100
).SerializeToString()


def library_txn() -> bytes:
    return pb.TxnRequest(
        compare=[pb.Compare(key=KEY, target=pb.Compare.MOD, mod_revision=REVISION)],
        success=[pb.RequestOp(request_put=pb.PutRequest(key=KEY, value=VALUE))],
        failure=[pb.RequestOp(request_range=pb.RangeRequest(key=KEY))],
    ).SerializeToString()


def our_txn() -> bytes:
    return encode.txn_request(COMPARES, SUCCESS, FAILURE)


def our_get() -> bytes:
    return encode.get_request(KEY, 0, serializable=False)


@pytest.mark.parametrize("make", [our_txn, library_txn, our_get])
def test_encoding(benchmark: BenchmarkFixture, make: Callable[[], bytes]) -> None:
    assert benchmark(make)


@pytest.mark.parametrize("decoder", [make_decoder(), PortableDecoder()], ids=["fast", "portable"])
@pytest.mark.parametrize(
    ("name", "body"),
    [("range", GOT), ("range", PAGE), ("txn", CHANGED), ("watch", EVENTS)],
    ids=["get", "range of 500", "txn", "watch, 100 events"],
)
def test_decoding(benchmark: BenchmarkFixture, decoder: Decoder, name: str, body: bytes) -> None:
    if crate.Decoder is None:
        pytest.skip(f"no crate: {crate.MISSING}")
    read: Callable[[bytes], Any] = getattr(decoder, name)
    assert benchmark(read, body)


def test_a_get_above_the_channel(benchmark: BenchmarkFixture) -> None:
    """All but the channel: encode, call, decode."""
    loop = asyncio.new_event_loop()
    channel = FakeChannel()

    async def at_once(*_: object) -> bytes:
        return GOT

    channel.call = at_once  # type: ignore[assignment]
    store = ChannelStore(channel, ClientOptions())
    loop.run_until_complete(store.__aenter__())

    async def many() -> None:
        for _ in range(100):
            await store.get(KEY)

    benchmark(lambda: loop.run_until_complete(many()))
    loop.run_until_complete(store.__aexit__(None, None, None))
    loop.close()
