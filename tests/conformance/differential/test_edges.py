"""Requests at and beyond the limits, bytes that are no requests, and names nobody serves.

Played on this project's server and on real etcd; both must say the same and live on.
"""

from collections.abc import Iterator
from typing import Any, Final

import grpc
import pytest

from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc
from tests.support.differential.calls import METHODS, Now, Outcome, Self, start_unary
from tests.support.differential.pair import WHOLE, Pair, Side
from tests.support.differential.watch import check_story, streams_of

pytestmark = [pytest.mark.xdist_group("differential-watch"), pytest.mark.timeout(300)]

REQUEST_BYTES_MAX: Final = 1_572_864
RECEIVE_BYTES_MAX: Final = REQUEST_BYTES_MAX + 512 * 1024
TXN_OPS_MAX: Final = 128


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("pair"))
    yield pair
    pair.close()


@pytest.fixture
def pair(started: Pair) -> Iterator[Pair]:
    started.reset()
    yield started
    started.compare_state()
    started.broken = False


def raw(side: Side, path: str, body: bytes) -> Outcome:
    return start_unary(side.channel, path, body, bytes)()


def raw_refusals(pair: Pair, path: str, body: bytes) -> list[Outcome]:
    outcomes = [raw(side, path, body) for side in pair.sides]
    assert all(each.code != "OK" for each in outcomes), outcomes
    return outcomes


# Sizes.


@pytest.mark.parametrize("size", [1 << 20, REQUEST_BYTES_MAX - 100])
def test_large_values(pair: Pair, size: int) -> None:
    pair.play("Put", {"key": b"big", "value": b"\0\xff" * (size // 2)})
    pair.play("Range", {"key": b"big"})
    pair.play("Put", {"key": b"big", "value": b"", "prev_kv": True})


def test_a_key_of_a_megabyte(pair: Pair) -> None:
    key = b"k" * (1 << 20)
    pair.play("Put", {"key": key, "value": b"v"})
    pair.play("Range", {"key": key})
    pair.play("Range", {"key": b"k", "range_end": b"l", "keys_only": True})
    pair.play("Txn", {"compare": [{"key": key, "version": 1}], "success": []})
    pair.play("DeleteRange", {"key": key, "prev_kv": True})


@pytest.mark.parametrize(
    "size",
    [
        REQUEST_BYTES_MAX,  # with its header and key it is more than allowed
        REQUEST_BYTES_MAX + 1000,
        RECEIVE_BYTES_MAX - 100,
        RECEIVE_BYTES_MAX,
        RECEIVE_BYTES_MAX + 1,
        4 << 20,
    ],
)
@pytest.mark.parametrize("name", ["Put", "Txn", "DeleteRange"])
def test_requests_too_large(pair: Pair, size: int, name: str) -> None:
    filler = b"x" * size
    put = {"key": b"big", "value": filler}
    requests: dict[str, dict[str, Any]] = {
        "Put": put,
        "Txn": {"success": [{"request_put": put}]},
        "DeleteRange": {"key": filler},
    }
    outcomes = pair.play(name, requests[name])
    assert outcomes[0].code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")


def test_exactly_the_largest_message(pair: Pair) -> None:
    for extra in (0, 1):
        request = pb.RangeRequest(key=b"k" * (RECEIVE_BYTES_MAX - 4 - 1 + extra))
        size = request.ByteSize()
        assert size in (RECEIVE_BYTES_MAX - 1, RECEIVE_BYTES_MAX, RECEIVE_BYTES_MAX + 1)
        outcomes = [
            raw(side, METHODS["Range"].path, request.SerializeToString()) for side in pair.sides
        ]
        assert outcomes[0].code == outcomes[1].code, (size, outcomes)
        assert outcomes[0].text == outcomes[1].text, (size, outcomes)


@pytest.mark.parametrize("limit", [0, 1, 9, 10, 11, 25, 40, -1, 2**63 - 1])
@pytest.mark.parametrize("count_only", [False, True])
def test_range_streams_of_several_pieces(pair: Pair, limit: int, count_only: bool) -> None:  # noqa: FBT001
    pair.play("Txn", {"success": [put_op(number) for number in range(40)]})
    pair.play("Range", {**WHOLE, "limit": limit, "count_only": count_only})
    pair.play("Put", {"key": b"k001"})
    pair.play("Range", {**WHOLE, "limit": limit, "revision": Now(-1), "keys_only": True})


@pytest.mark.parametrize("limit", [0, 11, 25])
def test_range_streams_in_another_order(pair: Pair, limit: int) -> None:
    for number in range(30):  # no two keys equal in any target: the order of equal ones is open
        pair.play("Put", {"key": b"k%03d" % (number * 17 % 30), "value": b"v%d" % (number * 7)})
    for target in (pb.RangeRequest.CREATE, pb.RangeRequest.MOD, pb.RangeRequest.VALUE):
        pair.play("Range", {**WHOLE, "limit": limit, "sort_target": target})


def test_large_pieces_of_a_range_stream(pair: Pair) -> None:
    for number in range(30):
        pair.play("Put", {"key": b"big%02d" % number, "value": bytes([number]) * 300_000})
    pair.play("Range", WHOLE)
    pair.play("Range", {**WHOLE, "limit": 20})


def test_a_large_answer(pair: Pair) -> None:
    for number in range(6):
        pair.play("Put", {"key": b"big%d" % number, "value": bytes([number]) * 1_000_000})
    outcomes = pair.play("Range", WHOLE)
    assert len(outcomes[0].message.kvs) == 7


# Transactions.


def put_op(number: int) -> dict[str, Any]:
    return {"request_put": {"key": b"k%03d" % number, "value": b"v"}}


@pytest.mark.parametrize("count", [TXN_OPS_MAX, TXN_OPS_MAX + 1])
@pytest.mark.parametrize("part", ["compare", "success", "failure"])
def test_transactions_of_many_operations(pair: Pair, part: str, count: int) -> None:
    ops = [{"key": b"a"} if part == "compare" else put_op(number) for number in range(count)]
    outcomes = pair.play("Txn", {part: ops})
    assert (outcomes[0].code == "OK") == (count <= TXN_OPS_MAX)


@pytest.mark.parametrize(("outer", "inner"), [(64, 64), (64, 65), (1, 127), (1, 128), (128, 1)])
def test_nested_transactions_share_the_limit(pair: Pair, outer: int, inner: int) -> None:
    nested = {"request_txn": {"success": [put_op(number) for number in range(inner)]}}
    filler = [put_op(500 + number) for number in range(outer - 1)]
    pair.play("Txn", {"success": [*filler, nested]})


def test_a_deep_transaction(pair: Pair) -> None:
    txn: dict[str, Any] = {"success": [put_op(0)]}
    for _ in range(30):
        txn = {"success": [{"request_txn": txn}]}
    pair.play("Txn", txn)


# Sort options that are none.


@pytest.mark.parametrize("option", [{"sort_order": 3}, {"sort_target": 5}, {"sort_target": -1}])
def test_unknown_sort_options(pair: Pair, option: dict[str, int]) -> None:
    if pair.peer.has("sort options"):
        outcome = pair.ours.call("Range", key=b"a", **option)
    else:
        outcome = pair.play("Range", {"key": b"a", **option})[0]
    assert (outcome.code, outcome.text) == ("INVALID_ARGUMENT", "etcdserver: invalid sort option")


# Bytes that are no requests.

MALFORMED: Final = [b"\x0a\xff", b"\x0a\x05ab", b"\xff\xff\xff\xff", b"\x08" + b"\x80" * 11]
UNARY: Final = sorted(set(METHODS) - {"Defragment", "HealthCheck"})


@pytest.mark.parametrize("body", MALFORMED, ids=repr)
@pytest.mark.parametrize("name", UNARY)
def test_malformed_requests(pair: Pair, name: str, body: bytes) -> None:
    ours, etcd = raw_refusals(pair, METHODS[name].path, body)
    assert ours.code == etcd.code
    if not pair.peer.has("protobuf library"):
        assert plain(ours.text) == plain(etcd.text)


@pytest.mark.parametrize("path", ["Watch/Watch", "Lease/LeaseKeepAlive", "KV/RangeStream"])
def test_malformed_messages_on_streams(pair: Pair, path: str) -> None:
    sides = pair.sides
    if pair.peer.has("range stream") and path == "KV/RangeStream":
        sides = (pair.ours,)
    found = []
    for side in sides:
        call = raw_grpc.stream(side.channel, f"/etcdserverpb.{path}")(iter([b"\xff"]), timeout=10)
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        found.append((caught.value.code(), plain(caught.value.details() or "")))
    assert {code for code, _ in found} == {grpc.StatusCode.INTERNAL}
    if not pair.peer.has("protobuf library"):
        assert found[0] == found[1]


def plain(text: str) -> str:
    """Return a text with Go's two kinds of space made one."""
    return text.replace("\u00a0", " ")


def test_unknown_fields_are_let_pass(pair: Pair) -> None:
    body = pb.PutRequest(key=b"k", value=b"v").SerializeToString() + b"\xf2\x3f\x03new"
    assert [raw(side, METHODS["Put"].path, body).code for side in pair.sides] == ["OK", "OK"]
    pair.play("Range", WHOLE)


# Names nobody serves.


@pytest.mark.parametrize(
    "path",
    [
        "/etcdserverpb.KV/Nothing",
        "/etcdserverpb.Nothing/Range",
        "/nothing.at.All/Range",
        "/etcdserverpb.KV/range",
        "/etcdserverpb.KV/",
        "/etcdserverpb.KV",
        "/x",
        "//",
    ],
)
def test_unknown_methods(pair: Pair, path: str) -> None:
    ours, etcd = raw_refusals(pair, path, b"")
    assert ours.code == "UNIMPLEMENTED"
    assert ours.text == etcd.text
    if "malformed" not in ours.text or not pair.peer.has("paths that are no methods"):
        assert ours.code == etcd.code


@pytest.mark.parametrize("service", ["", "etcdserverpb.Health", "nobody"])
def test_health(pair: Pair, service: str) -> None:
    pair.play("HealthCheck", {"service": service})


# Leases.


def test_a_lease_without_an_id_gets_one(pair: Pair) -> None:
    for side in pair.sides:
        granted = side.call("LeaseGrant", TTL=100).message
        assert granted.ID > 0
        assert granted.TTL == 100
        assert side.call("LeaseRevoke", ID=granted.ID).code == "OK"


@pytest.mark.parametrize("ttl_s", [1, 0, -1, -(2**63)])
def test_short_leases_live_as_long_as_an_election(pair: Pair, ttl_s: int) -> None:
    pair.play("LeaseGrant", {"ID": 9, "TTL": ttl_s})
    pair.play("LeaseTimeToLive", {"ID": 9})
    pair.play("KeepAlive", {"leases": [9]})
    pair.play("LeaseRevoke", {"ID": 9})


def test_an_expired_lease_takes_its_keys_along(pair: Pair) -> None:
    for lease, keys in ((21, (b"b", b"a", b"c")), (22, (b"d",))):
        pair.play("LeaseGrant", {"ID": lease, "TTL": 1 if lease == 21 else 1000})
        for key in keys:
            pair.play("Put", {"key": key, "value": b"v", "lease": lease})
    before = pair.now
    found = []
    for streams in streams_of(pair):
        for stream in streams:
            create = pb.WatchCreateRequest(
                key=b"\0", range_end=b"\0", start_revision=before, prev_kv=True
            )
            stream.send(create_request=create)
        for stream in streams:
            stream.wait(lambda stream=stream: len(stream.events()[0]) == 4, "the expiry")  # type: ignore[misc]
            found.append(stream.events()[0])
            check_story(stream)
    assert found[0] == found[1]
    assert [each.kv.key for each in found[0]] == [b"d", b"a", b"b", b"c"]
    assert {each.kv.mod_revision for each in found[0][1:]} == {before + 1}
    pair.now = before + 1
    pair.play("LeaseTimeToLive", {"ID": 21, "keys": True})
    pair.play("KeepAlive", {"leases": [21, 22]})
    pair.play("Put", {"key": b"a", "lease": 21})


# Alarms.


@pytest.mark.parametrize("alarm", [pb.AlarmType.NOSPACE, pb.AlarmType.CORRUPT])
def test_what_an_alarm_forbids(pair: Pair, alarm: int) -> None:
    pair.play("Put", {"key": b"a", "value": b"1"})
    pair.play("LeaseGrant", {"ID": 5, "TTL": 1000})
    pair.play("Alarm", {"action": 1, "memberID": Self(), "alarm": alarm})
    for name, request in (
        ("Put", {"key": b"a", "value": b"2"}),
        ("Range", {"key": b"a"}),
        ("Range", {"key": b"a", "serializable": True}),
        ("Txn", {"success": [{"request_range": {"key": b"a"}}]}),
        ("Txn", {"success": [put_op(1)]}),
        ("Txn", {"failure": [put_op(1)]}),
        ("Txn", {"success": [{"request_delete_range": {"key": b"x"}}]}),
        ("LeaseGrant", {"ID": 6, "TTL": 1000}),
        ("KeepAlive", {"leases": [5]}),
        ("LeaseTimeToLive", {"ID": 5}),
        ("LeaseRevoke", {"ID": 5}),
        ("DeleteRange", {"key": b"a"}),
        ("Compact", {"revision": Now(0)}),
        ("Status", {}),
        ("HashKV", {}),
        ("MemberList", {}),
        ("HealthCheck", {}),
        ("Alarm", {"alarm": alarm}),
        ("Alarm", {"action": 2, "memberID": Self(), "alarm": alarm}),
        ("Put", {"key": b"a", "value": b"3"}),
    ):
        pair.play(name, request)


def test_no_space_forbids_puts_in_nested_transactions(pair: Pair) -> None:
    pair.play("Alarm", {"action": 1, "memberID": Self(), "alarm": pb.AlarmType.NOSPACE})
    request = {"success": [{"request_txn": {"failure": [put_op(1)]}}]}
    if pair.peer.has("cost of nested transactions"):
        outcome = pair.ours.call("Txn", **request)
    else:
        outcome = pair.play("Txn", request)[0]
    assert (outcome.code, outcome.text) == (
        "RESOURCE_EXHAUSTED",
        "etcdserver: mvcc: database space exceeded",
    )


@pytest.mark.parametrize("request_", [{"action": 3}, {"action": -1}, {"action": 1, "alarm": 9}])
def test_unknown_alarms_do_not_end_this_server(pair: Pair, request_: dict[str, int]) -> None:
    pair.ours.call("Alarm", **request_)  # etcd dies of it
    assert pair.ours.call("Range", key=b"a").code == "OK"
    pair.ours.call("Alarm", action=2, alarm=9)
    assert not pair.ours.call("Alarm").message.alarms


def test_defragment(pair: Pair) -> None:
    pair.play("Put", {"key": b"a", "value": b"1"})
    ours, etcd = pair.play("Defragment", {})
    assert not ours.message.HasField("header")
    assert not etcd.message.HasField("header")
    pair.play("Range", WHOLE)


def test_hasleader_metadata_is_welcome(pair: Pair) -> None:
    body = pb.RangeRequest(key=b"a").SerializeToString()
    for side in pair.sides:
        call = raw_grpc.unary(side.channel, METHODS["Range"].path)
        assert call(body, metadata=(("hasleader", "true"),), timeout=10)


def test_an_oversized_stream_request_ends_the_stream_alike(pair: Pair) -> None:
    body = pb.WatchRequest(
        create_request=pb.WatchCreateRequest(key=b"k" * (RECEIVE_BYTES_MAX + 1))
    ).SerializeToString()
    found = []
    for side in pair.sides:
        call = raw_grpc.stream(side.channel, "/etcdserverpb.Watch/Watch")(iter([body]), timeout=10)
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        found.append((caught.value.code(), caught.value.details()))
    assert found[0] == found[1]
