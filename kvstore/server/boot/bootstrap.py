"""From a data directory to the state a node starts with: founded, joined, restored or taken over.

    no log            found a cluster: identity from the peer URLs, entries that add the members;
                      or join one: identity from its members, an empty log until the leader sends
    a log             restart: its last snapshot, the entries after it, the database beside it
    an etcd's files   the database is taken over first; then it is a restart

A start is the same after a crash and after a clean stop. The database may be ahead
of the log's committed index (commits alone are not synced), never ahead of its last entry.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.backend import Backend, Table
from kvstore.errors import DataDirError
from kvstore.meta_rows import (
    CLUSTER_VERSION_KEY,
    CONSISTENT_INDEX_KEY,
    STORAGE_VERSION_KEY,
)
from kvstore.raft.model import (
    EMPTY_HARD_STATE,
    ConfChange,
    ConfChangeType,
    ConfState,
    EntryType,
)
from kvstore.raft.ready import InitialState
from kvstore.server.boot.data_dir import DataDir
from kvstore.server.boot.force_new import Forced, force_new_cluster
from kvstore.server.boot.founding import Founding as Founding
from kvstore.server.boot.founding import Identity, founders, identity
from kvstore.server.boot.legacy_members import correct_members
from kvstore.server.boot.row_checksums import add_row_checksums
from kvstore.storage.files import Files
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.memory_log import MemoryLog
from kvstore.storage.takeover import refuse_newer, take_over
from kvstore.storage.wal.record import INITIAL_SNAPSHOT, WalSnapshot
from kvstore.storage.wal.replay import Replay
from kvstore.storage.wal.scan import LogScan, read_snapshots
from kvstore.storage.wal.wal import SEGMENT_BYTES, Wal
from kvstore.wire.gen import metadata_pb2
from kvstore.wire.members import Member, decode_member, encode_member
from kvstore.wire.raft_codec import decode_conf_change

AUTH_REVISION_KEY: Final = b"authRevision"
_FIRST_AUTH_REVISION: Final = (1).to_bytes(8, "big")
_MEMBERS_MAX: Final = 1 << 16
_INDEX_MAX: Final = (1 << 64) - 1


class Boot(NamedTuple):
    """Everything a node starts from."""

    member_id: int
    cluster_id: int
    wal: Wal | MemoryLog
    backend: Backend
    raft: InitialState
    founding: Sequence[ConfChange]  # the first changes of a new cluster, else none
    remotes: Mapping[int, Sequence[str]]  # peer URLs of members, before any entry names them


def boot(
    paths: DataDir,
    founding: Founding,
    logger: Logger,
    *,
    files: Files,
    open_backend: Callable[[Path], Backend] = LmdbBackend,
    segment_bytes: int = SEGMENT_BYTES,
) -> Boot:
    """Open or make everything under the data directory."""
    if not Wal.exists(paths.wal, files):
        return _create_or_join(paths, founding, logger, files, open_backend, segment_bytes)
    if founding.discover is not None:
        logger.warning(
            "discovery token is ignored since cluster already initialized; valid logs are found",
            wal_dir=str(paths.wal),
        )
    with LogScan(paths.wal, files, lock=True) as log:
        last = log.last_snapshot() or INITIAL_SNAPSHOT
        taken = take_over(paths.member, LmdbBackend, snapshot_index=last.index, files=files)
        if taken is not None:
            logger.info("took over an etcd data directory", rows=taken.rows, bytes=taken.size_bytes)
        wal, replay = Wal.open(paths.wal, last, files, segment_bytes, log)
    try:
        if replay.repair is not None:
            logger.warning(
                "repaired a torn log",
                segment=str(replay.repair.path),
                offset=replay.repair.offset,
                found=replay.repair.text,
                copy=str(replay.repair.broken_path),
            )
        backend = open_backend(paths.member)
    except BaseException:
        wal.close()
        raise
    try:
        add_row_checksums(backend, logger)
        start = _take_received(backend, last, paths, files)
        if start != last:
            wal.close()
            wal, replay = Wal.open(paths.wal, start, files, segment_bytes)
        return _restart(paths, founding, wal, replay, start, backend, logger, files)
    except BaseException:
        wal.close()
        backend.abandon()
        raise


def _take_received(
    backend: Backend, last: WalSnapshot, paths: DataDir, files: Files
) -> WalSnapshot:
    """Finish a received snapshot that was cut off; return the snapshot to start from.

    The log names the snapshot before its database is put in place. If that database is not here,
    the log's record was never completed by the commit index that goes with it: the log goes on from
    where it was before, and has since passed the snapshot's index on its own. A database at index 0
    is not such a case: it may be a new one that replaces one that is missing, and the contents
    of a restored snapshot are in no entry.
    """
    applied = _number(backend, CONSISTENT_INDEX_KEY)
    start = last
    is_behind = applied < last.index and not backend.take_received(last.index)
    if is_behind and applied > 0:
        usable = [each for each in read_snapshots(paths.wal, files) if each.index <= applied]
        start = usable[-1] if usable else last
    backend.drop_received(_INDEX_MAX)
    return start


def _create_or_join(
    paths: DataDir,
    founding: Founding,
    logger: Logger,
    files: Files,
    open_backend: Callable[[Path], Backend],
    segment_bytes: int,
) -> Boot:
    if files.exists(paths.snap / "db"):
        raise DataDirError(
            f"{paths.snap / 'db'} is an etcd's database, but there is no log in {paths.wal}"
        )
    who = identity(founding, logger)
    backend = open_backend(paths.member)
    try:
        _refuse_rows_without_log(backend, paths)
        metadata = metadata_pb2.Metadata(NodeID=who.own_id, ClusterID=who.cluster_id)
        wal = Wal.create(paths.wal, metadata.SerializeToString(), files, segment_bytes)
    except BaseException:
        backend.abandon()
        raise
    logger.info(
        "founded a cluster" if who.founds else "joining a cluster",
        member_id=f"{who.own_id:x}",
        cluster_id=f"{who.cluster_id:x}",
        members=[f"{member.id:x}" for member in who.members],
    )
    return begin(wal, backend, who)


def begin(wal: Wal | MemoryLog, backend: Backend, who: Identity) -> Boot:
    """Return the start of a new log: one change that adds each founder, nothing if it joins."""
    backend.put(Table.AUTH, AUTH_REVISION_KEY, _FIRST_AUTH_REVISION)
    changes = [
        ConfChange(0, ConfChangeType.ADD_NODE, member.id, encode_member(member))
        for member in who.members
        if who.founds
    ]
    remotes = {} if who.founds else _others(who)
    return Boot(who.own_id, who.cluster_id, wal, backend, InitialState(), changes, remotes)


def _others(who: Identity) -> dict[int, Sequence[str]]:
    return {each.id: each.peer_urls for each in who.members if each.id != who.own_id}


def _restart(
    paths: DataDir,
    founding: Founding,
    wal: Wal,
    replay: Replay,
    last: WalSnapshot,
    backend: Backend,
    logger: Logger,
    files: Files,
) -> Boot:
    for table, key in (
        (Table.META, STORAGE_VERSION_KEY),
        (Table.CLUSTER, CLUSTER_VERSION_KEY),
    ):
        refuse_newer(paths.lmdb, key, backend.get(table, key))
    ids = metadata_pb2.Metadata.FromString(replay.metadata)
    if not replay.entries and last == INITIAL_SNAPSHOT:
        # A crash between the making of the log and its first entries: start again.
        _refuse_rows_without_log(backend, paths)
        return _begin_again(paths, founding, wal, replay, backend)
    applied = _number(backend, CONSISTENT_INDEX_KEY)
    last_index = last.index + len(replay.entries)
    if applied > last_index:
        raise DataDirError(
            f"the database in {paths.lmdb} is at index {applied}, the log in {paths.wal} "
            f"ends at {last_index}: they do not belong together"
        )
    if applied < last.index:
        raise DataDirError(
            f"the database in {paths.lmdb} is at index {applied}, the log in {paths.wal} "
            f"begins after {last.index}: entries between are missing"
        )
    if backend.get(Table.META, STORAGE_VERSION_KEY) is None:
        learners_max = founding.learners_max
        correct_members(
            backend, paths.snap, last.index, replay.entries, learners_max, logger, files
        )
    members = _members(backend, ids.NodeID, applied, last, replay, paths)
    if sum(member.is_learner for member in members) > founding.learners_max:
        raise ConfigError("membership: too many learner members in cluster")
    state, entries = replay.hard_state, replay.entries
    if founding.force_new_cluster:
        state, entries = _force(founding, wal, replay, members, ids.NodeID, applied, logger)
    initial = InitialState(
        hard_state=state,
        conf_state=_conf_state(members),
        snapshot_index=last.index,
        snapshot_term=last.term,
        entries=entries,
        applied=applied,
    )
    return Boot(ids.NodeID, ids.ClusterID, wal, backend, initial, (), {})


def _begin_again(
    paths: DataDir, founding: Founding, wal: Wal, replay: Replay, backend: Backend
) -> Boot:
    """Start with a log that has no entry yet: as a founder, or as one that joins."""
    ids = metadata_pb2.Metadata.FromString(replay.metadata)
    if founding.is_new and replay.hard_state == EMPTY_HARD_STATE:
        who = founders(founding)
        if (who.own_id, who.cluster_id) != (ids.NodeID, ids.ClusterID):
            raise DataDirError(
                f"{paths.wal} is an empty log of member {ids.NodeID:x} of cluster "
                f"{ids.ClusterID:x}; the flags make this member {who.own_id:x} of "
                f"{who.cluster_id:x}"
            )
        return begin(wal, backend, who)
    backend.put(Table.AUTH, AUTH_REVISION_KEY, _FIRST_AUTH_REVISION)
    initial = InitialState(hard_state=replay.hard_state)
    return Boot(ids.NodeID, ids.ClusterID, wal, backend, initial, (), {})


def _force(
    founding: Founding,
    wal: Wal,
    replay: Replay,
    members: Sequence[Member],
    own_id: int,
    applied: int,
    logger: Logger,
) -> Forced:
    own = next((member for member in members if member.id == own_id), None)
    if own is None:
        own = Member(own_id, founding.name, list(founding.members().get(founding.name, ())))
    return force_new_cluster(
        wal,
        replay.hard_state,
        replay.entries,
        applied=applied,
        members={member.id: member.is_learner for member in members},
        own=own,
        logger=logger,
    )


def _refuse_rows_without_log(backend: Backend, paths: DataDir) -> None:
    if _number(backend, CONSISTENT_INDEX_KEY):
        raise DataDirError(
            f"{paths.lmdb} holds a database, but its log in {paths.wal} is missing or empty"
        )


def _number(backend: Backend, key: bytes) -> int:
    return int.from_bytes(backend.get(Table.META, key) or b"", "big")


def _members(
    backend: Backend, own_id: int, applied: int, last: WalSnapshot, replay: Replay, paths: DataDir
) -> list[Member]:
    """Return the member list; it must have this member if the log has added it."""
    rows = backend.scan(Table.MEMBERS, b"", None, _MEMBERS_MAX)
    members = [decode_member(value) for _, value in rows]
    removed = backend.get(Table.MEMBERS_REMOVED, f"{own_id:x}".encode()) is not None
    if removed:
        raise DataDirError(f"member {own_id:x} of {paths.member} was removed from its cluster")
    is_known = own_id in {member.id for member in members}
    if members and not is_known and _was_added(own_id, applied, last, replay):
        raise DataDirError(
            f"the log in {paths.wal} is of member {own_id:x}, which the database in "
            f"{paths.lmdb} does not contain: they do not belong together"
        )
    return members


def _was_added(own_id: int, applied: int, last: WalSnapshot, replay: Replay) -> bool:
    """Return whether the log has added this member up to the applied index."""
    state = last.conf_state
    if state is not None and own_id in (*state.voters, *state.learners):
        return True
    changes = (
        decode_conf_change(entry.data)
        for entry in replay.entries
        if entry.index <= applied and entry.type == EntryType.CONF_CHANGE
    )
    added = {ConfChangeType.ADD_NODE, ConfChangeType.ADD_LEARNER_NODE}
    return any(change.node_id == own_id and change.type in added for change in changes)


def _conf_state(members: Sequence[Member]) -> ConfState:
    """Return the raft configuration by the member list, as etcd does at a restart."""
    return ConfState(
        voters=tuple(sorted(member.id for member in members if not member.is_learner)),
        learners=tuple(sorted(member.id for member in members if member.is_learner)),
    )
