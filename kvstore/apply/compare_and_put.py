"""The most common transaction, compare-and-put: if a key is unchanged, write a value.

    compare  one key, by version, create or mod revision
    success  one put, without options but a lease
    failure  nothing, or a get of one key without options

It is planned when it is admitted, so applying it reads no messages, and those that follow one
another in the log are applied as one batch. The result is the same as that of `txn.TxnRunner` for
the same request, which tests check; every other transaction is run there. The crate plans the same
(kvstore/native/src/kernels/requests.rs).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from kvstore.apply.txn import bind_lease
from kvstore.errors import LEASE_NOT_FOUND, Refusal
from kvstore.lease.lessor import Lessor
from kvstore.mvcc.store import Event, Run, Store
from kvstore.wire.columns import ABSENT, GOT, NOT_SWAPPED, SWAPPED
from kvstore.wire.gen import rpc_pb2 as pb

_EQUAL: Final = int(pb.Compare.EQUAL)
_GREATER: Final = int(pb.Compare.GREATER)
_LESS: Final = int(pb.Compare.LESS)
_NOT_EQUAL: Final = int(pb.Compare.NOT_EQUAL)
_TARGETS: Final = {
    int(pb.Compare.CREATE): (0, "create_revision"),
    int(pb.Compare.MOD): (1, "mod_revision"),
    int(pb.Compare.VERSION): (2, "version"),
}  # target → (position in mvcc's Numbers, the field of the number)

Swap: TypeAlias = tuple[bytes, int, int, int, bytes, int, bytes]
"""A compare-and-put without its value.

(key to compare, position in mvcc's Numbers, relation, number, key to put, lease, key to get if the
comparison does not hold; empty: none)
"""


class Swaps(NamedTuple):
    """How compare-and-puts ended; columns of those that were not refused."""

    refused: list[tuple[int, Refusal]]  # by position
    outcomes: bytearray  # see wire.columns
    revisions: list[int]  # of the store, after each
    kvs: list[bytes]  # of those that got a key instead
    events: list[Event]


def plan(request: pb.TxnRequest) -> tuple[Swap, bytes] | None:
    """Return a transaction of this shape and its value; None for any other."""
    compares, success, failure = request.compare, request.success, request.failure
    if len(compares) != 1 or len(success) != 1 or len(failure) > 1:
        return None
    compare = compares[0]
    target, relation = _TARGETS.get(compare.target), int(compare.result)
    if target is None or compare.range_end or not compare.key:
        return None
    position, name = target
    if compare.WhichOneof("target_union") not in (None, name):
        return None  # the number of another target: it is compared with 0
    if not _EQUAL <= relation <= _NOT_EQUAL or not success[0].HasField("request_put"):
        return None
    put = success[0].request_put
    key = put.key
    if not key or put.prev_kv or put.ignore_value or put.ignore_lease:
        return None
    otherwise = b""
    if failure:
        # Its size tells whether there is an option.
        read = failure[0].request_range
        otherwise = read.key
        if not otherwise or read.ByteSize() != pb.RangeRequest(key=otherwise).ByteSize():
            return None
    number = getattr(compare, name)
    return (compare.key, position, relation, number, key, put.lease, otherwise), put.value


def run_swaps(
    store: Store, lessor: Lessor, swaps: Iterable[Swap], values: Iterable[bytes]
) -> Swaps:
    """Apply compare-and-puts that follow one another in the log (a hot path)."""
    run = Run()
    refused: list[tuple[int, Refusal]] = []
    outcomes, revisions = bytearray(), []
    reads: list[bytes] = []  # revision keys
    numbers_of, stage = store.numbers, store.stage_put
    binds = lessor.has_keys
    for at, (swap, value) in enumerate(zip(swaps, values, strict=True)):
        compared, position, relation, number, key, lease, otherwise = swap
        numbers = numbers_of(compared)
        has = 0 if numbers is None else numbers[position]
        if relation == _EQUAL:
            holds = has == number
        elif relation == _GREATER:
            holds = has > number
        elif relation == _LESS:
            holds = has < number
        else:
            holds = has != number
        if holds:
            if lease and not lessor.exists(lease):
                refused.append((at, LEASE_NOT_FOUND))
                continue
            stage(run, key, value, lease)
            if lease or binds:
                bind_lease(lessor, key, lease)
                binds = True
            outcomes.append(SWAPPED)
        elif not otherwise:
            outcomes.append(NOT_SWAPPED)
        elif (revkey := store.current_revkey(otherwise)) is None:
            outcomes.append(ABSENT)
        else:
            outcomes.append(GOT)
            reads.append(revkey)
        revisions.append(store.revision)
    events = store.end_run(run)
    return Swaps(refused, outcomes, revisions, store.records(reads), events)
