"""Planned transactions and the general way: the same answers, events, rows and leases."""

from hypothesis import given
from hypothesis import strategies as st

from kvstore.apply.compare_and_put import plan
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.applier_parts import LEASE, ApplierParts

KEYS = st.sampled_from([b"", b"a", b"b", b"c"])


@st.composite
def transactions(draw: st.DrawFn) -> pb.TxnRequest:
    """Mostly of the planned shape, now and then a little beside it."""
    compare = pb.Compare(
        key=draw(KEYS),
        target=draw(st.sampled_from([0, 1, 2, 3, 9])),  # type: ignore[arg-type]
        result=draw(st.sampled_from([0, 1, 2, 3, 9])),  # type: ignore[arg-type]
        range_end=draw(st.sampled_from([b"", b"", b"", b"z"])),
    )
    number = draw(st.integers(-1, 6))
    if compare.target == pb.Compare.VERSION:
        compare.version = number
    elif compare.target == pb.Compare.CREATE:
        compare.create_revision = number
    elif compare.target == pb.Compare.MOD:
        compare.mod_revision = number
    put = pb.PutRequest(
        key=draw(KEYS),
        value=draw(st.binary(max_size=3)),
        lease=draw(st.sampled_from([0, 0, LEASE, 99])),
        prev_kv=draw(st.sampled_from([False, False, True])),
        ignore_lease=draw(st.sampled_from([False, False, False, True])),
    )
    request = pb.TxnRequest(compare=[compare], success=[pb.RequestOp(request_put=put)])
    if draw(st.booleans()):
        read = pb.RangeRequest(
            key=draw(KEYS), revision=draw(st.sampled_from([0, 0, 1])), keys_only=draw(st.booleans())
        )
        request.failure.append(pb.RequestOp(request_range=read))
    return request


@given(st.lists(transactions(), max_size=25), st.sampled_from([0, 1]))
def test_both_ways_end_the_same(requests: list[pb.TxnRequest], quota_bytes: int) -> None:
    planned_parts, general_parts = ApplierParts(quota_bytes), ApplierParts(quota_bytes)
    count = 0
    for request in requests:
        planned = plan(request)
        if planned is None:
            continue
        count += 1
        answers = (
            planned_parts.applier.compare_and_put(planned, NO_CREDENTIAL),
            general_parts.applier.txn(request, NO_CREDENTIAL),
        )
        assert answers[0] == answers[1]
        if isinstance(answers[0], bytes):
            pb.TxnResponse.FromString(answers[0])
    assert planned_parts.view() == general_parts.view()


def test_the_shapes_that_are_planned() -> None:
    put = pb.RequestOp(request_put=pb.PutRequest(key=b"k", value=b"v"))
    read = pb.RequestOp(request_range=pb.RangeRequest(key=b"k"))
    absent = pb.Compare(key=b"k", target=pb.Compare.MOD, result=pb.Compare.EQUAL)
    assert plan(pb.TxnRequest(compare=[absent], success=[put], failure=[read])) is not None
    assert plan(pb.TxnRequest(compare=[absent], success=[put])) is not None
    for other in (
        pb.TxnRequest(success=[put]),
        pb.TxnRequest(compare=[absent, absent], success=[put]),
        pb.TxnRequest(compare=[absent], success=[put, put]),
        pb.TxnRequest(compare=[absent], success=[read]),
        pb.TxnRequest(compare=[absent], success=[put], failure=[put]),
        pb.TxnRequest(compare=[absent], success=[pb.RequestOp()]),
        pb.TxnRequest(compare=[pb.Compare(target=pb.Compare.MOD)], success=[put]),
    ):
        assert plan(other) is None
