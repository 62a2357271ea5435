"""Opens, makes and closes the state of a member.

    open_disk(config)    data directory ─► certificates, rebuild ─► log, database, snapshot files
    open_memory(config)  a log without files, a database in dicts; empty, or with the first rows

`State.close` commits; `State.abandon` closes without a commit.
"""

import gc
from pathlib import Path
from typing import NamedTuple

from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.config.model import Config
from kvstore.errors import DataDirError
from kvstore.node.ports import SnapshotKeeper
from kvstore.server.boot.bootstrap import Boot, begin, boot
from kvstore.server.boot.data_dir import DataDir, prepare
from kvstore.server.boot.first_rows import FirstRows, lay
from kvstore.server.boot.founding import founding_of, identity
from kvstore.server.boot.start_defragment import defragment_at_start
from kvstore.server.snapshot_files import SnapshotFiles
from kvstore.server.snapshot_streams import RefusedStreams, SnapshotStreams
from kvstore.storage.disk_room import DiskRoom
from kvstore.storage.files import Files, OsFiles, UnsyncedFiles
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.storage.memory_log import MemoryLog, MemorySnapshots
from kvstore.storage.wal.wal import Wal


class State(NamedTuple):
    """The opened state of a member."""

    booted: Boot
    snapshots: SnapshotKeeper
    streams: SnapshotStreams | RefusedStreams
    config: Config  # with the files of made certificates
    paths: DataDir | None = None  # None: in memory
    is_rebuilt: bool = False  # from the other members
    room: DiskRoom | None = None  # None: in memory

    def close(self) -> None:
        """Close the database, then the log; the node was closed before."""
        self.booted.backend.close()
        self.booted.wal.close()

    def abandon(self) -> None:
        """Close without a commit, after an error.

        A commit would lack the index of its rows, and the log would apply them again.
        """
        self.booted.backend.abandon()
        self.booted.wal.close()


def open_disk(config: Config, clock: Clock, logger: Logger) -> State:
    """Open or make the data directory; ConfigError or DataDirError if that fails."""
    wal_dir = Path(config.wal_dir) if config.wal_dir else None
    root = Path(config.data_dir)
    paths = prepare(root, wal_dir, logger)
    if config.client_tls.auto_tls or config.peer_tls.auto_tls:
        from kvstore.server.boot.self_cert import with_made_certificates

        config = with_made_certificates(config, root, clock.unix_s(), logger)
    files = UnsyncedFiles() if config.unsafe_no_fsync else OsFiles()
    if config.discovery.token:
        gc.enable()  # waiting for the others may take long
    is_rebuilt = False
    if config.rebuild_from_peers:
        from kvstore.server.boot.rebuild import rebuild

        is_rebuilt = rebuild(paths, config, logger, files)
    booted = boot(paths, founding_of(config, logger), logger, files=files)
    try:
        defragment_at_start(booted.backend, config.bootstrap_defrag_threshold_megabytes, logger)
        streams = _streams(paths)
        room = _room(paths, booted, logger)
    except BaseException:
        booted.backend.abandon()
        booted.wal.close()
        raise
    snapshots = snapshot_files(config, booted, paths, logger, files)
    return State(booted, snapshots, streams, config, paths, is_rebuilt, room)


def open_memory(config: Config, logger: Logger, rows: FirstRows | None = None) -> State:
    """Make the state of a single member in memory; DataDirError for invalid rows."""
    who = identity(founding_of(config, logger), logger)
    if len(who.members) != 1 or not who.founds:
        names = ", ".join(sorted(member.name for member in who.members))
        raise ConfigError(
            f"a member in memory must be the only one of its cluster; members: {names}"
        )
    backend = MemoryBackend()
    if rows is not None:
        lay(rows, backend)
    booted = begin(MemoryLog(), backend, who)
    return State(booted, MemorySnapshots(), RefusedStreams(), config)


def snapshot_files(
    config: Config, booted: Boot, paths: DataDir, logger: Logger, files: Files
) -> SnapshotFiles:
    """Return the keeper of the snapshot files of a data directory."""
    assert isinstance(booted.wal, Wal)
    return SnapshotFiles(
        paths.snap,
        booted.wal,
        booted.backend,
        logger,
        max_wals=config.max_wals,
        max_snapshots=config.max_snapshots,
        files=files,
    )


def _room(paths: DataDir, booted: Boot, logger: Logger) -> DiskRoom:
    assert isinstance(booted.wal, Wal)
    assert isinstance(booted.backend, LmdbBackend)
    return DiskRoom(paths.member, booted.wal, booted.backend, logger)


def _streams(paths: DataDir) -> SnapshotStreams:
    try:
        return SnapshotStreams(paths.member, paths.tmp)
    except OSError as error:
        raise DataDirError(f"cannot use {paths.tmp}: {error.strerror}") from error
