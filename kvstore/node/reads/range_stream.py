"""RangeStream calls: the response in chunks, all at one revision, sent as the client reads.

    ascending by key   a chunk is read from the store when it is sent
    another order      the range is gathered first, over several turns, then sorted and sent

Header, more and count are in the last message only.

With sort order NONE and a target other than KEY the order is ascending by that target, as in a
Range call. etcd 3.7.1 sorts each chunk by itself there and repeats keys.
"""

from typing import Final, Protocol

from kvstore.apply.ranges import is_store_order, shape, skips_values
from kvstore.batch import Outbox
from kvstore.errors import Refusal
from kvstore.failpoints import hit
from kvstore.node.parts import Parts
from kvstore.node.reads.range_slices import RangeSlices
from kvstore.wire import splice
from kvstore.wire.gen import rpc_pb2 as pb

_FIRST_CHUNK_KEYS: Final = 10


class RangeStream(Protocol):
    """One RangeStream call."""

    def step(self, out: Outbox) -> bool:
        """Do a bounded piece of work, at most one chunk; return True once the last is sent."""
        ...


def range_stream(parts: Parts, call_id: int, request: pb.RangeRequest) -> RangeStream:
    """Begin a call."""
    parts.counters.ranges += 1
    if request.count_only or is_store_order(request):
        return _KeyOrderStream(parts, call_id, request)
    return _SortedStream(parts, call_id, request)


class _KeyOrderStream:
    """A stream ascending by key."""

    def __init__(self, parts: Parts, call_id: int, request: pb.RangeRequest) -> None:
        self._parts = parts
        self._call_id = call_id
        self._request = request
        self._left = max(request.limit, 0)  # 0: no limit, which a negative one means as well
        self._chunk_keys = _FIRST_CHUNK_KEYS
        self._next_key = request.key
        self._sent = 0
        self._header_revision = parts.state.store.revision
        self._pinned = request.revision if request.revision > 0 else parts.state.store.revision

    def step(self, out: Outbox) -> bool:
        """Read and send one chunk."""
        hit("beforeRangeStreamChunk")
        parts, request = self._parts, self._request
        limit = self._chunk_keys if self._left == 0 else min(self._chunk_keys, self._left)
        result = parts.state.store.range(
            self._next_key,
            request.range_end,
            revision=request.revision if request.revision < 0 else self._pinned,
            limit=limit + 1,
            count_only=request.count_only,
            keys_only=skips_values(request),
        )
        if isinstance(result, Refusal):
            out.end(self._call_id, result)
            return True
        kvs = result.kvs[:limit]
        more = len(result.kvs) > limit
        self._sent += len(kvs)
        if self._left:
            self._left -= len(kvs)
        is_last = not more or (request.limit > 0 and self._left == 0)
        if is_last:
            # result.count is of what is left from this chunk's first key on.
            count = self._sent - len(kvs) + result.count
            header = parts.headers.field(self._header_revision, parts.raft.term)
            _send_last(self._call_id, splice.range_response(header, kvs, more, count), out)
            return True
        _send(self._call_id, splice.range_response(b"", kvs, False, 0), out)
        self._next_key = splice.kv_key(kvs[-1]) + b"\0"
        size_bytes = sum(map(len, kvs))
        self._chunk_keys = _next_chunk(limit, size_bytes, parts.limits.request_bytes_max)
        return False


class _SortedStream:
    """A stream in another order."""

    def __init__(self, parts: Parts, call_id: int, request: pb.RangeRequest) -> None:
        self._parts = parts
        self._call_id = call_id
        self._request = request
        self._slices: RangeSlices | None = None
        self._count = 0
        self._kvs: list[bytes] | None = None  # sorted, once all are gathered
        self._more = False
        self._sent = 0

    def step(self, out: Outbox) -> bool:
        """Gather one slice or send one chunk."""
        if self._kvs is None:
            refusal = self._gather()
            if refusal is not None:
                out.end(self._call_id, refusal)
            return refusal is not None
        hit("beforeRangeStreamChunk")
        return self._send_chunk(self._kvs, out)

    def _gather(self) -> Refusal | None:
        parts, request = self._parts, self._request
        if self._slices is None:
            counted = parts.state.store.range(
                request.key, request.range_end, revision=request.revision, count_only=True
            )
            if isinstance(counted, Refusal):
                return counted
            self._count = counted.count
            self._slices = RangeSlices(parts, request, counted.count)
        gathered = self._slices.gather()
        if isinstance(gathered, Refusal):
            return gathered
        if gathered is not None:
            self._kvs, self._more = shape(request, gathered)
        return None

    def _send_chunk(self, kvs: list[bytes], out: Outbox) -> bool:
        assert self._slices is not None
        parts, start = self._parts, self._sent
        end = _chunk_end(kvs, start, parts.limits.request_bytes_max)
        self._sent = end
        if end < len(kvs):
            _send(self._call_id, splice.range_response(b"", kvs[start:end], False, 0), out)
            return False
        header = parts.headers.field(self._slices.revision, parts.raft.term)
        response = splice.range_response(header, kvs[start:], self._more, self._count)
        _send_last(self._call_id, response, out)
        return True


def _chunk_end(kvs: list[bytes], start: int, target_bytes: int) -> int:
    """Return the end of a chunk that starts there: near the target, with at least one KeyValue."""
    size_bytes = 0
    for end in range(start, len(kvs)):
        size_bytes += len(kvs[end])
        if size_bytes > target_bytes and end > start:
            return end
    return len(kvs)


def _next_chunk(keys: int, size_bytes: int, target_bytes: int) -> int:
    """Return the keys of the next chunk: double or half, if the last one missed the target."""
    if size_bytes < target_bytes // 2:
        return keys * 2
    if size_bytes > target_bytes * 2:
        return max(keys // 2, 1)
    return keys


def _send(call_id: int, response: bytes, out: Outbox) -> None:
    out.deliveries.append((call_id, splice.range_stream_response(response), b""))


def _send_last(call_id: int, response: bytes, out: Outbox) -> None:
    _send(call_id, response, out)
    out.end(call_id, None)
