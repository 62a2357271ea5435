"""A namespace: the keys of clients of the proxy lie under a prefix they do not see.

    request   "a"        → pfx/a            range a … b     → pfx/a … pfx/b
              "" … "\\0"  → pfx/ … pfx0      a … "\\0" (open) → pfx/a … end of the prefix
    response  pfx/a      → "a"

KV with nested transactions, watches and the keys of leases; locks, elections, users and permissions
are not changed, as in etcd. A lease's keys outside the prefix are not shown.
"""

from collections.abc import Iterable
from typing import Final

from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb

_OPEN_END: Final = b"\0"


class Namespace:
    """One prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix: Final = prefix.encode("utf-8", "surrogateescape")
        self._end: Final = _after(self.prefix)

    @property
    def everything(self) -> tuple[bytes, bytes]:
        """The range of all keys inside the prefix."""
        return self.prefix, self._end

    def interval(self, key: bytes, end: bytes) -> tuple[bytes, bytes]:
        """Return key and range end inside the prefix."""
        if end == _OPEN_END:
            return self.prefix + key, self._end
        return self.prefix + key, self.prefix + end if end else b""

    def add_to_range(self, request: "_WithRange") -> None:
        """Put the prefix before a range."""
        request.key, request.range_end = self.interval(request.key, request.range_end)

    def add_to_txn(self, request: pb.TxnRequest) -> None:
        """Put the prefix before every key of a transaction, at any depth."""
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
        """Take the prefix off keys."""
        size = len(self.prefix)
        for row in rows:
            row.key = row.key[size:]

    def strip_put(self, response: pb.PutResponse) -> None:
        """Take the prefix off the previous value's key."""
        if response.HasField("prev_kv"):
            self.strip([response.prev_kv])

    def strip_txn(self, response: pb.TxnResponse) -> None:
        """Take the prefix off every key of a transaction's answers, at any depth."""
        for each in response.responses:
            kind = each.WhichOneof("response")
            if kind == "response_range":
                self.strip(each.response_range.kvs)
            elif kind == "response_put":
                self.strip_put(each.response_put)
            elif kind == "response_delete_range":
                self.strip(each.response_delete_range.prev_kvs)
            elif kind == "response_txn":
                self.strip_txn(each.response_txn)

    def strip_watch(self, response: pb.WatchResponse) -> None:
        """Take the prefix off every event's keys."""
        for event in response.events:
            self.strip([event.kv])
            if event.HasField("prev_kv"):
                self.strip([event.prev_kv])

    def strip_lease(self, response: pb.LeaseTimeToLiveResponse) -> None:
        """Keep the keys inside the prefix, without it."""
        inside = [each for each in response.keys if each.startswith(self.prefix)]
        del response.keys[:]
        response.keys.extend(each[len(self.prefix) :] for each in inside)


_WithRange = pb.RangeRequest | pb.DeleteRangeRequest | pb.WatchCreateRequest


def _after(prefix: bytes) -> bytes:
    """Return the first key after all that begin with prefix; the open end if there is none."""
    kept = prefix.rstrip(b"\xff")
    if not kept:
        return _OPEN_END
    # etcd carries over without shortening: "a\xff" becomes "b\0", which bounds the same keys.
    return kept[:-1] + bytes([kept[-1] + 1]) + b"\0" * (len(prefix) - len(kept))
