"""The warnings of reads that take long, in etcd's words, and not too often.

A linearizable read waits for the leader's read-index: it is asked for again, and in the end given
up. A range over many keys may itself take long.
"""

from kvstore.apply.ranges import RangeAnswer
from kvstore.errors import Refusal
from kvstore.histograms import NANOSECOND_S
from kvstore.node.parts import Parts
from kvstore.node.slow_apply import warn_read
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.loggable import duration_text, loggable


def warn_retry(parts: Parts, context: bytes, retry_ns: int, now_ns: int) -> None:
    """Tell that the leader has not answered, and is asked again."""
    if parts.counters.rate_limiter.admit("read-index", now_ns) is None:
        return
    fields: dict[str, object] = {
        "sent-request-id": int.from_bytes(context, "big"),
        "retry-timeout": duration_text(retry_ns),
    }
    parts.logger.warning("waiting for ReadIndex response took too long, retrying", **fields)


def warn_timeout(parts: Parts, timeout_ns: int, now_ns: int) -> None:
    """Count and tell that the leader never answered."""
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
    """Count a range that took several turns, and tell if that was long."""
    counters = parts.counters
    took_ns = counters.clock() - began_ns
    went_well = not isinstance(answer, Refusal)
    counters.ranges += 1
    counters.range_seconds[went_well].add(took_ns * NANOSECOND_S)
    if took_ns <= counters.slow_apply_ns:
        return
    counters.slow_applies += 1
    response = ""
    if isinstance(answer, RangeAnswer):
        size_bytes = sum(map(len, answer.kvs))
        response = f"range_response_count:{len(answer.kvs)} size:{size_bytes}"
    warn_read(parts, loggable(request), response, took_ns, "read-only range ")
