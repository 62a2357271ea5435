"""Refusals of requests, in etcd's order."""

import pytest

from kvstore.errors import (
    DUPLICATE_KEY,
    EMPTY_KEY,
    INVALID_SORT_OPTION,
    KEY_NOT_FOUND,
    LEASE_PROVIDED,
    STREAM_FILTER,
    STREAM_SORT,
    TOO_MANY_OPS,
    VALUE_PROVIDED,
    Refusal,
)
from kvstore.wire.checks import (
    check_delete_range,
    check_put,
    check_range,
    check_range_stream,
    check_txn,
)
from kvstore.wire.gen import rpc_pb2 as pb

EMPTY_OP = pb.RequestOp()

ASCEND, DESCEND = pb.RangeRequest.ASCEND, pb.RangeRequest.DESCEND
MOD, VALUE = pb.RangeRequest.MOD, pb.RangeRequest.VALUE


def put(key: str) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key.encode()))


def delete(key: str, end: str = "") -> pb.RequestOp:
    return pb.RequestOp(
        request_delete_range=pb.DeleteRangeRequest(key=key.encode(), range_end=end.encode())
    )


def get(key: str) -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key.encode()))


def txn(then: list[pb.RequestOp], otherwise: list[pb.RequestOp] | None = None) -> pb.RequestOp:
    return pb.RequestOp(request_txn=pb.TxnRequest(success=then, failure=otherwise or []))


def refused(*ops: pb.RequestOp, ops_max: int = 128) -> Refusal | None:
    """Check ops as either branch; the answer must not depend on which."""
    as_success = check_txn(pb.TxnRequest(success=ops), ops_max)
    as_failure = check_txn(pb.TxnRequest(failure=ops), ops_max)
    assert as_success == as_failure
    return as_success


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (pb.RangeRequest(key=b"a", range_end=b"\0", sort_order=DESCEND, sort_target=VALUE), None),
        (pb.RangeRequest(range_end=b"\0"), EMPTY_KEY),
        (pb.RangeRequest(key=b"a", sort_order=3), INVALID_SORT_OPTION),  # type: ignore[arg-type]  # no such one
        (pb.RangeRequest(key=b"a", sort_order=-1), INVALID_SORT_OPTION),  # type: ignore[arg-type]  # no such one
        (pb.RangeRequest(key=b"a", sort_target=5), INVALID_SORT_OPTION),  # type: ignore[arg-type]  # no such one
        (pb.RangeRequest(sort_target=5), EMPTY_KEY),  # type: ignore[arg-type]  # no such one
        (pb.RangeRequest(key=b"a", revision=-5, limit=-1), None),
    ],
)
def test_range(request_: pb.RangeRequest, expected: Refusal | None) -> None:
    assert check_range(request_) == expected


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (pb.RangeRequest(key=b"a"), None),
        (pb.RangeRequest(key=b"a", sort_order=ASCEND), None),
        (pb.RangeRequest(key=b"a", sort_target=MOD), None),
        (pb.RangeRequest(key=b"a", sort_order=ASCEND, sort_target=MOD), STREAM_SORT),
        (pb.RangeRequest(key=b"a", sort_order=DESCEND), STREAM_SORT),
        (pb.RangeRequest(key=b"a", sort_order=3), INVALID_SORT_OPTION),  # type: ignore[arg-type]  # no such one
        (pb.RangeRequest(key=b"a", min_mod_revision=1), STREAM_FILTER),
        (pb.RangeRequest(key=b"a", max_mod_revision=1), STREAM_FILTER),
        (pb.RangeRequest(key=b"a", min_create_revision=1), STREAM_FILTER),
        (pb.RangeRequest(key=b"a", max_create_revision=-1), STREAM_FILTER),
        (pb.RangeRequest(key=b"a", max_create_revision=1, sort_order=DESCEND), STREAM_SORT),
        (pb.RangeRequest(), EMPTY_KEY),
    ],
)
def test_range_stream(request_: pb.RangeRequest, expected: Refusal | None) -> None:
    assert check_range_stream(request_) == expected


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (pb.PutRequest(key=b"a"), None),
        (pb.PutRequest(value=b"v"), EMPTY_KEY),
        (pb.PutRequest(key=b"a", ignore_value=True), None),
        (pb.PutRequest(key=b"a", value=b"v", ignore_value=True), VALUE_PROVIDED),
        (pb.PutRequest(key=b"a", lease=1, ignore_lease=True), LEASE_PROVIDED),
        (
            pb.PutRequest(key=b"a", value=b"v", lease=1, ignore_value=True, ignore_lease=True),
            VALUE_PROVIDED,
        ),
    ],
)
def test_put(request_: pb.PutRequest, expected: Refusal | None) -> None:
    assert check_put(request_) == expected


def test_delete() -> None:
    assert check_delete_range(pb.DeleteRangeRequest(key=b"a")) is None
    assert check_delete_range(pb.DeleteRangeRequest(range_end=b"a")) == EMPTY_KEY


def test_checks_of_single_operations_inside_a_transaction() -> None:
    assert refused() is None
    assert refused(EMPTY_OP) == KEY_NOT_FOUND
    assert refused(txn([put("a"), EMPTY_OP])) == KEY_NOT_FOUND
    assert refused(put(""), EMPTY_OP) == EMPTY_KEY
    assert refused(get("")) == EMPTY_KEY
    assert refused(delete("")) == EMPTY_KEY
    bad_put = pb.RequestOp(request_put=pb.PutRequest(key=b"a", value=b"v", ignore_value=True))
    assert refused(txn([], [bad_put])) == VALUE_PROVIDED
    bad_sort = pb.RequestOp(request_range=pb.RangeRequest(key=b"a", sort_order=9))  # type: ignore[arg-type]  # no such one
    assert refused(bad_sort) == INVALID_SORT_OPTION
    assert check_txn(pb.TxnRequest(compare=[pb.Compare()]), 128) == EMPTY_KEY
    both = pb.TxnRequest(compare=[pb.Compare()], success=[EMPTY_OP])
    assert check_txn(both, 128) == EMPTY_KEY


def test_each_list_is_limited() -> None:
    compare = pb.Compare(key=b"a")
    assert refused(*[get("a")] * 4, ops_max=4) is None
    assert refused(*[get("a")] * 5, ops_max=4) == TOO_MANY_OPS
    assert check_txn(pb.TxnRequest(compare=[compare] * 4), 4) is None
    assert check_txn(pb.TxnRequest(compare=[compare] * 5), 4) == TOO_MANY_OPS


def test_nested_lists_share_the_limit_of_their_parents_widest() -> None:
    def nested(width: int) -> pb.TxnRequest:
        return pb.TxnRequest(compare=[pb.Compare(key=b"a")] * 2, success=[txn([get("a")] * width)])

    assert check_txn(nested(3), 5) is None
    assert check_txn(nested(4), 5) == TOO_MANY_OPS
    chain = txn([])
    for _ in range(3):
        chain = txn([chain])
    assert refused(chain, ops_max=4) is None
    assert refused(txn([chain]), ops_max=4) == TOO_MANY_OPS


def test_the_count_is_checked_before_the_operations() -> None:
    assert refused(*[EMPTY_OP] * 5, ops_max=4) == TOO_MANY_OPS
    assert refused(put("a"), put("a"), EMPTY_OP) == KEY_NOT_FOUND


@pytest.mark.parametrize(
    "ops",
    [
        [put("a"), put("b")],
        [put("a"), delete("b")],
        [put("c"), delete("a", "c")],
        [delete("a"), delete("a", "z"), delete("a")],
        [put("b"), delete("b", "a")],
        [put("b"), delete("b", "b")],
        [put("b"), delete("a", "\0")],  # from a on: etcd sees no overlap
        [txn([put("a")], [put("a")])],
        [txn([put("a")], [delete("a")])],
        [txn([put("a")]), txn([delete("a")])],
        [txn([txn([put("a")], [put("a")])], [txn([put("a")])])],
        [get("a"), put("a")],
    ],
)
def test_writes_that_do_not_conflict(ops: list[pb.RequestOp]) -> None:
    assert refused(*ops) is None


@pytest.mark.parametrize(
    "ops",
    [
        [put("a"), put("a")],
        [put("a"), delete("a")],
        [delete("a"), put("a")],
        [put("a"), delete("a", "c")],
        [put("b"), delete("a", "c")],
        [put("b"), delete("a", "b"), delete("b", "c")],
        [put("a\0"), delete("a", "b")],
        [put("a"), txn([put("a")])],
        [put("a"), txn([], [put("a")])],
        [put("b"), txn([delete("a", "c")])],
        [delete("a", "c"), txn([], [put("b")])],
        [txn([put("a")]), txn([], [put("a")])],
        [txn([delete("a")]), txn([put("a")])],
        [txn([put("a"), put("a")])],
        [txn([txn([put("a")])]), txn([txn([put("a")])])],
    ],
)
def test_writes_that_conflict(ops: list[pb.RequestOp]) -> None:
    assert refused(*ops) == DUPLICATE_KEY


def test_many_deletions_stay_one_sorted_set() -> None:
    deletions = [delete(f"{n:03}") for n in range(0, 100, 2)]
    puts = [put(f"{n:03}") for n in range(1, 100, 2)]
    assert refused(*deletions, *puts, ops_max=200) is None
    assert refused(*deletions, *puts, put("050"), ops_max=200) == DUPLICATE_KEY
    assert refused(*deletions, *puts, delete("020", "022"), ops_max=200) == DUPLICATE_KEY
