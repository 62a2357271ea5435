"""Which tests prove which item, and what is to be said of items that differ or do not apply.

A test is named as pytest names it, from tests/ on: a file, or file::function (with all of its
parameters). An item works if each of its entries passed in the last run, none failing. DIFFERS says
how an item that is proven differs from etcd's; ABSENT why there is nothing to prove.
"""

from typing import Final

from kvstore.server.gateway.routes import ROUTES

_PORT: Final = "unit/server/test_flag_effects.py::test_the_client_port"
_NODE: Final = "unit/server/test_flag_effects.py::test_the_node"
_PEERS: Final = "unit/server/test_flag_effects.py::test_tls_between_members"
_OTHERS: Final = "unit/server/test_flag_effects.py::test_others"
_TLS: Final = "conformance/transport/test_tls.py"
_PEER_TLS: Final = "conformance/peers/test_tls.py"
_RULES: Final = "unit/config/test_config_parse.py::test_rules_are_held_with_value_and_limit"
_KV: Final = ("conformance/differential/test_kv.py", "conformance/differential/test_edges.py")
_AUTH: Final = ("conformance/test_auth_etcd.py", "unit/node/test_node_auth.py")
_GATES: Final = "unit/server/test_feature_flags.py"
_CORRUPTION: Final = "unit/node/test_node_corruption.py"
_DISCOVERY: Final = "e2e/members/test_discovery.py"
_REGISTRY: Final = "unit/server/test_flag_effects.py::test_the_registry_of_discovery"
_MEMBERS: Final = "unit/node/test_node_members.py"
_STARTS: Final = "e2e/test_command.py::test_flags_in_every_form"

_PROVEN: Final[dict[str, tuple[str, ...]]] = {
    # RPCs
    "rpc:KV/Range": (*_KV, "unit/cluster/test_cluster_reads.py"),
    "rpc:KV/RangeStream": ("unit/node/test_node_reads.py", "unit/cluster/test_cluster_reads.py"),
    "rpc:KV/Put": _KV,
    "rpc:KV/DeleteRange": _KV,
    "rpc:KV/Txn": _KV,
    "rpc:KV/Compact": _KV,
    "rpc:Watch/Watch": ("conformance/differential/test_watch.py", "unit/watch/test_watch_hub.py"),
    "rpc:Lease/LeaseGrant": ("unit/cluster/test_cluster_leases.py", "e2e/test_etcdctl.py"),
    "rpc:Lease/LeaseRevoke": ("unit/node/test_node_auth.py", "e2e/test_etcdctl.py"),
    "rpc:Lease/LeaseKeepAlive": ("unit/cluster/test_cluster_leases.py", "e2e/test_etcdctl.py"),
    "rpc:Lease/LeaseTimeToLive": ("unit/cluster/test_cluster_leases.py", "e2e/test_etcdctl.py"),
    "rpc:Lease/LeaseLeases": ("crash/test_odd_requests.py", "e2e/test_etcdctl.py"),
    "rpc:Cluster/MemberAdd": (_MEMBERS, "e2e/members/test_join.py"),
    "rpc:Cluster/MemberRemove": (_MEMBERS,),
    "rpc:Cluster/MemberUpdate": (f"{_MEMBERS}::test_peer_urls_are_updated",),
    "rpc:Cluster/MemberList": (_MEMBERS, "unit/cluster/test_cluster_reads.py"),
    "rpc:Cluster/MemberPromote": (
        f"{_MEMBERS}::test_a_learner_is_promoted",
        "e2e/members/test_join.py",
    ),
    "rpc:Maintenance/Alarm": ("crash/test_quota.py", "e2e/test_etcdctl.py"),
    "rpc:Maintenance/Status": ("unit/node/test_node_versions.py", "e2e/test_etcdctl.py"),
    "rpc:Maintenance/Defragment": ("unit/node/test_node_maintenance.py", "e2e/test_etcdctl.py"),
    "rpc:Maintenance/Hash": ("unit/node/test_node_auth.py", "unit/mvcc/test_mvcc_compaction.py"),
    "rpc:Maintenance/HashKV": (
        "conformance/test_mvcc_hash_etcd.py",
        "unit/node/test_node_maintenance.py",
    ),
    "rpc:Maintenance/Snapshot": ("e2e/test_snapshots.py",),
    "rpc:Maintenance/MoveLeader": ("unit/cluster/test_cluster_members.py",),
    "rpc:Maintenance/Downgrade": ("unit/node/test_node_versions.py",),
    **{
        f"rpc:Auth/{name}": _AUTH
        for name in [
            "AuthEnable",
            "AuthDisable",
            "AuthStatus",
            "Authenticate",
            "UserAdd",
            "UserGet",
            "UserList",
            "UserDelete",
            "UserChangePassword",
            "UserGrantRole",
            "UserRevokeRole",
            "RoleAdd",
            "RoleGet",
            "RoleList",
            "RoleDelete",
            "RoleGrantPermission",
            "RoleRevokePermission",
        ]
    },
    **{
        f"rpc:{name}": ("conformance/test_concurrency.py",)
        for name in [
            "Lock/Lock",
            "Lock/Unlock",
            "Election/Campaign",
            "Election/Proclaim",
            "Election/Leader",
            "Election/Observe",
            "Election/Resign",
        ]
    },
    "rpc:Health/Check": (
        "unit/node/test_node_maintenance.py::test_health",
        "e2e/test_command.py::test_health_is_reported",
    ),
    "rpc:Health/List": ("unit/node/test_node_maintenance.py::test_health",),
    "rpc:Health/Watch": ("e2e/test_command.py::test_health_may_be_watched",),
    # Flags
    "flag:config-file": (
        "e2e/test_command.py::test_a_config_file",
        "unit/config/test_config_parse.py",
    ),
    "flag:version": ("e2e/test_command.py::test_version_and_what_it_cannot_make_sense_of",),
    "flag:name": (_STARTS, _NODE),
    "flag:data-dir": (_STARTS, "crash/test_directories.py"),
    "flag:wal-dir": ("e2e/test_command.py::test_a_log_directory_of_its_own",),
    "flag:snapshot-count": (_NODE, "e2e/test_command.py::test_the_log_is_trimmed"),
    "flag:heartbeat-interval": (_NODE, "unit/cluster/test_cluster_elections.py"),
    "flag:election-timeout": (_NODE, "unit/cluster/test_cluster_elections.py"),
    "flag:initial-election-tick-advance": (_NODE, "unit/cluster/test_cluster_elections.py"),
    "flag:listen-peer-urls": ("e2e/members/test_join.py", "conformance/peers/test_links.py"),
    "flag:listen-client-urls": (
        "e2e/test_command.py::test_several_addresses_one_of_them_a_socket_file",
    ),
    "flag:listen-client-http-urls": (_PORT, "e2e/http/test_addresses.py"),
    "flag:max-snapshots": (f"{_GATES}::test_snapshot_files_beyond_the_number_are_deleted",),
    "flag:max-wals": ("e2e/test_command.py::test_the_log_is_trimmed",),
    "flag:memory-mlock": ("e2e/test_flags.py::test_memory_is_locked",),
    "flag:quota-backend-bytes": ("crash/test_quota.py", _NODE),
    "flag:backend-batch-interval": (_NODE,),
    "flag:backend-batch-limit": (_NODE,),
    "flag:max-txn-ops": (_NODE, "unit/wire/test_wire_checks.py::test_each_list_is_limited"),
    "flag:max-request-bytes": (
        _NODE,
        _PORT,
        "unit/node/test_node_maintenance.py"
        "::test_a_request_over_the_limit_is_refused_by_its_size_in_the_log",
    ),
    "flag:max-concurrent-streams": (
        _PORT,
        "conformance/transport/test_transport.py::test_the_limit_of_streams_per_connection_is_announced",
    ),
    "flag:grpc-keepalive-min-time": (
        _PORT,
        "conformance/transport/test_transport.py::test_a_client_that_pings_without_measure_is_cut_off",
    ),
    "flag:grpc-keepalive-interval": (
        _PORT,
        "conformance/transport/test_hostile.py::test_a_client_that_answers_pings_is_kept",
    ),
    "flag:grpc-keepalive-timeout": (
        _PORT,
        "conformance/transport/test_hostile.py::test_a_client_that_is_no_more_is_noticed",
    ),
    "flag:socket-reuse-port": (
        "e2e/test_flags.py::test_another_server_may_share_the_ports_if_both_agree",
    ),
    "flag:socket-reuse-address": (
        "e2e/test_flags.py::test_another_server_may_share_the_ports_if_both_agree",
    ),
    "flag:enable-grpc-gateway": ("unit/server/test_http_site.py::test_without_the_gateway",),
    "flag:raft-read-timeout": (
        "e2e/test_flags.py::test_another_server_may_share_the_ports_if_both_agree",
    ),
    "flag:raft-write-timeout": (
        "e2e/test_flags.py::test_another_server_may_share_the_ports_if_both_agree",
    ),
    "flag:feature-gates": (_GATES, "unit/config/test_config_values.py"),
    "flag:initial-advertise-peer-urls": (
        "unit/config/test_initial_cluster.py",
        "e2e/members/test_join.py",
    ),
    "flag:initial-cluster": ("unit/config/test_initial_cluster.py", "e2e/members/test_join.py"),
    "flag:initial-cluster-state": ("unit/server/test_founding.py", "e2e/members/test_join.py"),
    "flag:initial-cluster-token": (
        "unit/server/test_founding.py",
        "e2e/members/test_cluster_restore.py",
    ),
    "flag:advertise-client-urls": (_NODE, _STARTS),
    "flag:discovery-token": (_DISCOVERY,),
    **{
        f"flag:discovery-{name}": (_REGISTRY, _DISCOVERY)
        for name in [
            "endpoints",
            "dial-timeout",
            "request-timeout",
            "keepalive-time",
            "keepalive-timeout",
            "user",
            "password",
            "insecure-transport",
            "insecure-skip-tls-verify",
            "cert",
            "key",
            "cacert",
        ]
    },
    "flag:discovery-fallback": (_RULES,),
    "flag:discovery-srv": (f"{_DISCOVERY}::test_three_members_that_dns_names",),
    "flag:discovery-srv-name": ("unit/server/test_discovery_srv.py",),
    "flag:strict-reconfig-check": (_NODE, f"{_MEMBERS}::test_without_strict_checks_anything_goes"),
    "flag:pre-vote": (f"{_GATES}::test_a_member_cut_off_counts_terms_up_without_pre_vote",),
    "flag:cert-file": ("unit/server/test_flag_effects.py::test_certificates_of_clients", _TLS),
    "flag:key-file": ("unit/server/test_flag_effects.py::test_certificates_of_clients", _TLS),
    "flag:trusted-ca-file": (
        "unit/server/test_flag_effects.py::test_certificates_of_clients",
        _TLS,
    ),
    "flag:client-cert-file": ("e2e/test_flags.py::test_a_certificate_of_its_own_is_shown",),
    "flag:client-key-file": ("e2e/test_flags.py::test_a_certificate_of_its_own_is_shown",),
    "flag:client-cert-auth": ("e2e/tls/test_log.py", "e2e/tls/test_auth_certificates.py"),
    "flag:client-crl-file": (
        _PORT,
        f"{_TLS}::test_revoked_certificates_and_a_list_that_changes",
        "e2e/http/test_addresses.py::test_tls",
    ),
    "flag:client-cert-allowed-hostname": (_PORT, "e2e/tls/test_log.py"),
    "flag:auto-tls": ("unit/server/test_self_cert.py", "e2e/tls/test_tls.py"),
    "flag:peer-cert-file": (_PEERS, _PEER_TLS),
    "flag:peer-key-file": (_PEERS, _PEER_TLS),
    "flag:peer-client-cert-file": (_PEERS, _PEER_TLS),
    "flag:peer-client-key-file": (_PEERS, _PEER_TLS),
    "flag:peer-client-cert-auth": (
        _PEERS,
        f"{_PEER_TLS}::test_a_client_without_a_certificate_is_refused",
    ),
    "flag:peer-trusted-ca-file": (_PEERS, _PEER_TLS),
    "flag:peer-auto-tls": (_PEERS, "unit/server/test_self_cert.py", "e2e/tls/test_tls.py"),
    "flag:self-signed-cert-validity": ("unit/server/test_self_cert.py",),
    "flag:peer-crl-file": (_PEERS, f"{_PEER_TLS}::test_revoked_certificates"),
    "flag:peer-cert-allowed-cn": (_PEERS, "e2e/tls/test_log.py"),
    "flag:peer-cert-allowed-hostname": (
        _PEERS,
        f"{_PEER_TLS}::test_names_are_checked_on_both_sides",
    ),
    "flag:cipher-suites": (_PORT, _PEERS, f"{_TLS}::test_versions_and_cipher_suites"),
    "flag:peer-skip-client-san-verification": (
        _PEERS,
        f"{_PEER_TLS}::test_a_client_whose_address_is_not_in_its_certificate",
    ),
    "flag:tls-min-version": (_PORT, _PEERS, f"{_TLS}::test_versions_and_cipher_suites"),
    "flag:tls-max-version": (_PORT, _PEERS, f"{_TLS}::test_versions_and_cipher_suites"),
    "flag:cors": ("unit/server/test_http_site.py::test_origins_that_are_named",),
    "flag:host-whitelist": (
        "unit/server/test_http_site.py::test_hosts_that_are_not_whitelisted",
        "e2e/http/test_addresses.py",
    ),
    "flag:auth-token": ("unit/server/test_auth_jwt.py", "conformance/test_auth_etcd.py"),
    "flag:bcrypt-cost": (_NODE, "unit/server/test_auth_passwords.py"),
    "flag:auth-token-ttl": ("unit/node/test_node_auth.py::test_an_unused_token_expires",),
    "flag:enable-pprof": ("unit/server/test_http_health.py", "e2e/http/test_streams.py"),
    "flag:metrics": ("e2e/test_metrics.py::test_handling_times_only_when_asked_for",),
    "flag:listen-metrics-urls": (
        "e2e/http/test_addresses.py::test_metrics_have_addresses_of_their_own",
        "e2e/test_metrics.py",
    ),
    "flag:logger": (_RULES, "e2e/test_command.py::test_log_lines"),
    "flag:log-outputs": (
        "component/line_log/test_logs.py",
        "component/line_log/test_log_rotation.py",
        "e2e/test_flags.py",
    ),
    "flag:log-level": ("component/line_log/test_logs.py", _RULES),
    "flag:log-format": ("component/line_log/test_logs.py", _RULES),
    "flag:enable-log-rotation": ("e2e/test_flags.py::test_the_log_goes_to_a_file_that_is_rotated",),
    "flag:log-rotation-config-json": (
        "component/line_log/test_log_rotation.py",
        "e2e/test_flags.py",
    ),
    "flag:warning-unary-request-duration": (
        "e2e/test_metrics.py::test_slow_requests_are_logged_with_their_cause",
    ),
    "flag:enable-distributed-tracing": ("unit/server/test_tracing.py",),
    **{
        f"flag:distributed-tracing-{name}": (
            "unit/server/test_flag_effects.py::test_tracing",
            "unit/server/test_tracing.py",
        )
        for name in ("address", "service-name", "instance-id", "sampling-rate")
    },
    "flag:auto-compaction-retention": (_NODE, "unit/node/test_node_autocompaction.py"),
    "flag:auto-compaction-mode": (_NODE, "unit/node/test_node_autocompaction.py"),
    "flag:corrupt-check-time": (
        _NODE,
        f"{_CORRUPTION}::test_a_configured_check_raises_the_alarm_at_once",
    ),
    "flag:compact-hash-check-time": (
        _NODE,
        f"{_CORRUPTION}::test_a_compaction_finds_the_one_that_differs",
    ),
    "flag:compaction-batch-limit": (
        _NODE,
        "unit/mvcc/test_mvcc_compaction.py::test_a_slice_reads_no_more_rows_than_its_limit",
    ),
    "flag:compaction-sleep-interval": (_NODE,),
    "flag:watch-progress-notify-interval": (
        _OTHERS,
        "unit/watch/test_watch_hub.py::test_periodic_progress_only_if_requested_and_without_events",
    ),
    "flag:downgrade-check-time": (_NODE, "unit/node/test_node_versions.py"),
    "flag:warning-apply-duration": (
        "e2e/test_metrics.py::test_slow_requests_are_logged_with_their_cause",
    ),
    "flag:bootstrap-defrag-threshold-megabytes": (
        "e2e/test_flags.py::test_a_database_with_room_to_give_back_is_defragmented_at_start",
    ),
    "flag:max-learners": (_OTHERS, f"{_MEMBERS}::test_one_learner_at_a_time"),
    "flag:snapshot-catchup-entries": (_NODE, "unit/cluster/test_cluster_snapshots.py"),
    "flag:unsafe-no-fsync": ("conformance/test_files.py",),
    "flag:force-new-cluster": (
        "unit/cluster/test_force_new.py",
        "e2e/members/test_cluster_restore.py",
    ),
    # Feature gates
    "gate:CompactHashCheck": (
        f"{_CORRUPTION}::test_without_a_majority_a_configured_check_raises_the_alarm",
    ),
    "gate:FastLeaseKeepAlive": (
        f"{_GATES}::test_keep_alives_wait_for_what_is_committed_without_their_gate",
    ),
    "gate:InitialCorruptCheck": (
        f"{_CORRUPTION}::test_a_restarted_member_must_not_serve_before_it_is_compared",
    ),
    "gate:LeaseCheckpoint": (f"{_GATES}::test_checkpoints_of_leases_are_proposed_with_their_gate",),
    "gate:SetMemberLocalAddr": ("e2e/http/test_local_address.py",),
    "gate:PriorityRequest": (f"{_GATES}::test_revokes_go_on_in_a_member_that_is_behind",),
    # Pages
    "http:/version": ("conformance/http/test_pages.py", "unit/server/test_http_health.py"),
    "http:/health": ("conformance/http/test_pages.py", "unit/server/test_http_health.py"),
    "http:/livez": ("conformance/http/test_pages.py", "unit/server/test_http_health.py"),
    "http:/readyz": ("conformance/http/test_pages.py", "unit/server/test_http_health.py"),
    "http:/metrics": ("e2e/test_metrics.py", "e2e/http/test_addresses.py"),
    "http:/debug/requests": ("e2e/http/test_addresses.py::test_requests_are_shown_at_debug_level",),
    "http:/debug/vars": ("unit/server/test_http_health.py::test_variables",),
    "http:/debug/pprof/": ("unit/server/test_http_health.py", "e2e/http/test_streams.py"),
    "peer:/raft": ("conformance/peers/test_port.py", "conformance/peers/test_etcd.py"),
    "peer:/raft/stream/message": (
        "conformance/peers/test_links.py",
        "conformance/peers/test_etcd.py",
    ),
    "peer:/raft/stream/msgapp": (
        "conformance/peers/test_links.py",
        "conformance/peers/test_etcd.py",
    ),
    "peer:/raft/snapshot": ("conformance/peers/test_links.py", "conformance/peers/test_etcd.py"),
    "peer:/raft/probing": ("conformance/peers/test_port.py::test_probing",),
    "peer:/members": ("conformance/peers/test_questions.py::test_members",),
    "peer:/members/promote/ID": (
        "conformance/peers/test_questions.py::test_impossible_promotions",
        f"{_MEMBERS}::test_a_learner_is_promoted",
    ),
    "peer:/members/hashkv": ("conformance/peers/test_questions.py::test_hashes",),
    "peer:/leases": ("conformance/peers/test_questions.py::test_leases_are_renewed",),
    "peer:/leases/internal": ("conformance/peers/test_questions.py::test_leases_are_looked_up",),
    "peer:/downgrade/enabled": ("conformance/peers/test_questions.py::test_downgrade",),
    "peer:/version": ("conformance/peers/test_questions.py::test_version",),
    "command:gateway": ("e2e/proxy/test_gateway.py",),
    "command:grpc-proxy": (
        "e2e/proxy/test_proxy_etcdctl.py",
        "e2e/proxy/test_grpc_proxy.py",
        "e2e/proxy/test_proxy_leasing.py",
    ),
    "metrics": (
        "e2e/test_metrics.py",
        "unit/server/test_metrics_docs.py",
        "unit/server/test_metrics_calls.py",
        "unit/server/test_metrics_observer.py",
    ),
}

# Every path of the JSON gateway is one row of one table, served by one piece of code.
_GATEWAY: Final = (
    "property/test_gateway_fuzz.py",
    "conformance/http/test_pages.py",
    "unit/server/test_http_json.py::test_every_message_of_the_gateway_has_a_mapping",
)
EVIDENCE: Final = _PROVEN | {f"http:{path}": _GATEWAY for path in ROUTES}

DIFFERS: Final = {
    "rpc:Maintenance/Defragment": "does not hold up the service",
    "rpc:Maintenance/Status": "dbSize and dbSizeInUse are of the state in LMDB",
    "flag:memory-mlock": "locks all pages of the process that were used, not the database alone",
    "flag:log-outputs": "`default` is stderr, under systemd as well, which sends it to the journal",
    "flag:socket-reuse-address": "always on",
    "flag:client-cert-file": "shown to `--rebuild-from-peers`; the gateway needs no certificate",
    "flag:client-key-file": "as --client-cert-file",
    "flag:backend-batch-limit": "rows, not requests",
    "http:/debug/pprof/": "profiles of Python; heap and goroutine tell what Python can tell",
    "http:/debug/requests": "open calls and slow requests, no traces; root's with auth on",
    "http:/debug/vars": "memstats holds what a Python process knows",
    "metrics": "see [metrics.md](metrics.md): name by name",
}

ABSENT: Final = {
    "flag:backend-bbolt-freelist-type": "of etcd's own storage engine",
    "flag:v2-deprecation": "there is no v2 store; etcd ignores the value as well",
    "gate:LeaseCheckpointPersist": "checkpoints are always kept, as by etcd from version 3.6 on",
    "gate:StopGRPCServiceOnDefrag": "a defragmentation does not hold up the service",
    "gate:TxnModeWriteWithSharedBuffer": "a transaction reads what it wrote without a buffer",
    "http:/debug/events": "Go's record of its gRPC connections; the log at debug level has ours",
}
