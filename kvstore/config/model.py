"""Config: what the server is told, typed, with units in the names and etcd's zeros resolved.

`build` fills it from the given values and the defaults; `check` holds it to etcd's rules (texts as
etcd's where there is one); `bootstrap_members` reads the initial cluster, which only counts when
there is no data yet. Settings that have no field are in `values`, by flag name.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kvstore.config.flags import (
    BY_NAME,
    DEPRECATED,
    FEATURE_GATES,
    FLAGS,
    GATES_WITHOUT_EFFECT,
    Effect,
)
from kvstore.config.log_rotation import parse_rotation
from kvstore.config.values import (
    Value,
    default_value,
    parse_duration,
    split_host_port,
)
from kvstore.errors import ConfigError

ELECTION_TIMEOUT_MAX_MS: Final = 50_000
QUOTA_DEFAULT_BYTES: Final = 2 << 30
QUOTA_SUGGESTED_MAX_BYTES: Final = 8 << 30
REQUEST_SUGGESTED_MAX_BYTES: Final = 10 << 20
PROGRESS_INTERVAL_MIN_S: Final = 0.1
_SHOWN_TEXTS: Final = (
    "name",
    "initial-cluster",
    "initial-cluster-token",
    "initial-advertise-peer-urls",
    "advertise-client-urls",
    "discovery-token",
    "discovery-srv",
    "discovery-srv-name",
    "discovery-user",
    "discovery-password",
    "rebuild-user",
)
INT64_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 19
LOG_LEVELS: Final = ("debug", "info", "warn", "error", "dpanic", "panic", "fatal")


@dataclass(slots=True)
class Config:
    """One member's settings; the defaults are etcd's, and `Config()` is what no flags give."""

    # Member
    name: str = "default"
    data_dir: str = "default.etcd"
    wal_dir: str = ""  # empty: inside data_dir
    snapshot_count: int = 10_000
    snapshot_catchup_entries: int = 5_000
    max_wals: int = 5  # 0: keep all
    heartbeat_interval_ms: int = 100
    election_timeout_ms: int = 1_000
    initial_election_tick_advance: bool = True
    unsafe_no_fsync: bool = False
    transport: str = "auto"  # or "native", "grpcio"
    # Clients
    listen_client_urls: tuple[str, ...] = ("http://localhost:2379",)
    advertise_client_urls: tuple[str, ...] = ("http://localhost:2379",)
    max_txn_ops: int = 128
    max_request_bytes: int = 1_572_864
    max_concurrent_streams: int = 2**32 - 1
    grpc_keepalive_min_time_s: float = 5.0
    grpc_keepalive_interval_s: float = 7_200.0  # 0: never
    grpc_keepalive_timeout_s: float = 20.0  # 0: never
    warning_unary_request_duration_s: float = 0.3
    warning_apply_duration_s: float = 0.1
    watch_progress_notify_interval_s: float = 600.0
    # Cluster
    listen_peer_urls: tuple[str, ...] = ("http://localhost:2380",)
    initial_advertise_peer_urls: tuple[str, ...] = ("http://localhost:2380",)
    initial_cluster: str = "default=http://localhost:2380"
    initial_cluster_state: str = "new"  # or "existing"
    initial_cluster_token: str = "etcd-cluster"
    # Database
    quota_backend_bytes: int = QUOTA_DEFAULT_BYTES  # 0: no limit
    backend_batch_interval_s: float = 0.1
    backend_batch_limit: int = 10_000
    compaction_batch_limit: int = 1_000
    compaction_sleep_interval_s: float = 0.01
    auto_compaction_mode: str = "periodic"  # or "revision"
    auto_compaction_retention: int = 0  # nanoseconds or revisions; 0: off
    # Log
    log_level: str = "info"
    log_outputs: tuple[str, ...] = ("default",)
    log_format: str = "json"  # or "console"
    # About the settings themselves
    feature_gates: dict[str, bool] = field(default_factory=dict)  # all known gates
    values: dict[str, Value] = field(default_factory=dict)  # every flag, given or default
    given: frozenset[str] = frozenset()  # names of the flags given
    ineffective: dict[str, str] = field(default_factory=dict)  # given, without meaning here → why
    warnings: list[str] = field(default_factory=list)


def build(given: Mapping[str, Value], warnings: list[str]) -> Config:
    """Make a Config of the given values over the defaults, with etcd's zeros resolved."""
    values = {flag.name: given.get(flag.name, default_value(flag)) for flag in FLAGS}

    def text(name: str) -> str:
        value = values[name]
        assert isinstance(value, str), name
        return value

    def number(name: str, when_zero: int = 0) -> int:
        value = values[name]
        assert isinstance(value, int), name
        return value or when_zero

    def seconds(name: str, when_zero_s: float = 0.0) -> float:
        return number(name) / 1e9 or when_zero_s

    def texts(name: str) -> tuple[str, ...]:
        value = values[name]
        assert isinstance(value, tuple), name
        return value

    gates = values["feature-gates"]
    assert isinstance(gates, dict)
    name = text("name")
    peer_urls = texts("initial-advertise-peer-urls")
    mode = text("auto-compaction-mode")
    quota_bytes = number("quota-backend-bytes", QUOTA_DEFAULT_BYTES)
    return Config(
        name=name,
        data_dir=text("data-dir") or f"{name}.etcd",
        wal_dir=text("wal-dir"),
        snapshot_count=number("snapshot-count", 10_000),
        snapshot_catchup_entries=number("snapshot-catchup-entries", 5_000),
        max_wals=number("max-wals"),
        heartbeat_interval_ms=number("heartbeat-interval"),
        election_timeout_ms=number("election-timeout"),
        initial_election_tick_advance=bool(values["initial-election-tick-advance"]),
        unsafe_no_fsync=bool(values["unsafe-no-fsync"]),
        listen_client_urls=texts("listen-client-urls"),
        advertise_client_urls=texts("advertise-client-urls"),
        max_txn_ops=number("max-txn-ops"),
        max_request_bytes=number("max-request-bytes"),
        max_concurrent_streams=number("max-concurrent-streams"),
        grpc_keepalive_min_time_s=seconds("grpc-keepalive-min-time"),
        grpc_keepalive_interval_s=seconds("grpc-keepalive-interval"),
        grpc_keepalive_timeout_s=seconds("grpc-keepalive-timeout"),
        warning_unary_request_duration_s=seconds("warning-unary-request-duration", 0.3),
        warning_apply_duration_s=seconds("warning-apply-duration"),
        watch_progress_notify_interval_s=max(
            seconds("watch-progress-notify-interval", 600.0), PROGRESS_INTERVAL_MIN_S
        ),
        listen_peer_urls=texts("listen-peer-urls"),
        initial_advertise_peer_urls=peer_urls,
        initial_cluster=_initial_cluster(given, name or "default", peer_urls),
        initial_cluster_state=text("initial-cluster-state") or "new",
        initial_cluster_token=text("initial-cluster-token"),
        quota_backend_bytes=max(quota_bytes, 0),
        backend_batch_interval_s=seconds("backend-batch-interval", 0.1),
        backend_batch_limit=number("backend-batch-limit", 10_000),
        compaction_batch_limit=number("compaction-batch-limit", 1_000),
        compaction_sleep_interval_s=seconds("compaction-sleep-interval", 0.01),
        auto_compaction_mode=mode,
        auto_compaction_retention=_retention(mode, text("auto-compaction-retention") or "0"),
        transport=text("transport"),
        log_level=text("log-level"),
        log_outputs=texts("log-outputs") or ("default",),
        log_format=text("log-format"),
        feature_gates=gates,
        values=values,
        given=frozenset(given),
        ineffective=_ineffective(given, gates),
        warnings=warnings,
    )


def check(config: Config) -> None:
    """Hold config to etcd's rules; ConfigError names value and limit, oddities are warned of."""
    _check_texts(config)
    _check_log(config)
    _check_addresses(config)
    _check_cluster(config)
    _check_times(config)
    _check_numbers(config)
    _warn(config)


def _ineffective(given: Mapping[str, Value], gates: Mapping[str, bool]) -> dict[str, str]:
    """Return the given flags and switched gates that change nothing here, with why."""
    found = {name: BY_NAME[name].help for name in given if BY_NAME[name].effect is Effect.IGNORED}
    for gate, why in GATES_WITHOUT_EFFECT.items():
        if gates[gate] != FEATURE_GATES[gate]:
            found[f"feature-gates {gate}"] = why
    return found


def _initial_cluster(given: Mapping[str, Value], name: str, peer_urls: tuple[str, ...]) -> str:
    cluster = given.get("initial-cluster")
    if isinstance(cluster, str):
        return cluster
    return ",".join(f"{name}={url}" for url in peer_urls)


def _retention(mode: str, text: str) -> int:
    """Read the retention in nanoseconds or revisions; a bare number of periods is hours."""
    if text.isascii() and text.isdigit():
        number = int(text) if len(text) <= _DIGITS_MAX else INT64_MAX + 1
        retention = number if mode == "revision" else number * 3600 * 10**9
        if retention > INT64_MAX:
            unit = "revisions" if mode == "revision" else "hours"
            raise ConfigError(
                f'--auto-compaction-retention "{text:.40}": so many {unit} cannot be counted'
            )
        return retention
    if mode == "revision":
        raise ConfigError(
            f'--auto-compaction-retention "{text}": in mode revision it must be a number'
        )
    try:
        return max(0, parse_duration(text))
    except ValueError as error:
        raise ConfigError(f'--auto-compaction-retention "{text}": {error}') from None


def _check_texts(config: Config) -> None:
    """What other members and clients read must be text; paths may be any bytes."""
    for name in _SHOWN_TEXTS:
        value = config.values.get(name, "")
        for text in value if isinstance(value, tuple) else (value,):
            try:
                str(text).encode()
            except UnicodeEncodeError:
                raise ConfigError(f"--{name} {text!a} is not UTF-8") from None


def _check_log(config: Config) -> None:
    logger = config.values.get("logger", "zap")
    if logger != "zap":
        raise ConfigError(f'unknown logger option "{logger}": only "zap" is supported')
    if config.log_format not in {"json", "console"}:
        raise ConfigError(
            f"unknown log format: {config.log_format}, supported values json, console"
        )
    if config.log_level not in LOG_LEVELS:
        raise ConfigError(
            f'unrecognized --log-level "{config.log_level}": must be one of {", ".join(LOG_LEVELS)}'
        )
    if len(config.log_outputs) > 1 and "default" in config.log_outputs:
        raise ConfigError('--log-outputs: "default" cannot stand beside other outputs')
    if "systemd/journal" in config.log_outputs and len(config.log_outputs) > 1:
        raise ConfigError('--log-outputs: "systemd/journal" cannot stand beside other outputs')
    if config.values.get("enable-log-rotation"):
        files = set(config.log_outputs) - {"default", "stderr", "stdout", "systemd/journal"}
        if len(files) != 1:
            raise ConfigError(
                "--log-outputs requires a single file path when --log-rotate-config-json is defined"
            )
        parse_rotation(str(config.values.get("log-rotation-config-json")))


def _check_addresses(config: Config) -> None:
    http = config.values.get("listen-client-http-urls", ())
    metrics = config.values.get("listen-metrics-urls", ())
    for flag, urls in (
        ("listen-peer-urls", config.listen_peer_urls),
        ("listen-client-urls", config.listen_client_urls),
        ("listen-client-http-urls", http),
        ("listen-metrics-urls", metrics),
    ):
        assert isinstance(urls, tuple)
        for url in urls:
            _check_bind_url(flag, url)
    assert isinstance(http, tuple)
    for url in http:
        if url in config.listen_client_urls:
            raise ConfigError(
                "cannot bind both --listen-client-urls and --listen-client-http-urls on the same "
                f"url {url}"
            )
    if not config.listen_client_urls:
        raise ConfigError("--listen-client-urls must name at least one address")
    _check_client_tls(config, (*config.listen_client_urls, *http))
    for flag, urls in (
        ("initial-advertise-peer-urls", config.initial_advertise_peer_urls),
        ("advertise-client-urls", config.advertise_client_urls),
    ):
        for url in urls:
            if url.startswith("http") and not _host(url):
                raise ConfigError(f'--{flag} "{url}" must be "host:port": the host is empty')
    if "listen-client-urls" in config.given and not config.advertise_client_urls:
        raise ConfigError(
            "--advertise-client-urls is required when --listen-client-urls is set explicitly"
        )


def _check_client_tls(config: Config, urls: tuple[str, ...]) -> None:
    values = config.values
    cert_file, key_file = values.get("cert-file"), values.get("key-file")
    secure = [url for url in urls if url.startswith(("https:", "unixs:"))]
    if not secure:
        return
    if bool(cert_file) != bool(key_file):
        raise ConfigError(
            f"KeyFile and CertFile must both be present[key: {key_file}, cert: {cert_file}]"
        )
    if not cert_file and not values.get("auto-tls"):
        raise ConfigError(
            "TLS key/cert (--cert-file, --key-file) must be provided for client url "
            f"{secure[0]} with HTTPS scheme"
        )
    if values.get("client-cert-auth") and not values.get("trusted-ca-file"):
        raise ConfigError("--client-cert-auth needs --trusted-ca-file: whom else to trust")


def _check_bind_url(flag: str, url: str) -> None:
    if url.startswith("unix"):
        if not url.partition(":")[2].strip("/"):
            raise ConfigError(f"--{flag} {url}: the path of the socket is empty")
        return
    host = _host(url)
    if host == "localhost":
        return
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        raise ConfigError(f"--{flag}: expected IP in URL for binding ({url})") from None


def _host(url: str) -> str:
    return split_host_port(url.partition("://")[2].partition("/")[0], url)[0]


def _check_cluster(config: Config) -> None:
    values = config.values
    if config.initial_cluster_state not in {"new", "existing"}:
        raise ConfigError(f'unexpected --initial-cluster-state "{config.initial_cluster_state}"')
    if values.get("discovery-fallback") == "proxy":
        raise ConfigError('--discovery-fallback cannot be "proxy": the v2 proxy is gone')
    endpoints = values.get("discovery-endpoints", ())
    if bool(values.get("discovery-token")) != bool(endpoints):
        raise ConfigError("both --discovery-token and --discovery-endpoints must be set")
    discovering = bool(values.get("discovery-srv")) + bool(endpoints)
    if discovering + ("initial-cluster" in config.given) > 1:
        raise ConfigError(
            "multiple discovery or bootstrap flags are set. Choose one of "
            '"initial-cluster", "discovery-endpoints" or "discovery-srv"'
        )


def _check_times(config: Config) -> None:
    beat_ms, election_ms = config.heartbeat_interval_ms, config.election_timeout_ms
    if beat_ms <= 0:
        raise ConfigError(f"--heartbeat-interval must be >0 (set to {beat_ms}ms)")
    if election_ms <= 0:
        raise ConfigError(f"--election-timeout must be >0 (set to {election_ms}ms)")
    if 5 * beat_ms > election_ms:
        raise ConfigError(
            f"--election-timeout[{election_ms}ms] should be at least as 5 times as "
            f"--heartbeat-interval[{beat_ms}ms]"
        )
    if election_ms > ELECTION_TIMEOUT_MAX_MS:
        raise ConfigError(
            f"--election-timeout[{election_ms}ms] is too long, and should be set less than "
            f"{ELECTION_TIMEOUT_MAX_MS}ms"
        )
    for flag in ("backend-batch-interval", "compaction-sleep-interval", "grpc-keepalive-min-time",
                 "grpc-keepalive-interval", "grpc-keepalive-timeout", "warning-apply-duration",
                 "warning-unary-request-duration", "watch-progress-notify-interval"):  # fmt: skip
        value_ns = config.values.get(flag, 0)
        if isinstance(value_ns, int) and value_ns < 0:
            raise ConfigError(f"--{flag} must not be negative (set to {value_ns / 1e9:g}s)")
    check_ns = config.values.get("compact-hash-check-time", 1)
    if isinstance(check_ns, int) and check_ns <= 0:
        raise ConfigError(f"--compact-hash-check-time must be >0 (set to {check_ns / 1e9:g}s)")


def _check_numbers(config: Config) -> None:
    if config.auto_compaction_mode not in {"periodic", "revision"}:
        raise ConfigError(
            f'unknown auto-compaction-mode "{config.auto_compaction_mode}": '
            "must be periodic or revision"
        )
    for flag, number in (
        ("max-request-bytes", config.max_request_bytes),
        ("max-txn-ops", config.max_txn_ops),
    ):
        if not 0 < number < 2**31:
            raise ConfigError(f"--{flag} must be from 1 to {2**31 - 1} (set to {number})")
    for flag, number in (
        ("backend-batch-limit", config.backend_batch_limit),
        ("compaction-batch-limit", config.compaction_batch_limit),
    ):
        if number < 0:
            raise ConfigError(f"--{flag} must not be negative (set to {number})")
    rate = config.values.get("distributed-tracing-sampling-rate", 0)
    if isinstance(rate, int) and not 0 <= rate <= 1_000_000:
        raise ConfigError(
            f"--distributed-tracing-sampling-rate must be from 0 to 1000000 (set to {rate})"
        )
    gates = config.feature_gates
    if gates.get("LeaseCheckpointPersist") and not gates.get("LeaseCheckpoint"):
        raise ConfigError(
            "enabling feature gate LeaseCheckpointPersist requires enabling feature gate "
            "LeaseCheckpoint"
        )
    for flag in ("tls-min-version", "tls-max-version"):
        if config.values.get(flag, "") not in {"", "TLS1.2", "TLS1.3"}:
            raise ConfigError(f'--{flag} "{config.values[flag]}": must be TLS1.2 or TLS1.3')
    least, most = config.values.get("tls-min-version"), config.values.get("tls-max-version")
    if least == "TLS1.3" and most == "TLS1.2":
        raise ConfigError(f"min version ({least}) is greater than max version ({most})")
    if least == "TLS1.3" and config.values.get("cipher-suites"):
        raise ConfigError("cipher suites cannot be configured when only TLS1.3 is enabled")


def _warn(config: Config) -> None:
    warnings = config.warnings
    warnings.extend(text for flag, text in DEPRECATED.items() if flag in config.given)
    if config.name == "default":
        warnings.append(
            "the default name is not recommended: members of one name can be taken for one "
            "another; set --name"
        )
    if config.quota_backend_bytes > QUOTA_SUGGESTED_MAX_BYTES:
        warnings.append(
            f"--quota-backend-bytes {config.quota_backend_bytes} is above the recommended maximum "
            f"{QUOTA_SUGGESTED_MAX_BYTES}"
        )
    if config.max_request_bytes > REQUEST_SUGGESTED_MAX_BYTES:
        warnings.append(
            f"--max-request-bytes {config.max_request_bytes} is above the recommended maximum "
            f"{REQUEST_SUGGESTED_MAX_BYTES}"
        )
    if config.unsafe_no_fsync:
        warnings.append("--unsafe-no-fsync: a crash of the machine loses acknowledged writes")
    http = config.values.get("listen-client-http-urls", ())
    assert isinstance(http, tuple)
    urls = (*config.listen_client_urls, *http)
    secure = any(url.startswith(("https://", "unixs://")) for url in urls)
    if not secure and any(
        config.values.get(flag) for flag in ("cert-file", "key-file", "client-cert-auth")
    ):
        warnings.append(
            "TLS flags are given, but every --listen-client-urls is plaintext: they are ignored"
        )
