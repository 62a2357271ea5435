"""Flags arrive where they count; what they do there is the business of that place's own tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvstore.client import ClientTls
from kvstore.config.model import Config
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.server.auth.tokens import bcrypt_cost_of
from kvstore.server.boot.assemble import limits_of
from kvstore.server.boot.founding import peer_tls_of
from kvstore.server.client_port import native_options
from kvstore.server.discovery.registry import options_of
from kvstore.server.pages.service import client_tls
from kvstore.server.tracing import tracing_of
from kvstore.wire.rpc import METHODS

MS = 1_000_000
SECURE = ("--listen-client-urls=https://127.0.0.1:1", "--advertise-client-urls=https://a:1")
CERTIFICATE = (*SECURE, "--cert-file=c", "--key-file=k", "--trusted-ca-file=ca")


def config_of(*flags: str) -> Config:
    return configure(read_command_line(list(flags)), {})


LIMITS = [
    ("--heartbeat-interval=40", "heartbeat_ns", 40 * MS),
    ("--election-timeout=1500", "election_ticks", 15),
    ("--initial-election-tick-advance=false", "initial_tick_advance", False),
    ("--strict-reconfig-check=false", "strict_reconfig_check", False),
    ("--corrupt-check-time=3s", "corrupt_check_ns", 3000 * MS),
    ("--compact-hash-check-time=4s", "compact_hash_check_ns", 4000 * MS),
    ("--downgrade-check-time=6s", "downgrade_check_ns", 6000 * MS),
    ("--feature-gates=InitialCorruptCheck=true", "initial_corrupt_check", True),
    ("--feature-gates=CompactHashCheck=true", "compact_hash_check", True),
    ("--max-request-bytes=77", "request_bytes_max", 77),
    ("--max-txn-ops=7", "txn_ops_max", 7),
    ("--quota-backend-bytes=99999", "quota_bytes", 99_999),
    ("--quota-backend-bytes=-1", "quota_bytes", -1),
    ("--backend-batch-interval=7ms", "commit_interval_ns", 7 * MS),
    ("--backend-batch-limit=17", "commit_ops_max", 17),
    ("--auto-compaction-mode=revision", "auto_compaction_mode", "revision"),
    ("--auto-compaction-retention=5m", "auto_compaction_retention", 300_000 * MS),
    ("--snapshot-count=21", "snapshot_count", 21),
    ("--snapshot-catchup-entries=22", "snapshot_catchup_entries", 22),
    ("--client-cert-auth", "client_cert_auth", True),
    ("--bcrypt-cost=6", "bcrypt_cost", 6),
    ("--compaction-batch-limit=400", "compaction_rows", 100),
    ("--compaction-sleep-interval=40ms", "compaction_pause_ns", 10 * MS),
    ("--advertise-client-urls=http://b:1,http://a:1", "client_urls", ("http://a:1", "http://b:1")),
    ("--name=n7", "name", "n7"),
]


@pytest.mark.parametrize(("flag", "name", "value"), LIMITS)
def test_the_node(flag: str, name: str, value: object) -> None:
    assert getattr(limits_of(config_of(flag)), name) == value
    assert getattr(limits_of(config_of()), name) != value


CLIENT_PORT: list[tuple[str, Callable[[Any], object], object]] = [
    ("--max-request-bytes=1000", lambda o: o.request_bytes_max, 1000 + (512 << 10)),
    ("--max-concurrent-streams=3", lambda o: o.concurrent_streams_max, 3),
    ("--grpc-keepalive-min-time=1s", lambda o: o.keepalive_min_s, 1.0),
    ("--grpc-keepalive-interval=2s", lambda o: o.keepalive_interval_s, 2.0),
    ("--grpc-keepalive-timeout=3s", lambda o: o.keepalive_timeout_s, 3.0),
    ("--listen-client-http-urls=http://127.0.0.1:9", lambda o: o.serves_http, False),
    ("--socket-reuse-port", lambda o: o.reuse_port, True),
    ("--client-crl-file=x", lambda o: o.tls.crl_file, "x"),
    ("--client-cert-allowed-hostname=x,y", lambda o: o.tls.allowed_hosts, ("x", "y")),
    ("--cipher-suites=x", lambda o: o.tls.cipher_suites, ("x",)),
    ("--tls-min-version=TLS1.3", lambda o: o.tls.min_version, "TLS1.3"),
    ("--tls-max-version=TLS1.2", lambda o: o.tls.max_version, "TLS1.2"),
]


@pytest.mark.parametrize(("flag", "read", "value"), CLIENT_PORT)
def test_the_client_port(flag: str, read: Callable[[Any], object], value: object) -> None:
    assert read(native_options(config_of(*CERTIFICATE, flag))) == value
    assert read(native_options(config_of(*CERTIFICATE))) != value


def test_certificates_of_clients() -> None:
    tls = native_options(config_of(*CERTIFICATE)).tls
    assert tls is not None
    assert (tls.cert_file, tls.key_file, tls.trusted_ca_file) == ("c", "k", "ca")
    pages = client_tls(config_of(*CERTIFICATE, "--client-cert-auth", "--client-crl-file=x"))
    assert (pages.cert_file, pages.client_cert_auth, pages.crl_file) == ("c", True, "x")


PEERS = [
    ("--peer-cert-file=x", "cert_file", "x"),
    ("--peer-key-file=x", "key_file", "x"),
    ("--peer-client-cert-file=x", "client_cert_file", "x"),
    ("--peer-client-key-file=x", "client_key_file", "x"),
    ("--peer-trusted-ca-file=x", "trusted_ca_file", "x"),
    ("--peer-client-cert-auth", "client_cert_auth", True),
    ("--peer-crl-file=x", "crl_file", "x"),
    ("--peer-cert-allowed-cn=x,y", "allowed_cns", ("x", "y")),
    ("--peer-cert-allowed-hostname=x,y", "allowed_hostnames", ("x", "y")),
    ("--peer-skip-client-san-verification", "skip_client_san_verification", True),
    ("--peer-auto-tls", "is_self_signed", True),
    ("--cipher-suites=x,y", "cipher_suites", ("x", "y")),
    ("--tls-min-version=TLS1.3", "min_version", "TLS1.3"),
    ("--tls-max-version=TLS1.2", "max_version", "TLS1.2"),
]


@pytest.mark.parametrize(("flag", "name", "value"), PEERS)
def test_tls_between_members(flag: str, name: str, value: object) -> None:
    assert getattr(peer_tls_of(config_of(flag)), name) == value
    assert getattr(peer_tls_of(config_of()), name) != value


def test_the_registry_of_discovery() -> None:
    options = options_of(
        config_of(
            "--discovery-token=t", "--discovery-endpoints=http://b:1,http://a:1",
            "--discovery-dial-timeout=3s", "--discovery-request-timeout=4s",
            "--discovery-keepalive-time=5s", "--discovery-keepalive-timeout=6s",
            "--discovery-insecure-transport=false", "--discovery-insecure-skip-tls-verify",
            "--discovery-cert=c", "--discovery-key=k", "--discovery-cacert=a",
            "--discovery-user=u", "--discovery-password=p:q",
        ).discovery
    )  # fmt: skip
    assert options.tls == ClientTls("c", "k", "a", is_unverified=True, is_enabled=True)
    assert (options.dial_timeout_s, options.reach_s, options.timeout_s) == (3.0, 3.0, 4.0)
    assert (options.keepalive_interval_s, options.keepalive_timeout_s) == (5.0, 6.0)
    assert (options.user, options.password) == ("u", "p:q")


def test_tracing() -> None:
    tracing = tracing_of(
        config_of(
            "--distributed-tracing-service-name=shop",
            "--distributed-tracing-instance-id=i7",
            "--distributed-tracing-sampling-rate=250000",
            "--distributed-tracing-address=127.0.0.1:1",
        )
    )
    try:
        provider = tracing._provider
        named = provider.resource.attributes
        assert (named["service.name"], named["service.instance.id"]) == ("shop", "i7")
        assert "0.25" in provider.sampler.get_description()
    finally:
        tracing.close()


def test_others() -> None:
    config = config_of(
        "--max-learners=3", "--auth-token-ttl=9", "--watch-progress-notify-interval=5s",
        "--warning-apply-duration=7ms", "--warning-unary-request-duration=8ms",
    )  # fmt: skip
    assert config.max_learners == 3
    assert config.auth_token_ttl_s == 9
    assert config.watch_progress_notify_interval_s == 5.0
    assert config.warning_apply_duration_s == 0.007
    assert config.warning_unary_request_duration_s == 0.008
    assert bcrypt_cost_of(config) == 10


def test_every_method_is_served(tmp_path: Path) -> None:
    """In all clients' eyes: no method of etcd's protocol is unknown here."""
    from kvstore.node.streams.streams import SERVED
    from tests.support.node.harness import Disk, Harness

    harness = Harness(tmp_path, Disk(in_memory=True))
    try:
        assert {method.id for method in METHODS} <= harness.node.methods | SERVED
    finally:
        harness.close()
