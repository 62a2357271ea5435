"""The counters' history: a sample every few seconds, in bounded memory, and rates between samples.

    samples   t0 ─ t1 ─ t2 ─ ... ─ tn        values of the counters
    rates        r1   r2   ...   rn          differences per second

Durations are percentiles of the difference of two samples of a histogram.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kvstore.server.metrics.sources import MetricSources
from kvstore.server.ui.growth import Growth

INTERVAL_S: Final = 5.0
SAMPLES_MAX: Final = 240  # twenty minutes
_RECENT_MS: Final = 60_000


@dataclass(slots=True)
class Sample:
    """The values of the counters at one moment."""

    at_ms: int  # monotonic
    counters: dict[str, int]
    sync_counts: list[int]  # of the histogram of the log's syncs
    commit_counts: list[int]  # of the database's commits
    db_bytes: int
    db_in_use_bytes: int


def take_sample(sources: MetricSources) -> Sample:
    """Read the counters (in the driver's thread)."""
    parts, calls, disk = sources.parts, sources.calls, sources.disk
    counters, store = parts.counters, parts.state.store
    return Sample(
        at_ms=sources.clock.monotonic_ns() // 1_000_000,
        counters={
            "puts": counters.events - store.deleted_keys,
            "deletes": store.deleted_keys,
            "ranges": counters.ranges + parts.state.applier.txns.range_count,
            "calls": sum(calls.started),
            "watch events": parts.state.hub.events_sent,
            "bytes in": calls.received_bytes,
            "bytes out": calls.sent_bytes,
            "log bytes": disk.wal.written_bytes,
        },
        sync_counts=list(disk.wal.sync_seconds.counts),
        commit_counts=list(disk.backend.commit_seconds.counts),
        db_bytes=parts.state.backend.size_bytes(),
        db_in_use_bytes=parts.state.backend.size_in_use_bytes(),
    )


class History:
    """The samples of the last minutes."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.growth: Final = Growth()

    def add(self, sample: Sample) -> None:
        """Add a sample; it must be later than those before."""
        self._samples.append(sample)
        self.growth.add(sample.at_ms, sample.db_in_use_bytes)

    def rates(self) -> dict[str, list[float]]:
        """Return each counter's rate per second between consecutive samples, the oldest first."""
        samples = list(self._samples)
        names = samples[-1].counters if samples else {}
        return {
            name: [
                round((late.counters[name] - early.counters[name]) / _seconds(early, late), 2)
                for early, late in pairwise(samples)
            ]
            for name in names
        }

    def ages_s(self) -> list[float]:
        """Return the age of each rate before the last sample, in seconds."""
        samples = list(self._samples)
        return [round((samples[-1].at_ms - each.at_ms) / 1000, 1) for each in samples[1:]]

    def db_bytes(self) -> list[int]:
        """Return the database's size at each rate's sample."""
        return [each.db_bytes for each in list(self._samples)[1:]]

    def sync_ms(self, bounds: Sequence[float]) -> dict[str, float | None]:
        """Return percentiles of the log's syncs in the last minute."""
        return self._durations([each.sync_counts for each in self._recent()], bounds)

    def commit_ms(self, bounds: Sequence[float]) -> dict[str, float | None]:
        """Return percentiles of the database's commits in the last minute."""
        return self._durations([each.commit_counts for each in self._recent()], bounds)

    def _recent(self) -> list[Sample]:
        samples = list(self._samples)
        return [each for each in samples if samples[-1].at_ms - each.at_ms <= _RECENT_MS]

    def _durations(
        self, counts: list[list[int]], bounds: Sequence[float]
    ) -> dict[str, float | None]:
        if not counts:
            return {"p50": None, "p99": None}
        difference = [late - early for early, late in zip(counts[0], counts[-1], strict=True)]
        return {
            "p50": percentile_ms(difference, bounds, 0.5),
            "p99": percentile_ms(difference, bounds, 0.99),
        }


def percentile_ms(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """Return a duration that a share of the observations does not exceed; None if there are none.

    Within a bucket observations are assumed evenly spread; above all bounds, the last one counts.
    """
    total = sum(counts)
    if total == 0:
        return None
    rank, below = share * total, 0
    for index, count in enumerate(counts):
        if count and below + count >= rank:
            low = bounds[index - 1] if index else 0.0
            high = bounds[min(index, len(bounds) - 1)]
            return round((low + (high - low) * (rank - below) / count) * 1000, 3)
        below += count
    return round(bounds[-1] * 1000, 3)


def _seconds(early: Sample, late: Sample) -> float:
    return max(late.at_ms - early.at_ms, 1) / 1000
