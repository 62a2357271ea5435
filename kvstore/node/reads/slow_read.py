"""The warnings about slow reads, with etcd's texts and rate-limited.

A linearizable read waits for a read index, which is requested again and in the end times out. A
range over many keys may itself take long.
"""

from kvstack.component.units import NANOSECOND_S
from kvstore.apply.ranges import RangeAnswer
from kvstore.errors import Refusal
from kvstore.node.parts import Parts
from kvstore.node.slow_apply import warn_read
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.loggable import duration_text, loggable


def warn_retry(parts: Parts, context: bytes, retry_ns: int, now_ns: int) -> None:
    """Warn that the leader has not answered, and the read index is requested again."""
    if parts.counters.rate_limiter.admit("read-index", now_ns) is None:
        return
    fields: dict[str, object] = {
        "sent-request-id": int.from_bytes(context, "big"),
        "retry-timeout": duration_text(retry_ns),
    }
    parts.logger.warning("waiting for ReadIndex response took too long, retrying", **fields)


def warn_timeout(parts: Parts, timeout_ns: int, now_ns: int) -> None:
    """Count a read that the leader has not answered in time, and warn."""
    parts.counters.slow_reads += 1
    if parts.counters.rate_limiter.admit("read-index-timeout", now_ns) is None:
        return
    parts.logger.warning(
        "timed out waiting for read index response (local node might have slow network)",
        timeout=duration_text(timeout_ns),
    )


def note_long(
    parts: Parts, request: pb.RangeRequest, answer: RangeAnswer | Refusal, began_ns: int
) -> None:
    """Count a range that took several turns, and warn if it was slow."""
    counters = parts.counters
    took_ns = counters.clock() - began_ns
    succeeded = not isinstance(answer, Refusal)
    counters.ranges += 1
    counters.range_seconds[succeeded].add(took_ns * NANOSECOND_S)
    if took_ns <= counters.slow_apply_ns:
        return
    counters.slow_applies += 1
    response = ""
    if isinstance(answer, RangeAnswer):
        size_bytes = sum(map(len, answer.kvs))
        response = f"range_response_count:{len(answer.kvs)} size:{size_bytes}"
    warn_read(parts, loggable(request), response, took_ns, "read-only range ")
