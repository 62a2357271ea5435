"""Encodes requests. The frequent ones are encoded here, the rest by the protobuf library.

    Range(b"k")                     0a 01 6b
    Put(b"k", b"v", lease=7)        0a 01 6b  12 01 76  18 07

A field is its tag, for bytes their length, and the value. Zeros are mostly left out, as protobuf
does, but never the operand of a compare, because its field selects the target. This code exists for
speed: it runs for every call (bench/micro/test_client.py); a test compares it with the protobuf
library.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kvstore.client.values import Compare, Delete, Op, Put, Range, Relation, Target, Txn
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import SMALL, SMALL_MAX, int64, varint

# By Target; an enumeration's members are numbers.
_TARGET_TAGS: Final = (b"\x20", b"\x28", b"\x30", b"\x3a", b"\x40")
# By Relation and Target: the fields of both.
_COMPARE_HEADS: Final = tuple(
    tuple(
        (b"\x08%c" % relation if relation else b"") + (b"\x10%c" % target if target else b"")
        for target in Target
    )
    for relation in Relation
)
_RANGE_END_TAG: Final = b"\x82\x04"  # field 64
PROGRESS_REQUEST: Final = b"\x1a\x00"


def get_request(key: bytes, revision: int, *, serializable: bool) -> bytes:
    """Return the RangeRequest of one key."""
    size = len(key)
    body = b"\n%b%b" % (SMALL[size] if size < SMALL_MAX else varint(size), key)
    if revision:
        body += b"\x20" + int64(revision)
    return body + b"\x38\x01" if serializable else body


def range_request(op: Range) -> bytes:
    """Return a RangeRequest."""
    key, *rest = op
    size = len(key)
    body = b"\n%b%b" % (SMALL[size] if size < SMALL_MAX else varint(size), key)
    return body + _range_rest(op) if any(rest) else body


def _range_rest(op: Range) -> bytes:
    """Return what a RangeRequest has besides a key."""
    body = b""
    if op.end:
        body += b"\x12" + varint(len(op.end)) + op.end
    if op.limit:
        body += b"\x18" + int64(op.limit)
    if op.revision:
        body += b"\x20" + int64(op.revision)
    if op.sort_order:
        body += b"\x28" + varint(op.sort_order)
    if op.sort_target:
        body += b"\x30" + varint(op.sort_target)
    if op.serializable:
        body += b"\x38\x01"
    if op.keys_only:
        body += b"\x40\x01"
    if op.count_only:
        body += b"\x48\x01"
    return body


def put_request(op: Put) -> bytes:
    """Return a PutRequest."""
    key, value, lease, prev_kv, ignore_value, ignore_lease = op
    key_size, value_size = len(key), len(value)
    body = b"\n%b%b\x12%b%b" % (
        SMALL[key_size] if key_size < SMALL_MAX else varint(key_size),
        key,
        SMALL[value_size] if value_size < SMALL_MAX else varint(value_size),
        value,
    )
    if lease:
        body += b"\x18" + int64(lease)
    if prev_kv:
        body += b"\x20\x01"
    if ignore_value:
        body += b"\x28\x01"
    if ignore_lease:
        body += b"\x30\x01"
    return body


def delete_request(op: Delete) -> bytes:
    """Return a DeleteRangeRequest."""
    body = b"\n" + varint(len(op.key)) + op.key
    if op.end:
        body += b"\x12" + varint(len(op.end)) + op.end
    return body + b"\x18\x01" if op.prev_kv else body


def txn_request(compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]) -> bytes:
    """Return a TxnRequest."""
    parts = [_compare(each) for each in compares]
    for op in success:
        body = _OPS[type(op)](op)
        size = len(body)
        parts.append(b"\x12" + (SMALL[size] if size < SMALL_MAX else varint(size)))
        parts.append(body)
    for op in failure:
        body = _OPS[type(op)](op)
        size = len(body)
        parts.append(b"\x1a" + (SMALL[size] if size < SMALL_MAX else varint(size)))
        parts.append(body)
    return b"".join(parts)


def changes_nothing(*branches: Sequence[Op]) -> bool:
    """Return whether a transaction only reads, whichever branch it takes."""
    for branch in branches:
        for op in branch:
            kind = type(op)
            if kind is Range:
                continue
            if isinstance(op, Txn) and changes_nothing(op.success, op.failure):
                continue
            return False
    return True


def _compare(compare: Compare) -> bytes:
    """Return a compare as a field of a TxnRequest."""
    key, target, operand, relation, end = compare
    size = len(key)
    if type(operand) is int:
        value = varint(operand) if operand >= 0 else int64(operand)
    else:
        assert isinstance(operand, bytes)
        value = varint(len(operand)) + operand
    body = b"%b\x1a%b%b%b%b" % (
        _COMPARE_HEADS[relation][target],
        SMALL[size] if size < SMALL_MAX else varint(size),
        key,
        _TARGET_TAGS[target],
        value,
    )
    if end:
        body += _RANGE_END_TAG + varint(len(end)) + end
    size = len(body)
    return b"\n%b%b" % (SMALL[size] if size < SMALL_MAX else varint(size), body)


def _range_op(op: Range) -> bytes:
    body = range_request(op)
    size = len(body)
    return b"\n%b%b" % (SMALL[size] if size < SMALL_MAX else varint(size), body)


def _put_op(op: Put) -> bytes:
    body = put_request(op)
    size = len(body)
    return b"\x12%b%b" % (SMALL[size] if size < SMALL_MAX else varint(size), body)


def _delete_op(op: Delete) -> bytes:
    body = delete_request(op)
    return b"\x1a" + varint(len(body)) + body


def _txn_op(op: Txn) -> bytes:
    body = txn_request(op.compares, op.success, op.failure)
    return b"\x22" + varint(len(body)) + body


# RequestOps by their type; the types are the keys', which a type checker cannot see.
_OPS: Final[dict[type, Callable[..., bytes]]] = {
    Range: _range_op,
    Put: _put_op,
    Delete: _delete_op,
    Txn: _txn_op,
}


def watch_create(
    key: bytes,
    end: bytes,
    watch_id: int,
    start_revision: int,
    *,
    prev_kv: bool,
    filters: Sequence[pb.WatchCreateRequest.FilterType],
    progress_notify: bool,
) -> bytes:
    """Return the WatchRequest that begins a watch; large answers may come in fragments."""
    create = pb.WatchCreateRequest(
        key=key,
        range_end=end,
        start_revision=start_revision,
        progress_notify=progress_notify,
        filters=filters,
        prev_kv=prev_kv,
        watch_id=watch_id,
        fragment=True,
    )
    return pb.WatchRequest(create_request=create).SerializeToString()


def watch_cancel(watch_id: int) -> bytes:
    """Return the WatchRequest that ends a watch."""
    cancel = pb.WatchCancelRequest(watch_id=watch_id)
    return pb.WatchRequest(cancel_request=cancel).SerializeToString()
