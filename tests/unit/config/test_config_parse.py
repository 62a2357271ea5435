"""From arguments, variables and files to a checked Config: what counts, and what is refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from kvstack.component.errors import ConfigError
from kvstore.config.build import build, with_defaults
from kvstore.config.flag_reader import FlagReader
from kvstore.config.flags import FLAGS, Effect
from kvstore.config.initial_cluster import read_members
from kvstore.config.model import Config
from kvstore.config.parse import configure
from kvstore.config.sources import HELP, UsageError, read_command_line

LISTEN = "--listen-client-urls=http://127.0.0.1:1"
ADVERTISE = "--advertise-client-urls=http://me:1"


def config_of(*arguments: str, env: Mapping[str, str] | None = None) -> Config:
    return configure(read_command_line(arguments), env or {})


def test_without_flags_the_defaults_are_those_of_the_class() -> None:
    config, default = config_of(), Config()
    for name in Config.__slots__:
        if name not in {"feature_gates", "warnings"}:
            assert getattr(config, name) == getattr(default, name), name


@pytest.mark.parametrize(
    "arguments",
    [
        ("--name=a", "--heartbeat-interval=50"),
        ("--name", "a", "--heartbeat-interval", "50"),
        ("-name=a", "-heartbeat-interval=50"),
        ("-name", "a", "-heartbeat-interval", "50"),
        ("--name=b", "--heartbeat-interval=50", "--name=a"),
        ("--name=a", "--heartbeat-interval=50", "--"),
    ],
)
def test_every_way_to_write_a_flag(arguments: tuple[str, ...]) -> None:
    config = config_of(*arguments)
    assert (config.name, config.heartbeat_interval_ms) == ("a", 50)
    assert config.set_flags == {"name", "heartbeat-interval"}


def test_a_value_may_hold_anything() -> None:
    assert config_of("--name", "--odd=1").name == "--odd=1"
    assert config_of("--name=").name == ""


def test_booleans_take_a_value_only_with_the_equals_sign() -> None:
    assert config_of("--unsafe-no-fsync").unsafe_no_fsync is True
    assert config_of("--unsafe-no-fsync=F").unsafe_no_fsync is False
    with pytest.raises(ConfigError, match='"false" is not a valid flag'):
        config_of("--unsafe-no-fsync", "false")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--foo",), "flag provided but not defined: -foo"),
        (("-foo=1",), "flag provided but not defined: -foo"),
        (("--name",), "flag needs an argument: -name"),
        (("---x",), "bad flag syntax: ---x"),
        (("--=x",), "bad flag syntax: --=x"),
        (("--heartbeat-interval=x",), 'invalid value "x" for flag -heartbeat-interval'),
        (("--snapshot-count=-1",), 'invalid value "-1" for flag -snapshot-count'),
        (("--pre-vote=yes",), 'invalid value "yes" for flag -pre-vote'),
        (("--backend-batch-interval=5",), 'invalid value "5" for flag -backend-batch-interval'),
        (("--initial-cluster-state=bogus",), "must be one of new, existing"),
        (("--max-concurrent-streams=4294967296",), "limit 4294967295"),
        (("--feature-gates=Nope=true",), "unrecognized feature gate: Nope"),
        (("--listen-client-urls=http://127.0.0.1",), "host:port"),
    ],
)
def test_what_is_wrong_with_one_flag_is_a_usage_error(
    arguments: tuple[str, ...], text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        config_of(*arguments)
    assert text in str(caught.value)


@pytest.mark.parametrize("arguments", [("stray",), ("--name=a", "stray"), ("--", "stray"), ("-",)])
def test_stray_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="is not a valid flag") as caught:
        config_of(*arguments)
    assert not isinstance(caught.value, UsageError)


@pytest.mark.parametrize("flag", ["-h", "--h", "-help", "--help"])
def test_help_ends_the_reading(flag: str) -> None:
    assert read_command_line([flag, "--nonsense"]).values == {HELP: True}


def test_flags_of_long_ago_are_passed_over_with_a_warning() -> None:
    config = config_of("--name=a", "-force", "--snapshot=true")
    assert [warning for warning in config.warnings if "no longer supported" in warning]
    assert config.set_flags == {"name"}


# --- variables ---


def test_a_variable_sets_a_flag() -> None:
    config = config_of(env={"ETCD_NAME": "a", "ETCD_UNSAFE_NO_FSYNC": "t", "PATH": "x"})
    assert (config.name, config.unsafe_no_fsync) == ("a", True)
    assert config.set_flags == {"name", "unsafe-no-fsync"}


def test_an_empty_variable_is_none() -> None:
    assert config_of(env={"ETCD_NAME": "", "ETCD_HEARTBEAT_INTERVAL": ""}).name == "default"


def test_a_variable_and_its_flag_conflict() -> None:
    with pytest.raises(ConfigError, match="ETCD_NAME conflicts with the flag --name"):
        config_of("--name=a", env={"ETCD_NAME": "a"})


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ConfigError, match='invalid value "x" for ETCD_HEARTBEAT_INTERVAL'):
        config_of(env={"ETCD_HEARTBEAT_INTERVAL": "x"})


def test_unknown_variables_only_warn() -> None:
    env = {
        "ETCD_VERIFY": "all",
        "ETCD_UNSUPPORTED_ARCH": "arm",
        "ETCD_VERSION": "1",
        "KVSTORE_X": "",
    }
    config = config_of("--name=a", env=env)
    assert config.warnings == [
        "unrecognized environment variable: ETCD_UNSUPPORTED_ARCH",
        "unrecognized environment variable: ETCD_VERIFY",
        "unrecognized environment variable: ETCD_VERSION",
    ]


# --- the file ---


@pytest.fixture
def yaml_file(tmp_path: Path) -> Path:
    return tmp_path / "etcd.yml"


def test_a_file_counts_alone(yaml_file: Path) -> None:
    yaml_file.write_text(
        "name: a\n"
        "data-dir: /x\n"
        "heartbeat-interval: 50\n"
        "unsafe-no-fsync: true\n"
        "watch-progress-notify-interval: 5000000000\n"
        "grpc-keepalive-min-time: 7s\n"
        "listen-client-urls: http://127.0.0.1:5,http://127.0.0.1:4\n"
        "log-outputs: [stdout, stderr]\n"
        "initial-cluster-token: 7\n"
        "wal-dir:\n"
        "feature-gates: PriorityRequest=true\n"
        "peer-transport-security:\n"
        "  cert-file: p.crt\n"
        "client-transport-security:\n"
        "  client-cert-auth: true\n"
        "discovery-config: {client: {secure: {cert: d.crt}}}\n"
    )
    config = config_of(f"--config-file={yaml_file}", "--name=b", env={"ETCD_DATA_DIR": "/y"})
    assert (config.name, config.data_dir, config.wal_dir) == ("a", "/x", "")
    assert config.heartbeat_interval_ms == 50
    assert config.unsafe_no_fsync is True
    assert config.watch_progress_notify_interval_s == 5.0
    assert config.grpc_keepalive_min_time_s == 7.0
    assert config.listen_client_urls == ("http://127.0.0.1:4", "http://127.0.0.1:5")
    assert config.advertise_client_urls == ("http://localhost:2379",)
    assert config.log_outputs == ("stderr", "stdout")
    assert config.initial_cluster_token == "7"
    assert config.feature_gates["PriorityRequest"] is True
    assert config.peer_tls.cert_file == "p.crt"
    assert config.client_tls.client_cert_auth is True
    assert config.discovery.cert_file == "d.crt"
    assert any("ignored: name" in warning for warning in config.warnings)


def test_a_file_may_be_named_by_a_variable(yaml_file: Path) -> None:
    yaml_file.write_text("name: a\n")
    assert config_of(env={"ETCD_CONFIG_FILE": str(yaml_file), "ETCD_NAME": "b"}).name == "a"


def test_an_empty_file_gives_the_defaults(yaml_file: Path) -> None:
    yaml_file.write_text("# nothing\n")
    assert config_of(f"--config-file={yaml_file}").name == "default"


def test_unknown_keys_warn(yaml_file: Path) -> None:
    yaml_file.write_text("name: a\nbogus: 1\nsocket-options: {reuse-port: true, x: 1}\n3: 4\n")
    config = config_of(f"--config-file={yaml_file}")
    unknown = [w.rpartition(": ")[2] for w in config.warnings if "unrecognized key" in w]
    assert unknown == ["bogus", "socket-options.x", "3"]
    assert config.socket_reuse_port is True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("heartbeat-interval: '100'", "must be a whole number"),
        ("heartbeat-interval: -1", "not a number from 0"),
        ("heartbeat-interval: true", "must be a whole number"),
        ("pre-vote: 'true'", "must be true or false"),
        ("name: [a]", "must be a text"),
        ("backend-batch-interval: soon", "not a duration"),
        ("listen-client-urls: localhost", "URL scheme"),
        ("client-transport-security: x", "must be a mapping"),
        ("- a", "must be a mapping of settings"),
        ("a: [", "is not YAML"),
        ("!!python/object:os.system {}", "is not YAML"),
        ("name: \x00", "is not YAML"),
    ],
)
def test_what_a_file_cannot_say(yaml_file: Path, text: str, reason: str) -> None:
    yaml_file.write_text(text)
    with pytest.raises(ConfigError, match=reason) as caught:
        config_of(f"--config-file={yaml_file}")
    assert str(yaml_file) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        config_of(f"--config-file={tmp_path}/nope")
    with pytest.raises(ConfigError, match="Is a directory"):
        config_of(f"--config-file={tmp_path}")
    (tmp_path / "large").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        config_of(f"--config-file={tmp_path}/large")


# --- zeros and derived settings ---


def test_zeros_mean_etcds_defaults() -> None:
    config = config_of(
        "--snapshot-count=0", "--snapshot-catchup-entries=0", "--quota-backend-bytes=0",
        "--compaction-batch-limit=0", "--watch-progress-notify-interval=0", "--max-wals=0",
    )  # fmt: skip
    assert config.snapshot_count == 10_000
    assert config.snapshot_catchup_entries == 5_000
    assert config.quota_backend_bytes == 2 << 30
    assert config.compaction_batch_limit == 1_000
    assert config.watch_progress_notify_interval_s == 600.0
    assert config.max_wals == 0


def test_every_flag_that_has_an_effect_is_a_setting() -> None:
    reader = FlagReader(with_defaults({}))
    build(reader, frozenset(), [])
    only_checked = {"logger", "discovery-fallback"}
    about_the_process = {"config-file", "version", "socket-reuse-address"}
    live = {flag.name for flag in FLAGS if flag.effect is Effect.USED}
    assert live - reader.names_read - only_checked - about_the_process == {
        "log-rotation-config-json"  # read where rotation is switched on
    }


def test_a_negative_quota_is_none_and_tiny_progress_intervals_are_raised() -> None:
    config = config_of("--quota-backend-bytes=-1", "--watch-progress-notify-interval=1ms")
    assert config.quota_backend_bytes == -1
    assert config.watch_progress_notify_interval_s == 0.1


def test_name_makes_data_dir_and_initial_cluster() -> None:
    config = config_of("--name=a", "--initial-advertise-peer-urls=http://h:2,http://h:1")
    assert config.data_dir == "a.etcd"
    assert config.initial_cluster == "a=http://h:1,a=http://h:2"
    assert read_members(config.initial_cluster) == {"a": ("http://h:1", "http://h:2")}


@pytest.mark.parametrize(
    ("mode", "text", "retention"),
    [
        ("periodic", "0", 0),
        ("periodic", "2", 7200 * 10**9),
        ("periodic", "90m", 5400 * 10**9),
        ("periodic", "1500ms", 1_500_000_000),
        ("revision", "1000", 1000),
    ],
)
def test_auto_compaction(mode: str, text: str, retention: int) -> None:
    config = config_of(f"--auto-compaction-mode={mode}", f"--auto-compaction-retention={text}")
    assert config.auto_compaction_retention == retention


def test_flags_without_effect_are_reported_with_the_reason_and_others_not() -> None:
    gates = "--feature-gates=StopGRPCServiceOnDefrag=true,PriorityRequest=true"
    config = config_of("--backend-bbolt-freelist-type=map", "--memory-mlock", gates)
    assert list(config.ineffective) == [
        "backend-bbolt-freelist-type",
        "feature-gates StopGRPCServiceOnDefrag",
    ]
    assert all(config.ineffective.values())
    assert config.memory_mlock is True


# --- rules across flags ---


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([LISTEN], "--advertise-client-urls is required when --listen-client-urls is set"),
        (["--election-timeout=400"], "--election-timeout[400ms] should be at least as 5 times"),
        (["--election-timeout=60000"], "should be set less than 50000ms"),
        (["--heartbeat-interval=0"], "--heartbeat-interval must be >0 (set to 0ms)"),
        (["--election-timeout=0"], "--election-timeout must be >0 (set to 0ms)"),
        (
            ["--listen-client-urls=http://foo.bar:1", ADVERTISE],
            "expected IP in URL for binding (http://foo.bar:1)",
        ),
        (["--listen-peer-urls=http://foo.bar:1"], "expected IP in URL for binding"),
        (["--listen-peer-urls=http://:1"], "expected IP in URL for binding"),
        (["--listen-client-urls=https://127.0.0.1:1", ADVERTISE], "TLS key/cert (--cert-file, --k"),
        (
            ["--listen-client-urls=unixs://a:1", ADVERTISE],
            "must be provided for client url unixs:/",
        ),
        (
            ["--listen-client-urls=unixs://a:1", ADVERTISE, "--cert-file=c"],
            "KeyFile and CertFile must both be present[key: , cert: c]",
        ),
        (["--tls-min-version=TLS1.3", "--cipher-suites=x"], "when only TLS1.3 is enabled"),
        (["--listen-client-urls=unix://", ADVERTISE], "the path of the socket is empty"),
        (["--listen-client-urls=", ADVERTISE], "must name at least one address"),
        (["--initial-advertise-peer-urls=http://:1"], "the host is empty"),
        (["--auto-compaction-mode=x"], 'unknown auto-compaction-mode "x"'),
        (["--auto-compaction-retention=zz"], '--auto-compaction-retention "zz"'),
        (
            ["--auto-compaction-mode=revision", "--auto-compaction-retention=5m"],
            "in mode revision it must be a number",
        ),
        (["--log-format=xml"], "unknown log format: xml, supported values json, console"),
        (["--log-level=loud"], 'unrecognized --log-level "loud"'),
        (["--logger=capnslog"], 'unknown logger option "capnslog"'),
        (["--log-outputs=default,stdout"], '"default" cannot be combined with'),
        (["--log-outputs=systemd/journal,stderr"], '"systemd/journal" cannot be combined with'),
        (["--enable-log-rotation"], "requires a single file path"),
        (["--enable-log-rotation", "--log-outputs=a,b"], "requires a single file path"),
        (
            ["--enable-log-rotation", "--log-outputs=a", "--log-rotation-config-json={"],
            "improperly formatted log rotation config",
        ),
        (["--discovery-token=x"], "both --discovery-token and --discovery-endpoints"),
        (
            ["--discovery-srv=x", "--initial-cluster=a=http://h:1"],
            "multiple discovery or bootstrap flags are set",
        ),
        (["--discovery-fallback=proxy"], "the v2 proxy was removed"),
        (["--max-request-bytes=0"], "--max-request-bytes must be from 1"),
        (["--max-txn-ops=4294967296"], "--max-txn-ops must be from 1"),
        (["--backend-batch-limit=-1"], "--backend-batch-limit must not be negative"),
        (["--backend-batch-interval=-1s"], "--backend-batch-interval must not be negative"),
        (["--compact-hash-check-time=0"], "--compact-hash-check-time must be >0"),
        (["--feature-gates=LeaseCheckpointPersist=true"], "requires enabling feature gate"),
        (["--tls-min-version=TLS1.1"], "must be TLS1.2 or TLS1.3"),
        (["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"], "is greater than max"),
    ],
)
def test_rules_are_held_with_value_and_limit(arguments: list[str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(*arguments)
    assert text in str(caught.value)
    assert not isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://0.0.0.0:1", "http://[::1]:1", "unix://a:1"]
)
def test_addresses_that_can_be_bound(url: str) -> None:
    assert config_of(f"--listen-client-urls={url}", ADVERTISE).listen_client_urls == (url,)


def test_the_rule_of_five_holds_exactly() -> None:
    assert config_of("--election-timeout=500").election_timeout_ms == 500
    assert config_of("--election-timeout=50000").election_timeout_ms == 50_000


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--max-snapshots=3"], "--max-snapshots is deprecated"),
        (["--quota-backend-bytes=8589934593"], "above the recommended maximum 8589934592"),
        (["--max-request-bytes=10485761"], "above the recommended maximum 10485760"),
        (["--unsafe-no-fsync"], "loses acknowledged writes"),
        (["--cert-file=x"], "plaintext"),
    ],
)
def test_oddities_warn(arguments: list[str], part: str) -> None:
    assert any(part in warning for warning in config_of("--name=a", *arguments).warnings)
    assert not config_of("--name=a").warnings


def test_the_transport_is_chosen_by_flag_or_by_a_variable_of_ours() -> None:
    assert config_of().transport == "auto"
    assert config_of("--transport=grpcio").transport == "grpcio"
    assert (
        config_of(env={"KVSTORE_TRANSPORT": "native", "KVSTORE_OTHER": "x"}).transport == "native"
    )
    with pytest.raises(ConfigError, match="KVSTORE_TRANSPORT"):
        config_of(env={"KVSTORE_TRANSPORT": "pigeon"})
