"""The transactions of leasing, as etcd's client/v3/leasing sends them.

    leasing key of k     <prefix>k, value "", attached to the lease of the owner's session
    acquire              no leasing key, and k has no lease ─► read k, put the leasing key
    revoke               put "REVOKE" to the leasing key, which keeps its lease
    rescind              the owner deletes the leasing key
    guarded write        each written key is ours or has no owner ─► the write, as a whole

A guard compares the leasing key's create revision: 0 for no owner, else that of our leasing key.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kvstore.apply.txn import compare_holds
from kvstore.proxy.key_ranges import KeyRange
from kvstore.proxy.leasing.owned_keys import OwnedKey
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb

REVOKE: Final = b"REVOKE"

Row = kv_pb2.KeyValue | None


def created_is(leasing_key: bytes, revision: int) -> pb.Compare:
    """Return the compare that a leasing key was created at revision; 0: that there is none."""
    return pb.Compare(
        target=pb.Compare.CREATE, result=pb.Compare.EQUAL, key=leasing_key, create_revision=revision
    )


def none_created_after(start: bytes, end: bytes, revision: int) -> pb.Compare:
    """Return the compare that no leasing key in a range was created after revision."""
    return pb.Compare(
        target=pb.Compare.CREATE,
        result=pb.Compare.LESS,
        key=start,
        range_end=end,
        create_revision=revision + 1,
    )


def read(key: bytes) -> pb.RequestOp:
    """Return the operation that reads a key."""
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


def acquisition(key: bytes, leasing_key: bytes, lease_id: int) -> pb.TxnRequest:
    """Return the attempt to own a key; its first response is the key's row in both branches."""
    has_no_lease = pb.Compare(target=pb.Compare.LEASE, result=pb.Compare.EQUAL, key=key, lease=0)
    put = pb.PutRequest(key=leasing_key, lease=lease_id)
    return pb.TxnRequest(
        compare=[created_is(leasing_key, 0), has_no_lease],
        success=[read(key), pb.RequestOp(request_put=put)],
        failure=[read(key), read(leasing_key)],
    )


def revocation(row: kv_pb2.KeyValue) -> pb.TxnRequest:
    """Return the request to the owner to release its leasing key, if it is still this one."""
    put = pb.PutRequest(key=row.key, value=REVOKE, ignore_lease=True)
    return pb.TxnRequest(
        compare=[created_is(row.key, row.create_revision)],
        success=[pb.RequestOp(request_put=put)],
    )


def rescission(leasing_key: bytes, created: int) -> pb.TxnRequest:
    """Return the deletion of our leasing key, if it is still this one."""
    delete = pb.DeleteRangeRequest(key=leasing_key)
    return pb.TxnRequest(
        compare=[created_is(leasing_key, created)],
        success=[pb.RequestOp(request_delete_range=delete)],
    )


def first_row(operation: pb.ResponseOp) -> Row:
    """Return the row that the read of one key found."""
    found = operation.response_range.kvs
    return found[0] if found else None


# Responses from owned keys.


def reads_one_current_key(request: pb.RangeRequest) -> bool:
    """Return whether a request reads one key at the current revision and is valid."""
    return bool(
        request.key
        and not request.range_end
        and not request.revision
        and request.sort_order in pb.RangeRequest.SortOrder.values()
        and request.sort_target in pb.RangeRequest.SortTarget.values()
    )


def answer(request: pb.RangeRequest, header: pb.ResponseHeader, row: Row) -> pb.RangeResponse:
    """Return the cluster's response to the read of one key that has row."""
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


def read_keys(request: pb.TxnRequest) -> Iterator[bytes] | None:
    """Return the keys of a transaction that only reads single keys at the current revision."""
    operations = [*request.success, *request.failure]
    if any(compare.range_end for compare in request.compare):
        return None
    if any(each.WhichOneof("request") != "request_range" for each in operations):
        return None
    if not all(reads_one_current_key(each.request_range) for each in operations):
        return None
    keys = [compare.key for compare in request.compare]
    return iter([*keys, *(each.request_range.key for each in operations)])


def evaluate(
    request: pb.TxnRequest, header: pb.ResponseHeader, rows: dict[bytes, Row]
) -> pb.TxnResponse:
    """Return the cluster's response to a transaction that only reads rows."""
    succeeded = all(compare_holds(compare, rows[compare.key]) for compare in request.compare)
    inner = pb.ResponseHeader(revision=header.revision)
    response = pb.TxnResponse(header=header, succeeded=succeeded)
    for operation in request.success if succeeded else request.failure:
        asked = operation.request_range
        found = answer(asked, inner, rows[asked.key])
        response.responses.append(pb.ResponseOp(response_range=found))
    return response


# The effects of a guarded write.


def rows_after(response: pb.TxnResponse, singles: Sequence[OwnedKey]) -> list[Row]:
    """Return the rows of the owned keys after a write, from the reads in its transaction."""
    return [first_row(each) for each in response.responses[1 : 1 + len(singles)]]


def deleted_spans(operation: pb.RequestOp, done: pb.ResponseOp) -> Iterator[KeyRange]:
    """Yield the ranges that were deleted, at any depth."""
    kind = operation.WhichOneof("request")
    if kind == "request_delete_range":
        request = operation.request_delete_range
        if request.range_end:
            yield request.key, request.range_end
    elif kind == "request_txn":
        inner = done.response_txn
        branch = operation.request_txn.success if inner.succeeded else operation.request_txn.failure
        for each, its_response in zip(branch, inner.responses, strict=True):
            yield from deleted_spans(each, its_response)
