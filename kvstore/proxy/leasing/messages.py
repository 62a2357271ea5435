"""The transactions of leasing, as etcd's client/v3/leasing puts them on the wire.

    leasing key of k     <prefix>k, value "", bound to the owner's session
    acquire              no leasing key, and k has no lease ─► read k, put the leasing key
    revoke               put "REVOKE" on the leasing key, whose lease stays
    rescind              the owner deletes the leasing key
    guarded write        every written key is ours or nobody's ─► the write, as a whole

A guard names the leasing key's create revision: 0 for nobody's, else the one we created.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kvstore.apply.txn import compare_holds
from kvstore.proxy.leasing.owned_keys import Owned, Span
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb

REVOKE: Final = b"REVOKE"

Row = kv_pb2.KeyValue | None


def created_is(leasing_key: bytes, revision: int) -> pb.Compare:
    """Return the compare that a leasing key was created then; 0: that there is none."""
    return pb.Compare(
        target=pb.Compare.CREATE, result=pb.Compare.EQUAL, key=leasing_key, create_revision=revision
    )


def none_created_after(start: bytes, end: bytes, revision: int) -> pb.Compare:
    """Return the compare that no leasing key of a range is newer than revision."""
    return pb.Compare(
        target=pb.Compare.CREATE,
        result=pb.Compare.LESS,
        key=start,
        range_end=end,
        create_revision=revision + 1,
    )


def reading(key: bytes, end: bytes = b"") -> pb.RequestOp:
    """Return the operation that reads a key or a range."""
    return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=end))


def acquisition(key: bytes, leasing_key: bytes, lease_id: int) -> pb.TxnRequest:
    """Return the attempt to own a key; its first answer is what the key holds, either way."""
    unbound = pb.Compare(target=pb.Compare.LEASE, result=pb.Compare.EQUAL, key=key, lease=0)
    put = pb.PutRequest(key=leasing_key, lease=lease_id)
    return pb.TxnRequest(
        compare=[created_is(leasing_key, 0), unbound],
        success=[reading(key), pb.RequestOp(request_put=put)],
        failure=[reading(key), reading(leasing_key)],
    )


def revocation(row: kv_pb2.KeyValue) -> pb.TxnRequest:
    """Return the demand that the owner gives up its leasing key, if it is still this one."""
    put = pb.PutRequest(key=row.key, value=REVOKE, ignore_lease=True)
    return pb.TxnRequest(
        compare=[created_is(row.key, row.create_revision)],
        success=[pb.RequestOp(request_put=put)],
    )


def rescission(leasing_key: bytes, created: int) -> pb.TxnRequest:
    """Return the deletion of a leasing key of ours, if it is still this one."""
    delete = pb.DeleteRangeRequest(key=leasing_key)
    return pb.TxnRequest(
        compare=[created_is(leasing_key, created)],
        success=[pb.RequestOp(request_delete_range=delete)],
    )


def first_row(operation: pb.ResponseOp) -> Row:
    """Return what the read of one key found."""
    found = operation.response_range.kvs
    return found[0] if found else None


# Answers from what is owned.


def is_of_one_key_now(request: pb.RangeRequest) -> bool:
    """Tell whether a read is of one key as it is now, in a form the cluster would not refuse."""
    return bool(
        request.key
        and not request.range_end
        and not request.revision
        and request.sort_order in pb.RangeRequest.SortOrder.values()
        and request.sort_target in pb.RangeRequest.SortTarget.values()
    )


def answer(request: pb.RangeRequest, header: pb.ResponseHeader, row: Row) -> pb.RangeResponse:
    """Return what the cluster would answer to the read of one key that holds row."""
    response = pb.RangeResponse(header=header, count=0 if row is None else 1)
    if row is not None and not request.count_only and _passes(request, row):
        response.kvs.append(row)
        if request.keys_only:
            response.kvs[0].value = b""
    return response


def _passes(request: pb.RangeRequest, row: kv_pb2.KeyValue) -> bool:
    newest_mod = request.max_mod_revision or row.mod_revision
    newest_create = request.max_create_revision or row.create_revision
    return (
        request.min_mod_revision <= row.mod_revision <= newest_mod
        and request.min_create_revision <= row.create_revision <= newest_create
    )


def named_keys(request: pb.TxnRequest) -> Iterator[bytes] | None:
    """Return the keys a transaction looks at, if it is nothing but reads of single keys of now."""
    operations = [*request.success, *request.failure]
    if any(compare.range_end for compare in request.compare):
        return None
    if any(each.WhichOneof("request") != "request_range" for each in operations):
        return None
    if not all(is_of_one_key_now(each.request_range) for each in operations):
        return None
    keys = [compare.key for compare in request.compare]
    return iter([*keys, *(each.request_range.key for each in operations)])


def judged(
    request: pb.TxnRequest, header: pb.ResponseHeader, rows: dict[bytes, Row]
) -> pb.TxnResponse:
    """Return what the cluster would answer to a transaction that only looks at rows."""
    succeeded = all(compare_holds(compare, rows[compare.key]) for compare in request.compare)
    inner = pb.ResponseHeader(revision=header.revision)
    response = pb.TxnResponse(header=header, succeeded=succeeded)
    for operation in request.success if succeeded else request.failure:
        asked = operation.request_range
        found = answer(asked, inner, rows[asked.key])
        response.responses.append(pb.ResponseOp(response_range=found))
    return response


# What a guarded write did.


def rows_after(response: pb.TxnResponse, singles: Sequence[Owned]) -> list[Row]:
    """Return what the owned keys hold after a write, from the reads that followed it."""
    return [first_row(each) for each in response.responses[1 : 1 + len(singles)]]


def deleted_spans(operation: pb.RequestOp, done: pb.ResponseOp) -> Iterator[Span]:
    """Yield the ranges that were deleted, at any depth."""
    kind = operation.WhichOneof("request")
    if kind == "request_delete_range":
        request = operation.request_delete_range
        if request.range_end:
            yield request.key, request.range_end
    elif kind == "request_txn":
        inner = done.response_txn
        branch = operation.request_txn.success if inner.succeeded else operation.request_txn.failure
        for each, its_answer in zip(branch, inner.responses, strict=True):
            yield from deleted_spans(each, its_answer)
