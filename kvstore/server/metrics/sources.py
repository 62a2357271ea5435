"""All objects that metrics are read from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kvstack.component.clock import Clock
from kvstack.component.metrics.histograms import DISK_BOUNDS, Histogram
from kvstore.node.parts import Parts
from kvstore.server.metrics.calls import CallCounters


class WalCounters(Protocol):
    """Counters of the write-ahead log."""

    written_bytes: int
    sync_ns: int
    sync_count: int
    sync_seconds: Histogram
    write_seconds: Histogram


class DatabaseCounters(Protocol):
    """Counters of the database."""

    commit_ns: int
    commit_seconds: Histogram


@dataclass(slots=True)
class NoCounters:
    """Counters of a backend that does not count."""

    commit_ns: int = 0
    commit_seconds: Histogram = field(default_factory=lambda: Histogram(DISK_BOUNDS))


class DurationCounts(Protocol):
    """A histogram of durations, as `kvstore.peers` keeps it."""

    @property
    def bounds(self) -> tuple[float, ...]: ...
    @property
    def buckets(self) -> list[int]: ...
    @property
    def count(self) -> int: ...
    @property
    def sum_s(self) -> float: ...


class PeerStats(Protocol):
    """Counters of the traffic with one member."""

    active: int
    disconnected: int
    sent_bytes: int
    received_bytes: int
    sent_failures: int
    received_failures: int
    smoothed_rtt_s: float
    snapshot_send_failures: int
    snapshot_send_inflights: int
    snapshot_receive_failures: int
    snapshot_receive_inflights: int

    @property
    def rtt(self) -> DurationCounts: ...
    @property
    def snapshot_send(self) -> DurationCounts: ...
    @property
    def snapshot_receive(self) -> DurationCounts: ...


class HealthStats(Protocol):
    """Counters of the health pages."""

    successes: int
    failures: int
    last: dict[tuple[str, str], bool]
    totals: dict[tuple[str, str, str], int]


@dataclass(slots=True)
class Disk:
    """The log and the database of one member."""

    wal: WalCounters
    backend: DatabaseCounters


def _none() -> int:
    return 0


def _no_peers() -> Mapping[int, PeerStats]:
    return {}


@dataclass(slots=True)
class ObserverCounters:
    """Counters of the observer itself."""

    leader_changes: int = 0
    late_heartbeats: int = 0
    slow_requests: int = 0


@dataclass(slots=True)
class MetricSources:
    """The sources of all metrics of one member."""

    parts: Parts
    disk: Disk
    calls: CallCounters
    clock: Clock
    observer: ObserverCounters = field(default_factory=ObserverCounters)
    snapshot_save_seconds: Histogram = field(default_factory=lambda: Histogram(()))
    snapshot_write_seconds: Histogram = field(default_factory=lambda: Histogram(()))
    snapshot_writers: Callable[[], int] = _none  # how many are reading the database
    features: Mapping[str, bool] = field(default_factory=dict)  # feature gates
    peers: Callable[[], Mapping[int, PeerStats]] = _no_peers
    health: HealthStats | None = None
