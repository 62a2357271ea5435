"""Converting a data directory from etcd's format to ours, and back; the source is only read.

    to the same version   the log and the snapshot files are copied unchanged, the state is written
                          in the other format; no entry is lost, so a member of a cluster continues
                          where it was
    to etcd 3.5 or 3.6    versions above the target are removed from the state, and a new log begins
                          at the applied index, because an older server stops at the entry that
                          raised the cluster's version. For a single member, or for all members
                          stopped at the same index

All of etcd's rows are converted: keys with their history, leases, users and roles, alarms, members,
the applied index. Our format record in LMDB is not.

`set_storage_version` changes only the storage version, in place, as `etcdutl migrate` does.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.component.errors import ConfigError
from kvstore.backend import BUCKETS, Row, Table
from kvstore.errors import DataDirError
from kvstore.meta_rows import CLUSTER_VERSION_KEY, STORAGE_VERSION_KEY
from kvstore.raft.model import ConfState, Entry, EntryType, HardState, Snapshot, SnapshotMetadata
from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.row_source import RowSource, small_rows
from kvstore.storage.snapshots.file import list_snapshot_files, write_snapshot_file
from kvstore.storage.v2_store import encode_v2_store
from kvstore.storage.wal.record import WalSnapshot
from kvstore.storage.wal.wal import Wal
from kvstore.types import CLUSTER_VERSION
from kvstore.util.defragment import rewrite_etcd_db
from kvstore.util.locations import DataFormat, Location, retry_while_locked
from kvstore.util.log_reader import LogContents, read_log
from kvstore.util.states import CONSISTENT_INDEX, TERM, AlteredState, open_state
from kvstore.util.targets import MemberDirs, building, write_state
from kvstore.wire.internal import Field, unwrap
from kvstore.wire.members import decode_member
from kvstore.wire.varint import WireError

OLDEST: Final = (3, 5)
NEWEST: Final = (int(CLUSTER_VERSION.split(".")[0]), int(CLUSTER_VERSION.split(".")[1]))
_WITH_STORAGE_VERSION: Final = (3, 6)
_COPY_BYTES: Final = 1 << 20
_FILE_MODE: Final = 0o600
_DOWNGRADE_KEY: Final = b"downgrade"
_VERSION_FIELDS: Final = frozenset(
    {Field.CLUSTER_VERSION_SET, Field.DOWNGRADE_INFO_SET, Field.DOWNGRADE_VERSION_TEST}
)

Version = tuple[int, int]


class Migrated(NamedTuple):
    """The indexes of the converted member."""

    applied_index: int
    last_index: int


def parse_target(text: str) -> Version:
    """Return (major, minor) of X.Y; ConfigError for another form or an unsupported version."""
    parts = text.split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        raise ConfigError(f'wrong target version format, expected "X.Y", got "{text}"')
    version = int(parts[0]), int(parts[1])
    if version < OLDEST:
        raise ConfigError(f'target version "{text}" not supported. Minimal "3.5"')
    if version > NEWEST:
        raise ConfigError(f'target version "{text}" not supported. Maximal "3.7"')
    return version


def migrate(
    location: Location,
    target: DataFormat,
    data_dir: Path,
    wal_dir: Path | None,
    version: Version,
    timeout_s: float,
) -> Migrated:
    """Write the member at location to a new data directory; location must be locked.

    Raises KvstoreError; then data_dir is unchanged.
    """
    log = read_log(location.wal)
    if log.torn is not None:
        raise DataDirError(
            f"{log.segments[-1].path}: torn at offset {log.torn.offset}: start the server once so "
            "that it repairs its log, then stop it"
        )
    with open_state(location, timeout_s) as state:
        applied = int.from_bytes(small_rows(state, Table.META).get(CONSISTENT_INDEX, b""))
        if not log.start.index <= applied <= log.last_index:
            raise DataDirError(
                f"{state.path} is at index {applied}, the log in {location.wal} holds "
                f"{log.start.index} to {log.last_index}: they do not belong together, or the "
                "server must be started once so that it installs a received database"
            )
        with building(data_dir, wal_dir) as dirs:
            if target is DataFormat.ETCD and version < NEWEST:
                _write_older(state, log, dirs, applied, version)
            else:
                write_state(state, dirs, target)
                _copy_log(location, log, dirs)
    return Migrated(applied, log.last_index)


def set_storage_version(
    location: Location, version: Version, timeout_s: float, *, force: bool
) -> bool:
    """Change the storage version of a directory in place; return False if it has it already.

    Raises DataDirError if the current version is unknown, or the log has entries that the new
    version does not know; force overrides that. location must be locked.
    """
    with open_state(location, timeout_s) as state:
        meta = small_rows(state, Table.META)
        try:
            current = _storage_version(state, meta)
            if current == version:
                return False
            if version < current:
                _refuse_newer_entries(location, version)
        except DataDirError:
            if not force:
                raise
    if location.format is DataFormat.KVSTORE:
        backend = LmdbBackend(location.member)
        try:
            _put_version(backend, version)
            backend.commit()
        finally:
            backend.abandon()
        return True
    reader = retry_while_locked(lambda: EtcdDbReader(location.db, exclusive=True), timeout_s)
    with reader as source:
        rows = _with_version(small_rows(source, Table.META), version)
        rewrite_etcd_db(AlteredState(source, replaced={BUCKETS[Table.META]: rows}), location.db)
    return True


def _put_version(backend: LmdbBackend, version: Version) -> None:
    if version >= _WITH_STORAGE_VERSION:
        backend.put(Table.META, STORAGE_VERSION_KEY, _text(version))
    else:
        backend.delete(Table.META, STORAGE_VERSION_KEY)


def _with_version(meta: dict[bytes, bytes], version: Version) -> list[Row]:
    meta = dict(meta)
    meta.pop(STORAGE_VERSION_KEY, None)
    if version >= _WITH_STORAGE_VERSION:
        meta[STORAGE_VERSION_KEY] = _text(version)
    return sorted(meta.items())


def _storage_version(state: RowSource, meta: dict[bytes, bytes]) -> Version:
    text = meta.get(STORAGE_VERSION_KEY)
    if text is None:
        if not meta.get(TERM):
            raise DataDirError(
                f"{state.path}: cannot detect storage schema version: missing term information"
            )
        return OLDEST
    parts = text.decode("ascii", "replace").split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        raise DataDirError(f"{state.path}: invalid storageVersion {text!r}")
    return int(parts[0]), int(parts[1])


def _refuse_newer_entries(location: Location, version: Version) -> None:
    log = read_log(location.wal)
    for entry in log.replay.entries:
        if _field(entry) == Field.DOWNGRADE_VERSION_TEST:
            raise DataDirError(
                f"{location.wal}: cannot downgrade storage, WAL contains newer entries, as the "
                f"target version ({_text(version).decode()}) is lower than that of entry "
                f"{entry.index}"
            )


def _copy_log(location: Location, log: LogContents, dirs: MemberDirs) -> None:
    """Copy the segments and the snapshot files unchanged."""
    dirs.wal.mkdir(mode=0o700, parents=True)
    for segment in log.segments:
        _copy(segment.path, dirs.wal / segment.path.name)
    if location.snap.is_dir():
        for snapshot in list_snapshot_files(location.snap):
            _copy(snapshot.path, dirs.snap / snapshot.path.name)


def _copy(source: Path, target: Path) -> None:
    """Copy a file with its holes, synced."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    with source.open("rb") as read_file, os.fdopen(descriptor, "wb") as write_file:
        while chunk := read_file.read(_COPY_BYTES):
            if chunk.count(0) == len(chunk):
                write_file.seek(len(chunk), os.SEEK_CUR)
            else:
                write_file.write(chunk)
        write_file.truncate()
        write_file.flush()
        os.fsync(write_file.fileno())


def _write_older(
    state: RowSource, log: LogContents, dirs: MemberDirs, applied: int, version: Version
) -> None:
    """Write a directory for an older etcd: with its versions, and a log that begins at applied."""
    members = [decode_member(value) for value in small_rows(state, Table.MEMBERS).values()]
    voters = tuple(sorted(member.id for member in members if not member.is_learner))
    learners = tuple(sorted(member.id for member in members if member.is_learner))
    conf_state = ConfState(voters=voters, learners=learners)
    term = int.from_bytes(small_rows(state, Table.META).get(TERM, b"")) or log.start.term
    if not applied or not term or not voters:
        raise DataDirError(
            f"{state.path}: index {applied}, term {term}, {len(voters)} voters: no entry is "
            "applied yet that an older version could start from"
        )
    rest = log.replay.entries[applied - log.start.index :]
    _refuse_versions(rest, applied)
    write_state(_older(state, version), dirs, DataFormat.ETCD)
    wal = Wal.create(dirs.wal, log.replay.metadata)
    try:
        hard = log.replay.hard_state
        # The state first: a snapshot record counts only if its index is known to be committed.
        wal.save(HardState(hard.term, hard.vote, max(hard.commit, applied)), (), sync=True)
        metadata = SnapshotMetadata(conf_state, applied, term)
        removed = [int(key, 16) for key in small_rows(state, Table.MEMBERS_REMOVED)]
        data = encode_v2_store(members, removed, _text(version).decode())
        write_snapshot_file(dirs.snap, Snapshot(metadata, data))
        wal.save_snapshot(WalSnapshot(applied, term, conf_state))
        if rest:
            wal.save(None, rest, sync=True)
    finally:
        wal.close()


def _older(state: RowSource, version: Version) -> AlteredState:
    """Return the state with the versions of an older release."""
    cluster = small_rows(state, Table.CLUSTER)
    if cluster.get(CLUSTER_VERSION_KEY):
        cluster[CLUSTER_VERSION_KEY] = _text(version)
    if _DOWNGRADE_KEY in cluster:
        off = {"target-version": "", "enabled": False}
        cluster[_DOWNGRADE_KEY] = json.dumps(off, separators=(",", ":")).encode()
    return AlteredState(
        state,
        replaced={
            BUCKETS[Table.CLUSTER]: sorted(cluster.items()),
            BUCKETS[Table.META]: _with_version(small_rows(state, Table.META), version),
        },
    )


def _refuse_versions(entries: Sequence[Entry], applied: int) -> None:
    for entry in entries:
        if _field(entry) in _VERSION_FIELDS:
            raise DataDirError(
                f"entry {entry.index} of the log changes the cluster's version and is not applied "
                f"({applied} is): start the server once, stop it, and migrate then"
            )


def _field(entry: Entry) -> int:
    """Return the kind of request in an entry; 0 for one that is not known."""
    if entry.type != EntryType.NORMAL or not entry.data:
        return 0
    try:
        return unwrap(entry.data)[0]
    except WireError:
        return 0


def _text(version: Version) -> bytes:
    return f"{version[0]}.{version[1]}.0".encode()
