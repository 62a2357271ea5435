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
    name = read.text("name")
    peer_urls = read.texts("initial-advertise-peer-urls")
    mode = read.text("auto-compaction-mode")
    gates = read.gates("feature-gates")
    return Config(
        name=name,
        data_dir=read.text("data-dir") or f"{name}.etcd",
        wal_dir=read.text("wal-dir"),
        snapshot_count=read.number("snapshot-count", 10_000),
        snapshot_catchup_entries=read.number("snapshot-catchup-entries", 5_000),
        max_snapshots=read.number("max-snapshots"),
        max_wals=read.number("max-wals"),
        heartbeat_interval_ms=read.number("heartbeat-interval"),
        election_timeout_ms=read.number("election-timeout"),
        initial_election_tick_advance=read.switch("initial-election-tick-advance"),
        pre_vote=read.switch("pre-vote"),
        unsafe_no_fsync=read.switch("unsafe-no-fsync"),
        memory_mlock=read.switch("memory-mlock"),
        transport=read.text("transport"),
        listen_client_urls=read.texts("listen-client-urls"),
        listen_client_http_urls=read.texts("listen-client-http-urls"),
        advertise_client_urls=read.texts("advertise-client-urls"),
        socket_reuse_port=read.switch("socket-reuse-port"),
        max_txn_ops=read.number("max-txn-ops"),
        max_request_bytes=read.number("max-request-bytes"),
        max_concurrent_streams=read.number("max-concurrent-streams"),
        grpc_keepalive_min_time_s=read.seconds("grpc-keepalive-min-time"),
        grpc_keepalive_interval_s=read.seconds("grpc-keepalive-interval"),
        grpc_keepalive_timeout_s=read.seconds("grpc-keepalive-timeout"),
        warning_unary_request_duration_s=read.seconds("warning-unary-request-duration", 0.3),
        warning_apply_duration_s=read.seconds("warning-apply-duration"),
        watch_progress_notify_interval_s=max(
            read.seconds("watch-progress-notify-interval", 600.0), PROGRESS_INTERVAL_MIN_S
        ),
        enable_grpc_gateway=read.switch("enable-grpc-gateway"),
        cors=_named(read, set_flags, "cors"),
        host_whitelist=_named(read, set_flags, "host-whitelist"),
        listen_peer_urls=read.texts("listen-peer-urls"),
        raft_read_timeout_s=read.seconds("raft-read-timeout"),
        raft_write_timeout_s=read.seconds("raft-write-timeout"),
        initial_advertise_peer_urls=peer_urls,
        initial_cluster=_initial_cluster(read, set_flags, name or "default", peer_urls),
        initial_cluster_state=read.text("initial-cluster-state") or "new",
        initial_cluster_token=read.text("initial-cluster-token"),
        discovery=_discovery(read),
        discovery_srv=read.text("discovery-srv"),
        discovery_srv_name=read.text("discovery-srv-name"),
        discovery_dns_server=read.text("discovery-dns-server"),
        strict_reconfig_check=read.switch("strict-reconfig-check"),
        max_learners=read.number("max-learners"),
        force_new_cluster=read.switch("force-new-cluster"),
        corrupt_check_time_s=read.seconds("corrupt-check-time"),
        compact_hash_check_time_s=read.seconds("compact-hash-check-time"),
        downgrade_check_time_s=read.seconds("downgrade-check-time"),
        rebuild_from_peers=read.texts("rebuild-from-peers"),
        rebuild_user=read.text("rebuild-user"),
        quota_backend_bytes=read.number("quota-backend-bytes", QUOTA_DEFAULT_BYTES),
        backend_batch_interval_s=read.seconds("backend-batch-interval", 0.1),
        backend_batch_limit=read.number("backend-batch-limit", 10_000),
        compaction_batch_limit=read.number("compaction-batch-limit", 1_000),
        compaction_sleep_interval_s=read.seconds("compaction-sleep-interval", 0.01),
        auto_compaction_mode=mode,
        auto_compaction_retention=_retention(mode, read.text("auto-compaction-retention") or "0"),
        bootstrap_defrag_threshold_megabytes=read.number("bootstrap-defrag-threshold-megabytes"),
        client_tls=_tls(read, ""),
        peer_tls=_tls(read, "peer-"),
        self_signed_cert_validity_years=read.number("self-signed-cert-validity"),
        cipher_suites=read.texts("cipher-suites"),
        tls_min_version=read.text("tls-min-version"),
        tls_max_version=read.text("tls-max-version"),
        auth_token=read.text("auth-token"),
        auth_token_ttl_s=read.number("auth-token-ttl"),
        bcrypt_cost=read.number("bcrypt-cost"),
        log_level=read.text("log-level"),
        log_outputs=read.texts("log-outputs") or ("default",),
        log_format=read.text("log-format"),
        log_rotation=(
            parse_rotation(read.text("log-rotation-config-json"))
            if read.switch("enable-log-rotation")
            else None
        ),
        enable_pprof=read.switch("enable-pprof"),
        metrics=read.text("metrics"),
        listen_metrics_urls=read.texts("listen-metrics-urls"),
        tracing=_tracing(read),
        feature_gates=gates,
        set_flags=set_flags,
        ineffective=_ineffective(set_flags, gates),
        warnings=warnings,
    )


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


def _initial_cluster(
    read: FlagReader, set_flags: frozenset[str], name: str, peer_urls: tuple[str, ...]
) -> str:
    cluster = read.text("initial-cluster")
    if "initial-cluster" in set_flags:
        return cluster
    return ",".join(f"{name}={url}" for url in peer_urls)


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
