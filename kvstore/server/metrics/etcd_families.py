"""etcd's metrics: its names, kinds, help texts, labels and buckets, and where each comes from.

Read in the driver's thread, so nothing here may take long: numbers, copies of short lists. Metrics
of what only etcd has (its Go runtime, the v2 store, bbolt's rebalancing) are not here;
docs/metrics.md lists them.
"""

import sys
from collections.abc import Mapping
from typing import Final

from kvstack.component.metrics.exposition import Family, FamilyKind, Number, Value, labels
from kvstack.component.metrics.histograms import Histogram, exponential
from kvstack.component.units import MILLISECOND_NS, SECOND_NS
from kvstore.config.flags import ALPHA_GATES
from kvstore.server.metrics.sources import DurationCounts, MetricSources
from kvstore.types import SERVER_VERSION
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field

F = Family[MetricSources]
_PYTHON_VERSION: Final = sys.version.split()[0]
_COUNTER, _GAUGE, _HISTOGRAM = FamilyKind.COUNTER, FamilyKind.GAUGE, FamilyKind.HISTOGRAM


def _op_names() -> dict[int, str]:
    """Return what etcd calls each kind of entry: PUT → "Put", AUTH_USER_ADD → "AuthUserAdd"."""
    return {int(field): field.name.title().replace("_", "") for field in Field}


_OP_NAMES: Final = _op_names()


def _applied(sources: MetricSources) -> Mapping[str, Histogram]:
    return {
        labels(op=_OP_NAMES.get(op, "unknown"), success=_bool(succeeded), version="v3"): histogram
        for (op, succeeded), histogram in sorted(sources.parts.counters.applied.items())
    }


def _ranges(sources: MetricSources) -> Mapping[str, Histogram]:
    return {
        labels(success=_bool(succeeded)): histogram
        for succeeded, histogram in sources.parts.counters.range_seconds.items()
        if succeeded or histogram.total
    }


def _bool(value: bool) -> str:  # noqa: FBT001 - a label
    return "true" if value else "false"


def _text(member_id: int) -> str:
    return f"{member_id:x}"


def _peer(label: str, read: str, sources: MetricSources) -> Value:
    """Return one attribute of every peer's counters under a To or From label."""
    found: dict[str, Number] = {}
    for member_id, counters in sorted(sources.peers().items()):
        found[labels(**{label: _text(member_id)})] = getattr(counters, read)
    return found


def _histogram(counts: DurationCounts) -> Histogram:
    histogram = Histogram(counts.bounds)
    histogram.counts, histogram.total = list(counts.buckets), counts.sum_s
    return histogram


def _peer_times(label: str, read: str, sources: MetricSources) -> Mapping[str, Histogram]:
    return {
        labels(**{label: _text(member_id)}): _histogram(getattr(counters, read))
        for member_id, counters in sorted(sources.peers().items())
    }


def _peer_successes(label: str, read: str, sources: MetricSources) -> Mapping[str, Number]:
    times = _peer_times(label, read, sources)
    return {each: sum(histogram.counts) for each, histogram in times.items()}


def _received(sources: MetricSources) -> Histogram:
    """Return how long it took to receive and save a database of another member."""
    histogram = Histogram(exponential(0.1, 2, 10))
    for counters in sources.peers().values():
        counts = counters.snapshot_receive
        histogram.counts = [
            one + other for one, other in zip(histogram.counts, counts.buckets, strict=True)
        ]
        histogram.total += counts.sum_s
    return histogram


def _between(sources: MetricSources, read: str) -> Mapping[str, Number]:
    own = _text(sources.parts.member_id)
    return {
        labels(Local=own, Remote=_text(member_id)): getattr(counters, read)
        for member_id, counters in sorted(sources.peers().items())
    }


def _known_peers(sources: MetricSources) -> Mapping[str, Number]:
    own = _text(sources.parts.member_id)
    members = sorted(sources.parts.state.membership.members)
    return {labels(Local=own, Remote=_text(member_id)): 1 for member_id in members}


def _alarms(sources: MetricSources) -> Mapping[str, Number]:
    names = pb.AlarmType.values()
    return {
        labels(
            alarm_type=pb.AlarmType.Name(kind) if kind in names else str(kind),
            server_id=_text(member_id),
        ): 1
        for member_id, kind in sources.parts.state.alarms.raised()
    }


def _cluster_version(sources: MetricSources) -> Mapping[str, Number]:
    version = sources.parts.state.membership.cluster_version
    if version is None:
        return {}
    return {labels(cluster_version=version.rpartition(".")[0]): 1}


def _features(sources: MetricSources) -> Mapping[str, Number]:
    return {
        labels(name=name, stage="ALPHA" if name in ALPHA_GATES else "BETA"): int(enabled)
        for name, enabled in sorted(sources.features.items())
    }


def _lease_ttls(sources: MetricSources) -> Histogram:
    histogram = Histogram(tuple(2.0**power for power in range(24)))
    counts = sources.parts.state.lessor.granted_by_bits
    histogram.counts = [*counts[:24], sum(counts[24:])]
    histogram.total = sources.parts.state.lessor.granted_ttl_s
    return histogram


def _compacted_at_s(sources: MetricSources) -> Number:
    at_ns = sources.parts.counters.compacted_ns
    if at_ns == 0:
        return 0
    ago_ns = sources.clock.monotonic_ns() - at_ns
    return (sources.clock.unix_ms() - ago_ns // MILLISECOND_NS) * MILLISECOND_NS // SECOND_NS


def _health(sources: MetricSources) -> Mapping[str, Number]:
    last = {} if sources.health is None else dict(sources.health.last)
    return {labels(name=name, type=kind): int(ok) for (kind, name), ok in sorted(last.items())}


def _health_totals(sources: MetricSources) -> Mapping[str, Number]:
    totals = {} if sources.health is None else dict(sources.health.totals)
    return {
        labels(name=name, status=status, type=kind): count
        for (kind, name, status), count in sorted(totals.items())
    }


def _promotions_refused(sources: MetricSources) -> Mapping[str, Number]:
    refused = sources.parts.counters.refused_promotions
    return {labels(Reason=reason): count for reason, count in sorted(refused.items())}


def _quota(sources: MetricSources) -> Number:
    return max(sources.parts.state.quota.limit_bytes, 0)


def _is_learner(sources: MetricSources) -> Number:
    member = sources.parts.state.membership.members.get(sources.parts.member_id)
    return int(member is not None and member.is_learner)


def _puts(sources: MetricSources) -> Number:
    return sources.parts.counters.events - sources.parts.state.store.deleted_keys


def _range_count(sources: MetricSources) -> Number:
    return sources.parts.counters.ranges + sources.parts.state.applier.txns.range_count


SERVER: Final[tuple[F, ...]] = (
    F("etcd_cluster_version", _GAUGE, "Which version is running. 1 for 'cluster_version' label with current cluster version", _cluster_version),
    F("etcd_debugging_auth_revision", _GAUGE, "The current revision of auth store.", lambda r: r.parts.state.auth.revision),
    F("etcd_debugging_server_alarms", _GAUGE, "Alarms for every member in cluster. 1 for 'server_id' label with current ID. 2 for 'alarm_type' label with type of this alarm", _alarms),
    F("etcd_debugging_server_lease_expired_total", _COUNTER, "The total number of expired leases.", lambda r: r.parts.counters.expired_leases),
    F("etcd_server_apply_duration_seconds", _HISTOGRAM, "The latency distributions of v2 apply called by backend.", _applied),
    F("etcd_server_feature_enabled", _GAUGE, "Whether or not a feature is enabled. 1 is enabled, 0 is not.", _features),
    F("etcd_server_go_version", _GAUGE, "Which Go version server is running with. 1 for 'server_go_version' label with current version.", lambda _: {labels(server_go_version=f"python{_PYTHON_VERSION}"): 1}),
    F("etcd_server_has_leader", _GAUGE, "Whether or not a leader exists. 1 is existence, 0 is not.", lambda r: int(r.parts.raft.lead != 0)),
    F("etcd_server_health_failures", _COUNTER, "The total number of failed health checks", lambda r: 0 if r.health is None else r.health.failures),
    F("etcd_server_health_success", _COUNTER, "The total number of successful health checks", lambda r: 0 if r.health is None else r.health.successes),
    F("etcd_server_healthcheck", _GAUGE, "The result of each kind of healthcheck.", _health),
    F("etcd_server_healthchecks_total", _COUNTER, "The total number of each kind of healthcheck.", _health_totals),
    F("etcd_server_heartbeat_send_failures_total", _COUNTER, "The total number of leader heartbeat send failures (likely overloaded from slow disk).", lambda r: r.observer.late_heartbeats),
    F("etcd_server_id", _GAUGE, "Server or member ID in hexadecimal format. 1 for 'server_id' label with current ID.", lambda r: {labels(server_id=_text(r.parts.member_id)): 1}),
    F("etcd_server_is_leader", _GAUGE, "Whether or not this member is a leader. 1 if is, 0 otherwise.", lambda r: int(r.parts.raft.is_leader)),
    F("etcd_server_is_learner", _GAUGE, "Whether or not this member is a learner. 1 if is, 0 otherwise.", _is_learner),
    F("etcd_server_leader_changes_seen_total", _COUNTER, "The number of leader changes seen.", lambda r: r.observer.leader_changes),
    F("etcd_server_learner_promote_failures", _COUNTER, "The total number of failed learner promotions (likely learner not ready) while this member is leader.", _promotions_refused),
    F("etcd_server_learner_promote_successes", _COUNTER, "The total number of successful learner promotions while this member is leader.", lambda r: r.parts.counters.promoted_learners),
    F("etcd_server_proposals_applied_total", _GAUGE, "The total number of consensus proposals applied.", lambda r: r.parts.raft.applied),
    F("etcd_server_proposals_committed_total", _GAUGE, "The total number of consensus proposals committed.", lambda r: r.parts.raft.committed),
    F("etcd_server_proposals_failed_total", _COUNTER, "The total number of failed proposals seen.", lambda r: r.parts.counters.failed_proposals),
    F("etcd_server_proposals_pending", _GAUGE, "The current number of pending proposals to commit.", lambda r: r.parts.replication.pending.placed_count),
    F("etcd_server_quota_backend_bytes", _GAUGE, "Current backend storage quota size in bytes.", _quota),
    F("etcd_server_range_duration_seconds", _HISTOGRAM, "The latency distributions of txn.Range", _ranges),
    F("etcd_server_read_indexes_failed_total", _COUNTER, "The total number of failed read indexes seen.", lambda r: r.parts.counters.failed_reads),
    F("etcd_server_slow_apply_total", _COUNTER, "The total number of slow apply requests (likely overloaded from slow disk).", lambda r: r.parts.counters.slow_applies),
    F("etcd_server_slow_read_indexes_total", _COUNTER, "The total number of pending read indexes not in sync with leader's or timed out read index requests.", lambda r: r.parts.counters.slow_reads),
    F("etcd_server_snapshot_apply_in_progress_total", _GAUGE, "1 if the server is applying the incoming snapshot. 0 if none.", lambda _: 0),  # within one turn
    F("etcd_server_version", _GAUGE, "Which version is running. 1 for 'server_version' label with current version.", lambda _: {labels(server_version=SERVER_VERSION): 1}),
)  # fmt: skip

STORE: Final[tuple[F, ...]] = (
    F("etcd_debugging_lease_granted_total", _COUNTER, "The total number of granted leases.", lambda r: r.parts.state.lessor.granted),
    F("etcd_debugging_lease_renewed_total", _COUNTER, "The number of renewed leases seen by the leader.", lambda r: r.parts.state.lessor.renewed),
    F("etcd_debugging_lease_revoked_total", _COUNTER, "The total number of revoked leases.", lambda r: r.parts.state.lessor.revoked),
    F("etcd_debugging_lease_ttl_total", _HISTOGRAM, "Bucketed histogram of lease TTLs.", _lease_ttls),
    F("etcd_debugging_mvcc_compact_revision", _GAUGE, "The revision of the last compaction in store.", lambda r: r.parts.state.store.compacted),
    F("etcd_debugging_mvcc_current_revision", _GAUGE, "The current revision of store.", lambda r: r.parts.state.store.revision),
    F("etcd_debugging_mvcc_db_compaction_keys_total", _COUNTER, "Total number of db keys compacted.", lambda r: r.parts.state.store.compacted_records),
    F("etcd_debugging_mvcc_db_compaction_last", _GAUGE, "The unix time of the last db compaction. Resets to 0 on start.", _compacted_at_s),
    F("etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds", _HISTOGRAM, "Bucketed histogram of db compaction pause duration.", lambda r: r.parts.counters.compaction_pause_ms),
    F("etcd_debugging_mvcc_db_compaction_total_duration_milliseconds", _HISTOGRAM, "Bucketed histogram of db compaction total duration.", lambda r: r.parts.counters.compaction_total_ms),
    F("etcd_debugging_mvcc_events_total", _COUNTER, "Total number of events sent by this member.", lambda r: r.parts.state.hub.events_sent),
    F("etcd_debugging_mvcc_keys_total", _GAUGE, "Total number of keys.", lambda r: r.parts.state.store.key_count),
    F("etcd_debugging_mvcc_pending_events_total", _GAUGE, "Total number of pending events to be sent.", lambda _: 0),  # none is queued: unsynced read history
    F("etcd_debugging_mvcc_slow_watcher_total", _GAUGE, "Total number of unsynced slow watchers.", lambda r: r.parts.state.hub.stats().unsynced),
    F("etcd_debugging_mvcc_total_put_size_in_bytes", _GAUGE, "The total size of put kv pairs seen by this member.", lambda r: r.parts.state.store.written_bytes),
    F("etcd_debugging_mvcc_watch_stream_total", _GAUGE, "Total number of watch streams.", lambda r: r.parts.state.hub.stats().streams),
    F("etcd_debugging_mvcc_watcher_total", _GAUGE, "Total number of watchers.", lambda r: r.parts.state.hub.stats().watchers),
    F("etcd_mvcc_db_total_size_in_bytes", _GAUGE, "Total size of the underlying database physically allocated in bytes.", lambda r: r.parts.state.backend.size_bytes()),
    F("etcd_mvcc_db_total_size_in_use_in_bytes", _GAUGE, "Total size of the underlying database logically in use in bytes.", lambda r: r.parts.state.backend.size_in_use_bytes()),
    F("etcd_mvcc_db_open_read_transactions", _GAUGE, "The number of currently open read transactions", lambda r: r.snapshot_writers()),  # all other reads are the turn's
    F("etcd_mvcc_delete_total", _COUNTER, "Total number of deletes seen by this member.", lambda r: r.parts.state.store.delete_count),
    F("etcd_mvcc_hash_duration_seconds", _HISTOGRAM, "The latency distribution of storage hash operation.", lambda r: r.parts.counters.hash_all_seconds),
    F("etcd_mvcc_hash_rev_duration_seconds", _HISTOGRAM, "The latency distribution of storage hash by revision operation.", lambda r: r.parts.counters.hash_revision_seconds),
    F("etcd_mvcc_put_total", _COUNTER, "Total number of puts seen by this member.", _puts),
    F("etcd_mvcc_range_total", _COUNTER, "Total number of ranges seen by this member.", _range_count),
    F("etcd_mvcc_txn_total", _COUNTER, "Total number of txns seen by this member.", lambda r: r.parts.state.applier.txns.txn_count),
)  # fmt: skip

DISK: Final[tuple[F, ...]] = (
    F("etcd_debugging_disk_backend_commit_write_duration_seconds", _HISTOGRAM, "The latency distributions of commit.write called by bboltdb backend.", lambda r: r.disk.backend.commit_seconds),  # all of a commit is writing
    F("etcd_debugging_snap_save_total_duration_seconds", _HISTOGRAM, "The total latency distributions of save called by snapshot.", lambda r: r.snapshot_save_seconds),
    F("etcd_disk_backend_commit_duration_seconds", _HISTOGRAM, "The latency distributions of commit called by backend.", lambda r: r.disk.backend.commit_seconds),
    F("etcd_disk_backend_defrag_duration_seconds", _HISTOGRAM, "The latency distribution of backend defragmentation.", lambda r: r.parts.counters.defragment_seconds),
    F("etcd_disk_backend_snapshot_duration_seconds", _HISTOGRAM, "The latency distribution of backend snapshots.", lambda r: r.snapshot_write_seconds),
    F("etcd_disk_defrag_inflight", _GAUGE, "Whether or not defrag is active on the member. 1 means active, 0 means not.", lambda r: int(r.parts.state.backend.defragmenting())),
    F("etcd_disk_wal_fsync_duration_seconds", _HISTOGRAM, "The latency distributions of fsync called by WAL.", lambda r: r.disk.wal.sync_seconds),
    F("etcd_disk_wal_write_bytes_total", _GAUGE, "Total number of bytes written in WAL.", lambda r: r.disk.wal.written_bytes),
    F("etcd_disk_wal_write_duration_seconds", _HISTOGRAM, "The latency distributions of write called by WAL.", lambda r: r.disk.wal.write_seconds),
    F("etcd_snap_db_save_total_duration_seconds", _HISTOGRAM, "The total latency distributions of v3 snapshot save", _received),
    F("etcd_snap_fsync_duration_seconds", _HISTOGRAM, "The latency distributions of fsync called by snap.", lambda r: r.snapshot_save_seconds),  # all of it is writing and syncing
)  # fmt: skip

PEERS: Final[tuple[F, ...]] = (
    F("etcd_network_active_peers", _GAUGE, "The current number of active peer connections.", lambda r: _between(r, "active")),
    F("etcd_network_disconnected_peers_total", _COUNTER, "The total number of disconnected peers.", lambda r: _between(r, "disconnected")),
    F("etcd_network_known_peers", _GAUGE, "The current number of known peers.", _known_peers),
    F("etcd_network_peer_received_bytes_total", _COUNTER, "The total number of bytes received from peers.", lambda r: _peer("From", "received_bytes", r)),
    F("etcd_network_peer_received_failures_total", _COUNTER, "The total number of receive failures from peers.", lambda r: _peer("From", "received_failures", r)),
    F("etcd_network_peer_round_trip_time_seconds", _HISTOGRAM, "Round-Trip-Time histogram between peers", lambda r: _peer_times("To", "rtt", r)),
    F("etcd_network_peer_sent_bytes_total", _COUNTER, "The total number of bytes sent to peers.", lambda r: _peer("To", "sent_bytes", r)),
    F("etcd_network_peer_sent_failures_total", _COUNTER, "The total number of send failures from peers.", lambda r: _peer("To", "sent_failures", r)),
    F("etcd_network_snapshot_receive_failures", _COUNTER, "Total number of snapshot receive failures", lambda r: _peer("From", "snapshot_receive_failures", r)),
    F("etcd_network_snapshot_receive_inflights_total", _GAUGE, "Total number of inflight snapshot receives", lambda r: _peer("From", "snapshot_receive_inflights", r)),
    F("etcd_network_snapshot_receive_success", _COUNTER, "Total number of successful snapshot receives", lambda r: _peer_successes("From", "snapshot_receive", r)),
    F("etcd_network_snapshot_receive_total_duration_seconds", _HISTOGRAM, "Total latency distributions of v3 snapshot receives", lambda r: _peer_times("From", "snapshot_receive", r)),
    F("etcd_network_snapshot_send_failures", _COUNTER, "Total number of snapshot send failures", lambda r: _peer("To", "snapshot_send_failures", r)),
    F("etcd_network_snapshot_send_inflights_total", _GAUGE, "Total number of inflight snapshot sends", lambda r: _peer("To", "snapshot_send_inflights", r)),
    F("etcd_network_snapshot_send_success", _COUNTER, "Total number of successful snapshot sends", lambda r: _peer_successes("To", "snapshot_send", r)),
    F("etcd_network_snapshot_send_total_duration_seconds", _HISTOGRAM, "Total latency distributions of v3 snapshot sends", lambda r: _peer_times("To", "snapshot_send", r)),
)  # fmt: skip

FAMILIES: Final = SERVER + STORE + DISK + PEERS
