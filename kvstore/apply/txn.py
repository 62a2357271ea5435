"""Transactions: compare, choose a branch, check it, run it, all at one main revision.

    compares ──► path (one bool a nested txn, depth first) ──► checks ──► ops in order ──► end

All compares, nested ones too, are evaluated on the state before the first write. Everything that
can be refused is refused before the first write: once an op has run the transaction cannot fail.
Responses are spliced from bytes; the header of an inner response has only the revision, a nested
transaction's is empty, as in etcd.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from kvstore.apply.ranges import RangeAnswer, execute_range
from kvstore.errors import (
    COMPACTED,
    FUTURE_REVISION,
    KEY_NOT_FOUND,
    LEASE_NOT_FOUND,
    Refusal,
    StorageFatalError,
)
from kvstore.lease.lessor import Lessor
from kvstore.mvcc.store import Event, Store
from kvstore.wire import splice
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.splice import HeaderMaker

Result: TypeAlias = bytes | Refusal  # a response, or the refusal

_EMPTY_HEADER: Final = b"\x0a\x00"
_EMPTY_OP: Final = b"\x1a\x00"
_ABSENT: Final = (0, 0, 0, b"")
_INDEXED_TARGETS: Final = frozenset({pb.Compare.VERSION, pb.Compare.CREATE, pb.Compare.MOD})
_ZERO_KV: Final = kv_pb2.KeyValue()


def is_read_only(request: pb.TxnRequest) -> bool:
    """Return whether both branches consist of ranges alone (a nested txn counts as a write)."""
    return all(
        op.WhichOneof("request") == "request_range"
        for ops in (request.success, request.failure)
        for op in ops
    )


def is_serializable(request: pb.TxnRequest) -> bool:
    """Return whether a read-only transaction may be answered without asking the quorum."""
    return all(
        op.request_range.serializable for ops in (request.success, request.failure) for op in ops
    )


class TxnRunner:
    """Runs transactions against one store and its leases."""

    def __init__(self, store: Store, lessor: Lessor) -> None:
        self._store = store
        self._lessor = lessor
        self.range_count = 0  # ranges and compares run
        self.txn_count = 0  # transactions of more than one operation
        self._ops = 0  # of the running transaction

    def run_read_only(self, request: pb.TxnRequest, headers: HeaderMaker, term: int) -> Result:
        """Run a transaction without writes and return its response."""
        path: list[bool] = []
        self._choose(request, path)
        refusal = self._check(request, iter(path))
        if refusal is not None:
            return refusal
        header = headers.field(self._store.revision, term)
        succeeded, ops = self._execute(request, iter(path))
        self._count(len(request.compare))
        return splice.txn_response(header, succeeded, ops)

    def run(self, request: pb.TxnRequest) -> tuple[bool, list[bytes], list[Event]] | Refusal:
        """Run a transaction; return whether its compares held, its framed responses, its events."""
        path: list[bool] = []
        self._choose(request, path)
        refusal = self._check(request, iter(path))
        if refusal is not None:
            return refusal
        self._store.begin()
        succeeded, ops = self._execute(request, iter(path))
        self._count(len(request.compare))
        return succeeded, ops, self._store.end()

    def _count(self, compares: int) -> None:
        """Count a transaction as etcd does: compares are a transaction of their own."""
        self.range_count += compares
        self.txn_count += (compares > 1) + (self._ops > 1)
        self._ops = 0

    def _choose(self, request: pb.TxnRequest, path: list[bool]) -> None:
        succeeded = all(self._holds(compare) for compare in request.compare)
        path.append(succeeded)
        for op in request.success if succeeded else request.failure:
            if op.WhichOneof("request") == "request_txn":
                self._choose(op.request_txn, path)

    def _holds(self, compare: pb.Compare) -> bool:
        if not compare.range_end and compare.target in _INDEXED_TARGETS:
            return self._holds_in_index(compare)
        result = self._store.range(compare.key, compare.range_end)
        if isinstance(result, Refusal):
            return False
        if not result.kvs:
            return compare_holds(compare, None)
        parse = kv_pb2.KeyValue.FromString
        return all(_compare_kv(compare, parse(kv)) for kv in result.kvs)

    def _holds_in_index(self, compare: pb.Compare) -> bool:
        """Evaluate the compare of one key from the key index alone: no value is read."""
        create, mod, version, _ = self._store.current(compare.key) or _ABSENT
        match compare.target:
            case pb.Compare.VERSION:
                order = _order(version, compare.version)
            case pb.Compare.CREATE:
                order = _order(create, compare.create_revision)
            case _:
                order = _order(mod, compare.mod_revision)
        return _relation_holds(compare.result, order)

    def _check(self, request: pb.TxnRequest, path: Iterator[bool]) -> Refusal | None:
        for op in request.success if next(path) else request.failure:
            refusal: Refusal | None = None
            match op.WhichOneof("request"):
                case "request_range":
                    refusal = self._check_revision(op.request_range.revision)
                case "request_put":
                    refusal = check_put(self._store, self._lessor, op.request_put)
                case "request_txn":
                    refusal = self._check(op.request_txn, path)
                case _:
                    pass
            if refusal is not None:
                return refusal
        return None

    def _check_revision(self, revision: int) -> Refusal | None:
        if revision == 0:
            return None
        if revision > self._store.revision:
            return FUTURE_REVISION
        if revision < self._store.compacted:
            return COMPACTED
        return None

    def _execute(self, request: pb.TxnRequest, path: Iterator[bool]) -> tuple[bool, list[bytes]]:
        """Run the chosen branch; return whether the compares held and the framed responses."""
        succeeded = next(path)
        ops = request.success if succeeded else request.failure
        return succeeded, [self._execute_op(op, path) for op in ops]

    def _execute_op(self, op: pb.RequestOp, path: Iterator[bool]) -> bytes:
        self._ops += 1
        match op.WhichOneof("request"):
            case "request_range":
                self.range_count += 1
                return splice.response_op(1, self._range(op.request_range))
            case "request_put":
                return splice.response_op(2, self._put(op.request_put))
            case "request_delete_range":
                return splice.response_op(3, self._delete_range(op.request_delete_range))
            case "request_txn":
                return splice.response_op(4, self._nested(op.request_txn, path))
            case _:
                return _EMPTY_OP

    def _nested(self, request: pb.TxnRequest, path: Iterator[bool]) -> bytes:
        return splice.txn_response(_EMPTY_HEADER, *self._execute(request, path))

    def _range(self, request: pb.RangeRequest) -> bytes:
        answer = execute_range(self._store, request)
        if not isinstance(answer, RangeAnswer):
            raise StorageFatalError(f"a checked range in a transaction was refused: {answer.text}")
        header = splice.revision_field(answer.revision)
        return splice.range_response(header, answer.kvs, answer.more, answer.count)

    def _put(self, request: pb.PutRequest) -> bytes:
        store = self._store
        value, lease, previous = resolve_put(store, request)
        event = store.put(request.key, value, lease)
        bind_lease(self._lessor, request.key, lease)
        return splice.put_response(
            splice.revision_field(event.main), previous if request.prev_kv else None
        )

    def _delete_range(self, request: pb.DeleteRangeRequest) -> bytes:
        store = self._store
        previous: list[bytes] = []
        if request.prev_kv:
            found = store.range(request.key, request.range_end)
            previous = [] if isinstance(found, Refusal) else found.kvs
        events = store.delete_range(request.key, request.range_end)
        for event in events:
            self._lessor.detach(event.key)
        return splice.delete_response(
            splice.revision_field(store.txn_revision), len(events), previous
        )


def check_put(store: Store, lessor: Lessor, request: pb.PutRequest) -> Refusal | None:
    """Return why a put cannot be done, before anything is written."""
    if request.lease != 0 and not lessor.exists(request.lease):
        return LEASE_NOT_FOUND
    needs_previous = request.ignore_value or request.ignore_lease
    if needs_previous and store.current(request.key) is None:
        return KEY_NOT_FOUND
    return None


def bind_lease(lessor: Lessor, key: bytes, lease: int) -> None:
    """Attach a written key to its lease, or detach it from the one it had."""
    if lease:
        lessor.attach(lease, key)
    else:
        lessor.detach(key)


def resolve_put(store: Store, request: pb.PutRequest) -> tuple[bytes, int, bytes | None]:
    """Return the value and lease to write, and the previous KeyValue if it is needed."""
    value, lease = request.value, request.lease
    if not (request.prev_kv or request.ignore_value or request.ignore_lease):
        return value, lease, None
    previous = store.kv(request.key)
    if previous is not None:
        _, _, _, _, previous_value, previous_lease = splice.parse_kv(previous)
        if request.ignore_value:
            value = previous_value
        if request.ignore_lease:
            lease = previous_lease
    return value, lease, previous


def compare_holds(compare: pb.Compare, kv: kv_pb2.KeyValue | None) -> bool:
    """Evaluate the compare of one key; None: there is no such key."""
    if kv is None:
        # A request cannot express "no value", so a value compare without a key never holds.
        return compare.target != pb.Compare.VALUE and _compare_kv(compare, _ZERO_KV)
    return _compare_kv(compare, kv)


def _compare_kv(compare: pb.Compare, kv: kv_pb2.KeyValue) -> bool:
    match compare.target:
        case pb.Compare.VERSION:
            order = _order(kv.version, compare.version)
        case pb.Compare.CREATE:
            order = _order(kv.create_revision, compare.create_revision)
        case pb.Compare.MOD:
            order = _order(kv.mod_revision, compare.mod_revision)
        case pb.Compare.VALUE:
            order = (kv.value > compare.value) - (kv.value < compare.value)
        case pb.Compare.LEASE:
            order = _order(kv.lease, compare.lease)
        case _:
            order = 0  # an unknown target compares nothing, as in etcd
    return _relation_holds(compare.result, order)


def _relation_holds(relation: int, order: int) -> bool:
    match relation:
        case pb.Compare.EQUAL:
            return order == 0
        case pb.Compare.NOT_EQUAL:
            return order != 0
        case pb.Compare.GREATER:
            return order > 0
        case pb.Compare.LESS:
            return order < 0
        case _:
            return True  # an unknown relation always holds, as in etcd


def _order(left: int, right: int) -> int:
    return (left > right) - (left < right)
