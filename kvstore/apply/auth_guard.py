"""What a request needs the permission for: every key it reads, writes, or could reach by a lease.

    put            write on the key; read too with prev_kv; write on all keys of the lease it names
    delete range   write on the range; read too with prev_kv
    range          read on the range
    txn            its compares: read; the operations of both branches, nested ones as well
    lease revoke   write on every key that hangs on the lease, for they are deleted

A root user may do all of it. Both branches of a transaction are checked, whichever will run, so a
refusal tells nothing about the data. The order of the checks is etcd's, because it decides which
refusal is seen.
"""

from collections.abc import Iterable

from kvstore.auth.store import Access, AuthStore
from kvstore.auth.tokens import Who
from kvstore.errors import Refusal
from kvstore.lease.lessor import Lessor
from kvstore.types import LeaseId
from kvstore.wire.gen import rpc_pb2 as pb

READ, WRITE = Access.READ, Access.WRITE


class Guard:
    """Judges requests by the users and the leases of one member."""

    def __init__(self, auth: AuthStore, lessor: Lessor) -> None:
        self._auth = auth
        self._lessor = lessor

    def put(self, who: Who, request: pb.PutRequest) -> Refusal | None:
        """Say why a put is not allowed, or None."""
        check = self._auth.check
        return (
            check(who, request.key, b"", WRITE)
            or (self.lease_keys(who, request.lease, WRITE) if request.lease else None)
            or (check(who, request.key, b"", READ) if request.prev_kv else None)
        )

    def range(self, who: Who, request: pb.RangeRequest) -> Refusal | None:
        """Say why a range is not allowed, or None."""
        return self._auth.check(who, request.key, request.range_end, READ)

    def delete_range(self, who: Who, request: pb.DeleteRangeRequest) -> Refusal | None:
        """Say why a deletion is not allowed, or None."""
        check = self._auth.check
        return check(who, request.key, request.range_end, WRITE) or (
            check(who, request.key, request.range_end, READ) if request.prev_kv else None
        )

    def txn(self, who: Who, request: pb.TxnRequest) -> Refusal | None:
        """Say why a transaction is not allowed, or None."""
        check = self._auth.check
        for compare in request.compare:
            refusal = check(who, compare.key, compare.range_end, READ)
            if refusal is not None:
                return refusal
        return self._ops(who, request.success) or self._ops(who, request.failure)

    def _ops(self, who: Who, ops: Iterable[pb.RequestOp]) -> Refusal | None:
        for op in ops:
            refusal: Refusal | None = None
            match op.WhichOneof("request"):
                case "request_range":
                    refusal = self.range(who, op.request_range)
                case "request_put":
                    refusal = self.put(who, op.request_put)
                case "request_delete_range":
                    refusal = self.delete_range(who, op.request_delete_range)
                case "request_txn":
                    refusal = self.txn(who, op.request_txn)
                case _:
                    pass
            if refusal is not None:
                return refusal
        return None

    def lease_keys(self, who: Who, lease: LeaseId, access: Access) -> Refusal | None:
        """Say why the keys that hang on a lease may not be touched; an unknown lease has none."""
        if self._auth.check_admin(who) is None:
            return None
        for key in self._lessor.keys(lease):
            refusal = self._auth.check(who, key, b"", access)
            if refusal is not None:
                return refusal
        return None
