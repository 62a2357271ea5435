"""Which permissions a request needs: on every key it reads, writes or affects through a lease.

    put            write on the key; read too with prev_kv; write on all keys of the lease it names
    delete range   write on the range; read too with prev_kv
    range          read on the range
    txn            its compares: read; the operations of both branches, nested ones as well
    lease revoke   write on every key attached to the lease, since they are deleted

A root user may do all of it. Both branches of a transaction are checked, whichever will run, so a
refusal reveals nothing about the data. The order of the checks is etcd's, because it decides which
refusal is seen.
"""

from collections.abc import Iterable

from kvstore.auth.store import Access, AuthStore
from kvstore.auth.tokens import Credential
from kvstore.errors import Refusal
from kvstore.lease.lessor import Lessor
from kvstore.types import LeaseId
from kvstore.wire.gen import rpc_pb2 as pb

READ, WRITE = Access.READ, Access.WRITE


class Guard:
    """Checks requests against the users and the leases of one member."""

    def __init__(self, auth: AuthStore, lessor: Lessor) -> None:
        self._auth = auth
        self._lessor = lessor

    def put(self, credential: Credential, request: pb.PutRequest) -> Refusal | None:
        """Return why a put is not allowed, or None."""
        check = self._auth.check
        return (
            check(credential, request.key, b"", WRITE)
            or (self.lease_keys(credential, request.lease, WRITE) if request.lease else None)
            or (check(credential, request.key, b"", READ) if request.prev_kv else None)
        )

    def range(self, credential: Credential, request: pb.RangeRequest) -> Refusal | None:
        """Return why a range is not allowed, or None."""
        return self._auth.check(credential, request.key, request.range_end, READ)

    def delete_range(
        self, credential: Credential, request: pb.DeleteRangeRequest
    ) -> Refusal | None:
        """Return why a deletion is not allowed, or None."""
        check = self._auth.check
        return check(credential, request.key, request.range_end, WRITE) or (
            check(credential, request.key, request.range_end, READ) if request.prev_kv else None
        )

    def txn(self, credential: Credential, request: pb.TxnRequest) -> Refusal | None:
        """Return why a transaction is not allowed, or None."""
        check = self._auth.check
        for compare in request.compare:
            refusal = check(credential, compare.key, compare.range_end, READ)
            if refusal is not None:
                return refusal
        return self._ops(credential, request.success) or self._ops(credential, request.failure)

    def _ops(self, credential: Credential, ops: Iterable[pb.RequestOp]) -> Refusal | None:
        for op in ops:
            refusal: Refusal | None = None
            match op.WhichOneof("request"):
                case "request_range":
                    refusal = self.range(credential, op.request_range)
                case "request_put":
                    refusal = self.put(credential, op.request_put)
                case "request_delete_range":
                    refusal = self.delete_range(credential, op.request_delete_range)
                case "request_txn":
                    refusal = self.txn(credential, op.request_txn)
                case _:
                    pass
            if refusal is not None:
                return refusal
        return None

    def lease_keys(self, credential: Credential, lease: LeaseId, access: Access) -> Refusal | None:
        """Return why the keys of a lease may not be accessed; an unknown lease has none."""
        if self._auth.check_admin(credential) is None:
            return None
        for key in self._lessor.keys(lease):
            refusal = self._auth.check(credential, key, b"", access)
            if refusal is not None:
                return refusal
        return None
