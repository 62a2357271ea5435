"""The Lock service: one owner at a time, in the order of the requests.

To unlock, the key is deleted. The key of a waiter that is cancelled or whose client goes away is
deleted, too.
"""

from kvstore.errors import Code
from kvstore.runtime.local_client import CallRefusedError
from kvstore.server.concurrency.contenders import Contenders, contender_key, is_absent, oldest
from kvstore.wire.gen import lock_pb2
from kvstore.wire.gen import rpc_pb2 as pb


class LockWaiter:
    """One caller that waits for a lock."""

    def __init__(self, contenders: Contenders, name: bytes) -> None:
        self._contenders = contenders
        self._prefix = name + b"/"
        self.key = b""  # empty: no key was put yet

    async def lock(self, lease: int) -> lock_pb2.LockResponse:
        """Put the key, and return once it owns the lock."""
        contenders = self._contenders
        lease = await contenders.lease(lease)
        key = contender_key(self._prefix, lease)
        first = pb.RequestOp(request_range=oldest(self._prefix))
        put = pb.RequestOp(request_put=pb.PutRequest(key=key, lease=lease))
        get = pb.RequestOp(request_range=pb.RangeRequest(key=key))
        entered = await contenders.txn(
            pb.TxnRequest(compare=[is_absent(key)], success=[put, first], failure=[get, first])
        )
        self.key = key  # not earlier: a failed request must not delete the key of an owner
        own_revision = entered.header.revision
        if not entered.succeeded:  # this lease already waits for the lock or owns it
            own_revision = entered.responses[0].response_range.kvs[0].create_revision
        owner = entered.responses[1].response_range.kvs
        if not owner or owner[0].create_revision == own_revision:
            return lock_pb2.LockResponse(header=entered.header, key=key)
        await contenders.wait_for_deletes(self._prefix, own_revision - 1)
        own = await contenders.get(pb.RangeRequest(key=key))
        if not own.kvs:
            raise CallRefusedError(Code.UNKNOWN, "mutex: session is expired")
        return lock_pb2.LockResponse(header=own.header, key=key)

    async def withdraw(self) -> None:
        """Delete the key."""
        if self.key:
            await self._contenders.delete(self.key)


async def unlock(
    contenders: Contenders, request: lock_pb2.UnlockRequest
) -> lock_pb2.UnlockResponse:
    """Release a lock."""
    return lock_pb2.UnlockResponse(header=(await contenders.delete(request.key)).header)
