"""A namespace: the proxy's clients use keys under a prefix that they do not see.

    request   "a"        → pfx/a            range a … b     → pfx/a … pfx/b
              "" … "\\0"  → pfx/ … pfx0      a … "\\0" (open) → pfx/a … end of the prefix
    response  pfx/a      → "a"

It applies to KV with nested transactions, to watches and to the keys of leases; as in etcd it does
not apply to locks, elections, users and permissions. A lease's keys outside the prefix are not
shown.
"""

from collections.abc import Iterable
from typing import Final

from kvstore.proxy.key_ranges import OPEN_END, KeyRange, prefix_end
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb


class Namespace:
    """One prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix: Final = prefix.encode("utf-8", "surrogateescape")
        self._end: Final = prefix_end(self.prefix)

    @property
    def all_keys(self) -> KeyRange:
        """The range of all keys under the prefix."""
        return self.prefix, self._end

    def interval(self, key: bytes, end: bytes) -> KeyRange:
        """Return a range of the client's keys as a range under the prefix."""
        if end == OPEN_END:
            return self.prefix + key, self._end
        return self.prefix + key, self.prefix + end if end else b""

    def add_to_range(self, request: "_WithRange") -> None:
        """Add the prefix to a range."""
        request.key, request.range_end = self.interval(request.key, request.range_end)

    def add_to_txn(self, request: pb.TxnRequest) -> None:
        """Add the prefix to every key of a transaction, at any depth."""
        for compare in request.compare:
            key, end = self.interval(compare.key, compare.range_end)
            compare.key = key
            if compare.range_end:
                compare.range_end = end
        for operations in (request.success, request.failure):
            for operation in operations:
                self._add_to_operation(operation)

    def _add_to_operation(self, operation: pb.RequestOp) -> None:
        kind = operation.WhichOneof("request")
        if kind == "request_range":
            self.add_to_range(operation.request_range)
        elif kind == "request_put":
            operation.request_put.key = self.prefix + operation.request_put.key
        elif kind == "request_delete_range":
            self.add_to_range(operation.request_delete_range)
        elif kind == "request_txn":
            self.add_to_txn(operation.request_txn)

    def strip(self, rows: Iterable[kv_pb2.KeyValue]) -> None:
        """Remove the prefix from keys."""
        size = len(self.prefix)
        for row in rows:
            row.key = row.key[size:]

    def strip_put(self, response: pb.PutResponse) -> None:
        """Remove the prefix from the previous value's key."""
        if response.HasField("prev_kv"):
            self.strip([response.prev_kv])

    def strip_txn(self, response: pb.TxnResponse) -> None:
        """Remove the prefix from every key of a transaction's responses, at any depth."""
        for operation in response.responses:
            kind = operation.WhichOneof("response")
            if kind == "response_range":
                self.strip(operation.response_range.kvs)
            elif kind == "response_put":
                self.strip_put(operation.response_put)
            elif kind == "response_delete_range":
                self.strip(operation.response_delete_range.prev_kvs)
            elif kind == "response_txn":
                self.strip_txn(operation.response_txn)

    def strip_watch(self, response: pb.WatchResponse) -> None:
        """Remove the prefix from the keys of every event."""
        for event in response.events:
            self.strip([event.kv])
            if event.HasField("prev_kv"):
                self.strip([event.prev_kv])

    def strip_lease(self, response: pb.LeaseTimeToLiveResponse) -> None:
        """Keep the keys under the prefix, without the prefix."""
        inside = [each for each in response.keys if each.startswith(self.prefix)]
        del response.keys[:]
        response.keys.extend(each[len(self.prefix) :] for each in inside)


_WithRange = pb.RangeRequest | pb.DeleteRangeRequest | pb.WatchCreateRequest
