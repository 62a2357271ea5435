"""The warning that applying a request took too long, with etcd's text and rate-limited.

Some requests are timed one by one, the others as a batch. The warning about a slow batch names its
largest entry, which is the most likely cause.
"""

from collections.abc import Mapping, Sequence

from kvstore.apply.txn import Result
from kvstore.errors import Refusal
from kvstore.node.parts import Parts
from kvstore.node.waiters import Waiter
from kvstore.raft.model import Entry
from kvstore.wire.internal import unwrap
from kvstore.wire.loggable import duration_text, loggable_entry
from kvstore.wire.varint import WireError


def warn(parts: Parts, waiter: Waiter, result: Result, took_ns: int) -> None:
    """Warn about one slow request."""
    failed = {"error": result.text} if isinstance(result, Refusal) else {}
    response = "" if isinstance(result, Refusal) else f"size:{len(result)}"
    _warn(parts, took_ns, loggable_entry(waiter.field, waiter.body), response, failed)


def warn_batch(parts: Parts, entries: Sequence[Entry], took_ns: int) -> None:
    """Warn about a slow batch of entries."""
    largest = max(entries, key=lambda entry: len(entry.data))
    try:
        field, body, _ = unwrap(largest.data)
        request = loggable_entry(field, body)
    except WireError:
        request = f"entry {largest.index} of type {largest.type}"
    _warn(parts, took_ns, request, "", {"batch-entries": len(entries)})


def warn_read(parts: Parts, request: str, response: str, took_ns: int, prefix: str) -> None:
    """Warn about a slow read; prefix is "read-only range " or "read-only txn "."""
    _warn(parts, took_ns, request, response, {}, prefix)


def _warn(
    parts: Parts,
    took_ns: int,
    request: str,
    response: str,
    more: Mapping[str, object],
    prefix: str = "",
) -> None:
    counters = parts.counters
    omitted = counters.rate_limiter.admit("apply", counters.clock())
    if omitted is None:
        return
    fields: dict[str, object] = {
        "took": duration_text(took_ns),
        "expected-duration": duration_text(counters.slow_apply_ns),
        "prefix": prefix,
        "request": request,
        "response": response,
        **more,
    }
    if omitted:
        fields["omitted-lines"] = omitted
    parts.logger.warning("apply request took too long", **fields)
