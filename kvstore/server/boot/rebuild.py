"""--rebuild-from-peers: replaces wrong data of a member by another member's, and keeps its log.

    <member>/lmdb                   renamed to lmdb.set-aside.<number>; the operator may remove it
    <member>/lmdb.received.<index>  made from a snapshot of another member, replaces it
    <member>/wal                    stays; a snapshot newer than its end is recorded in it

Why that is safe for raft: what a member must not lose is in its log (its term, its vote, and the
entries it has acknowledged), and the log is kept. Data applied up to an index comes from committed
entries only, so using another member's data at index X is what a follower does with a snapshot from
the leader:

    X within the log, same term there   the entry is the same one: apply on from X + 1
    X beyond the log's end              record the snapshot, then the log begins after X
    X within the log, another term      the tail is not committed and may change: try again later
    X before the log's first entry      the other member is too far behind: ask another

A member is rebuilt only if necessary: if a CORRUPT alarm names it, or if its data cannot be opened,
has a damaged row, is missing, or does not reach the log. So the flag may stay set, and a member
that a damaged row has ended is rebuilt by its next start.

A crash leaves the old data or the new in place, or none: then the same command continues.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.apply.alarms import Alarms
from kvstore.backend import Table, scan_all
from kvstore.config.model import Config
from kvstore.errors import CorruptionError, DataDirError
from kvstore.meta_rows import CLUSTER_VERSION_KEY, CONSISTENT_INDEX_KEY, TERM_KEY
from kvstore.raft.model import ConfState, HardState, Snapshot, SnapshotMetadata
from kvstore.server.boot.data_dir import DataDir
from kvstore.server.boot.snapshot_source import SnapshotSource, find_source
from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.files import Files
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.files import LmdbFiles, received_path, sync_directory
from kvstore.storage.row_source import small_rows
from kvstore.storage.snapshots.file import write_snapshot_file
from kvstore.storage.snapshots.received import prepare_received
from kvstore.storage.v2_store import encode_v2_store
from kvstore.storage.wal.record import INITIAL_SNAPSHOT, WalSnapshot
from kvstore.storage.wal.replay import Replay
from kvstore.storage.wal.scan import read_last_snapshot
from kvstore.storage.wal.wal import Wal
from kvstore.wire.gen import metadata_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.members import Member, decode_member

_HASH_BYTES: Final = 32
_SET_ASIDE: Final = "lmdb.set-aside."


class Position(NamedTuple):
    """The position of a database."""

    index: int  # type: ignore[assignment]
    term: int
    members: Sequence[Member]
    removed: Sequence[int]
    cluster_version: str | None


def rebuild(paths: DataDir, config: Config, logger: Logger, files: Files) -> bool:
    """Rebuild the member in paths from the URLs in config, if necessary; return whether it was.

    Raises ConfigError (no member here, no sound member there), DataDirError (what was fetched does
    not fit; nothing has changed then), CorruptionError (the log itself is damaged).
    """
    urls = config.rebuild_from_peers
    if not Wal.exists(paths.wal, files):
        raise ConfigError(
            f"--rebuild-from-peers: no member to rebuild in {paths.member}; a member that "
            "lost all of its data must be removed from the cluster and added again"
        )
    last = read_last_snapshot(paths.wal, files) or INITIAL_SNAPSHOT
    with _opened(paths, last, files) as (wal, replay):
        ids = metadata_pb2.Metadata.FromString(replay.metadata)
        reason = _reason(paths, ids.NodeID, last)
        if not reason:
            logger.info("this member's data is in use; it is not rebuilt", urls=list(urls))
            return False
        logger.warning("rebuilding this member from others", reason=reason, urls=list(urls))
        with closing(find_source(urls, config, ids.ClusterID, ids.NodeID, logger)) as source:
            file = _fetch(source, paths)
        try:
            position = _read_position(file, ids.NodeID)
            check(position, last, replay)
            prepare_received(paths.member, position.index, file)
        finally:
            file.unlink()
        if position.index > last.index + len(replay.entries):
            _record(position, wal, replay, paths, files)
    _exchange(paths, position.index, logger)
    return True


@contextmanager
def _opened(paths: DataDir, last: WalSnapshot, files: Files) -> Iterator[tuple[Wal, Replay]]:
    wal, replay = Wal.open(paths.wal, last, files)
    with closing(wal):
        yield wal, replay


def _reason(paths: DataDir, own_id: int, last: WalSnapshot) -> str:
    """Return why the data must not be used, "" if it may be; DataDirError if it is in use."""
    if (paths.snap / "db").exists():
        return ""  # an etcd's, to be taken over
    if not paths.lmdb.exists():
        return f"{paths.lmdb} is missing"
    try:
        backend = LmdbBackend(paths.member)
        try:
            _read_all(backend)
            alarms = Alarms(backend)
            alarms.restore()
            applied = int.from_bytes(backend.get(Table.META, CONSISTENT_INDEX_KEY) or b"")
        finally:
            backend.abandon()
    except CorruptionError as error:
        return str(error)
    if (own_id, pb.AlarmType.CORRUPT) in alarms.raised(pb.AlarmType.CORRUPT):
        return f"a CORRUPT alarm names member {own_id:x}"
    if applied < last.index:
        return f"{paths.lmdb} is at index {applied}, the log begins after {last.index}"
    return ""


def _read_all(backend: LmdbBackend) -> None:
    """Read every row, so that the damaged ones are found; CorruptionError names the first."""
    for table in Table:
        for _ in scan_all(backend, table):
            pass


def _fetch(source: SnapshotSource, paths: DataDir) -> Path:
    """Write the source's database to a file and check its hash."""
    paths.tmp.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = paths.tmp / "rebuild.db"
    digest, tail = hashlib.sha256(), b""
    try:
        with path.open("wb") as file:
            for blob in source.snapshot():
                ready, tail = _split(tail + blob)
                digest.update(ready)
                file.write(ready)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if tail != digest.digest():
        path.unlink()
        raise DataDirError(f"the snapshot of {source.url} does not match its hash: try again")
    return path


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Return data without its last bytes, which may be the hash, and those."""
    cut = max(len(data) - _HASH_BYTES, 0)
    return data[:cut], data[cut:]


def _read_position(path: Path, own_id: int) -> Position:
    with EtcdDbReader(path, exclusive=True) as source:
        meta = small_rows(source, Table.META)
        members = [decode_member(row) for row in small_rows(source, Table.MEMBERS).values()]
        removed = [int(key, 16) for key in small_rows(source, Table.MEMBERS_REMOVED)]
        version = small_rows(source, Table.CLUSTER).get(CLUSTER_VERSION_KEY)
    index, term = (int.from_bytes(meta.get(key, b"")) for key in (CONSISTENT_INDEX_KEY, TERM_KEY))
    if not index or not term:
        raise DataDirError("the snapshot does not contain its index and term")
    if own_id not in {member.id for member in members}:
        raise DataDirError(f"member {own_id:x} is not in the snapshot: it was removed")
    known = sorted(members, key=lambda member: member.id)
    shown = None if version is None else version.decode()
    return Position(index, term, known, sorted(removed), shown)


def check(position: Position, last: WalSnapshot, replay: Replay) -> None:
    """Raise DataDirError if data at a position does not fit a log; the rules are at the head."""
    index = position.index
    end = last.index + len(replay.entries)
    if index < last.index:
        raise DataDirError(
            f"the snapshot is at index {index}, the log begins after {last.index}: the other "
            "member is behind; try again, or name another"
        )
    if index > end:
        return
    term = last.term if index == last.index else replay.entries[index - last.index - 1].term
    if term != position.term:
        raise DataDirError(
            f"the snapshot is at index {index}, term {position.term}; the log has term {term} "
            "there, not yet replaced: start this member without the flag for a moment, then again"
        )


def _record(position: Position, wal: Wal, replay: Replay, paths: DataDir, files: Files) -> None:
    """Record the snapshot in the log, as a follower does with one from the leader."""
    index, term, members, removed, version = position
    conf_state = ConfState(
        voters=tuple(member.id for member in members if not member.is_learner),
        learners=tuple(member.id for member in members if member.is_learner),
    )
    data = encode_v2_store(members, removed, version)
    snapshot = Snapshot(SnapshotMetadata(conf_state, index, term), data)
    write_snapshot_file(paths.snap, snapshot, files)
    wal.save_snapshot(WalSnapshot(index, term, conf_state))
    state = replay.hard_state
    vote = state.vote if state.term >= term else 0
    wal.save(HardState(max(state.term, term), vote, index), [], sync=True)


def _exchange(paths: DataDir, index: int, logger: Logger) -> None:
    """Replace the old state by the new one; the old one is kept."""
    lock = LmdbFiles(paths.member)
    try:
        aside = next(
            path
            for number in count(1)
            if not (path := paths.member / f"{_SET_ASIDE}{number}").exists()
        )
        if paths.lmdb.exists():
            paths.lmdb.rename(aside)
        received_path(paths.member, index).rename(paths.lmdb)
        sync_directory(paths.member)
    except OSError as error:
        raise DataDirError(f"{paths.member}: cannot exchange the data: {error}") from error
    finally:
        lock.unlock()
    logger.info("rebuilt this member", index=index, set_aside=str(aside))
