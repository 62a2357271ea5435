"""A range over many keys, gathered slice by slice at one revision.

    gather() ─► None: there is more ─► gather() ─► … ─► the KeyValues of the whole range
                └─► COMPACTED: a compaction has passed the revision meanwhile

It reads as many keys as the request needs before filters, order and limit are applied to them.
"""

from kvstore.apply.ranges import fetch_limit, skips_values
from kvstore.errors import Refusal
from kvstore.node.parts import Parts
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.splice import kv_key


class RangeSlices:
    """The slices of one range, at the revision that was current when it began."""

    __slots__ = ("_kvs", "_needed", "_next_key", "_parts", "_pinned", "_request", "revision")

    def __init__(self, parts: Parts, request: pb.RangeRequest, count: int) -> None:
        """Begin a range of count keys."""
        self._parts = parts
        self._request = request
        self._next_key = request.key
        self._kvs: list[bytes] = []
        self._needed = fetch_limit(request) or count
        self.revision = parts.state.store.revision  # for the response's header
        self._pinned = request.revision if request.revision > 0 else self.revision

    def gather(self) -> list[bytes] | Refusal | None:
        """Read one slice; return the KeyValues of all slices after the last one, else None."""
        parts, request, kvs = self._parts, self._request, self._kvs
        slice_keys = min(parts.limits.range_slice_keys, self._needed - len(kvs))
        if slice_keys <= 0:
            return kvs
        slice_ = parts.state.store.range(
            self._next_key,
            request.range_end,
            revision=self._pinned,
            limit=slice_keys,
            keys_only=skips_values(request),
            with_count=False,
        )
        if isinstance(slice_, Refusal):
            return slice_
        kvs += slice_.kvs
        if len(slice_.kvs) < slice_keys or len(kvs) >= self._needed:
            return kvs
        self._next_key = kv_key(slice_.kvs[-1]) + b"\0"
        return None
