"""Metrics that etcd does not have, under kvstore_: the counters of the status page.

The labels of kvstore_prefix_writes_total are prefixes of users' keys: at most PREFIXES_SHOWN, each
cut at PREFIX_CHARS.
"""

from collections.abc import Mapping
from typing import Final

from kvstack.component.metrics.exposition import Family, FamilyKind, Number, labels
from kvstack.component.metrics.histograms import NANOSECOND_S
from kvstore.server.metrics.slow_requests import STAGE_NAMES
from kvstore.server.metrics.sources import MetricSources

F = Family[MetricSources]
_COUNTER, _GAUGE = FamilyKind.COUNTER, FamilyKind.GAUGE
PREFIXES_SHOWN: Final = 20
PREFIX_CHARS: Final = 64


def prefix_text(prefix: bytes) -> str:
    """Return a prefix as text: invalid UTF-8 escaped, long prefixes cut."""
    return prefix.decode("utf-8", "backslashreplace")[:PREFIX_CHARS]


def _progress(sources: MetricSources, of: str) -> Mapping[str, Number]:
    progress = sources.parts.raft.status().progress
    return {
        labels(member=f"{member_id:x}"): getattr(each, of) for member_id, each in progress.items()
    }


def _stages(sources: MetricSources) -> Mapping[str, Number]:
    counters, disk = sources.parts.counters, sources.disk
    spent = (disk.wal.sync_ns, disk.backend.commit_ns, counters.apply_ns, counters.read_ns)
    return {
        labels(stage=name): took * NANOSECOND_S
        for name, took in zip(STAGE_NAMES, spent, strict=True)
    }


def _written(sources: MetricSources) -> Mapping[str, Number]:
    top = sources.parts.counters.written.top(PREFIXES_SHOWN)
    return {labels(prefix=prefix_text(prefix)): count for prefix, count in top}


FAMILIES: Final[tuple[F, ...]] = (
    F("kvstore_calls_open", _GAUGE, "Unary calls under way.", lambda r: r.calls.open_calls),
    F("kvstore_leases", _GAUGE, "Live leases.", lambda r: len(r.parts.state.lessor)),
    F("kvstore_prefix_writes_total", _COUNTER, "Keys written by prefix, estimated from samples, of the most frequent prefixes.", _written),
    F("kvstore_raft_match_index", _GAUGE, "Highest index that each member is known to have replicated; on the leader.", lambda r: _progress(r, "match")),
    F("kvstore_raft_inflight_appends", _GAUGE, "Appends in flight to each member; on the leader.", lambda r: _progress(r, "inflight")),
    F("kvstore_raft_last_index", _GAUGE, "The last index of the log.", lambda r: r.parts.raft.last_index),
    F("kvstore_raft_term", _GAUGE, "Raft's term.", lambda r: r.parts.raft.term),
    F("kvstore_slow_requests_total", _COUNTER, "Requests that took longer than --warning-unary-request-duration.", lambda r: r.observer.slow_requests),
    F("kvstore_stage_seconds_total", _COUNTER, "Time spent in each stage of the turn.", _stages),
    F("kvstore_streams_open", _GAUGE, "Streams of the client port.", lambda r: r.calls.open_streams),
    F("kvstore_watch_held_streams", _GAUGE, "Watch streams whose client does not read.", lambda r: r.parts.state.hub.stats().paused_streams),
    F("kvstore_watch_unsent_bytes", _GAUGE, "Bytes of watch streams waiting to be sent.", lambda r: r.parts.state.hub.stats().unsent_bytes),
)  # fmt: skip
