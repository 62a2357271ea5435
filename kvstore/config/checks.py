"""Rules that span flags: etcd's, with its texts where it has one.

`check_values` looks at values that a Config resolves or does not keep; `check` looks at the Config
and adds warnings to it. Each raises ConfigError, which names the value and the limit.
"""

import ipaddress
from collections.abc import Collection, Mapping
from typing import Final

from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import JOURNAL, LOG_LEVELS
from kvstack.component.net.addresses import is_secure
from kvstack.component.units import SECOND_NS
from kvstore.config.flags import DEPRECATED
from kvstore.config.model import Config
from kvstore.config.values import Value, split_host_port
from kvstore.extras import require

ELECTION_TIMEOUT_MAX_MS: Final = 50_000
QUOTA_SUGGESTED_MAX_BYTES: Final = 8 << 30
REQUEST_SUGGESTED_MAX_BYTES: Final = 10 << 20
SAMPLING_RATE_MAX: Final = 1_000_000
TLS_VERSIONS: Final = frozenset({"", "TLS1.2", "TLS1.3"})
_NO_FILES: Final = frozenset({"default", "stderr", "stdout", JOURNAL})
_BEAT_FACTOR: Final = 5
# What other members and clients read must be text; paths may be any bytes.
_UTF8_FLAGS: Final = (
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
_NOT_NEGATIVE: Final = (
    "backend-batch-interval",
    "compaction-sleep-interval",
    "grpc-keepalive-min-time",
    "grpc-keepalive-interval",
    "grpc-keepalive-timeout",
    "warning-apply-duration",
    "warning-unary-request-duration",
    "watch-progress-notify-interval",
)  # durations


def check_values(values: Mapping[str, Value]) -> None:
    """Check the values of all flags, by name."""
    for name in _UTF8_FLAGS:
        value = values[name]
        for text in value if isinstance(value, tuple) else (value,):
            try:
                str(text).encode()
            except UnicodeEncodeError:
                raise ConfigError(f"--{name} {text!a} is not UTF-8") from None
    if values["logger"] != "zap":
        raise ConfigError(f'unknown logger option "{values["logger"]}": only "zap" is supported')
    if values["discovery-fallback"] == "proxy":
        raise ConfigError('--discovery-fallback cannot be "proxy": the v2 proxy was removed')
    for name in _NOT_NEGATIVE:
        value_ns = values[name]
        if isinstance(value_ns, int) and value_ns < 0:
            raise ConfigError(f"--{name} must not be negative (set to {value_ns / SECOND_NS:g}s)")


def check(config: Config) -> None:
    """Check the settings, and add a warning for each risky one."""
    _check_log(config)
    _check_addresses(config)
    _check_cluster(config)
    _check_times(config)
    _check_numbers(config)
    _check_gates(config)
    _check_tls(config)
    _warn(config)


def check_key_pair(cert_file: str, key_file: str) -> None:
    """Refuse a certificate without a key, and a key without a certificate."""
    if bool(cert_file) != bool(key_file):
        raise ConfigError(
            f"KeyFile and CertFile must both be present[key: {key_file}, cert: {cert_file}]"
        )


def check_tls_range(least: str, most: str, cipher_suites: Collection[str]) -> None:
    """Refuse an empty range of TLS versions, and cipher suites that none of them uses."""
    if least == "TLS1.3" and most == "TLS1.2":
        raise ConfigError(f"min version ({least}) is greater than max version ({most})")
    if least == "TLS1.3" and cipher_suites:
        raise ConfigError("cipher suites cannot be configured when only TLS1.3 is enabled")


def _check_log(config: Config) -> None:
    if config.log_format not in {"json", "console"}:
        raise ConfigError(
            f"unknown log format: {config.log_format}, supported values json, console"
        )
    if config.log_level not in LOG_LEVELS:
        raise ConfigError(
            f'unrecognized --log-level "{config.log_level}": must be one of {", ".join(LOG_LEVELS)}'
        )
    for alone in ("default", JOURNAL):
        if len(config.log_outputs) > 1 and alone in config.log_outputs:
            raise ConfigError(f'--log-outputs: "{alone}" cannot be combined with other outputs')
    if config.log_rotation is not None and len(set(config.log_outputs) - _NO_FILES) != 1:
        raise ConfigError(
            "--log-outputs requires a single file path when --log-rotate-config-json is defined"
        )


def _check_addresses(config: Config) -> None:
    for flag, urls in (
        ("listen-peer-urls", config.listen_peer_urls),
        ("listen-client-urls", config.listen_client_urls),
        ("listen-client-http-urls", config.listen_client_http_urls),
        ("listen-metrics-urls", config.listen_metrics_urls),
    ):
        for url in urls:
            _check_bind_url(flag, url)
    for url in config.listen_client_http_urls:
        if url in config.listen_client_urls:
            raise ConfigError(
                "cannot bind both --listen-client-urls and --listen-client-http-urls on the same "
                f"url {url}"
            )
    if not config.listen_client_urls:
        raise ConfigError("--listen-client-urls must name at least one address")
    _check_client_tls(config)
    for flag, urls in (
        ("initial-advertise-peer-urls", config.initial_advertise_peer_urls),
        ("advertise-client-urls", config.advertise_client_urls),
    ):
        for url in urls:
            if url.startswith("http") and not _host(url):
                raise ConfigError(f'--{flag} "{url}" must be "host:port": the host is empty')
    if "listen-client-urls" in config.set_flags and not config.advertise_client_urls:
        raise ConfigError(
            "--advertise-client-urls is required when --listen-client-urls is set explicitly"
        )


def _check_client_tls(config: Config) -> None:
    tls = config.client_tls
    secure = [url for url in config.all_client_urls if is_secure(url)]
    if not secure:
        return
    check_key_pair(tls.cert_file, tls.key_file)
    if not tls.cert_file and not tls.auto_tls:
        raise ConfigError(
            "TLS key/cert (--cert-file, --key-file) must be provided for client url "
            f"{secure[0]} with HTTPS scheme"
        )
    if tls.client_cert_auth and not tls.trusted_ca_file:
        raise ConfigError("--client-cert-auth requires --trusted-ca-file")


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
    if config.initial_cluster_state not in {"new", "existing"}:
        raise ConfigError(f'unexpected --initial-cluster-state "{config.initial_cluster_state}"')
    discovery = config.discovery
    if bool(discovery.token) != bool(discovery.endpoints):
        raise ConfigError("both --discovery-token and --discovery-endpoints must be set")
    ways = bool(config.discovery_srv) + bool(discovery.endpoints)
    if ways + ("initial-cluster" in config.set_flags) > 1:
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
    if _BEAT_FACTOR * beat_ms > election_ms:
        raise ConfigError(
            f"--election-timeout[{election_ms}ms] should be at least as {_BEAT_FACTOR} times as "
            f"--heartbeat-interval[{beat_ms}ms]"
        )
    if election_ms > ELECTION_TIMEOUT_MAX_MS:
        raise ConfigError(
            f"--election-timeout[{election_ms}ms] is too long, and should be set less than "
            f"{ELECTION_TIMEOUT_MAX_MS}ms"
        )
    check_s = config.compact_hash_check_time_s
    if check_s <= 0:
        raise ConfigError(f"--compact-hash-check-time must be >0 (set to {check_s:g}s)")


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
    if config.tracing.is_enabled:
        require("tracing", "--enable-distributed-tracing")
    rate = config.tracing.sampling_rate
    if not 0 <= rate <= SAMPLING_RATE_MAX:
        raise ConfigError(
            f"--distributed-tracing-sampling-rate must be from 0 to {SAMPLING_RATE_MAX} "
            f"(set to {rate})"
        )


def _check_gates(config: Config) -> None:
    gates = config.feature_gates
    if gates.get("LeaseCheckpointPersist") and not gates.get("LeaseCheckpoint"):
        raise ConfigError(
            "enabling feature gate LeaseCheckpointPersist requires enabling feature gate "
            "LeaseCheckpoint"
        )


def _check_tls(config: Config) -> None:
    least, most = config.tls_min_version, config.tls_max_version
    for flag, version in (("tls-min-version", least), ("tls-max-version", most)):
        if version not in TLS_VERSIONS:
            raise ConfigError(f'--{flag} "{version}": must be TLS1.2 or TLS1.3')
    check_tls_range(least, most, config.cipher_suites)


def _warn(config: Config) -> None:
    warnings = config.warnings
    warnings.extend(text for flag, text in DEPRECATED.items() if flag in config.set_flags)
    if config.name == "default":
        warnings.append(
            "the default name is not recommended: members with the same name can be "
            "confused; set --name"
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
    tls = config.client_tls
    has_tls_flags = any((tls.cert_file, tls.key_file, tls.client_cert_auth))
    if has_tls_flags and not any(map(is_secure, config.all_client_urls)):
        warnings.append(
            "TLS flags are set, but every --listen-client-urls is plaintext: they are ignored"
        )
