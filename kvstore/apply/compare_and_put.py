"""The most common transaction, compare-and-put: if a key is unchanged, write a value.

    compare  one key, by version, create or mod revision
    success  one put, without options
    failure  nothing, or one range

It is planned when it is admitted, so applying it reads no messages. The result is the same as that
of `txn.TxnRunner` for the same request, which tests check; every other transaction is run there.
"""

from typing import Final, NamedTuple

from kvstore.apply.quota import KEY_OVERHEAD_BYTES
from kvstore.mvcc.key_index import Numbers
from kvstore.wire.gen import rpc_pb2 as pb

_EQUAL: Final = int(pb.Compare.EQUAL)
_GREATER: Final = int(pb.Compare.GREATER)
_LESS: Final = int(pb.Compare.LESS)
_NOT_EQUAL: Final = int(pb.Compare.NOT_EQUAL)
_PLACES: Final = {
    int(pb.Compare.CREATE): 0,
    int(pb.Compare.MOD): 1,
    int(pb.Compare.VERSION): 2,
}  # target → place in mvcc's Numbers


class CompareAndPut(NamedTuple):
    """A planned transaction."""

    compared: bytes  # the key
    place: int  # 0 create revision, 1 mod revision, 2 version
    relation: int
    number: int
    key: bytes
    value: bytes
    lease: int
    otherwise: pb.RangeRequest | None  # read if the comparison does not hold
    cost_bytes: int
    request: pb.TxnRequest

    def holds(self, numbers: Numbers | None) -> bool:
        """Tell whether the comparison holds for the numbers of the key; None: there is no key."""
        relation, number = self.relation, self.number
        has = 0 if numbers is None else numbers[self.place]
        if relation == _EQUAL:
            return has == number
        if relation == _GREATER:
            return has > number
        if relation == _LESS:
            return has < number
        return has != number if relation == _NOT_EQUAL else True  # unknown ones hold, as in etcd


def plan(request: pb.TxnRequest) -> CompareAndPut | None:
    """Plan a transaction of this shape; None for any other, and if it may be refused."""
    compares, success, failure = request.compare, request.success, request.failure
    if len(compares) != 1 or len(success) != 1 or len(failure) > 1:
        return None
    compare = compares[0]
    place = _PLACES.get(compare.target)
    if place is None or compare.range_end or not compare.key:
        return None
    if not success[0].HasField("request_put"):
        return None
    put = success[0].request_put
    key, value = put.key, put.value
    if not key or put.prev_kv or put.ignore_value or put.ignore_lease:
        return None
    otherwise = None
    if failure:
        if not failure[0].HasField("request_range"):
            return None
        otherwise = failure[0].request_range
        if not otherwise.key or otherwise.revision or otherwise.range_end:
            return None
        if otherwise.sort_order or otherwise.sort_target:
            return None
    if place == 0:
        number = compare.create_revision
    elif place == 1:
        number = compare.mod_revision
    else:
        number = compare.version
    cost_bytes = KEY_OVERHEAD_BYTES + len(key) + len(value)
    # A hot path: this costs half as much as CompareAndPut(...).
    planned: CompareAndPut = tuple.__new__(
        CompareAndPut,
        (
            compare.key,
            place,
            compare.result,
            number,
            key,
            value,
            put.lease,
            otherwise,
            cost_bytes,
            request,
        ),
    )
    return planned
