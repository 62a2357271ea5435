"""Config: one member's settings, typed, with units in the names and etcd's zeros resolved.

    flags ─► sources (texts) ─► values ─► build ─► Config ─► checks

`Config()` has the defaults of all flags. A field is named like its flag; the flags that have a
prefix in common (TLS, discovery, tracing) are groups. Nothing is read or checked here.
"""

from dataclasses import dataclass, field
from typing import Final

from kvstack.component.line_log.log_rotation import Rotation

QUOTA_DEFAULT_BYTES: Final = 2 << 30
GRPC_OVERHEAD_BYTES: Final = 512 << 10  # what gRPC may add to the largest request
_REQUEST_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The certificates of one port: the flags of the client port, or those that begin with peer-.

    File names are "" if the flag is not set.
    """

    cert_file: str = ""
    key_file: str = ""
    client_cert_file: str = ""  # for dialling; empty: cert_file
    client_key_file: str = ""
    client_cert_auth: bool = False
    trusted_ca_file: str = ""
    auto_tls: bool = False
    crl_file: str = ""
    allowed_hostnames: tuple[str, ...] = ()
    allowed_cns: tuple[str, ...] = ()  # of members only
    skip_client_san_verification: bool = False  # of members only


@dataclass(frozen=True, slots=True)
class DiscoveryConfig:
    """The connection to the registry of --discovery-token."""

    token: str = ""
    endpoints: tuple[str, ...] = ()
    dial_timeout_s: float = 2.0
    request_timeout_s: float = 5.0
    keepalive_time_s: float = 2.0
    keepalive_timeout_s: float = 6.0
    insecure_transport: bool = True
    insecure_skip_tls_verify: bool = False
    cert_file: str = ""
    key_file: str = ""
    trusted_ca_file: str = ""
    user: str = ""
    password: str = ""


@dataclass(frozen=True, slots=True)
class TracingConfig:
    """The tracing collector and the sampling rate."""

    is_enabled: bool = False
    address: str = "localhost:4317"
    service_name: str = "etcd"
    instance_id: str = ""
    sampling_rate: int = 0  # of a million calls


@dataclass(slots=True)
class Config:
    """One member's settings; the defaults are etcd's, and `Config()` is what no flags give."""

    # Member
    name: str = "default"
    data_dir: str = "default.etcd"
    wal_dir: str = ""  # empty: inside data_dir
    snapshot_count: int = 10_000
    snapshot_catchup_entries: int = 5_000
    max_snapshots: int = 5  # 0: keep all
    max_wals: int = 5  # 0: keep all
    heartbeat_interval_ms: int = 100
    election_timeout_ms: int = 1_000
    initial_election_tick_advance: bool = True
    pre_vote: bool = True
    unsafe_no_fsync: bool = False
    memory_mlock: bool = False
    transport: str = "auto"  # or "native", "grpcio"
    # Clients
    listen_client_urls: tuple[str, ...] = ("http://localhost:2379",)
    listen_client_http_urls: tuple[str, ...] = ()
    advertise_client_urls: tuple[str, ...] = ("http://localhost:2379",)
    socket_reuse_port: bool = False
    max_txn_ops: int = 128
    max_request_bytes: int = 1_572_864
    max_concurrent_streams: int = 2**32 - 1
    grpc_keepalive_min_time_s: float = 5.0
    grpc_keepalive_interval_s: float = 7_200.0  # 0: never
    grpc_keepalive_timeout_s: float = 20.0  # 0: never
    warning_unary_request_duration_s: float = 0.3
    warning_apply_duration_s: float = 0.1
    watch_progress_notify_interval_s: float = 600.0
    enable_grpc_gateway: bool = True
    cors: tuple[str, ...] = ()  # empty: not set, no foreign origin is served
    host_whitelist: tuple[str, ...] = ()  # empty: not set, own names on loopback
    # Cluster
    listen_peer_urls: tuple[str, ...] = ("http://localhost:2380",)
    raft_read_timeout_s: float = 5.0
    raft_write_timeout_s: float = 5.0
    initial_advertise_peer_urls: tuple[str, ...] = ("http://localhost:2380",)
    initial_cluster: str = "default=http://localhost:2380"
    initial_cluster_state: str = "new"  # or "existing"
    initial_cluster_token: str = "etcd-cluster"
    discovery: DiscoveryConfig = field(default_factory=DiscoveryConfig)
    discovery_srv: str = ""
    discovery_srv_name: str = ""
    discovery_dns_server: str = ""
    strict_reconfig_check: bool = True
    max_learners: int = 1
    force_new_cluster: bool = False
    corrupt_check_time_s: float = 0.0  # 0: never
    compact_hash_check_time_s: float = 60.0
    downgrade_check_time_s: float = 5.0
    rebuild_from_peers: tuple[str, ...] = ()
    rebuild_user: str = ""
    # Database
    quota_backend_bytes: int = QUOTA_DEFAULT_BYTES  # below 0: no limit
    backend_batch_interval_s: float = 0.1
    backend_batch_limit: int = 10_000
    compaction_batch_limit: int = 1_000
    compaction_sleep_interval_s: float = 0.01
    auto_compaction_mode: str = "periodic"  # or "revision"
    auto_compaction_retention: int = 0  # nanoseconds or revisions; 0: off
    bootstrap_defrag_threshold_megabytes: int = 0  # 0: never
    # Security
    client_tls: TlsConfig = field(default_factory=TlsConfig)
    peer_tls: TlsConfig = field(default_factory=TlsConfig)
    self_signed_cert_validity_years: int = 1
    cipher_suites: tuple[str, ...] = ()
    tls_min_version: str = "TLS1.2"  # or "TLS1.3", ""
    tls_max_version: str = ""
    auth_token: str = "simple"
    auth_token_ttl_s: int = 300
    bcrypt_cost: int = 10
    # Logs, metrics and profiles
    log_level: str = "info"
    log_outputs: tuple[str, ...] = ("default",)
    log_format: str = "json"  # or "console"
    log_rotation: Rotation | None = None
    enable_pprof: bool = False
    metrics: str = "basic"  # or "extensive"
    listen_metrics_urls: tuple[str, ...] = ()
    tracing: TracingConfig = field(default_factory=TracingConfig)
    # The settings themselves
    feature_gates: dict[str, bool] = field(default_factory=dict)  # all known gates
    set_flags: frozenset[str] = frozenset()  # names of the flags that were set
    ineffective: dict[str, str] = field(
        default_factory=dict
    )  # flag that is set without effect → why
    warnings: list[str] = field(default_factory=list)

    @property
    def message_bytes_max(self) -> int:
        """The largest gRPC message of a client: a request, and what gRPC may add to it."""
        return self.max_request_bytes + GRPC_OVERHEAD_BYTES

    @property
    def request_timeout_s(self) -> float:
        """How long one request may take: etcd's 5 s and two election timeouts."""
        return _REQUEST_TIMEOUT_S + 2 * self.election_timeout_ms / 1000

    @property
    def all_client_urls(self) -> tuple[str, ...]:
        """The addresses of clients, with those for HTTP alone."""
        return (*self.listen_client_urls, *self.listen_client_http_urls)
