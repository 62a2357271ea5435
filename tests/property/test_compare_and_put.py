"""Runs of planned transactions and the general way: the same answers, events, rows and leases."""

from hypothesis import given
from hypothesis import strategies as st

from kvstore.apply.compare_and_put import plan
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.wire.columns import swap_replies
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
            key=draw(KEYS),
            revision=draw(st.sampled_from([0, 0, 0, 1])),
            keys_only=draw(st.sampled_from([False, False, False, True])),
        )
        request.failure.append(pb.RequestOp(request_range=read))
    return request


@given(st.lists(transactions(), max_size=25), st.sampled_from([0, 1]))
def test_a_run_and_one_by_one(requests: list[pb.TxnRequest], quota_bytes: int) -> None:
    together, apart = ApplierParts(quota_bytes), ApplierParts(quota_bytes)
    planned = [(each, shape) for each in requests if (shape := plan(each)) is not None]
    swaps, values = [swap for _, (swap, _) in planned], [value for _, (_, value) in planned]
    found = together.applier.swap_run(swaps, values) if planned else None
    if quota_bytes:
        assert found is None
        assert together.view() == ApplierParts(quota_bytes).view()
    if found is None:
        return
    answers = dict(found.refused)
    left = [at for at in range(len(planned)) if at not in answers]
    header = together.applier.header_parts()
    replies = swap_replies(left, bytes(found.outcomes), found.revisions, found.kvs, header)
    for _, code, response in replies:
        assert code == 0
        pb.TxnResponse.FromString(response)
    expected = [apart.applier.txn(request, NO_CREDENTIAL) for request, _ in planned]
    assert {**answers, **{at: response for at, _, response in replies}} == dict(enumerate(expected))
    assert together.view() == apart.view()


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
        pb.TxnRequest(
            compare=[absent],
            success=[put],
            failure=[pb.RequestOp(request_range=pb.RangeRequest(key=b"k", limit=1))],
        ),
        pb.TxnRequest(
            compare=[absent],
            success=[pb.RequestOp(request_put=pb.PutRequest(key=b"k", prev_kv=True))],
        ),
    ):
        assert plan(other) is None
