"""The client's codecs against the protobuf library, and the two decoders against one another.

The rule: what is put together by hand reads back as the message that was meant; both decoders make
the same values of any answer; damaged bytes give a value or a ValueError, and nothing else.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.component import crate
from kvstore.client.codec import encode
from kvstore.client.codec.decode import Decoder, PortableDecoder, make_decoder
from kvstore.client.values import (
    Compare,
    Delete,
    Op,
    Put,
    Range,
    Relation,
    SortOrder,
    SortTarget,
    Target,
    Txn,
    prefix_end,
)
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import varint

QUICK = settings(derandomize=True, deadline=None)

int64s = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 300)
counts = st.integers(0, 2**63 - 1) | st.integers(0, 300)
bodies = st.binary(max_size=300) | st.binary(min_size=127, max_size=129)
flags = st.booleans()

ranges = st.builds(
    Range, bodies, bodies, counts, counts, flags, flags, flags,
    st.sampled_from(SortOrder), st.sampled_from(SortTarget),
)  # fmt: skip
puts = st.builds(Put, bodies, bodies, int64s, flags, flags, flags)
deletes = st.builds(Delete, bodies, bodies, flags)
compares = st.sampled_from(Target).flatmap(
    lambda target: st.builds(
        Compare,
        bodies,
        st.just(target),
        bodies if target is Target.VALUE else int64s,
        st.sampled_from(Relation),
        bodies,
    )
)
leaves = ranges | puts | deletes
ops = st.recursive(
    leaves,
    lambda inner: st.builds(
        Txn,
        st.lists(compares, max_size=2),
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=2),
    ),
    max_leaves=6,
)


def range_message(op: Range) -> pb.RangeRequest:
    return pb.RangeRequest(
        key=op.key, range_end=op.end, limit=op.limit, revision=op.revision,
        sort_order=int(op.sort_order), sort_target=int(op.sort_target),  # type: ignore[arg-type]
        serializable=op.serializable, keys_only=op.keys_only, count_only=op.count_only,
    )  # fmt: skip


def put_message(op: Put) -> pb.PutRequest:
    return pb.PutRequest(**op._asdict())


def delete_message(op: Delete) -> pb.DeleteRangeRequest:
    return pb.DeleteRangeRequest(key=op.key, range_end=op.end, prev_kv=op.prev_kv)


def compare_message(compare: Compare) -> pb.Compare:
    fields = {
        Target.VERSION: "version",
        Target.CREATE_REVISION: "create_revision",
        Target.MOD_REVISION: "mod_revision",
        Target.VALUE: "value",
        Target.LEASE: "lease",
    }
    operand: dict[str, Any] = {fields[compare.target]: compare.operand}
    return pb.Compare(
        result=int(compare.relation),  # type: ignore[arg-type]
        target=int(compare.target),  # type: ignore[arg-type]
        key=compare.key,
        range_end=compare.end,
        **operand,
    )


def op_message(op: Op) -> pb.RequestOp:
    if isinstance(op, Range):
        return pb.RequestOp(request_range=range_message(op))
    if isinstance(op, Put):
        return pb.RequestOp(request_put=put_message(op))
    if isinstance(op, Delete):
        return pb.RequestOp(request_delete_range=delete_message(op))
    return pb.RequestOp(request_txn=txn_message(op))


def txn_message(op: Txn) -> pb.TxnRequest:
    return pb.TxnRequest(
        compare=[compare_message(each) for each in op.compares],
        success=[op_message(each) for each in op.success],
        failure=[op_message(each) for each in op.failure],
    )


@QUICK
@given(ranges)
def test_ranges_are_what_was_meant(op: Range) -> None:
    assert pb.RangeRequest.FromString(encode.range_request(op)) == range_message(op)


@QUICK
@given(bodies.filter(bool), counts, flags)
def test_gets_are_what_was_meant(key: bytes, revision: int, serializable: bool) -> None:  # noqa: FBT001
    expected = pb.RangeRequest(key=key, revision=revision, serializable=serializable)
    found = encode.get_request(key, revision, serializable=serializable)
    assert found == expected.SerializeToString()


@QUICK
@given(puts, deletes)
def test_puts_and_deletes_are_what_was_meant(put: Put, delete: Delete) -> None:
    assert pb.PutRequest.FromString(encode.put_request(put)) == put_message(put)
    found = pb.DeleteRangeRequest.FromString(encode.delete_request(delete))
    assert found == delete_message(delete)


@QUICK
@given(st.lists(compares, max_size=3), st.lists(ops, max_size=3), st.lists(ops, max_size=3))
def test_transactions_are_what_was_meant(
    given_compares: list[Compare], success: list[Op], failure: list[Op]
) -> None:
    found = pb.TxnRequest.FromString(encode.txn_request(given_compares, success, failure))
    assert found == txn_message(Txn(given_compares, success, failure))
    changes = any(map(is_change, (*success, *failure)))
    assert encode.changes_nothing(success, failure) is not changes


def is_change(op: Op) -> bool:
    if isinstance(op, Txn):
        return any(map(is_change, (*op.success, *op.failure)))
    return not isinstance(op, Range)


@QUICK
@given(bodies, bodies, counts, counts, flags, flags)
def test_watches_are_what_was_meant(
    key: bytes,
    end: bytes,
    watch_id: int,
    revision: int,
    prev_kv: bool,  # noqa: FBT001
    progress: bool,  # noqa: FBT001
) -> None:
    found = pb.WatchRequest.FromString(
        encode.watch_create(
            key, end, watch_id, revision,
            prev_kv=prev_kv, filters=[pb.WatchCreateRequest.NODELETE], progress_notify=progress,
        )
    ).create_request  # fmt: skip
    assert (found.key, found.range_end, found.watch_id) == (key, end, watch_id)
    assert (found.start_revision, found.prev_kv) == (revision, prev_kv)
    assert (found.progress_notify, found.fragment, list(found.filters)) == (progress, True, [1])
    canceled = pb.WatchRequest.FromString(encode.watch_cancel(watch_id))
    assert canceled.cancel_request.watch_id == watch_id
    assert pb.WatchRequest.FromString(encode.PROGRESS_REQUEST).HasField("progress_request")


@QUICK
@given(bodies, bodies)
def test_a_prefix_has_its_end(prefix: bytes, rest: bytes) -> None:
    end = prefix_end(prefix)
    if end != b"\0":
        assert prefix <= prefix + rest < end
        assert not end.startswith(prefix)
    else:
        assert not prefix.strip(b"\xff")


# Answers.

key_values = st.builds(
    kv_pb2.KeyValue,
    key=bodies, create_revision=int64s, mod_revision=int64s, version=int64s, value=bodies,
    lease=int64s,
)  # fmt: skip
headers = st.none() | st.builds(
    pb.ResponseHeader, cluster_id=counts, member_id=counts, revision=int64s, raft_term=counts
)
range_answers = st.builds(
    pb.RangeResponse, header=headers, kvs=st.lists(key_values, max_size=4), more=flags, count=int64s
)
put_answers = st.builds(pb.PutResponse, header=headers, prev_kv=st.none() | key_values)
delete_answers = st.builds(
    pb.DeleteRangeResponse,
    header=headers,
    deleted=int64s,
    prev_kvs=st.lists(key_values, max_size=3),
)


def responses(inner: Any) -> Any:
    return (
        st.builds(pb.ResponseOp, response_range=range_answers)
        | st.builds(pb.ResponseOp, response_put=put_answers)
        | st.builds(pb.ResponseOp, response_delete_range=delete_answers)
        | st.builds(pb.ResponseOp, response_txn=inner)
    )


txn_answers = st.recursive(
    st.builds(pb.TxnResponse, header=headers, succeeded=flags),
    lambda inner: st.builds(
        pb.TxnResponse,
        header=headers,
        succeeded=flags,
        responses=st.lists(responses(inner), max_size=3),
    ),
    max_leaves=5,
)
events = st.builds(
    kv_pb2.Event, type=st.integers(0, 1), kv=key_values, prev_kv=st.none() | key_values
)
watch_answers = st.builds(
    pb.WatchResponse,
    header=headers, watch_id=int64s, created=flags, canceled=flags, compact_revision=int64s,
    cancel_reason=st.text(max_size=20), fragment=flags,
    events=st.lists(events, max_size=4),
)  # fmt: skip
ANSWERS: list[tuple[str, Any]] = [
    ("range", range_answers),
    ("put", put_answers),
    ("delete", delete_answers),
    ("txn", txn_answers),
    ("watch", watch_answers),
]


def reader(decoder: Decoder, name: str) -> Callable[[bytes], Any]:
    return getattr(decoder, name)


@pytest.mark.parametrize(("name", "answers"), ANSWERS, ids=[name for name, _ in ANSWERS])
def test_both_decoders_make_the_same(name: str, answers: Any) -> None:
    if crate.Decoder is None:
        pytest.skip(f"no crate: {crate.MISSING}")
    ours, portable = reader(make_decoder(), name), reader(PortableDecoder(), name)

    @QUICK
    @given(answers)
    def check(answer: Any) -> None:
        body = answer.SerializeToString()
        found, expected = ours(body), portable(body)
        assert found == expected
        assert type(found) is type(expected)

    check()


@pytest.mark.parametrize("make", [make_decoder, PortableDecoder])
@pytest.mark.parametrize(("name", "answers"), ANSWERS, ids=[name for name, _ in ANSWERS])
def test_damaged_answers_are_values_or_value_errors(
    name: str, answers: Any, make: Callable[[], Decoder]
) -> None:
    read = reader(make(), name)

    @QUICK
    @given(answers, st.data())
    def check(answer: Any, data: Any) -> None:
        body = bytearray(answer.SerializeToString() or b"\x12\x01\x0a")
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] ^= data.draw(st.integers(1, 255))
        end = data.draw(st.integers(0, len(body)))
        for damaged in (bytes(body), bytes(body[:end])):
            with suppress(ValueError):
                read(damaged)

    check()


@pytest.mark.parametrize("make", [make_decoder, PortableDecoder])
def test_nesting_ends(make: Callable[[], Decoder]) -> None:
    body = b""
    for _ in range(1000):
        inner = b"\x22" + varint(len(body)) + body
        body = b"\x1a" + varint(len(inner)) + inner
    with pytest.raises(ValueError, match=r".+"):
        make().txn(body)
    with pytest.raises(ValueError, match="missing"):
        make().txn(b"\x1a\x00")
