"""Saves snapshots: the snapshot file, its record in the log, and the release of older segments.

The order is etcd's: the database is committed (by the caller), then the file is synced, then the
log records it; only then may segments before it be removed. The data of the file is the member list
in the form that etcd up to 3.6 reads.

A snapshot from the leader is recorded in the same way. The state received with it is installed only
once the log also holds that its index is committed (see SnapshotKeeper).
"""

import time
from pathlib import Path
from typing import Final

from kvstack.component.logger import Logger
from kvstack.component.metrics.histograms import DISK_BOUNDS, NANOSECOND_S, Histogram
from kvstore.apply.membership import Membership
from kvstore.backend import Backend
from kvstore.errors import StorageFatalError
from kvstore.failpoints import hit
from kvstore.raft.model import Snapshot, SnapshotMetadata
from kvstore.storage.files import EXHAUSTED, Files
from kvstore.storage.snapshots.file import (
    NotNowError,
    purge_snapshot_files,
    write_snapshot_file,
)
from kvstore.storage.v2_store import encode_v2_store
from kvstore.storage.wal.record import WalSnapshot
from kvstore.storage.wal.wal import Wal

_RETRY_S: Final = 1.0


class SnapshotFiles:
    """Writes and removes snapshot files together with segments of the log."""

    def __init__(
        self,
        directory: Path,
        wal: Wal,
        backend: Backend,
        logger: Logger,
        *,
        max_wals: int,
        max_snapshots: int,
        files: Files,
    ) -> None:
        self._directory = directory
        self._wal = wal
        self._backend = backend
        self._logger = logger
        self._max_wals = max_wals
        self._max_snapshots = max_snapshots
        self._files = files
        self.save_seconds = Histogram(DISK_BOUNDS)

    def save(self, metadata: SnapshotMetadata, membership: Membership) -> bool:
        """Write the snapshot file and its record in the log, synced; free older segments.

        False: no file can be written now, which is logged; nothing has changed.
        """
        try:
            self._record(Snapshot(metadata, self.describe(membership)))
        except NotNowError as error:
            self._logger.warning("the snapshot is written later", error=str(error))
            return False
        self._wal.release_to(metadata.index)
        return True

    def describe(self, membership: Membership) -> bytes:
        """Return the data of a snapshot: the member list as etcd up to 3.6 reads it."""
        return encode_v2_store(
            membership.sorted_members(), sorted(membership.removed), membership.cluster_version
        )

    def record(self, snapshot: Snapshot) -> None:
        """Write a snapshot's file and its record in the log, synced; waits for a descriptor."""
        while True:
            try:
                return self._record(snapshot)
            except NotNowError as error:
                if error.needs_space:
                    raise StorageFatalError(str(error)) from error
                self._logger.warning("a received snapshot waits", error=str(error))
                time.sleep(_RETRY_S)

    def _record(self, snapshot: Snapshot) -> None:
        metadata = snapshot.metadata
        began_ns = time.monotonic_ns()
        write_snapshot_file(self._directory, snapshot, self._files)
        self.save_seconds.add((time.monotonic_ns() - began_ns) * NANOSECOND_S)
        hit("raftBeforeWALSaveSnaphot")
        self._wal.save_snapshot(WalSnapshot(metadata.index, metadata.term, metadata.conf_state))

    def install(self, index: int) -> None:
        """Replace the current state by the one received with the snapshot at index."""
        if not self._backend.take_received(index):
            raise StorageFatalError(
                f"the log holds a snapshot at index {index}, but its database is not here"
            )
        self._backend.drop_received(index)
        self._wal.release_to(index)

    def drop_received(self, up_to_index: int) -> None:
        """Delete the states received with snapshots up to this index that were not installed."""
        self._backend.drop_received(up_to_index)

    def purge(self) -> None:
        """Delete segments and snapshot files beyond the configured number."""
        removed = self._wal.purge(self._max_wals)
        try:
            removed += purge_snapshot_files(self._directory, self._max_snapshots, self._files)
        except OSError as error:
            text = f"cannot purge snapshots in {self._directory}: {error.strerror}"
            if error.errno not in EXHAUSTED:
                raise StorageFatalError(text) from error
            self._logger.warning("old snapshots are purged later", error=text)
        for path in removed:
            self._logger.info("purged", path=str(path))
        if self._wal.preallocation_error is not None:
            self._logger.warning("next log segment", error=self._wal.preallocation_error)
