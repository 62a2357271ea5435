"""Each known difference is real: the peer answers as the table says, and this server as 3.7.1 does.

Against a 3.7 peer there is nothing to show and these tests are skipped.
"""

from collections.abc import Iterator

import grpc
import pytest

from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.differential.calls import METHODS, RANGE_STREAM, Now, Outcome, start_unary
from tests.support.differential.known import KNOWN_DIFFERENCES
from tests.support.differential.pair import Pair, Side, peer
from tests.support.differential.watch import Stream, streams_of

pytestmark = [
    pytest.mark.xdist_group("differential-kv"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(not peer().has("range stream"), reason="the peer is 3.7 itself"),
]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("pair"))
    yield pair
    pair.close()


@pytest.fixture
def pair(started: Pair) -> Pair:
    started.reset()
    return started  # left broken: the two may differ by now


@pytest.fixture
def streams(pair: Pair) -> Iterator[list[Stream]]:
    yield from streams_of(pair)


def both(pair: Pair, name: str, **request: object) -> tuple[Outcome, Outcome]:
    return pair.ours.call(name, **request), pair.etcd.call(name, **request)


def raw(side: Side, path: str, body: bytes) -> Outcome:
    return start_unary(side.channel, path, body, bytes)()


def test_the_table_is_shown_here_whole() -> None:
    shown = "".join(name for name in globals() if name.startswith("test_shows_"))
    for difference in KNOWN_DIFFERENCES:
        assert difference.replace(" ", "_").replace("-", "_") in shown, difference


def test_shows_keys_only_lease(pair: Pair) -> None:
    pair.play("LeaseGrant", {"ID": 1, "TTL": 1000})
    pair.play("Put", {"key": b"a", "value": b"v", "lease": 1})
    ours, etcd = both(pair, "Range", key=b"a", keys_only=True)
    assert (ours.message.kvs[0].lease, etcd.message.kvs[0].lease) == (0, 1)
    ours, etcd = both(pair, "Range", key=b"a", keys_only=True, sort_target=4)
    assert (ours.message.kvs[0].lease, etcd.message.kvs[0].lease) == (1, 1)


def test_shows_hash_revision(pair: Pair) -> None:
    pair.play("Put", {"key": b"a"})
    ours, etcd = both(pair, "HashKV")
    assert (ours.message.hash_revision, etcd.message.hash_revision) == (pair.now, 0)
    assert ours.message.hash == etcd.message.hash


def test_shows_compaction_hashes(pair: Pair) -> None:
    pair.play("Put", {"key": b"a"})
    revision = pair.now
    pair.play("Compact", {"revision": revision, "physical": True})
    pair.play("Put", {"key": b"a"})
    pair.play("Compact", {"revision": Now(), "physical": True})
    ours, etcd = both(pair, "HashKV", revision=revision)
    assert ours.message.compact_revision == pair.base
    assert (etcd.code, etcd.text) == (
        "OUT_OF_RANGE",
        "etcdserver: mvcc: required revision has been compacted",
    )


def test_shows_tombstone_at_the_compacted_revision(pair: Pair, streams: list[Stream]) -> None:
    pair.play("Put", {"key": b"a"})
    pair.play("DeleteRange", {"key": b"a"})
    deleted_at = pair.now
    pair.play("Compact", {"revision": deleted_at, "physical": True})
    pair.play("Put", {"key": b"a"})
    for stream in streams:
        stream.send(create_request=pb.WatchCreateRequest(key=b"a", start_revision=deleted_at))
        stream.wait(lambda stream=stream: stream.has_seen(0, pair.now), "the put")  # type: ignore[misc]
    ours, etcd = ([each.kv.mod_revision for each in stream.events()[0]] for stream in streams)
    assert ours == [deleted_at, pair.now]
    assert etcd == [pair.now]


def test_shows_negative_watch_revision(streams: list[Stream]) -> None:
    for stream in streams:
        stream.send(create_request=pb.WatchCreateRequest(key=b"a", start_revision=-1))
        stream.wait(lambda stream=stream: any(r.canceled for r in stream.responses), "the end")  # type: ignore[misc]
    (ours,), etcd = (stream.responses for stream in streams)
    assert ours.created
    assert ours.canceled
    assert ours.watch_id == -1
    assert ours.cancel_reason == "etcdserver: mvcc: required revision has been compacted"
    assert [each.watch_id for each in etcd] == [0, 0]


def test_shows_progress_without_watchers(streams: list[Stream]) -> None:
    for stream in streams:
        stream.send(progress_request=pb.WatchProgressRequest())
        stream.send(create_request=pb.WatchCreateRequest(key=b"a"))
        stream.wait(lambda stream=stream: stream.created() == 1, "created")  # type: ignore[misc]
    assert [stream.progressed() for stream in streams] == [0, 1]


def test_shows_progress_of_future_watchers(pair: Pair, streams: list[Stream]) -> None:
    for stream in streams:
        create = pb.WatchCreateRequest(key=b"a", start_revision=pair.now + 3)
        stream.send(create_request=create)
        stream.send(progress_request=pb.WatchProgressRequest())
        stream.send(create_request=pb.WatchCreateRequest(key=b"b"))
        stream.wait(lambda stream=stream: stream.created() == 2, "created")  # type: ignore[misc]
    assert [stream.progressed() for stream in streams] == [0, 1]


def test_shows_status_fields(pair: Pair) -> None:
    ours, etcd = both(pair, "Status")
    assert ours.message.version == "3.7.1"
    assert ours.message.dbSizeQuota == 2 << 30
    assert ours.message.HasField("downgradeInfo")
    assert etcd.message.dbSizeQuota == 0
    assert not etcd.message.HasField("downgradeInfo")


def test_shows_range_stream(pair: Pair) -> None:
    request = pb.RangeRequest(key=b"a")
    assert pair.ours.range_stream(request).code == "OK"
    assert pair.etcd.range_stream(request).code == "UNIMPLEMENTED"
    assert RANGE_STREAM.endswith("RangeStream")


def test_shows_order_of_checks_in_a_transaction(pair: Pair) -> None:
    ops = [
        {"request_range": {"key": b"a", "revision": pair.now + 100}},
        {"request_put": {"key": b"a", "lease": 99}},
    ]
    ours, etcd = both(pair, "Txn", success=ops)
    assert (ours.code, etcd.code) == ("OUT_OF_RANGE", "NOT_FOUND")


def test_shows_sort_options(pair: Pair) -> None:
    ours, etcd = both(pair, "Range", key=b"a", sort_order=3)
    assert (ours.code, etcd.code) == ("INVALID_ARGUMENT", "OK")


def test_shows_cost_of_nested_transactions(pair: Pair) -> None:
    for side in pair.sides:
        side.call("Alarm", action=1, memberID=side.member_id, alarm=pb.AlarmType.NOSPACE)
    put = {"request_put": {"key": b"a"}}
    ours, etcd = both(pair, "Txn", success=[{"request_txn": {"success": [put]}}])
    assert (ours.code, etcd.code) == ("RESOURCE_EXHAUSTED", "OK")


def test_shows_paths_that_are_no_methods(pair: Pair) -> None:
    ours, etcd = (raw(side, "/x", b"") for side in pair.sides)
    assert (ours.code, etcd.code) == ("UNIMPLEMENTED", "RESOURCE_EXHAUSTED")
    assert ours.text == etcd.text == 'malformed method name: "/x"'


def test_shows_protobuf_library(pair: Pair) -> None:
    ours, etcd = (raw(side, METHODS["Range"].path, b"\x0a\xff") for side in pair.sides)
    assert ours.code == etcd.code == grpc.StatusCode.INTERNAL.name
    assert ours.text == (
        "grpc: error unmarshalling request: proto:\u00a0cannot parse invalid wire-format data"
    )
    assert etcd.text == "grpc: error unmarshalling request: unexpected EOF"
