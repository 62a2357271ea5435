"""The KV service of the proxy: what was read is kept for serializable reads, until it is written.

    client ──► KvProxy ──► LeasingKv, where a prefix is given ──► ClusterKv ──► the cluster

Bodies go on as they came and answers come back as they are.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from kvstore.batch import Metadata
from kvstore.errors import COMPACTED
from kvstore.proxy.cluster_kv import KvCalls
from kvstore.proxy.counts import Counts
from kvstore.proxy.range_cache import Key, RangeCache, Reading
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

_Call = Callable[[bytes, Metadata], Awaitable[bytes]]


class KvProxy:
    """Serves KV."""

    def __init__(self, source: KvCalls, counts: Counts) -> None:
        """Take what answers when nothing is kept here."""
        self._source = source
        self._counts = counts
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
        key: Key = (_user(metadata), request.SerializeToString(deterministic=True))
        if is_serializable:
            found = self._cached(key, request.revision)
            if found is not None:
                return found
        start, end = request.key, request.range_end
        reading = self._cache.begin(key, start, end, request.revision)
        try:
            answer = await self._source.call(rpc.RANGE, body, metadata)
        finally:
            self._cache.give_up(reading)
        self._cache.keep(reading, answer)
        self._counted()
        return answer

    def _cached(self, key: Key, revision: int) -> bytes | None:
        if 0 < revision < self._cache.compacted:
            self._counts.cache_hits += 1
            raise CallRefusedError(*COMPACTED)
        found = self._cache.get(key)
        if found is None:
            self._counts.cache_misses += 1
        else:
            self._counts.cache_hits += 1
        return found

    def range_stream(self, body: bytes, metadata: Metadata) -> AsyncIterator[bytes]:
        """Serve RangeStream."""
        return self._source.range_stream(body, metadata)

    async def put(self, body: bytes, metadata: Metadata) -> bytes:
        """Serve Put."""
        key = pb.PutRequest.FromString(body).key
        return await self._writing([(key, b"")], rpc.PUT, body, metadata)

    async def delete_range(self, body: bytes, metadata: Metadata) -> bytes:
        """Serve DeleteRange."""
        request = pb.DeleteRangeRequest.FromString(body)
        span = (request.key, request.range_end)
        return await self._writing([span], rpc.DELETE_RANGE, body, metadata)

    async def txn(self, body: bytes, metadata: Metadata) -> bytes:
        """Serve Txn."""
        request = pb.TxnRequest.FromString(body)
        spans = [(compare.key, compare.range_end) for compare in request.compare]
        spans += written_spans(request)
        readings = self._readings(request, metadata)
        try:
            answer = await self._writing(spans, rpc.TXN, body, metadata)
        finally:
            for reading in (each for branch in readings for each in branch if each is not None):
                self._cache.give_up(reading)
        response = pb.TxnResponse.FromString(answer)
        self._keep_reads(readings[0] if response.succeeded else readings[1], response)
        return answer

    def _readings(
        self, request: pb.TxnRequest, metadata: Metadata
    ) -> tuple[list[Reading | None], list[Reading | None]]:
        """Note what both branches read; keys have no prefix yet."""
        user = _user(metadata)

        def begin(operation: pb.RequestOp) -> Reading | None:
            if operation.WhichOneof("request") != "request_range":
                return None
            asked = pb.RangeRequest()
            asked.CopyFrom(operation.request_range)
            asked.serializable = True
            key = (user, asked.SerializeToString(deterministic=True))
            return self._cache.begin(key, asked.key, asked.range_end, asked.revision)

        return [begin(each) for each in request.success], [begin(each) for each in request.failure]

    def _keep_reads(self, readings: list[Reading | None], response: pb.TxnResponse) -> None:
        """Keep what a transaction read, unless it wrote the same keys."""
        for reading, each in zip(readings, response.responses, strict=False):
            if reading is not None and each.WhichOneof("response") == "response_range":
                # Without a header of its own it has the transaction's.
                found = pb.RangeResponse()
                found.CopyFrom(each.response_range)
                if not found.HasField("header") or not found.header.cluster_id:
                    found.header.CopyFrom(response.header)
                self._cache.keep(reading, found.SerializeToString())
        self._counted()

    async def compact(self, body: bytes, metadata: Metadata) -> bytes:
        """Serve Compact."""
        answer = await self._source.call(rpc.COMPACT, body, metadata)
        self._cache.compact(pb.CompactionRequest.FromString(body).revision)
        self._counted()
        return answer

    async def _writing(
        self, spans: list[tuple[bytes, bytes]], method: int, body: bytes, metadata: Metadata
    ) -> bytes:
        """Send a write; what is kept of its keys is forgotten before and after it."""
        self._forget(spans)
        try:
            return await self._source.call(method, body, metadata)
        finally:
            self._forget(spans)

    def _forget(self, spans: list[tuple[bytes, bytes]]) -> None:
        for start, end in spans:
            self._cache.invalidate(start, end)
        self._counted()

    def _counted(self) -> None:
        self._counts.cache_keys = len(self._cache)


def written_spans(request: pb.TxnRequest) -> list[tuple[bytes, bytes]]:
    """Return key and range end of all that a transaction may write, at any depth."""
    spans: list[tuple[bytes, bytes]] = []
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


def _user(metadata: Metadata) -> str:
    return metadata.get("token") or metadata.get("authorization") or ""
