"""KV calls to the cluster: the namespace's prefix, and responses ordered by revision.

Without both, requests and responses are passed unchanged. With --experimental-serializable-ordering
no response is of an older revision than an earlier one: a read that reaches a member which is
behind is repeated on the other members, a few times each.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol, TypeVar

from kvstore.batch import Metadata
from kvstore.errors import EMPTY_KEY, Code
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.upstream import Upstream
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

_TRIES_BY_ENDPOINT: Final = 5
_NO_GREATER: Final = (
    "etcdclient: no cluster members have a revision higher than the previously received revision"
)

_Response = TypeVar("_Response", pb.RangeResponse, pb.TxnResponse)
_Call = Callable[[bytes, Metadata], Awaitable[bytes]]


class KvCalls(Protocol):
    """Serves the calls of the KV service."""

    async def call(self, method: int, body: bytes, metadata: Metadata) -> bytes:
        """Return the response to a unary call; CallRefusedError if it is refused."""
        ...

    def range_stream(self, body: bytes, metadata: Metadata) -> AsyncIterator[bytes]:
        """Yield the responses to RangeStream; CallRefusedError if it is refused."""
        ...


class ClusterKv:
    """The cluster's KV service, with keys as the proxy's clients name them."""

    def __init__(
        self, upstream: Upstream, namespace: Namespace | None, *, is_ordered: bool = False
    ) -> None:
        self._upstream = upstream
        self._namespace = namespace
        self._is_ordered = is_ordered
        self._newest = 0  # the newest revision seen
        self._calls: Final[dict[int, _Call]] = {
            rpc.RANGE: self._range,
            rpc.PUT: self._put,
            rpc.DELETE_RANGE: self._delete_range,
            rpc.TXN: self._txn,
        }

    async def call(self, method: int, body: bytes, metadata: Metadata) -> bytes:
        """Return the response to a unary call of KV."""
        serve = self._calls.get(method)
        if serve is None or (self._namespace is None and not self._is_ordered):
            return await self._upstream.call(method, body, metadata)
        return await serve(body, metadata)

    async def range_stream(self, body: bytes, metadata: Metadata) -> AsyncIterator[bytes]:
        """Yield the responses to RangeStream."""
        namespace = self._namespace
        if namespace is not None:
            body = _range_within(namespace, body)
        async for message in self._upstream.server_stream(rpc.RANGE_STREAM, body, metadata):
            if namespace is None:
                yield message
                continue
            response = pb.RangeStreamResponse.FromString(message)
            namespace.strip(response.range_response.kvs)
            yield response.SerializeToString()

    async def _range(self, body: bytes, metadata: Metadata) -> bytes:
        namespace = self._namespace
        if namespace is not None:
            body = _range_within(namespace, body)
        response = await self._in_order(rpc.RANGE, body, metadata, pb.RangeResponse)
        if namespace is not None:
            namespace.strip(response.kvs)
        return response.SerializeToString()

    async def _put(self, body: bytes, metadata: Metadata) -> bytes:
        if self._namespace is None:
            return await self._upstream.call(rpc.PUT, body, metadata)
        request = pb.PutRequest.FromString(body)
        _require_key(request.key)
        request.key = self._namespace.prefix + request.key
        answer = await self._upstream.call(rpc.PUT, request.SerializeToString(), metadata)
        if not request.prev_kv:
            return answer
        response = pb.PutResponse.FromString(answer)
        self._namespace.strip_put(response)
        return response.SerializeToString()

    async def _delete_range(self, body: bytes, metadata: Metadata) -> bytes:
        if self._namespace is None:
            return await self._upstream.call(rpc.DELETE_RANGE, body, metadata)
        request = pb.DeleteRangeRequest.FromString(body)
        _require_key(request.key)
        self._namespace.add_to_range(request)
        answer = await self._upstream.call(rpc.DELETE_RANGE, request.SerializeToString(), metadata)
        if not request.prev_kv:
            return answer
        response = pb.DeleteRangeResponse.FromString(answer)
        self._namespace.strip(response.prev_kvs)
        return response.SerializeToString()

    async def _txn(self, body: bytes, metadata: Metadata) -> bytes:
        if self._namespace is not None:
            request = pb.TxnRequest.FromString(body)
            self._namespace.add_to_txn(request)
            body = request.SerializeToString()
        response = pb.TxnResponse.FromString(await self._upstream.call(rpc.TXN, body, metadata))
        self._newest = max(self._newest, response.header.revision)
        if self._namespace is not None:
            self._namespace.strip_txn(response)
        return response.SerializeToString()

    async def _in_order(
        self, method: int, body: bytes, metadata: Metadata, kind: type[_Response]
    ) -> _Response:
        newest = self._newest
        tries = 1 + _TRIES_BY_ENDPOINT * len(self._upstream.addresses)
        for _ in range(tries if self._is_ordered else 1):
            response = kind.FromString(await self._upstream.call(method, body, metadata))
            if not self._is_ordered or response.header.revision >= newest:
                self._newest = max(self._newest, response.header.revision)
                return response
        raise CallRefusedError(Code.UNKNOWN, _NO_GREATER)


def _range_within(namespace: Namespace, body: bytes) -> bytes:
    """Return a range request with the prefix."""
    request = pb.RangeRequest.FromString(body)
    _require_key(request.key)
    namespace.add_to_range(request)
    return request.SerializeToString()


def _require_key(key: bytes) -> None:
    """Refuse the empty key, as etcd does before it adds the prefix."""
    if not key:
        raise CallRefusedError(*EMPTY_KEY)
