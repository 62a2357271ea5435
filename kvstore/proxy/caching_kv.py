"""The KV service of the proxy: responses are cached for serializable reads until a write.

    client ──► CachingKv ──► LeasingKv, if a leasing prefix is given ──► ClusterKv ──► the cluster

Requests and responses are passed unchanged.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from kvstore.batch import Metadata
from kvstore.errors import COMPACTED
from kvstore.proxy.cluster_kv import KvCalls
from kvstore.proxy.counters import ProxyCounters
from kvstore.proxy.key_ranges import KeyRange
from kvstore.proxy.range_cache import Key, PendingRead, RangeCache
from kvstore.proxy.upstream import credential_of
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

_Call = Callable[[bytes, Metadata], Awaitable[bytes]]


class CachingKv:
    """Serves KV."""

    def __init__(self, source: KvCalls, counters: ProxyCounters) -> None:
        """Serve from source what is not in the cache."""
        self._source = source
        self._counters = counters
        self._cache = RangeCache()
        self.methods: Final[dict[int, _Call]] = {
            rpc.RANGE: self.range,
            rpc.PUT: self.put,
            rpc.DELETE_RANGE: self.delete_range,
            rpc.TXN: self.txn,
            rpc.COMPACT: self.compact,
        }

    async def range(self, body: bytes, metadata: Metadata) -> bytes:
        """Serve Range."""
        request = pb.RangeRequest.FromString(body)
        is_serializable = request.serializable
        request.serializable = True
        key: Key = (credential_of(metadata), request.SerializeToString(deterministic=True))
        if is_serializable:
            found = self._cached(key, request.revision)
            if found is not None:
                return found
        read = self._cache.begin(key, (request.key, request.range_end), request.revision)
        try:
            answer = await self._source.call(rpc.RANGE, body, metadata)
        finally:
            self._cache.discard(read)
        self._cache.keep(read, answer)
        self._count_keys()
        return answer

    def _cached(self, key: Key, revision: int) -> bytes | None:
        if 0 < revision < self._cache.compacted:
            self._counters.cache_hits += 1
            raise CallRefusedError(*COMPACTED)
        found = self._cache.get(key)
        if found is None:
            self._counters.cache_misses += 1
        else:
            self._counters.cache_hits += 1
        return found

    def range_stream(self, body: bytes, metadata: Metadata) -> AsyncIterator[bytes]:
        """Serve RangeStream."""
        return self._source.range_stream(body, metadata)

    async def put(self, body: bytes, metadata: Metadata) -> bytes:
        """Serve Put."""
        key = pb.PutRequest.FromString(body).key
        return await self._write([(key, b"")], rpc.PUT, body, metadata)

    async def delete_range(self, body: bytes, metadata: Metadata) -> bytes:
        """Serve DeleteRange."""
        request = pb.DeleteRangeRequest.FromString(body)
        span = (request.key, request.range_end)
        return await self._write([span], rpc.DELETE_RANGE, body, metadata)

    async def txn(self, body: bytes, metadata: Metadata) -> bytes:
        """Serve Txn."""
        request = pb.TxnRequest.FromString(body)
        spans = [(compare.key, compare.range_end) for compare in request.compare]
        spans += written_spans(request)
        reads = self._begin_reads(request, metadata)
        try:
            answer = await self._write(spans, rpc.TXN, body, metadata)
        finally:
            for read in (each for branch in reads for each in branch if each is not None):
                self._cache.discard(read)
        response = pb.TxnResponse.FromString(answer)
        self._keep_reads(reads[0] if response.succeeded else reads[1], response)
        return answer

    def _begin_reads(
        self, request: pb.TxnRequest, metadata: Metadata
    ) -> tuple[list[PendingRead | None], list[PendingRead | None]]:
        """Note the reads of both branches; the keys have no prefix yet."""
        user = credential_of(metadata)

        def begin(operation: pb.RequestOp) -> PendingRead | None:
            if operation.WhichOneof("request") != "request_range":
                return None
            asked = pb.RangeRequest()
            asked.CopyFrom(operation.request_range)
            asked.serializable = True
            key = (user, asked.SerializeToString(deterministic=True))
            return self._cache.begin(key, (asked.key, asked.range_end), asked.revision)

        return [begin(each) for each in request.success], [begin(each) for each in request.failure]

    def _keep_reads(self, reads: list[PendingRead | None], response: pb.TxnResponse) -> None:
        """Keep what a transaction read, unless it wrote the same keys."""
        for read, each in zip(reads, response.responses, strict=False):
            if read is not None and each.WhichOneof("response") == "response_range":
                # A response without a header gets the transaction's.
                found = pb.RangeResponse()
                found.CopyFrom(each.response_range)
                if not found.HasField("header") or not found.header.cluster_id:
                    found.header.CopyFrom(response.header)
                self._cache.keep(read, found.SerializeToString())
        self._count_keys()

    async def compact(self, body: bytes, metadata: Metadata) -> bytes:
        """Serve Compact."""
        answer = await self._source.call(rpc.COMPACT, body, metadata)
        self._cache.compact(pb.CompactionRequest.FromString(body).revision)
        self._count_keys()
        return answer

    async def _write(
        self, spans: list[KeyRange], method: int, body: bytes, metadata: Metadata
    ) -> bytes:
        """Send a write; cached responses with its keys are dropped before and after it."""
        self._invalidate(spans)
        try:
            return await self._source.call(method, body, metadata)
        finally:
            self._invalidate(spans)

    def _invalidate(self, spans: list[KeyRange]) -> None:
        for span in spans:
            self._cache.invalidate(span)
        self._count_keys()

    def _count_keys(self) -> None:
        self._counters.cache_keys = len(self._cache)


def written_spans(request: pb.TxnRequest) -> list[KeyRange]:
    """Return the ranges that a transaction may write, at any depth."""
    spans: list[KeyRange] = []
    for operation in (*request.success, *request.failure):
        kind = operation.WhichOneof("request")
        if kind == "request_put":
            spans.append((operation.request_put.key, b""))
        elif kind == "request_delete_range":
            deleted = operation.request_delete_range
            spans.append((deleted.key, deleted.range_end))
        elif kind == "request_txn":
            spans += written_spans(operation.request_txn)
    return spans
