"""Linearizable reads from here: keys are owned while they are read, as etcd's leasing has it.

    Range of one key     owned ─► from here      else ─► acquired on the way, unless lost just now
    Put, Delete, Txn     on the cluster, guarded: every written key is ours or nobody's; what owned
                         keys hold then is read in the same transaction
    Txn that reads       from here, if every key of it is owned
    all else             as it is

A guard that does not hold names the owner; it is asked to give the key up, and the write is tried
again. Writers that go past all this (directly to the cluster) are not seen. What carries a token is
never answered from here and owns nothing, since whoever asks next may not be allowed to read it.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from kvstore.batch import Metadata
from kvstore.proxy.cluster_kv import KvCalls
from kvstore.proxy.kv import written_spans
from kvstore.proxy.leasing import messages
from kvstore.proxy.leasing.owned_keys import Span, Writing, do_meet
from kvstore.proxy.leasing.ownership import Ownership
from kvstore.proxy.namespace import Namespace
from kvstore.wire import rpc
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb


class LeasingKv:
    """KV calls by way of owned keys."""

    def __init__(self, cluster: KvCalls, ownership: Ownership, prefix: Namespace) -> None:
        """Take the cluster, and who says what is owned under the prefix."""
        self._cluster = cluster
        self._ownership = ownership
        self._prefix: Final = prefix
        self._calls: Final = {
            rpc.RANGE: self._range,
            rpc.PUT: self._put,
            rpc.DELETE_RANGE: self._delete_range,
            rpc.TXN: self._txn,
        }

    async def call(self, method: int, body: bytes, metadata: Metadata) -> bytes:
        """Return the answer to a unary call of KV; CallRefusedError if it is refused."""
        serve = self._calls.get(method)
        found = None if serve is None else await serve(body, metadata)
        if found is None:
            return await self._cluster.call(method, body, metadata)
        return found.SerializeToString()

    def range_stream(self, body: bytes, metadata: Metadata) -> AsyncIterator[bytes]:
        """Yield the answers to RangeStream."""
        return self._cluster.range_stream(body, metadata)

    # Each of these returns None for what the cluster answers by itself.

    async def _range(self, body: bytes, metadata: Metadata) -> pb.RangeResponse | None:
        request = pb.RangeRequest.FromString(body)
        if _is_somebody(metadata) or not messages.is_of_one_key_now(request):
            return None
        owned = self._ownership.readable(request.key)
        if owned is not None:
            return messages.answer(request, self._ownership.header, owned.row)
        if request.serializable or not self._ownership.may_acquire(request.key):
            return None
        found = await self._ownership.acquire(request.key, metadata)
        return None if found is None else messages.answer(request, *found)

    async def _put(self, body: bytes, metadata: Metadata) -> pb.PutResponse | None:
        request = pb.PutRequest.FromString(body)
        if not request.key:
            return None
        operation = pb.RequestOp(request_put=request)
        response = await self._write(operation, [(request.key, b"")], metadata)
        done = response.responses[0].response_put
        done.header.CopyFrom(response.header)
        return done

    async def _delete_range(self, body: bytes, metadata: Metadata) -> pb.DeleteRangeResponse | None:
        request = pb.DeleteRangeRequest.FromString(body)
        if not request.key:
            return None
        operation = pb.RequestOp(request_delete_range=request)
        span = (request.key, request.range_end)
        response = await self._write(operation, [span], metadata)
        done = response.responses[0].response_delete_range
        done.header.CopyFrom(response.header)
        return done

    async def _txn(self, body: bytes, metadata: Metadata) -> pb.TxnResponse | None:
        request = pb.TxnRequest.FromString(body)
        spans = written_spans(request)
        if not spans:
            return None if _is_somebody(metadata) else self._judged(request)
        response = await self._write(pb.RequestOp(request_txn=request), spans, metadata)
        done = response.responses[0].response_txn
        done.header.CopyFrom(response.header)
        return done

    def _judged(self, request: pb.TxnRequest) -> pb.TxnResponse | None:
        """Carry out a transaction that only looks at owned keys."""
        rows: dict[bytes, messages.Row] = {}
        for key in messages.named_keys(request) or ():
            owned = self._ownership.readable(key)
            if owned is None:
                return None
            rows[key] = owned.row
        return messages.judged(request, self._ownership.header, rows) if rows else None

    # Writing.

    async def _write(
        self, operation: pb.RequestOp, spans: Sequence[Span], metadata: Metadata
    ) -> pb.TxnResponse:
        """Carry out a write when every key of it is ours or nobody's; its answer comes first."""
        keys = list(dict.fromkeys(key for key, end in spans if not end))
        ranges = [span for span in spans if span[1]]
        while True:
            fences = [await self._fence(span, metadata) for span in ranges]
            if any(do_meet(span, self._prefix.everything) for span in ranges):
                self._ownership.keys.clear()  # it may delete our leasing keys
            with self._ownership.keys.writing(spans) as writing:
                request = self._guarded(operation, keys, fences, writing)
                response = await self._ownership.txn(request, metadata)
                if response.succeeded:
                    rows = messages.rows_after(response, writing.singles)
                    deleted = messages.deleted_spans(operation, response.responses[0])
                    writing.committed(response.header.revision, rows, deleted)
                    return response
                writing.refused()
            for key, found in zip(keys, response.responses, strict=True):
                await self._make_way(key, messages.first_row(found), metadata)

    def _guarded(
        self,
        operation: pb.RequestOp,
        keys: Sequence[bytes],
        fences: Sequence[pb.Compare],
        writing: Writing,
    ) -> pb.TxnRequest:
        created = {entry.key: entry.created for entry in writing.singles}
        leasing_keys = [self._prefix.prefix + key for key in keys]
        guards = [
            messages.created_is(leasing_key, created.get(key, 0))
            for key, leasing_key in zip(keys, leasing_keys, strict=True)
        ]
        return pb.TxnRequest(
            compare=[*guards, *fences],
            success=[operation, *(messages.reading(entry.key) for entry in writing.singles)],
            failure=[messages.reading(leasing_key) for leasing_key in leasing_keys],
        )

    async def _fence(self, span: Span, metadata: Metadata) -> pb.Compare:
        """Take a range of keys from all other owners; return that it has not changed since."""
        start, end = self._prefix.interval(*span)
        asked = pb.RangeRequest(key=start, range_end=end).SerializeToString()
        answer = await self._cluster.call(rpc.RANGE, asked, metadata)
        rows = pb.RangeResponse.FromString(answer).kvs
        others = [row for row in rows if not self._ownership.is_own(row)]
        await self._ownership.demand_all(others, metadata)
        newest = max((row.create_revision for row in rows), default=0)
        return messages.none_created_after(start, end, newest)

    async def _make_way(
        self, key: bytes, leasing_row: kv_pb2.KeyValue | None, metadata: Metadata
    ) -> None:
        """Do something about the leasing key of a key that could not be written."""
        keys = self._ownership.keys
        owned = keys.get(key)
        created = 0 if leasing_row is None else leasing_row.create_revision
        if owned is not None and owned.created != created:
            keys.lose(key)
            owned = None
        if leasing_row is None or owned is not None:
            return
        if not self._ownership.is_own(leasing_row):
            await self._ownership.demand(leasing_row, metadata)
            return
        # Being acquired, or being given back: either way it is in our own hands.
        keys.lose(key)
        await self._ownership.rescind(key, created)


def _is_somebody(metadata: Metadata) -> bool:
    return "token" in metadata or "authorization" in metadata
