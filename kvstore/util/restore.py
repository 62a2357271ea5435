"""A snapshot becomes the first data directory of a new cluster, as etcdutl makes it.

    rows     members and members_removed are the new cluster's; all else stays, the applied index
             and term are n and 1; with a bump, one empty record at the bumped revision, and the
             compaction up to it decided
    log      metadata, an empty start, one entry that adds each of the n members, the state
             {term 1, vote for the lowest id, commit n}, a snapshot at n
    .snap    the member list for members of etcd up to 3.6

Ids depend on peer URLs and token alone, so each member restores the same snapshot by itself and
all agree. The result is ours, or etcd's on request; they differ in the file of rows only.
"""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kvstore.config.initial_cluster import initial_members
from kvstore.config.model import Config
from kvstore.config.values import parse_urls
from kvstore.errors import ConfigError, DataDirError
from kvstore.mvcc.backend import BUCKETS, Row, Table
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
from kvstore.storage.etcd_db.etcd_db import check_digest, has_digest
from kvstore.storage.row_source import RowSource, small_rows
from kvstore.storage.snapshots.file import write_snapshot_file
from kvstore.storage.v2_store import encode_v2_store
from kvstore.storage.wal.wal import Wal, WalSnapshot
from kvstore.util.places import Kind, Place
from kvstore.util.states import CONSISTENT_INDEX, TERM, Altered, open_state
from kvstore.util.targets import Site, building, check_vacant, write_state
from kvstore.wire.gen import metadata_pb2
from kvstore.wire.members import Member, cluster_id, encode_member, member_id
from kvstore.wire.raft_codec import encode_conf_change

REVISION_MAX: Final = (1 << 63) - 1
_TERM: Final = 1


class Order(NamedTuple):
    """What is to be restored, where to, and for whom; the flags of the command."""

    data_dir: Path
    wal_dir: Path | None
    name: str
    initial_cluster: str
    initial_cluster_token: str
    initial_advertise_peer_urls: str
    skip_hash_check: bool
    bump_revision: int  # 0: none
    kind: Kind  # KVSTORE or ETCD


class Restored(NamedTuple):
    """Whose data directory it is now."""

    member_id: int
    cluster_id: int


def restore(snapshot: Place, order: Order, timeout_s: float) -> Restored:
    """Restore a database file; raises KvstoreError, and then leaves nothing behind."""
    members = _members(order)
    check_vacant(order.data_dir, order.wal_dir)
    if snapshot.kind is not Kind.FILE:
        raise DataDirError(f"{snapshot.path}: expected a snapshot file, found a data directory")
    if not order.skip_hash_check:
        _check_digest(snapshot.path)
    ids = [member.id for member in members]
    own_id = next(member.id for member in members if member.name == order.name)
    restored = Restored(own_id, cluster_id(ids))
    with open_state(snapshot, timeout_s) as source:
        state = _altered(source, members, order.bump_revision)
        with building(order.data_dir, order.wal_dir) as site:
            write_state(state, site, order.kind)
            _write_log(site, restored, members)
    return restored


def _members(order: Order) -> list[Member]:
    """Return the members of the new cluster by ascending id."""
    try:
        advertised = parse_urls(order.initial_advertise_peer_urls)
    except ValueError as error:
        raise ConfigError(f"--initial-advertise-peer-urls: {error}") from None
    config = Config(
        name=order.name,
        initial_cluster=order.initial_cluster,
        initial_cluster_token=order.initial_cluster_token,
        initial_advertise_peer_urls=advertised,
    )
    urls_by_name = initial_members(config, socket.gethostbyname)
    members = [
        Member(member_id(urls, order.initial_cluster_token, None), name, list(urls))
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


def _altered(source: RowSource, members: Sequence[Member], bump: int) -> Altered:
    index = len(members)
    meta = small_rows(source, Table.META)
    if not meta and BUCKETS[Table.META] not in source.buckets():
        raise DataDirError(f"{source.path} is no etcd database: it has no bucket 'meta'")
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
    return Altered(source, replaced=replaced, appended=appended)


def _bumped(source: RowSource, bump: int) -> bytes:
    """Return the revision key that is bump main revisions after the last record."""
    latest = 0
    for key, _ in source.scan(BUCKETS[Table.KEY]):
        latest = parse_revision_key(key)[0]
    if latest + bump > REVISION_MAX:
        raise ConfigError(
            f"--bump-revision {bump}: the latest revision is {latest}, the limit {REVISION_MAX}"
        )
    return revision_key(latest + bump)


def _write_log(site: Site, restored: Restored, members: Sequence[Member]) -> None:
    """Write the log that founds the cluster, and its snapshot file."""
    voters = tuple(member.id for member in members)
    index = len(members)
    entries = [
        Entry(EntryType.CONF_CHANGE, _TERM, number, encode_conf_change(_addition(member)))
        for number, member in enumerate(members, 1)
    ]
    metadata = metadata_pb2.Metadata(NodeID=restored.member_id, ClusterID=restored.cluster_id)
    conf_state = ConfState(voters=voters)
    wal = Wal.create(site.wal, metadata.SerializeToString())
    try:
        wal.save(HardState(_TERM, voters[0], index), entries, sync=True)
        data = encode_v2_store(members, (), None)
        write_snapshot_file(site.snap, Snapshot(SnapshotMetadata(conf_state, index, _TERM), data))
        wal.save_snapshot(WalSnapshot(index, _TERM, conf_state))
    finally:
        wal.close()


def _addition(member: Member) -> ConfChange:
    return ConfChange(0, ConfChangeType.ADD_NODE, member.id, encode_member(member))
