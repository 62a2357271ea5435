"""The size quota of the database, and etcd's estimate of what a request adds to it."""

from collections.abc import Iterable
from typing import Final

from kvstore.wire.gen import rpc_pb2 as pb

QUOTA_DEFAULT_BYTES: Final = 2 << 30
KEY_OVERHEAD_BYTES: Final = 256
LEASE_COST_BYTES: Final = 64
NO_LIMIT_BYTES: Final = 1 << 62


def put_cost_bytes(request: pb.PutRequest) -> int:
    """Return the estimated growth of one put."""
    return KEY_OVERHEAD_BYTES + len(request.key) + len(request.value)


def txn_cost_bytes(request: pb.TxnRequest) -> int:
    """Return the estimated growth of a transaction: its costlier branch, nested ones included."""
    return max(_ops_cost(request.success), _ops_cost(request.failure))


def _ops_cost(ops: Iterable[pb.RequestOp]) -> int:
    total = 0
    for op in ops:
        match op.WhichOneof("request"):
            case "request_put":
                total += put_cost_bytes(op.request_put)
            case "request_txn":
                total += txn_cost_bytes(op.request_txn)
            case _:
                pass
    return total


def txn_cost_bound(size_bytes: int) -> int:
    """Return an upper bound of the cost of a transaction of this encoded size.

    A put in it takes at least 6 bytes, and costs KEY_OVERHEAD_BYTES plus its key and value.
    """
    return size_bytes + size_bytes // 6 * KEY_OVERHEAD_BYTES


class Quota:
    """The size limit of the database; quota_bytes 0 means etcd's default, below 0 means none."""

    def __init__(self, quota_bytes: int) -> None:
        self.limit_bytes = QUOTA_DEFAULT_BYTES if quota_bytes == 0 else quota_bytes
        self.was_exceeded = False  # by a write, since the start

    def room_bytes(self, size_bytes: int) -> int:
        """Return the least cost of a write that does not fit beside size_bytes in use.

        Pages freed by deletes and compactions count as room, as the database reuses them.
        """
        return NO_LIMIT_BYTES if self.limit_bytes < 0 else max(self.limit_bytes - size_bytes, 1)
