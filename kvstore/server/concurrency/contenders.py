"""The keys of locks and elections: under a prefix, the key with the oldest revision owns it.

    <name>/<lease in hex>      the lowest create revision is first
    /locks/694d7f…  rev 5      owner
    /locks/694d80…  rev 9      waits until all older keys are deleted

A contender's key lives as long as its lease. A waiting contender watches the youngest of the older
keys, so that the end of an owner wakes only one of them. The layout is etcd's
(client/v3/concurrency), so that its clients and these services use the same locks.

All calls use the local client with the caller's metadata, so permissions are checked.
"""

from collections.abc import Mapping
from typing import Final, Self

from kvstore.errors import Code
from kvstore.runtime.local_client import CallRefusedError, LocalClient
from kvstore.wire import rpc
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb

SESSION_TTL_S: Final = 60  # of the lease granted for a caller without one


class Contenders:
    """The store, used on behalf of one caller."""

    def __init__(self, client: LocalClient, metadata: Mapping[str, str]) -> None:
        self._client = client
        self._metadata = metadata

    async def lease(self, lease: int) -> int:
        """Return the caller's lease, or a new one if it has none."""
        if lease:
            return lease
        body = pb.LeaseGrantRequest(TTL=SESSION_TTL_S).SerializeToString()
        answer = await self._client.call(rpc.LEASE_GRANT, body, self._metadata)
        return pb.LeaseGrantResponse.FromString(answer).ID

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """Carry out a transaction."""
        body = request.SerializeToString()
        return pb.TxnResponse.FromString(await self._client.call(rpc.TXN, body, self._metadata))

    async def get(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """Read a range."""
        body = request.SerializeToString()
        return pb.RangeResponse.FromString(await self._client.call(rpc.RANGE, body, self._metadata))

    async def delete(self, key: bytes) -> pb.DeleteRangeResponse:
        """Delete one key."""
        body = pb.DeleteRangeRequest(key=key).SerializeToString()
        answer = await self._client.call(rpc.DELETE_RANGE, body, self._metadata)
        return pb.DeleteRangeResponse.FromString(answer)

    async def wait_for_deletes(self, prefix: bytes, create_revision_max: int) -> None:
        """Wait until no key under the prefix has a create revision up to a maximum."""
        while True:
            older = await self.get(youngest(prefix, create_revision_max))
            if not older.kvs:
                return
            await self._wait_for_delete(older.kvs[0].key, older.header.revision)

    async def _wait_for_delete(self, key: bytes, revision: int) -> None:
        async with Watch(self._client, self._metadata, key, b"", revision) as watch:
            async for response in watch:
                if any(event.type == kv_pb2.Event.DELETE for event in response.events):
                    return
        raise CallRefusedError(Code.UNKNOWN, "lost watcher waiting for delete")

    def watch(self, key: bytes, range_end: bytes, revision: int) -> "Watch":
        """Watch from a revision on; use it in `async with`."""
        return Watch(self._client, self._metadata, key, range_end, revision)


class Watch:
    """One watch; iterating yields its responses and raises the reason of a cancellation."""

    def __init__(
        self,
        client: LocalClient,
        metadata: Mapping[str, str],
        key: bytes,
        range_end: bytes,
        revision: int,
    ) -> None:
        self._stream = client.open(rpc.WATCH, metadata)
        self._create = pb.WatchCreateRequest(key=key, range_end=range_end, start_revision=revision)

    async def __aenter__(self) -> Self:
        await self._stream.send(pb.WatchRequest(create_request=self._create).SerializeToString())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stream.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pb.WatchResponse:
        response = pb.WatchResponse.FromString(await anext(self._stream))
        if response.canceled:
            text = response.cancel_reason
            if response.compact_revision:
                text = "etcdserver: mvcc: required revision has been compacted"
            raise CallRefusedError(Code.UNKNOWN, text)
        return response


def contender_key(prefix: bytes, lease: int) -> bytes:
    """Return the key of a contender with a lease; a negative lease keeps its sign, as in etcd."""
    return prefix + f"{lease:x}".encode()


def is_absent(key: bytes) -> pb.Compare:
    """Return the compare that a key does not exist."""
    return created_at(key, 0)


def created_at(key: bytes, revision: int) -> pb.Compare:
    """Return the compare that a key was created at a revision."""
    return pb.Compare(
        key=key,
        target=pb.Compare.CREATE,
        result=pb.Compare.EQUAL,
        create_revision=revision,
    )


def oldest(prefix: bytes) -> pb.RangeRequest:
    """Return the request for the key of a prefix with the lowest create revision."""
    return pb.RangeRequest(
        key=prefix,
        range_end=end_of(prefix),
        limit=1,
        sort_order=pb.RangeRequest.ASCEND,
        sort_target=pb.RangeRequest.CREATE,
    )


def youngest(prefix: bytes, create_revision_max: int) -> pb.RangeRequest:
    """Return the request for the key with the highest create revision up to a maximum."""
    return pb.RangeRequest(
        key=prefix,
        range_end=end_of(prefix),
        limit=1,
        sort_order=pb.RangeRequest.DESCEND,
        sort_target=pb.RangeRequest.CREATE,
        max_create_revision=create_revision_max,
    )


def end_of(prefix: bytes) -> bytes:
    """Return the range end of all keys with a prefix, which ends in a slash."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
