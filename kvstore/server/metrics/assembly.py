"""From the configuration and a built node to a MetricsObserver of it."""

from kvstack.component.clock import Clock
from kvstack.component.units import SECOND_NS
from kvstore.backend import Backend
from kvstore.config.model import Config
from kvstore.node.parts import Parts
from kvstore.server.metrics.gatherer import Gatherer
from kvstore.server.metrics.observer import MetricsObserver
from kvstore.server.metrics.sources import Disk, NoCounters, WalCounters
from kvstore.server.snapshot_files import SnapshotFiles
from kvstore.server.snapshot_streams import RefusedStreams, SnapshotStreams
from kvstore.storage.lmdb.backend import LmdbBackend

EXTENSIVE = "extensive"


def observe(
    config: Config,
    parts: Parts,
    wal: WalCounters,
    backend: Backend,
    streams: SnapshotStreams | RefusedStreams,
    clock: Clock,
    gatherer: Gatherer,
) -> MetricsObserver:
    """Return an observer of the node; it counts from now on."""
    parts.counters.clock = clock.monotonic_ns
    parts.counters.slow_apply_ns = int(config.warning_apply_duration_s * SECOND_NS)
    observer = MetricsObserver(
        parts,
        Disk(wal, backend if isinstance(backend, LmdbBackend) else NoCounters()),
        clock,
        gatherer,
        slow_request_ns=int(config.warning_unary_request_duration_s * SECOND_NS),
        extensive=config.metrics == EXTENSIVE,
    )
    sources = observer.sources
    sources.features = config.feature_gates
    sources.snapshot_write_seconds = streams.write_seconds
    sources.snapshot_writers = streams.writers
    if isinstance(parts.replication.snapshots, SnapshotFiles):
        sources.snapshot_save_seconds = parts.replication.snapshots.save_seconds
    return observer
