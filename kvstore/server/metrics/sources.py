"""All that metrics are read from, in one place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kvstore.histograms import DISK_BOUNDS, Histogram
from kvstore.node.parts import Parts
from kvstore.runtime.clock import Clock
from kvstore.server.metrics.calls import Calls


class WalCounters(Protocol):
    """What the log counts."""

    written_bytes: int
    sync_ns: int
    sync_count: int
    sync_seconds: Histogram
    write_seconds: Histogram


class DatabaseCounters(Protocol):
    """What the database counts."""

    commit_ns: int
    commit_seconds: Histogram


@dataclass(slots=True)
class NoCounters:
    """Those of a backend that does not count."""

    commit_ns: int = 0
    commit_seconds: Histogram = field(default_factory=lambda: Histogram(DISK_BOUNDS))


class DurationCounts(Protocol):
    """How often which duration was seen, as the peers keep it."""

    @property
    def bounds(self) -> tuple[float, ...]: ...
    @property
    def buckets(self) -> list[int]: ...
    @property
    def count(self) -> int: ...
    @property
    def sum_s(self) -> float: ...


class PeerStats(Protocol):
    """What is counted on the way to and from one member."""

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
    """What the health pages count."""

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
class Watched:
    """What the driver's thread keeps count of by itself."""

    leader_changes: int = 0
    late_heartbeats: int = 0
    slow_requests: int = 0


@dataclass(slots=True)
class MetricSources:
    """Where to look."""

    parts: Parts
    disk: Disk
    calls: Calls
    clock: Clock
    watched: Watched = field(default_factory=Watched)
    snapshot_save_seconds: Histogram = field(default_factory=lambda: Histogram(()))
    snapshot_write_seconds: Histogram = field(default_factory=lambda: Histogram(()))
    snapshot_writers: Callable[[], int] = _none  # how many read the database right now
    features: Mapping[str, bool] = field(default_factory=dict)  # feature gates
    peers: Callable[[], Mapping[int, PeerStats]] = _no_peers
    health: HealthStats | None = None
