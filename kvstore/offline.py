"""The records of a state that no server uses: etcd's database file or snapshot, a data directory.

    with open_offline(Path("snapshot.db")) as state:
        for kv in state.records(): ...         in the order of revisions; version 0: a deletion
        state.compacted, state.leases

Formats are recognized as `kvstore-util` does, and directories are locked against servers. Nothing
is written. A truncated LMDB file ends the process that reads it by a signal (`DAMAGE_SIGNALS`), so
callers who must not end read in a child process.
"""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from kvstore.backend import BUCKETS, Table
from kvstore.client.values import KeyValue
from kvstore.errors import CorruptionError as CorruptionError
from kvstore.errors import DataDirError as DataDirError
from kvstore.lease.row import decode_row
from kvstore.meta_rows import CLUSTER_VERSION_KEY, STORAGE_VERSION_KEY
from kvstore.mvcc.compaction import FINISHED, SCHEDULED
from kvstore.mvcc.revision import parse_revision_key
from kvstore.storage.etcd_db.digest import check_digest, has_digest
from kvstore.storage.row_source import RowSource, small_rows
from kvstore.storage.takeover import check_buckets, refuse_newer
from kvstore.util.locations import DataFormat, Location, locate, locked
from kvstore.util.log_reader import read_log
from kvstore.util.states import CONSISTENT_INDEX, open_state
from kvstore.wire.gen import kv_pb2

LOCK_WAIT_S: Final = 1.0
DAMAGE_SIGNALS: Final = frozenset((signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT))
"""The signals that end a process which reads a state whose pages are missing or damaged."""

_KEY: Final = BUCKETS[Table.KEY]


class OfflineState(NamedTuple):
    """A state that can be read once."""

    source: RowSource
    format: str
    """The format, for messages."""
    compacted: int
    """The revision of the last compaction; 0: there was none."""
    leases: Mapping[int, int]
    """The TTL in seconds of every lease."""
    unapplied: int
    """How many entries of the log are not applied to the state: above 0 after an unclean stop."""

    def records(self) -> Iterator[KeyValue]:
        """Yield all records in order; raises CorruptionError."""
        for revkey, value in self.source.scan(_KEY):
            main, _, is_deletion = parse_revision_key(revkey)
            try:
                kv = kv_pb2.KeyValue.FromString(value)
            except DecodeError as error:
                text = f"bucket key, row {revkey.hex()}: {error}"
                raise CorruptionError(f"{self.source.path}: {text}") from error
            if is_deletion:
                yield KeyValue(kv.key, b"", 0, main, 0, 0)
            else:
                yield KeyValue(kv.key, kv.value, kv.create_revision, main, kv.version, kv.lease)


@contextmanager
def open_offline(path: Path) -> Iterator[OfflineState]:
    """Open a state for reading.

    Raises DataDirError for a path that is not a state, is locked by a server or is newer than this
    program, CorruptionError if it is damaged.
    """
    location = locate(path)
    if location.format is DataFormat.FILE and has_digest(path):
        check_digest(path)
    with locked(location, LOCK_WAIT_S), open_state(location, LOCK_WAIT_S) as source:
        check_buckets(source)
        meta, cluster = small_rows(source, Table.META), small_rows(source, Table.CLUSTER)
        refuse_newer(source.path, STORAGE_VERSION_KEY, meta.get(STORAGE_VERSION_KEY))
        refuse_newer(source.path, CLUSTER_VERSION_KEY, cluster.get(CLUSTER_VERSION_KEY))
        leases = {
            lease_id: ttl_s
            for lease_id, ttl_s, _ in (
                decode_row(*row) for row in small_rows(source, Table.LEASE).items()
            )
        }
        applied = int.from_bytes(meta.get(CONSISTENT_INDEX, b""))
        yield OfflineState(
            source, location.format.value, _compacted(meta), leases, _unapplied(location, applied)
        )


def _compacted(meta: Mapping[bytes, bytes]) -> int:
    marks = [meta[name] for name in (FINISHED, SCHEDULED) if name in meta]
    return max((parse_revision_key(each)[0] for each in marks), default=0)


def _unapplied(location: Location, applied: int) -> int:
    """Return how many entries of the log come after the state's."""
    if location.format is DataFormat.FILE:
        return 0
    if not location.wal.is_dir():
        raise DataDirError(f"{location.path}: there is no log in {location.wal}")
    return max(read_log(location.wal).last_index - applied, 0)
