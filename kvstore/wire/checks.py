"""The checks of requests that need no state.

    check_put(PutRequest(key=b"")) is EMPTY_KEY          check_txn(…) → DUPLICATE_KEY

The order of the checks decides which refusal a client sees, so it is etcd's. Transactions may be
nested: the limit of operations of a nested one is its parent's limit less the longest list of the
parent. Inside one transaction no key may be put twice, nor put and deleted, except that the two
branches of a nested transaction may put the same key, since only one of them runs:

    [put a, txn{then [put b], else [put b]}]   fine
    [put a, txn{then [put a]}]                 DUPLICATE_KEY
    [delete a..c, put b]                       DUPLICATE_KEY, in either order
    [txn{then [put b]}, txn{then [delete a..c]}]   fine: etcd compares with earlier deletes only

Leases, revisions, permissions and sizes are checked elsewhere.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

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
from kvstore.wire.gen import rpc_pb2 as pb

_SORT_ORDERS: Final = frozenset(pb.RangeRequest.SortOrder.values())
_SORT_TARGETS: Final = frozenset(pb.RangeRequest.SortTarget.values())


def check_range(request: pb.RangeRequest) -> Refusal | None:
    """Return why a range request is refused, or None."""
    if not request.key:
        return EMPTY_KEY
    if request.sort_order not in _SORT_ORDERS or request.sort_target not in _SORT_TARGETS:
        return INVALID_SORT_OPTION
    return None


def check_range_stream(request: pb.RangeRequest) -> Refusal | None:
    """Return why a range request is refused as a stream, or None."""
    refusal = check_range(request)
    if refusal is not None:
        return refusal
    order = request.sort_order
    if order == pb.RangeRequest.DESCEND or (
        order == pb.RangeRequest.ASCEND and request.sort_target != pb.RangeRequest.KEY
    ):
        return STREAM_SORT
    if (
        request.min_mod_revision
        or request.max_mod_revision
        or request.min_create_revision
        or request.max_create_revision
    ):
        return STREAM_FILTER
    return None


def check_put(request: pb.PutRequest) -> Refusal | None:
    """Return why a put is refused, or None."""
    if not request.key:
        return EMPTY_KEY
    if request.ignore_value and request.value:
        return VALUE_PROVIDED
    if request.ignore_lease and request.lease:
        return LEASE_PROVIDED
    return None


def check_delete_range(request: pb.DeleteRangeRequest) -> Refusal | None:
    """Return why a deletion is refused, or None."""
    return None if request.key else EMPTY_KEY


def check_txn(request: pb.TxnRequest, max_txn_ops: int) -> Refusal | None:
    """Return why a transaction is refused, or None; max_txn_ops limits each of its three lists."""
    return (
        _check_ops(request, max_txn_ops)
        or _check_writes(request.success)
        or _check_writes(request.failure)
    )


def _check_ops(request: pb.TxnRequest, ops_max: int) -> Refusal | None:
    compares, success, failure = request.compare, request.success, request.failure
    widest = max(len(compares), len(success), len(failure))
    if widest > ops_max:
        return TOO_MANY_OPS
    for compare in compares:
        if not compare.key:
            return EMPTY_KEY
    ops_max -= widest
    for branch in (success, failure):
        for op in branch:
            refusal = _check_op(op, ops_max)
            if refusal is not None:
                return refusal
    return None


def _check_op(op: pb.RequestOp, ops_max: int) -> Refusal | None:
    match op.WhichOneof("request"):
        case "request_range":
            return check_range(op.request_range)
        case "request_put":
            return check_put(op.request_put)
        case "request_delete_range":
            return check_delete_range(op.request_delete_range)
        case "request_txn":
            return _check_ops(op.request_txn, ops_max)
        case _:
            return KEY_NOT_FOUND  # an empty operation; etcd's own answer


def _check_writes(ops: Sequence[pb.RequestOp]) -> Refusal | None:
    if len(ops) < 2 and not (ops and ops[0].HasField("request_txn")):
        return None  # one write conflicts with nothing: the usual compare-and-swap
    return _Writes().collect(ops)


class _Writes:
    """The keys that a list of operations would put and delete."""

    __slots__ = ("deleted", "puts")

    def __init__(self) -> None:
        self.puts: set[bytes] = set()
        self.deleted = _KeySet()

    def collect(self, ops: Sequence[pb.RequestOp]) -> Refusal | None:
        """Add the writes of one branch, nested ones first; return the refusal of a conflict."""
        puts: list[bytes] = []
        nested: list[pb.TxnRequest] = []
        for op in ops:
            match op.WhichOneof("request"):
                case "request_delete_range":
                    delete = op.request_delete_range
                    self.deleted.add(delete.key, delete.range_end or delete.key + b"\0")
                case "request_put":
                    puts.append(op.request_put.key)
                case "request_txn":
                    nested.append(op.request_txn)
        for txn in nested:
            refusal = self._collect_nested(txn)
            if refusal is not None:
                return refusal
        for key in puts:
            if key in self.puts or key in self.deleted:
                return DUPLICATE_KEY
            self.puts.add(key)
        return None

    def _collect_nested(self, txn: pb.TxnRequest) -> Refusal | None:
        then, otherwise = _Writes(), _Writes()
        refusal = then.collect(txn.success) or otherwise.collect(txn.failure)
        if refusal is not None:
            return refusal
        nested_puts = then.puts | otherwise.puts
        if not self.puts.isdisjoint(nested_puts) or self.deleted.has_any(nested_puts):
            return DUPLICATE_KEY
        self.puts |= nested_puts
        for start, end in chain(then.deleted.intervals(), otherwise.deleted.intervals()):
            self.deleted.add(start, end)
        return None


class _KeySet:
    """A union of key intervals [start, end), kept as disjoint ones in order."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[bytes] = []
        self._ends: list[bytes] = []

    def __contains__(self, key: bytes) -> bool:
        at = bisect_right(self._starts, key)
        return at > 0 and key < self._ends[at - 1]

    def has_any(self, keys: set[bytes]) -> bool:
        """Return whether any of keys lies in an interval."""
        return bool(self._starts) and any(key in self for key in keys)

    def add(self, start: bytes, end: bytes) -> None:
        """Add an interval; one with end <= start, as a range_end of one zero byte gives, is empty.

        That a deletion of "every key from here on" overlaps nothing is etcd's behaviour.
        """
        if end <= start:
            return
        starts, ends = self._starts, self._ends
        first = bisect_left(ends, start)
        last = bisect_right(starts, end)
        if first < last:
            start = min(start, starts[first])
            end = max(end, ends[last - 1])
        starts[first:last] = [start]
        ends[first:last] = [end]

    def intervals(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the intervals as (start, end), ascending."""
        return zip(self._starts, self._ends, strict=True)
