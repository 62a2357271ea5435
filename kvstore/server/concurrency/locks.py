"""The Lock service: one owner at a time, in the order of asking.

Unlocking is deleting the key. A waiter that gives up, or whose client is gone, leaves no key
behind.
"""

from kvstore.errors import Code
from kvstore.runtime.local_client import CallRefusedError
from kvstore.server.concurrency.contenders import Contenders, contender_key, is_absent, oldest
from kvstore.wire.gen import lock_pb2
from kvstore.wire.gen import rpc_pb2 as pb


class Claim:
    """One caller's place in the line for a lock."""

    def __init__(self, contenders: Contenders, name: bytes) -> None:
        self._contenders = contenders
        self._prefix = name + b"/"
        self.key = b""  # empty: nothing to take back

    async def lock(self, lease: int) -> lock_pb2.LockResponse:
        """Wait in line and return once the lock is owned."""
        contenders = self._contenders
        lease = await contenders.lease(lease)
        key = contender_key(self._prefix, lease)
        first = pb.RequestOp(request_range=oldest(self._prefix))
        put = pb.RequestOp(request_put=pb.PutRequest(key=key, lease=lease))
        get = pb.RequestOp(request_range=pb.RangeRequest(key=key))
        entered = await contenders.txn(
            pb.TxnRequest(compare=[is_absent(key)], success=[put, first], failure=[get, first])
        )
        self.key = key  # not before: a session that owns the lock must not lose it to a failure
        own_revision = entered.header.revision
        if not entered.succeeded:  # this session is in line, or the owner, already
            own_revision = entered.responses[0].response_range.kvs[0].create_revision
        owner = entered.responses[1].response_range.kvs
        if not owner or owner[0].create_revision == own_revision:
            return lock_pb2.LockResponse(header=entered.header, key=key)
        await contenders.wait_for_deletes(self._prefix, own_revision - 1)
        own = await contenders.get(pb.RangeRequest(key=key))
        if not own.kvs:
            raise CallRefusedError(Code.UNKNOWN, "mutex: session is expired")
        return lock_pb2.LockResponse(header=own.header, key=key)

    async def take_back(self) -> None:
        """Leave the line."""
        if self.key:
            await self._contenders.delete(self.key)


async def unlock(
    contenders: Contenders, request: lock_pb2.UnlockRequest
) -> lock_pb2.UnlockResponse:
    """Give a lock up."""
    return lock_pb2.UnlockResponse(header=(await contenders.delete(request.key)).header)
