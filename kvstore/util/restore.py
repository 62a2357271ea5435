"""Restoring a snapshot as the first data directory of a new cluster, as etcdutl does.

    rows     members and members_removed are the new cluster's; the applied index is n, the term 1;
             with a bump, one empty record at the bumped revision and a compaction scheduled up to
             it; all other rows are kept
    log      metadata, an empty snapshot, one entry for each of the n members that adds it, the
             state {term 1, vote for the lowest id, commit n}, a snapshot at n
    .snap    the member list, for members of etcd up to 3.6

The ids depend only on peer URLs and token, so each member restores the same snapshot separately and
all agree. The result is in our format or, on request, in etcd's; only the files of rows differ.
"""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.component.errors import ConfigError
from kvstore.backend import BUCKETS, Row, Table
from kvstore.config.initial_cluster import initial_members
from kvstore.config.model import Config
from kvstore.config.values import parse_urls
from kvstore.errors import DataDirError
from kvstore.mvcc.compaction import SCHEDULED
from kvstore.mvcc.revision import parse_revision_key, revision_key
from kvstore.raft.model import (
    ConfChange,
    ConfChangeType,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Snapshot,
    SnapshotMetadata,
)
from kvstore.storage.etcd_db.digest import check_digest, has_digest
from kvstore.storage.row_source import RowSource, small_rows
from kvstore.storage.snapshots.file import write_snapshot_file
from kvstore.storage.v2_store import encode_v2_store
from kvstore.storage.wal.record import WalSnapshot
from kvstore.storage.wal.wal import Wal
from kvstore.util.locations import DataFormat, Location
from kvstore.util.states import CONSISTENT_INDEX, TERM, AlteredState, open_state
from kvstore.util.targets import MemberDirs, building, check_vacant, write_state
from kvstore.wire.gen import metadata_pb2
from kvstore.wire.members import Member, cluster_id, encode_member, member_id
from kvstore.wire.raft_codec import encode_conf_change

REVISION_MAX: Final = (1 << 63) - 1
_TERM: Final = 1


class RestoreRequest(NamedTuple):
    """The flags of the command."""

    data_dir: Path
    wal_dir: Path | None
    name: str
    initial_cluster: str
    initial_cluster_token: str
    initial_advertise_peer_urls: str
    skip_hash_check: bool
    bump_revision: int  # 0: none
    target: DataFormat  # KVSTORE or ETCD


class RestoredMember(NamedTuple):
    """The ids of the member whose data directory was written."""

    member_id: int
    cluster_id: int


def restore(snapshot: Location, request: RestoreRequest, timeout_s: float) -> RestoredMember:
    """Restore a database file; if it raises KvstoreError, nothing was written."""
    members = _members(request)
    check_vacant(request.data_dir, request.wal_dir)
    if snapshot.format is not DataFormat.FILE:
        raise DataDirError(f"{snapshot.path}: expected a snapshot file, found a data directory")
    if not request.skip_hash_check:
        _check_digest(snapshot.path)
    ids = [member.id for member in members]
    own_id = next(member.id for member in members if member.name == request.name)
    restored = RestoredMember(own_id, cluster_id(ids))
    with open_state(snapshot, timeout_s) as source:
        state = _altered(source, members, request.bump_revision)
        with building(request.data_dir, request.wal_dir) as dirs:
            write_state(state, dirs, request.target)
            _write_log(dirs, restored, members)
    return restored


def _members(request: RestoreRequest) -> list[Member]:
    """Return the members of the new cluster by ascending id."""
    try:
        advertised = parse_urls(request.initial_advertise_peer_urls)
    except ValueError as error:
        raise ConfigError(f"--initial-advertise-peer-urls: {error}") from None
    config = Config(
        name=request.name,
        initial_cluster=request.initial_cluster,
        initial_cluster_token=request.initial_cluster_token,
        initial_advertise_peer_urls=advertised,
    )
    urls_by_name = initial_members(config, socket.gethostbyname)
    members = [
        Member(member_id(urls, request.initial_cluster_token, None), name, list(urls))
        for name, urls in urls_by_name.items()
    ]
    ids = sorted(member.id for member in members)
    if len(set(ids)) != len(ids) or 0 in ids:
        raise ConfigError(f"--initial-cluster: member ids {ids} are not unique and above 0")
    return sorted(members, key=lambda member: member.id)


def _check_digest(path: Path) -> None:
    if not has_digest(path):
        raise DataDirError(
            f"{path}: snapshot missing hash but --skip-hash-check=false: its "
            f"{path.stat().st_size} bytes do not end in one"
        )
    check_digest(path)


def _altered(source: RowSource, members: Sequence[Member], bump: int) -> AlteredState:
    index = len(members)
    meta = small_rows(source, Table.META)
    if not meta and BUCKETS[Table.META] not in source.buckets():
        raise DataDirError(f"{source.path} is not an etcd database: it has no bucket 'meta'")
    meta[CONSISTENT_INDEX] = index.to_bytes(8, "big")
    meta[TERM] = _TERM.to_bytes(8, "big")
    appended: dict[bytes, list[Row]] = {}
    if bump:
        record = _bumped(source, bump)
        appended[BUCKETS[Table.KEY]] = [(record, b"")]
        meta[SCHEDULED] = record
    rows = sorted((f"{member.id:x}".encode(), encode_member(member)) for member in members)
    replaced: dict[bytes, list[Row]] = {
        BUCKETS[Table.MEMBERS]: rows,
        BUCKETS[Table.MEMBERS_REMOVED]: [],
        BUCKETS[Table.META]: sorted(meta.items()),
    }
    return AlteredState(source, replaced=replaced, appended=appended)


def _bumped(source: RowSource, bump: int) -> bytes:
    """Return the revision key that is `bump` main revisions after the last record's."""
    latest = 0
    for key, _ in source.scan(BUCKETS[Table.KEY]):
        latest = parse_revision_key(key)[0]
    if latest + bump > REVISION_MAX:
        raise ConfigError(
            f"--bump-revision {bump}: the latest revision is {latest}, the limit {REVISION_MAX}"
        )
    return revision_key(latest + bump)


def _write_log(dirs: MemberDirs, restored: RestoredMember, members: Sequence[Member]) -> None:
    """Write the log of the new cluster, and its snapshot file."""
    voters = tuple(member.id for member in members)
    index = len(members)
    entries = [
        Entry(EntryType.CONF_CHANGE, _TERM, number, encode_conf_change(_addition(member)))
        for number, member in enumerate(members, 1)
    ]
    metadata = metadata_pb2.Metadata(NodeID=restored.member_id, ClusterID=restored.cluster_id)
    conf_state = ConfState(voters=voters)
    wal = Wal.create(dirs.wal, metadata.SerializeToString())
    try:
        wal.save(HardState(_TERM, voters[0], index), entries, sync=True)
        data = encode_v2_store(members, (), None)
        write_snapshot_file(dirs.snap, Snapshot(SnapshotMetadata(conf_state, index, _TERM), data))
        wal.save_snapshot(WalSnapshot(index, _TERM, conf_state))
    finally:
        wal.close()


def _addition(member: Member) -> ConfChange:
    return ConfChange(0, ConfChangeType.ADD_NODE, member.id, encode_member(member))
