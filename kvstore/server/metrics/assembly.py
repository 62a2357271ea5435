"""From the configuration and a built node to an Observer of it."""

from kvstore.config.model import Config
from kvstore.mvcc.backend import Backend
from kvstore.node.limits import SECOND_NS
from kvstore.node.parts import Parts
from kvstore.runtime.clock import Clock
from kvstore.server.metrics.gathering import Gathering
from kvstore.server.metrics.observer import Observer
from kvstore.server.metrics.rooms import Disk, NoFigures, WalFigures
from kvstore.server.snapshot_files import SnapshotFiles
from kvstore.server.snapshot_streams import SnapshotStreams
from kvstore.storage.lmdb.backend import LmdbBackend

EXTENSIVE = "extensive"


def observe(
    config: Config,
    parts: Parts,
    wal: WalFigures,
    backend: Backend,
    streams: SnapshotStreams,
    clock: Clock,
    gathering: Gathering,
) -> Observer:
    """Return what watches the node; its times are taken from now on."""
    parts.figures.clock = clock.monotonic_ns
    parts.figures.slow_apply_ns = int(config.warning_apply_duration_s * SECOND_NS)
    observer = Observer(
        parts,
        Disk(wal, backend if isinstance(backend, LmdbBackend) else NoFigures()),
        clock,
        gathering,
        slow_request_ns=int(config.warning_unary_request_duration_s * SECOND_NS),
        extensive=config.values.get("metrics") == EXTENSIVE,
    )
    rooms = observer.rooms
    rooms.features = config.feature_gates
    rooms.snapshot_write_seconds = streams.write_seconds
    rooms.snapshot_writers = streams.writers
    if isinstance(parts.snapshots, SnapshotFiles):
        rooms.snapshot_save_seconds = parts.snapshots.save_seconds
    return observer
