"""From values of flags to a Config: defaults filled in, etcd's zeros resolved.

    values = with_defaults(settings)            every flag, by name
    config = build(values, set_flags, warnings)  every flag that has an effect is read here

A flag's value is converted once, here. Rules across flags are `checks`'.
"""

from collections.abc import Mapping
from typing import Final

from kvstack.component.errors import ConfigError
from kvstack.component.line_log.log_rotation import parse_rotation
from kvstore.config.flag_reader import FlagReader
from kvstore.config.flags import FEATURE_GATES, FLAGS, GATES_WITHOUT_EFFECT, Effect
from kvstore.config.model import (
    QUOTA_DEFAULT_BYTES,
    Config,
    DiscoveryConfig,
    TlsConfig,
    TracingConfig,
)
from kvstore.config.values import INT64_MAX, Value, default_value, parse_duration

PROGRESS_INTERVAL_MIN_S: Final = 0.1
_HOUR_NS: Final = 3600 * 10**9
_DIGITS_MAX: Final = 19


def with_defaults(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Return the value of every flag by its name: the one that was set, or the default."""
    return {flag.name: settings.get(flag.name, default_value(flag)) for flag in FLAGS}


def build(read: FlagReader, set_flags: frozenset[str], warnings: list[str]) -> Config:
    """Make a Config of the values of all flags; set_flags: the names of those that were set."""
    gates = read.gates("feature-gates")
    config = Config(
        feature_gates=gates,
        set_flags=set_flags,
        ineffective=_ineffective(set_flags, gates),
        warnings=warnings,
    )
    _read_member(config, read)
    _read_clients(config, read)
    _read_cluster(config, read)
    _read_database(config, read)
    _read_security(config, read)
    _read_logs(config, read)
    return config


def _read_member(config: Config, read: FlagReader) -> None:
    name = read.text("name")
    config.name = name
    config.data_dir = read.text("data-dir") or f"{name}.etcd"
    config.wal_dir = read.text("wal-dir")
    config.snapshot_count = read.number("snapshot-count", 10_000)
    config.snapshot_catchup_entries = read.number("snapshot-catchup-entries", 5_000)
    config.max_snapshots = read.number("max-snapshots")
    config.max_wals = read.number("max-wals")
    config.heartbeat_interval_ms = read.number("heartbeat-interval")
    config.election_timeout_ms = read.number("election-timeout")
    config.initial_election_tick_advance = read.switch("initial-election-tick-advance")
    config.pre_vote = read.switch("pre-vote")
    config.unsafe_no_fsync = read.switch("unsafe-no-fsync")
    config.memory_mlock = read.switch("memory-mlock")
    config.transport = read.text("transport")


def _read_clients(config: Config, read: FlagReader) -> None:
    config.listen_client_urls = read.texts("listen-client-urls")
    config.listen_client_http_urls = read.texts("listen-client-http-urls")
    config.advertise_client_urls = read.texts("advertise-client-urls")
    config.socket_reuse_port = read.switch("socket-reuse-port")
    config.max_txn_ops = read.number("max-txn-ops")
    config.max_request_bytes = read.number("max-request-bytes")
    config.max_concurrent_streams = read.number("max-concurrent-streams")
    config.grpc_keepalive_min_time_s = read.seconds("grpc-keepalive-min-time")
    config.grpc_keepalive_interval_s = read.seconds("grpc-keepalive-interval")
    config.grpc_keepalive_timeout_s = read.seconds("grpc-keepalive-timeout")
    config.warning_unary_request_duration_s = read.seconds("warning-unary-request-duration", 0.3)
    config.warning_apply_duration_s = read.seconds("warning-apply-duration")
    config.watch_progress_notify_interval_s = max(
        read.seconds("watch-progress-notify-interval", 600.0), PROGRESS_INTERVAL_MIN_S
    )
    config.enable_grpc_gateway = read.switch("enable-grpc-gateway")
    config.cors = _named(read, config.set_flags, "cors")
    config.host_whitelist = _named(read, config.set_flags, "host-whitelist")


def _read_cluster(config: Config, read: FlagReader) -> None:
    config.listen_peer_urls = read.texts("listen-peer-urls")
    config.raft_read_timeout_s = read.seconds("raft-read-timeout")
    config.raft_write_timeout_s = read.seconds("raft-write-timeout")
    config.initial_advertise_peer_urls = read.texts("initial-advertise-peer-urls")
    config.initial_cluster = _initial_cluster(config, read)
    config.initial_cluster_state = read.text("initial-cluster-state") or "new"
    config.initial_cluster_token = read.text("initial-cluster-token")
    config.discovery = _discovery(read)
    config.discovery_srv = read.text("discovery-srv")
    config.discovery_srv_name = read.text("discovery-srv-name")
    config.discovery_dns_server = read.text("discovery-dns-server")
    config.strict_reconfig_check = read.switch("strict-reconfig-check")
    config.max_learners = read.number("max-learners")
    config.force_new_cluster = read.switch("force-new-cluster")
    config.corrupt_check_time_s = read.seconds("corrupt-check-time")
    config.compact_hash_check_time_s = read.seconds("compact-hash-check-time")
    config.downgrade_check_time_s = read.seconds("downgrade-check-time")
    config.rebuild_from_peers = read.texts("rebuild-from-peers")
    config.rebuild_user = read.text("rebuild-user")


def _read_database(config: Config, read: FlagReader) -> None:
    mode = read.text("auto-compaction-mode")
    config.quota_backend_bytes = read.number("quota-backend-bytes", QUOTA_DEFAULT_BYTES)
    config.backend_batch_interval_s = read.seconds("backend-batch-interval", 0.1)
    config.backend_batch_limit = read.number("backend-batch-limit", 10_000)
    config.compaction_batch_limit = read.number("compaction-batch-limit", 1_000)
    config.compaction_sleep_interval_s = read.seconds("compaction-sleep-interval", 0.01)
    config.auto_compaction_mode = mode
    retention = read.text("auto-compaction-retention") or "0"
    config.auto_compaction_retention = _retention(mode, retention)
    config.bootstrap_defrag_threshold_megabytes = read.number(
        "bootstrap-defrag-threshold-megabytes"
    )


def _read_security(config: Config, read: FlagReader) -> None:
    config.client_tls = _tls(read, "")
    config.peer_tls = _tls(read, "peer-")
    config.self_signed_cert_validity_years = read.number("self-signed-cert-validity")
    config.cipher_suites = read.texts("cipher-suites")
    config.tls_min_version = read.text("tls-min-version")
    config.tls_max_version = read.text("tls-max-version")
    config.auth_token = read.text("auth-token")
    config.auth_token_ttl_s = read.number("auth-token-ttl")
    config.bcrypt_cost = read.number("bcrypt-cost")


def _read_logs(config: Config, read: FlagReader) -> None:
    config.log_level = read.text("log-level")
    config.log_outputs = read.texts("log-outputs") or ("default",)
    config.log_format = read.text("log-format")
    if read.switch("enable-log-rotation"):
        config.log_rotation = parse_rotation(read.text("log-rotation-config-json"))
    config.enable_pprof = read.switch("enable-pprof")
    config.metrics = read.text("metrics")
    config.listen_metrics_urls = read.texts("listen-metrics-urls")
    config.tracing = _tracing(read)


def _named(read: FlagReader, set_flags: frozenset[str], flag: str) -> tuple[str, ...]:
    """Read origins or hosts: those that were named, * for an empty list as in etcd; () if not."""
    named = read.texts(flag) or ("*",)
    return named if flag in set_flags else ()


def _tls(read: FlagReader, prefix: str) -> TlsConfig:
    """Read the certificates of a port; prefix: "" or "peer-"."""
    host_flag = "peer-cert-allowed-hostname" if prefix else "client-cert-allowed-hostname"
    return TlsConfig(
        cert_file=read.text(f"{prefix}cert-file"),
        key_file=read.text(f"{prefix}key-file"),
        client_cert_file=read.text(f"{prefix}client-cert-file"),
        client_key_file=read.text(f"{prefix}client-key-file"),
        client_cert_auth=read.switch(f"{prefix}client-cert-auth"),
        trusted_ca_file=read.text(f"{prefix}trusted-ca-file"),
        auto_tls=read.switch(f"{prefix}auto-tls"),
        crl_file=read.text(f"{prefix or 'client-'}crl-file"),
        allowed_hostnames=read.texts(host_flag),
        allowed_cns=read.texts("peer-cert-allowed-cn") if prefix else (),
        skip_client_san_verification=(
            read.switch("peer-skip-client-san-verification") if prefix else False
        ),
    )


def _discovery(read: FlagReader) -> DiscoveryConfig:
    return DiscoveryConfig(
        token=read.text("discovery-token"),
        endpoints=read.texts("discovery-endpoints"),
        dial_timeout_s=read.seconds("discovery-dial-timeout"),
        request_timeout_s=read.seconds("discovery-request-timeout"),
        keepalive_time_s=read.seconds("discovery-keepalive-time"),
        keepalive_timeout_s=read.seconds("discovery-keepalive-timeout"),
        insecure_transport=read.switch("discovery-insecure-transport"),
        insecure_skip_tls_verify=read.switch("discovery-insecure-skip-tls-verify"),
        cert_file=read.text("discovery-cert"),
        key_file=read.text("discovery-key"),
        trusted_ca_file=read.text("discovery-cacert"),
        user=read.text("discovery-user"),
        password=read.text("discovery-password"),
    )


def _tracing(read: FlagReader) -> TracingConfig:
    return TracingConfig(
        is_enabled=read.switch("enable-distributed-tracing"),
        address=read.text("distributed-tracing-address"),
        service_name=read.text("distributed-tracing-service-name"),
        instance_id=read.text("distributed-tracing-instance-id"),
        sampling_rate=read.number("distributed-tracing-sampling-rate"),
    )


def _ineffective(set_flags: frozenset[str], gates: Mapping[str, bool]) -> dict[str, str]:
    """Return the flags and gates that are set without effect here, with the reason."""
    reasons = {
        flag.name: flag.help
        for flag in FLAGS
        if flag.name in set_flags and flag.effect is Effect.IGNORED
    }
    for gate, why in GATES_WITHOUT_EFFECT.items():
        if gates[gate] != FEATURE_GATES[gate]:
            reasons[f"feature-gates {gate}"] = why
    return reasons


def _initial_cluster(config: Config, read: FlagReader) -> str:
    cluster = read.text("initial-cluster")
    if "initial-cluster" in config.set_flags:
        return cluster
    name = config.name or "default"
    return ",".join(f"{name}={url}" for url in config.initial_advertise_peer_urls)


def _retention(mode: str, text: str) -> int:
    """Read the retention in nanoseconds or revisions; a bare number of periods is hours."""
    if text.isascii() and text.isdigit():
        number = int(text) if len(text) <= _DIGITS_MAX else INT64_MAX + 1
        retention = number if mode == "revision" else number * _HOUR_NS
        if retention > INT64_MAX:
            unit = "revisions" if mode == "revision" else "hours"
            raise ConfigError(f'--auto-compaction-retention "{text:.40}": too many {unit}')
        return retention
    if mode == "revision":
        raise ConfigError(
            f'--auto-compaction-retention "{text}": in mode revision it must be a number'
        )
    try:
        return max(0, parse_duration(text))
    except ValueError as error:
        raise ConfigError(f'--auto-compaction-retention "{text}": {error}') from None
