"""The log and the snapshots of a member in memory: nothing is stored, since it never restarts.

    MemoryLog         drops what raft saves; raft itself keeps the entries it still needs
    MemorySnapshots   saves nothing and reports success

A member on disk has `storage.wal.wal.Wal` and `server.snapshot_files.SnapshotFiles` instead. A
member in memory is alone in its cluster, so no leader can send it a snapshot.
"""

from collections.abc import Callable, Sequence

from kvstack.component.metrics.histograms import DISK_BOUNDS, Histogram
from kvstore.apply.membership import Membership
from kvstore.errors import StorageFatalError
from kvstore.raft.model import Entry, HardState, Snapshot, SnapshotMetadata


class MemoryLog:
    """`node.ports.LogFile` without a file; it has the counters that metrics read from a log."""

    def __init__(self) -> None:
        self.written_bytes = 0
        self.sync_ns = 0
        self.sync_count = 0
        self.sync_seconds = Histogram(DISK_BOUNDS)
        self.write_seconds = Histogram(DISK_BOUNDS)
        self.encode_entries: Callable[[list[Entry], bytes, int], tuple[bytes, int]] | None = None

    def save(self, hard_state: HardState | None, entries: Sequence[Entry], *, sync: bool) -> None:
        """Drop what a log on disk would append."""

    def start_save(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        """Drop what a log on disk would append."""

    def finish_save(self) -> None:
        """Do nothing: there is nothing to be durable."""

    def close(self) -> None:
        """Do nothing: there is no file."""


class MemorySnapshots:
    """`node.ports.SnapshotKeeper` without files."""

    def save(self, metadata: SnapshotMetadata, membership: Membership) -> bool:
        """Do nothing: there is no restart to need it."""
        return True

    def describe(self, membership: Membership) -> bytes:
        """Return nothing: only other members would read it."""
        return b""

    def record(self, snapshot: Snapshot) -> None:
        """Refuse a snapshot: there is no leader that could send one."""
        raise StorageFatalError(
            f"a member in memory cannot take the snapshot at index {snapshot.metadata.index}"
        )

    def install(self, index: int) -> None:
        """Refuse a snapshot, as `record` does."""
        raise StorageFatalError(f"a member in memory has no snapshot at index {index}")

    def drop_received(self, up_to_index: int) -> None:
        """Do nothing: no state was received."""

    def purge(self) -> None:
        """Do nothing: there are no files."""
