"""Automatic compaction, as etcd schedules it: by age of revisions or by their number.

    periodic  10m    sample the revision every 1m, keep 11 samples; every 10m compact at the oldest
    periodic  24h    sample every 6m, keep 241; after the first 24h compact every hour
    revision  1000   every 5m compact at the current revision less 1000

Every member samples, so that a new leader has samples; only the leader compacts. A compaction that
did not happen (`compacted` stayed below the requested revision) is requested again at the next
sample.

This decides only when and at which revision; proposing is done elsewhere.
"""

from collections import deque
from typing import Final, Protocol

from kvstack.component.units import SECOND_NS

_HOUR_NS: Final = 3600 * SECOND_NS
_SAMPLES: Final = 10  # a period, or an hour if that is shorter
_REVISION_INTERVAL_NS: Final = 300 * SECOND_NS


class AutoCompaction(Protocol):
    """Decides when to compact."""

    next_ns: int | None  # when step has something to do; None: never

    def step(self, now_ns: int, revision: int, compacted: int, *, leads: bool) -> int:
        """Return the revision to compact at now, or 0.

        revision is the current one, compacted the last one compacted at.
        """
        ...


class Never:
    """No automatic compaction."""

    def __init__(self) -> None:
        self.next_ns: int | None = None

    def step(
        self,
        _now_ns: int,
        _revision: int,
        _compacted: int,
        *,
        leads: bool,  # noqa: ARG002 - of the protocol
    ) -> int:
        """Return 0."""
        return 0


class Periodic:
    """Keeps the revisions of a period of time."""

    def __init__(self, period_ns: int, now_ns: int) -> None:
        """Start the period now; period_ns must be above 0."""
        step_ns = min(period_ns, _HOUR_NS)
        self.sample_ns: Final = max(step_ns // _SAMPLES, 1)
        self._compact_ns: Final = step_ns
        self._wait_ns = period_ns  # before the next compaction: first a whole period
        self._samples: deque[int] = deque(maxlen=period_ns // self.sample_ns + 1)
        self._requested = 0
        self._requested_ns = self._last_ns = now_ns
        self._last = 0
        self.next_ns: int | None = now_ns

    def step(self, now_ns: int, revision: int, compacted: int, *, leads: bool) -> int:
        """Sample if it is time; return the revision to compact at, or 0."""
        if self.next_ns is None or now_ns < self.next_ns:
            return 0
        if 0 < self._requested <= compacted:
            self._last, self._last_ns, self._requested = self._requested, self._requested_ns, 0
        due = self._due(now_ns) if leads and self._samples else 0
        self._samples.append(revision)
        self.next_ns = now_ns + self.sample_ns
        return due

    def _due(self, now_ns: int) -> int:
        oldest = self._samples[0]
        if now_ns - self._last_ns < self._wait_ns or oldest == self._last:
            return 0
        self._wait_ns = self._compact_ns
        self._requested, self._requested_ns = oldest, now_ns
        return oldest


class Revisions:
    """Keeps a number of revisions."""

    def __init__(self, retention: int, now_ns: int) -> None:
        """Keep this many revisions, at least 1."""
        self._retention = retention
        self.next_ns: int | None = now_ns + _REVISION_INTERVAL_NS

    def step(self, now_ns: int, revision: int, compacted: int, *, leads: bool) -> int:
        """Return the revision to compact at, or 0."""
        if self.next_ns is None or now_ns < self.next_ns:
            return 0
        self.next_ns = now_ns + _REVISION_INTERVAL_NS
        wanted = revision - self._retention
        return wanted if leads and wanted > max(compacted, 0) else 0


def auto_compaction(mode: str, retention: int, now_ns: int) -> AutoCompaction:
    """Return the one for the flags: retention in nanoseconds (periodic) or revisions; 0: off."""
    if retention <= 0:
        return Never()
    return Revisions(retention, now_ns) if mode == "revision" else Periodic(retention, now_ns)
