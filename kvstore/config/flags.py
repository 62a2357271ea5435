"""Every flag of etcd 3.7.1, and ours: name, type, default, group, whether it has an effect, help.

One row a flag, in the order of the help. A flag without an effect is accepted and checked like any
other, and the log says at start that it has none. Each flag is also an environment variable
(`environment_name`) and a key of the config file.

Nothing is parsed or checked here.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

OURS: Final = "Of this server, not of etcd"  # the group of flags that etcd does not have


class FlagKind(Enum):
    """How a flag's text is read; the comment gives the value's Python type."""

    BOOL = auto()  # bool
    INT = auto()  # int, signed 64 bit
    UINT = auto()  # int, unsigned 64 bit
    UINT32 = auto()  # int
    STRING = auto()  # str
    CHOICE = auto()  # str, one of `choices`
    SET = auto()  # tuple[str, ...]: comma-separated, sorted, each once
    LIST = auto()  # tuple[str, ...]: comma-separated, in order
    URLS = auto()  # tuple[str, ...]: comma-separated, sorted, each once
    DURATION = auto()  # int, nanoseconds
    GATES = auto()  # dict[str, bool]


class Effect(Enum):
    """Whether a flag has an effect on this server."""

    USED = auto()
    IGNORED = auto()  # no effect here, or deprecated


class Flag(NamedTuple):
    """One flag."""

    name: str
    group: str
    kind: FlagKind
    default: str  # as on the command line; "" where the kind does not allow it means unset
    effect: Effect
    help: str
    choices: tuple[str, ...] = ()

    @property
    def environment_name(self) -> str:
        """The variable that sets the flag: ETCD_DATA_DIR for data-dir, KVSTORE_* for our flags."""
        prefix = "KVSTORE_" if self.group == OURS else "ETCD_"
        return prefix + self.name.upper().replace("-", "_")


FEATURE_GATES: Final[dict[str, bool]] = {
    "CompactHashCheck": False,
    "FastLeaseKeepAlive": True,
    "InitialCorruptCheck": False,
    "LeaseCheckpoint": False,
    "LeaseCheckpointPersist": False,
    "PriorityRequest": False,
    "SetMemberLocalAddr": False,
    "StopGRPCServiceOnDefrag": False,
    "TxnModeWriteWithSharedBuffer": True,
}  # name → default
ALPHA_GATES: Final = frozenset(name for name, default in FEATURE_GATES.items() if not default)
BETA_GATES: Final = frozenset(FEATURE_GATES) - ALPHA_GATES
GATES_WITHOUT_EFFECT: Final = {
    "LeaseCheckpointPersist": "checkpoints are always kept, as etcd does from cluster version 3.6",
    "StopGRPCServiceOnDefrag": "a defragmentation does not hold up the service",
    "TxnModeWriteWithSharedBuffer": "a transaction reads what it wrote without a buffer",
}  # gate → why

DEPRECATED: Final = {
    "max-snapshots": "--max-snapshots is deprecated since 3.6 and goes away in 3.8",
    "v2-deprecation": "--v2-deprecation is deprecated and goes away in 3.8; its value is ignored",
}

# Flags that etcd has removed: accepted with a warning, with or without a value.
REMOVED: Final = frozenset(
    {
        "cluster-active-size", "cluster-remove-delay", "cluster-sync-interval", "config", "force",
        "max-result-buffer", "max-retry-attempts", "peer-heartbeat-interval",
        "peer-election-timeout", "retry-interval", "snapshot", "v", "vv",
        "test.coverprofile", "test.outputdir",
    }
)  # fmt: skip

B, N, U, U32, S, C, SET, LIST, URLS, D, G = (
    FlagKind.BOOL, FlagKind.INT, FlagKind.UINT, FlagKind.UINT32, FlagKind.STRING, FlagKind.CHOICE,
    FlagKind.SET, FlagKind.LIST, FlagKind.URLS, FlagKind.DURATION, FlagKind.GATES,
)  # fmt: skip
USED, IGNORED = Effect.USED, Effect.IGNORED

_MEMBER: Final = "Member"
_CLUSTER: Final = "Clustering"
_SECURITY: Final = "Security"
_AUTH: Final = "Auth"
_MONITORING: Final = "Profiling and Monitoring"
_LOGGING: Final = "Logging"
_TRACING: Final = "Distributed tracing"
_FEATURES: Final = "Features"
_UNSAFE: Final = "Unsafe feature"
_GENERAL: Final = "General"

_ROTATION: Final = (
    '{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}'
)

FLAGS: Final[tuple[Flag, ...]] = (
    Flag("config-file", _GENERAL, S, "", USED,
         "YAML file with all settings; other flags and ETCD_* variables are then ignored."),
    Flag("version", _GENERAL, B, "false", USED, "Print the version and exit."),
    Flag("name", _MEMBER, S, "default", USED, "Human-readable name of this member."),
    Flag("data-dir", _MEMBER, S, "", USED, "Data directory; '${name}.etcd' if not set."),
    Flag("wal-dir", _MEMBER, S, "", USED, "Directory of the write-ahead log, if not in the data directory."),
    Flag("snapshot-count", _MEMBER, U, "10000", USED,
         "Applied entries after which a snapshot is taken and the log may be trimmed."),
    Flag("heartbeat-interval", _MEMBER, U, "100", USED, "Milliseconds between heartbeats."),
    Flag("election-timeout", _MEMBER, U, "1000", USED,
         "Milliseconds without a leader before an election; at least 5 heartbeats."),
    Flag("initial-election-tick-advance", _MEMBER, B, "true", USED,
         "Hold the first election after a start early."),
    Flag("listen-peer-urls", _MEMBER, URLS, "http://localhost:2380", USED,
         "Addresses to listen on for other members."),
    Flag("listen-client-urls", _MEMBER, URLS, "http://localhost:2379", USED,
         "Addresses to listen on for clients: http://ip:port or unix://path."),
    Flag("listen-client-http-urls", _MEMBER, URLS, "", USED,
         "Addresses for clients that speak HTTP only; the others then serve gRPC only."),
    Flag("max-snapshots", _MEMBER, U, "5", USED, "Snapshot files to keep (0: all). Deprecated."),
    Flag("max-wals", _MEMBER, U, "5", USED, "Log segments to keep once trimmed (0: all)."),
    Flag("memory-mlock", _MEMBER, B, "false", USED, "Keep the pages in use out of swap."),
    Flag("quota-backend-bytes", _MEMBER, N, "0", USED,
         "Size of the database above which writes are refused (0: 2 GiB, negative: no limit)."),
    Flag("backend-bbolt-freelist-type", _MEMBER, S, "", IGNORED,
         "A setting of etcd's own storage engine; no effect here."),
    Flag("backend-batch-interval", _MEMBER, D, "0s", USED,
         "Longest time before the database is committed (0: 100ms)."),
    Flag("backend-batch-limit", _MEMBER, N, "0", USED,
         "Most changes before the database is committed (0: 10000)."),
    Flag("max-txn-ops", _MEMBER, U, "128", USED, "Most operations in a transaction."),
    Flag("max-request-bytes", _MEMBER, U, "1572864", USED, "Largest request of a client."),
    Flag("max-concurrent-streams", _MEMBER, U32, "4294967295", USED,
         "Most calls a client may have open on one connection."),
    Flag("grpc-keepalive-min-time", _MEMBER, D, "5s", USED, "Clients may ping this often."),
    Flag("grpc-keepalive-interval", _MEMBER, D, "2h0m0s", USED,
         "The server pings a silent client this often (0: never)."),
    Flag("grpc-keepalive-timeout", _MEMBER, D, "20s", USED,
         "A client that does not answer a ping for so long is disconnected (0: never)."),
    Flag("socket-reuse-port", _MEMBER, B, "false", USED, "Listen with SO_REUSEPORT."),
    Flag("socket-reuse-address", _MEMBER, B, "false", USED,
         "Listen with SO_REUSEADDR, which is set in any case."),
    Flag("enable-grpc-gateway", _MEMBER, B, "true", USED, "Serve the JSON gateway."),
    Flag("raft-read-timeout", _MEMBER, D, "5s", USED,
         "Read timeout of peer connections, at least 5s."),
    Flag("raft-write-timeout", _MEMBER, D, "5s", USED,
         "Write timeout of peer connections, at least 5s."),
    Flag("feature-gates", _MEMBER, G, "", USED,
         "Feature gates, as Name=true,Name=false: " + ", ".join(FEATURE_GATES)
         + ". Without effect here: " + ", ".join(GATES_WITHOUT_EFFECT) + "."),
    Flag("initial-advertise-peer-urls", _CLUSTER, URLS, "http://localhost:2380", USED,
         "Addresses at which other members reach this one; at the first start its id is computed from them."),
    Flag("initial-cluster", _CLUSTER, S, "default=http://localhost:2380", USED,
         "Members of a new cluster: name=url,name=url; ignored once there is data."),
    Flag("initial-cluster-state", _CLUSTER, C, "new", USED,
         "Whether to found a new cluster (new) or to join a running one (existing).", ("new", "existing")),
    Flag("initial-cluster-token", _CLUSTER, S, "etcd-cluster", USED,
         "Token hashed into the ids of a new cluster, so that two clusters never mix."),
    Flag("advertise-client-urls", _CLUSTER, URLS, "http://localhost:2379", USED,
         "Addresses at which clients reach this member; the member list shows them."),
    Flag("discovery-token", _CLUSTER, S, "", USED, "Discovery: token of the cluster to form."),
    Flag("discovery-endpoints", _CLUSTER, SET, "", USED, "Discovery: endpoints of the service."),
    Flag("discovery-dial-timeout", _CLUSTER, D, "2s", USED, "Discovery: time to connect."),
    Flag("discovery-request-timeout", _CLUSTER, D, "5s", USED, "Discovery: time for a request."),
    Flag("discovery-keepalive-time", _CLUSTER, D, "2s", USED, "Discovery: time between pings."),
    Flag("discovery-keepalive-timeout", _CLUSTER, D, "6s", USED, "Discovery: wait for a ping."),
    Flag("discovery-insecure-transport", _CLUSTER, B, "true", USED, "Discovery: without TLS."),
    Flag("discovery-insecure-skip-tls-verify", _CLUSTER, B, "false", USED,
         "Discovery: accept any certificate (for tests only)."),
    Flag("discovery-cert", _CLUSTER, S, "", USED, "Discovery: certificate file."),
    Flag("discovery-key", _CLUSTER, S, "", USED, "Discovery: key file."),
    Flag("discovery-cacert", _CLUSTER, S, "", USED, "Discovery: file of trusted authorities."),
    Flag("discovery-user", _CLUSTER, S, "", USED, "Discovery: user[:password]."),
    Flag("discovery-password", _CLUSTER, S, "", USED, "Discovery: password."),
    Flag("discovery-fallback", _CLUSTER, C, "exit", USED,
         "Discovery: what to do when it fails; only 'exit' is left.", ("exit", "proxy")),
    Flag("discovery-srv", _CLUSTER, S, "", USED, "DNS domain whose SRV records name the members."),
    Flag("discovery-srv-name", _CLUSTER, S, "", USED, "Suffix of the SRV service names."),
    Flag("strict-reconfig-check", _CLUSTER, B, "true", USED,
         "Refuse a change of membership that would lose the quorum."),
    Flag("pre-vote", _CLUSTER, B, "true", USED, "Ask before an election whether it could be won."),
    Flag("auto-compaction-retention", _CLUSTER, S, "0", USED,
         "History to keep: hours or a duration, or revisions (0: no automatic compaction)."),
    Flag("auto-compaction-mode", _CLUSTER, S, "periodic", USED,
         "What the retention counts: periodic or revision."),
    Flag("v2-deprecation", _CLUSTER, LIST, "", IGNORED, "Deprecated; the value is ignored.",
         ("write-only", "write-only-skip-check", "write-only-drop-data", "gone")),
    Flag("cert-file", _SECURITY, S, "", USED, "Certificate for clients."),
    Flag("key-file", _SECURITY, S, "", USED, "Key of the certificate for clients."),
    Flag("client-cert-file", _SECURITY, S, "", USED,
         "Client certificate for --rebuild-from-peers; --cert-file if not set."),
    Flag("client-key-file", _SECURITY, S, "", USED, "Key of --client-cert-file."),
    Flag("client-cert-auth", _SECURITY, B, "false", USED, "Require client certificates."),
    Flag("client-crl-file", _SECURITY, S, "", USED, "Revoked certificates of clients."),
    Flag("client-cert-allowed-hostname", _SECURITY, LIST, "", USED,
         "Host names allowed in certificates of clients."),
    Flag("trusted-ca-file", _SECURITY, S, "", USED, "Authorities trusted for clients."),
    Flag("auto-tls", _SECURITY, B, "false", USED, "Generate a self-signed certificate for clients."),
    Flag("peer-cert-file", _SECURITY, S, "", USED, "Certificate for members."),
    Flag("peer-key-file", _SECURITY, S, "", USED, "Key of the certificate for members."),
    Flag("peer-client-cert-file", _SECURITY, S, "", USED, "Client certificate for connections to members."),
    Flag("peer-client-key-file", _SECURITY, S, "", USED, "Key of that certificate."),
    Flag("peer-client-cert-auth", _SECURITY, B, "false", USED, "Require client certificates of members."),
    Flag("peer-trusted-ca-file", _SECURITY, S, "", USED, "Authorities trusted for members."),
    Flag("peer-auto-tls", _SECURITY, B, "false", USED, "Generate a self-signed certificate for members."),
    Flag("self-signed-cert-validity", _SECURITY, U, "1", USED,
         "Validity of generated certificates, in years."),
    Flag("peer-crl-file", _SECURITY, S, "", USED, "Revoked certificates of members."),
    Flag("peer-cert-allowed-cn", _SECURITY, LIST, "", USED,
         "Common names allowed in certificates of members."),
    Flag("peer-cert-allowed-hostname", _SECURITY, LIST, "", USED,
         "Host names allowed in certificates of members."),
    Flag("cipher-suites", _SECURITY, LIST, "", USED, "TLS cipher suites allowed."),
    Flag("tls-min-version", _SECURITY, S, "TLS1.2", USED, "Oldest TLS: TLS1.2 or TLS1.3."),
    Flag("tls-max-version", _SECURITY, S, "", USED, "Newest TLS: TLS1.2 or TLS1.3."),
    Flag("cors", _SECURITY, URLS, "", USED,
         "Allowed CORS origins (* or empty: all); not set: own pages only."),
    Flag("host-whitelist", _SECURITY, SET, "", USED,
         "Host names accepted in HTTP requests (* or empty: all); not set: all, but on loopback "
         "loopback's and own names only."),
    Flag("auth-token", _AUTH, S, "simple", USED, "Kind of token: simple, or jwt with options."),
    Flag("bcrypt-cost", _AUTH, U, "10", USED, "Cost of a bcrypt password hash, 4 to 31."),
    Flag("auth-token-ttl", _AUTH, U, "300", USED, "Seconds a simple token lives."),
    Flag("enable-pprof", _MONITORING, B, "false", USED, "Serve profiles under /debug/pprof/."),
    Flag("metrics", _MONITORING, S, "basic", USED, "Detail of metrics: basic or extensive."),
    Flag("listen-metrics-urls", _MONITORING, URLS, "", USED,
         "Addresses that serve only metrics and health."),
    Flag("logger", _LOGGING, S, "zap", USED, "Only 'zap': one JSON object a line."),
    Flag("log-outputs", _LOGGING, SET, "default", USED,
         "Where the log goes: stderr, stdout, systemd/journal, or files; 'default' is stderr."),
    Flag("log-level", _LOGGING, S, "info", USED,
         "Lowest level logged: debug, info, warn, error, dpanic, panic or fatal."),
    Flag("log-format", _LOGGING, S, "json", USED, "json or console."),
    Flag("enable-log-rotation", _LOGGING, B, "false", USED, "Rotate the one log file."),
    Flag("log-rotation-config-json", _LOGGING, S, _ROTATION, USED, "How to rotate the log file."),
    Flag("warning-unary-request-duration", _LOGGING, D, "300ms", USED,
         "A call that takes longer is logged."),
    Flag("enable-distributed-tracing", _TRACING, B, "false", USED, "Send traces."),
    Flag("distributed-tracing-address", _TRACING, S, "localhost:4317", USED,
         "Address of the collector."),
    Flag("distributed-tracing-service-name", _TRACING, S, "etcd", USED, "Name of the service."),
    Flag("distributed-tracing-instance-id", _TRACING, S, "", USED, "Name of this instance."),
    Flag("distributed-tracing-sampling-rate", _TRACING, N, "0", USED,
         "Traces sampled per million requests."),
    Flag("corrupt-check-time", _FEATURES, D, "0s", USED, "Time between corruption checks."),
    Flag("compact-hash-check-time", _FEATURES, D, "1m0s", USED,
         "Time between comparisons of compaction hashes."),
    Flag("compaction-batch-limit", _FEATURES, N, "0", USED,
         "Most revisions scanned in one slice of a compaction (0: 1000)."),
    Flag("compaction-sleep-interval", _FEATURES, D, "0s", USED,
         "Pause between two slices of a compaction (0: 10ms)."),
    Flag("peer-skip-client-san-verification", _FEATURES, B, "false", USED,
         "Do not check the addresses in certificates of members."),
    Flag("watch-progress-notify-interval", _FEATURES, D, "0s", USED,
         "Time between progress notifications of a watch (0: 10m)."),
    Flag("downgrade-check-time", _FEATURES, D, "5s", USED, "Time between downgrade checks."),
    Flag("warning-apply-duration", _FEATURES, D, "100ms", USED,
         "A request that takes longer to apply is logged."),
    Flag("bootstrap-defrag-threshold-megabytes", _FEATURES, U, "0", USED,
         "Defragment at start if it frees at least this much (0: never)."),
    Flag("max-learners", _FEATURES, N, "1", USED, "Most learners in the cluster."),
    Flag("snapshot-catchup-entries", _FEATURES, U, "5000", USED,
         "Entries kept behind a snapshot for slow members."),
    Flag("unsafe-no-fsync", _UNSAFE, B, "false", USED,
         "Do not sync the log to disk: a crash of the machine loses data."),
    Flag("force-new-cluster", _UNSAFE, B, "false", USED,
         "Start a one-member cluster from this member's data."),
    Flag("transport", OURS, C, "auto", USED,
         "Transport of the client port: native (needs the Rust crate), grpcio, or auto: native if built.",
         ("auto", "native", "grpcio")),
    Flag("rebuild-from-peers", OURS, URLS, "", USED,
         "Client URLs of healthy members: if this member's data is corrupt, replace it with theirs."),
    Flag("rebuild-user", OURS, S, "", USED,
         "user:password for those members if authentication is on; root may take snapshots."),
    Flag("discovery-dns-server", OURS, S, "", USED,
         "DNS server for the SRV records of --discovery-srv, host:port; empty: the system's."),
)  # fmt: skip

BY_NAME: Final[dict[str, Flag]] = {flag.name: flag for flag in FLAGS}
