"""Linearizable reads answered by the proxy: it owns the keys that are read, as in etcd's leasing.

    Range of one key     owned ─► answered here      else ─► acquired with the read, unless lost
                                                             just now
    Put, Delete, Txn     sent to the cluster with guards: each written key is ours or has no owner;
                         the same transaction reads what our keys hold afterwards
    Txn that only reads  answered here if all its keys are owned
    all others           passed unchanged

If a guard does not hold, the owner is asked to release the key, and the write is repeated. Writes
that do not use leasing (directly to the cluster) are not seen. Calls with a token are never
answered here and acquire nothing, because the next caller may not be allowed to read the key.

A guard and an operation for each key fill a transaction of half as many keys as --max-txn-ops
allows. When the reads of our keys are too many for the cluster, the write is sent without them, and
the keys are released.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from kvstore.batch import Metadata
from kvstore.errors import TOO_MANY_OPS
from kvstore.proxy.caching_kv import written_spans
from kvstore.proxy.cluster_kv import KvCalls
from kvstore.proxy.key_ranges import KeyRange, overlap
from kvstore.proxy.leasing import transactions
from kvstore.proxy.leasing.owned_keys import PendingWrite
from kvstore.proxy.leasing.ownership import Ownership
from kvstore.proxy.namespace import Namespace
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb


class LeasingKv:
    """KV calls with owned keys."""

    def __init__(self, cluster: KvCalls, ownership: Ownership, prefix: Namespace) -> None:
        """Use leasing keys under the prefix."""
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
        """Return the response to a unary call of KV; CallRefusedError if it is refused."""
        serve = self._calls.get(method)
        found = None if serve is None else await serve(body, metadata)
        if found is None:
            return await self._cluster.call(method, body, metadata)
        return found.SerializeToString()

    def range_stream(self, body: bytes, metadata: Metadata) -> AsyncIterator[bytes]:
        """Yield the responses to RangeStream."""
        return self._cluster.range_stream(body, metadata)

    # Each of these returns None for a call that is passed unchanged.

    async def _range(self, body: bytes, metadata: Metadata) -> pb.RangeResponse | None:
        request = pb.RangeRequest.FromString(body)
        if _has_token(metadata) or not transactions.reads_one_current_key(request):
            return None
        owned = self._ownership.readable(request.key)
        if owned is not None:
            return transactions.answer(request, self._ownership.header, owned.row)
        if request.serializable or not self._ownership.may_acquire(request.key):
            return None
        found = await self._ownership.acquire(request.key, metadata)
        return None if found is None else transactions.answer(request, *found)

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
            return None if _has_token(metadata) else self._evaluate(request)
        response = await self._write(pb.RequestOp(request_txn=request), spans, metadata)
        done = response.responses[0].response_txn
        done.header.CopyFrom(response.header)
        return done

    def _evaluate(self, request: pb.TxnRequest) -> pb.TxnResponse | None:
        """Carry out a transaction that only reads owned keys."""
        rows: dict[bytes, transactions.Row] = {}
        for key in transactions.read_keys(request) or ():
            owned = self._ownership.readable(key)
            if owned is None:
                return None
            rows[key] = owned.row
        return transactions.evaluate(request, self._ownership.header, rows) if rows else None

    # Writing.

    async def _write(
        self, operation: pb.RequestOp, spans: Sequence[KeyRange], metadata: Metadata
    ) -> pb.TxnResponse:
        """Carry out a write once all its keys are ours or have no owner.

        The first of the returned responses is the operation's.
        """
        keys = list(dict.fromkeys(key for key, end in spans if not end))
        ranges = [span for span in spans if span[1]]
        while True:
            fences = [await self._fence(span, metadata) for span in ranges]
            if any(overlap(span, self._prefix.all_keys) for span in ranges):
                self._ownership.keys.clear()  # the write may delete our leasing keys
            with self._ownership.keys.writing(spans) as write:
                request = self._guarded(operation, keys, fences, write)
                response, has_reads = await self._send(request, metadata)
                if response.succeeded:
                    if has_reads:
                        rows = transactions.rows_after(response, write.singles)
                        deleted = transactions.deleted_spans(operation, response.responses[0])
                        write.committed(response.header.revision, rows, deleted)
                    return response
                write.refused()
            for key, found in zip(keys, response.responses, strict=True):
                await self._resolve(key, transactions.first_row(found), metadata)

    async def _send(
        self, request: pb.TxnRequest, metadata: Metadata
    ) -> tuple[pb.TxnResponse, bool]:
        """Send a guarded write, without the reads of our keys if those make it too large.

        Also return whether the reads were sent.
        """
        try:
            return await self._ownership.txn(request, metadata), True
        except CallRefusedError as refused:
            if (refused.code, refused.text) != TOO_MANY_OPS or len(request.success) == 1:
                raise
        del request.success[1:]
        return await self._ownership.txn(request, metadata), False

    def _guarded(
        self,
        operation: pb.RequestOp,
        keys: Sequence[bytes],
        fences: Sequence[pb.Compare],
        write: PendingWrite,
    ) -> pb.TxnRequest:
        created = {entry.key: entry.created for entry in write.singles}
        leasing_keys = [self._prefix.prefix + key for key in keys]
        guards = [
            transactions.created_is(leasing_key, created.get(key, 0))
            for key, leasing_key in zip(keys, leasing_keys, strict=True)
        ]
        return pb.TxnRequest(
            compare=[*guards, *fences],
            success=[operation, *(transactions.read(entry.key) for entry in write.singles)],
            failure=[transactions.read(leasing_key) for leasing_key in leasing_keys],
        )

    async def _fence(self, span: KeyRange, metadata: Metadata) -> pb.Compare:
        """Make all other owners release a range; return the compare that none has come since."""
        start, end = self._prefix.interval(*span)
        asked = pb.RangeRequest(key=start, range_end=end).SerializeToString()
        answer = await self._cluster.call(rpc.RANGE, asked, metadata)
        rows = pb.RangeResponse.FromString(answer).kvs
        others = [row for row in rows if not self._ownership.is_own(row)]
        await self._ownership.demand_all(others, metadata)
        newest = max((row.create_revision for row in rows), default=0)
        return transactions.none_created_after(start, end, newest)

    async def _resolve(
        self, key: bytes, leasing_row: kv_pb2.KeyValue | None, metadata: Metadata
    ) -> None:
        """Resolve the conflict about a key that could not be written."""
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
        # Ours, but being acquired or released right now.
        keys.lose(key)
        await self._ownership.rescind(key, created)


def _has_token(metadata: Metadata) -> bool:
    return "token" in metadata or "authorization" in metadata
