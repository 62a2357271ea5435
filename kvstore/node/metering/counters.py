"""A member's counters: plain numbers, read by metrics, warnings and status page.

    hot path ──► ints, histogram lists, once a batch where possible ──► copied at scrape time

Counters only grow, and start at 0 with the process. Durations are taken with `clock`, a port: the
simulator's clock stands still, so there every duration is 0. A reader in another thread sees the
numbers as of different moments; `Gatherer` in the server reads them between two turns.

The names of the numbers outside are defined by the metrics page.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kvstack.component.metrics.histograms import Histogram, exponential
from kvstack.component.units import MILLISECOND_NS, NANOSECOND_S
from kvstore.errors import Refusal
from kvstore.mvcc.event import Event
from kvstore.node.metering.heavy_hitters import HeavyHitters
from kvstore.node.metering.rate_limiter import RateLimiter

_SPREAD: Final = 2_654_435_761  # a prime: samples of turns of one size visit every position
_PREFIXES_MAX: Final = 64

Clock = Callable[[], int]


APPLY_BOUNDS: Final = exponential(0.0001, 2, 20)


def _standstill() -> int:
    return 0


class Counters:
    """The numbers of one member."""

    def __init__(self, clock: Clock = _standstill, slow_apply_ns: int = 100_000_000) -> None:
        """Take the clock (monotonic ns) and how long one request may take to apply."""
        self.clock = clock
        self.slow_apply_ns = slow_apply_ns
        self.rate_limiter = RateLimiter()
        # Time spent, in ns.
        self.apply_ns = 0
        self.read_ns = 0
        # Applied requests, by (field of InternalRaftRequest, succeeded).
        self.applied: dict[tuple[int, bool], Histogram] = {}
        self._batch: dict[tuple[int, bool], int] = {}  # of this batch, not timed one by one
        self._timed_ns = 0  # of this batch, timed one by one
        self.slow_applies = 0
        # Reads.
        self.ranges = 0
        self.refused_ranges = 0
        self.range_seconds = {True: Histogram(APPLY_BOUNDS), False: Histogram(APPLY_BOUNDS)}
        self.slow_reads = 0
        self.failed_reads = 0
        # Proposals.
        self.failed_proposals = 0
        self.expired_leases = 0
        self.promoted_learners = 0
        self.refused_promotions: dict[str, int] = {}  # by reason
        # Long work.
        self.hash_all_seconds = Histogram(exponential(0.01, 2, 15))
        self.hash_revision_seconds = Histogram(exponential(0.01, 2, 15))
        self.defragment_seconds = Histogram(exponential(0.1, 2, 13))
        self._defragment_ns = 0  # when the last one began
        self.compaction_pause_ms = Histogram(exponential(1, 2, 13))  # of one slice
        self.compaction_total_ms = Histogram(exponential(100, 2, 14))
        self._compaction_ns = 0  # spent on the running one
        self.compacted_ns = 0  # when the last one ended; 0: none yet
        # Writes.
        self._samples = 0
        self.events = 0  # keys put or deleted
        self.written = HeavyHitters(_PREFIXES_MAX)  # events by prefix of the key, sampled

    # Applying; a batch is what one turn applies at once.

    def note_applied(self, field: int, succeeded: bool, took_ns: int) -> bool:  # noqa: FBT001 - on the way of every transaction
        """Count a request that was timed on its own; return whether it was slow."""
        self._timed_ns += took_ns
        self._of(field, succeeded).add(took_ns * NANOSECOND_S)
        if took_ns > self.slow_apply_ns:
            self.slow_applies += 1
            return True
        return False

    def note_in_batch(self, field: int, succeeded: bool, count: int = 1) -> None:  # noqa: FBT001 - on the way of every entry
        """Count requests that get their share of the batch's time."""
        if count:
            key = (field, succeeded)
            self._batch[key] = self._batch.get(key, 0) + count

    def note_batch(self, took_ns: int, rest: int, rest_field: int) -> bool:
        """Close a batch: rest of its entries succeeded and are not counted yet.

        Each request that was not timed by itself gets an equal share of the time. Returns whether
        these requests together were slow.
        """
        self.apply_ns += took_ns
        shared_ns = took_ns - self._timed_ns
        self._timed_ns = 0
        batch = self._batch
        if rest > 0:
            batch[rest_field, True] = batch.get((rest_field, True), 0) + rest
        if not batch:
            return False
        share_s = shared_ns * NANOSECOND_S / sum(batch.values())
        for (field, succeeded), times in batch.items():
            self._of(field, succeeded).add(share_s, times)
        batch.clear()
        if shared_ns > self.slow_apply_ns:
            self.slow_applies += 1
            return True
        return False

    def _of(self, field: int, succeeded: bool) -> Histogram:  # noqa: FBT001 - as above
        histogram = self.applied.get((field, succeeded))
        if histogram is None:
            histogram = self.applied[field, succeeded] = Histogram(APPLY_BOUNDS)
        return histogram

    # Reads.

    def note_reads(self, took_ns: int, ranges: int, refused: int) -> None:
        """Close a batch of reads; ranges, refused: the values of these counters before it.

        Each range gets an equal share of the time.
        """
        self.read_ns += took_ns
        count = self.ranges - ranges
        if count == 0:
            return
        share_s = took_ns * NANOSECOND_S / count
        bad = self.refused_ranges - refused
        if bad:
            self.range_seconds[False].add(share_s, bad)
        if count > bad:
            self.range_seconds[True].add(share_s, count - bad)

    def note_promotion(self, refusal: Refusal | None) -> None:
        """Count a promotion that this leader made or refused."""
        if refusal is None:
            self.promoted_learners += 1
        else:
            reasons = self.refused_promotions
            reasons[refusal.text] = reasons.get(refusal.text, 0) + 1

    # Long work.

    def note_hash(self, of_revision: bool, took_ns: int) -> None:  # noqa: FBT001 - which of two
        """Count a hash: of the key table at a revision, or of all tables."""
        seconds = self.hash_revision_seconds if of_revision else self.hash_all_seconds
        seconds.add(took_ns * NANOSECOND_S)

    def note_compaction(self, took_ns: int) -> None:
        """Count one slice of a compaction."""
        self._compaction_ns += took_ns
        self.compaction_pause_ms.add(took_ns / MILLISECOND_NS)

    def note_compacted(self) -> None:
        """Count a finished compaction."""
        self.compaction_total_ms.add(self._compaction_ns / MILLISECOND_NS)
        self._compaction_ns = 0
        self.compacted_ns = self.clock()

    def note_defragment_begins(self) -> None:
        """Record that a defragmentation begins."""
        self._defragment_ns = self.clock()

    def note_defragmented(self) -> None:
        """Count a finished defragmentation."""
        self.defragment_seconds.add((self.clock() - self._defragment_ns) * NANOSECOND_S)

    # Writes.

    def note_events(self, events: Sequence[Event]) -> None:
        """Count a turn's events, and take one of them as a sample of their prefixes."""
        count = len(events)
        self.events += count
        self._samples += 1
        key = events[self._samples * _SPREAD % count].key
        self.written.add(prefix_of(key), count)


def prefix_of(key: bytes) -> bytes:
    """Return the prefix by which a key is counted.

    Of a path the first two parts ("/registry/pods/a/b" → "/registry/pods/"), of a key with one
    slash everything up to it, of any other its first 8 bytes without trailing digits.
    """
    first = key.find(b"/", 1)
    if first < 0:
        return key[:8].rstrip(b"0123456789") or key[:8]
    second = key.find(b"/", first + 1)
    return key[: (second if second > 0 else first) + 1]
