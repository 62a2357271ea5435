"""What etcd's standard alerts and dashboard (its monitoring mixin) read, as name and labels.

`up` is Prometheus's own. The job selector is set by whoever scrapes.
"""

ALERTS = {
    "etcd_server_has_leader": (),
    "etcd_server_leader_changes_seen_total": (),
    "grpc_server_handled_total": ("grpc_service", "grpc_method", "grpc_code", "grpc_type"),
    "grpc_server_handling_seconds_bucket": ("grpc_service", "grpc_method", "grpc_type", "le"),
    "etcd_server_proposals_failed_total": (),
    "etcd_disk_wal_fsync_duration_seconds_bucket": ("le",),
    "etcd_disk_backend_commit_duration_seconds_bucket": ("le",),
    "etcd_mvcc_db_total_size_in_bytes": (),
    "etcd_mvcc_db_total_size_in_use_in_bytes": (),
    "etcd_server_quota_backend_bytes": (),
}
DASHBOARD = {
    "etcd_server_has_leader": (),
    "grpc_server_started_total": ("grpc_service", "grpc_method", "grpc_type"),
    "grpc_server_handled_total": ("grpc_service", "grpc_method", "grpc_code", "grpc_type"),
    "etcd_mvcc_db_total_size_in_bytes": (),
    "etcd_disk_wal_fsync_duration_seconds_bucket": ("le",),
    "etcd_disk_backend_commit_duration_seconds_bucket": ("le",),
    "process_resident_memory_bytes": (),
    "etcd_network_client_grpc_received_bytes_total": (),
    "etcd_network_client_grpc_sent_bytes_total": (),
    "etcd_server_proposals_failed_total": (),
    "etcd_server_proposals_pending": (),
    "etcd_server_proposals_committed_total": (),
    "etcd_server_proposals_applied_total": (),
    "etcd_server_leader_changes_seen_total": (),
}
# Those that only a member with others has.
BETWEEN_MEMBERS = {
    "etcd_network_peer_sent_failures_total": ("To",),
    "etcd_network_peer_round_trip_time_seconds_bucket": ("To", "le"),
    "etcd_network_peer_sent_bytes_total": ("To",),
    "etcd_network_peer_received_bytes_total": ("From",),
}
