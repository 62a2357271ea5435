"""The first line of the log: the fields that etcd 3.7.1 wrote for the same flags."""

import platform
from pathlib import Path

import pytest

from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.server.start_fields import start_fields

FLAGS = (
    "--listen-client-urls=http://127.0.0.1:33791",
    "--advertise-client-urls=http://127.0.0.1:33791",
    "--listen-peer-urls=http://127.0.0.1:33792",
    "--initial-advertise-peer-urls=http://127.0.0.1:33792",
    "--initial-cluster=default=http://127.0.0.1:33792",
)
ETCDS = {
    "etcd-version": "3.7.1",
    "member-initialized": False,
    "name": "default",
    "data-dir": "DATA",
    "wal-dir": "",
    "wal-dir-dedicated": "",
    "member-dir": "DATA/member",
    "force-new-cluster": False,
    "heartbeat-interval": "100ms",
    "election-timeout": "1s",
    "initial-election-tick-advance": True,
    "snapshot-count": 10000,
    "max-wals": 5,
    "max-snapshots": 5,
    "snapshot-catchup-entries": 5000,
    "initial-advertise-peer-urls": ["http://127.0.0.1:33792"],
    "listen-peer-urls": ["http://127.0.0.1:33792"],
    "advertise-client-urls": ["http://127.0.0.1:33791"],
    "listen-client-urls": ["http://127.0.0.1:33791"],
    "listen-metrics-urls": [],
    "local-address": "",
    "cors": [],
    "host-whitelist": [],
    "initial-cluster": "default=http://127.0.0.1:33792",
    "initial-cluster-state": "new",
    "initial-cluster-token": "etcd-cluster",
    "quota-backend-bytes": 2147483648,
    "max-request-bytes": 1572864,
    "max-concurrent-streams": 4294967295,
    "pre-vote": True,
    "feature-gates": "",
    "initial-corrupt-check": False,
    "corrupt-check-time-interval": "0s",
    "compact-check-time-interval": "1m0s",
    "auto-compaction-mode": "periodic",
    "auto-compaction-retention": "0s",
    "auto-compaction-interval": "0s",
    "discovery-token": "",
    "discovery-endpoints": "",
    "discovery-dial-timeout": "2s",
    "discovery-request-timeout": "5s",
    "discovery-keepalive-time": "2s",
    "discovery-keepalive-timeout": "6s",
    "discovery-insecure-transport": True,
    "discovery-insecure-skip-tls-verify": False,
    "discovery-cert": "",
    "discovery-key": "",
    "discovery-cacert": "",
    "discovery-user": "",
    "downgrade-check-interval": "5s",
    "max-learners": 1,
    "v2-deprecation": "write-only",
}  # DATA and WAL: the directories; what differs by machine and build is left out
MORE_FLAGS = (
    "--name=n1",
    "--wal-dir=WAL",
    "--advertise-client-urls=http://127.0.0.1:33791,http://localhost:33791",
    "--initial-cluster=n1=http://127.0.0.1:33792",
    "--initial-cluster-token=t",
    "--snapshot-count=50",
    "--max-wals=2",
    "--max-snapshots=3",
    "--snapshot-catchup-entries=1000",
    "--heartbeat-interval=150",
    "--election-timeout=1500",
    "--initial-election-tick-advance=false",
    "--listen-metrics-urls=http://127.0.0.1:33793",
    "--cors=http://b:1,http://a:1",
    "--host-whitelist=z,y",
    "--quota-backend-bytes=1000000000",
    "--max-request-bytes=1000",
    "--max-concurrent-streams=10",
    "--pre-vote=false",
    "--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true",
    "--corrupt-check-time=90s",
    "--compact-hash-check-time=5m",
    "--auto-compaction-mode=revision",
    "--auto-compaction-retention=1500",
    "--max-learners=2",
)
MORE_OF_ETCD = {
    "name": "n1",
    "data-dir": "DATA",
    "wal-dir": "WAL",
    "wal-dir-dedicated": "WAL",
    "member-dir": "DATA/member",
    "heartbeat-interval": "150ms",
    "election-timeout": "1.5s",
    "initial-election-tick-advance": False,
    "snapshot-count": 50,
    "max-wals": 2,
    "max-snapshots": 3,
    "snapshot-catchup-entries": 1000,
    "advertise-client-urls": ["http://127.0.0.1:33791", "http://localhost:33791"],
    "listen-metrics-urls": ["http://127.0.0.1:33793"],
    "cors": ["http://a:1", "http://b:1"],
    "host-whitelist": ["y", "z"],
    "initial-cluster": "n1=http://127.0.0.1:33792",
    "initial-cluster-token": "t",
    "quota-backend-bytes": 1000000000,
    "max-request-bytes": 1000,
    "max-concurrent-streams": 10,
    "pre-vote": False,
    "feature-gates": "CompactHashCheck=true,InitialCorruptCheck=true",
    "corrupt-check-time-interval": "1m30s",
    "compact-check-time-interval": "5m0s",
    "auto-compaction-mode": "revision",
    "auto-compaction-retention": "1.5µs",
    "auto-compaction-interval": "1.5µs",
    "max-learners": 2,
}


def fields_of(*flags: str) -> dict[str, object]:
    return start_fields(configure(read_command_line((*FLAGS, "--data-dir=DATA", *flags)), {}))


def without_machine(fields: dict[str, object]) -> dict[str, object]:
    assert fields.pop("python-version") == platform.python_version()
    for name in ("max-cpu-set", "max-cpu-available"):
        count = fields.pop(name)
        assert isinstance(count, int)
        assert count > 0
    return fields


def test_names_values_and_order_are_etcds() -> None:
    assert list(without_machine(fields_of()).items()) == list(ETCDS.items())


def test_settings_show() -> None:
    # etcd shows false for the check that is configured by its feature gate.
    expected = {**ETCDS, **MORE_OF_ETCD, "initial-corrupt-check": True}
    assert without_machine(fields_of(*MORE_FLAGS)) == expected


@pytest.mark.parametrize("segments", [0, 1])
def test_a_log_makes_a_member_initialized(tmp_path: Path, segments: int) -> None:
    for at in range(segments):
        (tmp_path / f"{at:016x}-{at:016x}.wal").touch()
    assert fields_of(f"--wal-dir={tmp_path}")["member-initialized"] is bool(segments)


def test_passwords_do_not_show() -> None:
    shown = fields_of("--discovery-user=u", "--discovery-password=secret")
    assert "secret" not in str(shown)
