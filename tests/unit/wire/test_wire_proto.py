"""The messages are etcd's: bytes seen from a running etcd 3.7.1 come back as they were."""

from pathlib import Path

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from kvstore.wire.gen import (
    auth_pb2,
    kv_pb2,
    lease_pb2,
    membership_pb2,
    metadata_pb2,
    raft_internal_pb2,
    raft_pb2,
    rpc_pb2,
    snap_pb2,
    wal_pb2,
)
from proto import generate

KEY_VALUE = kv_pb2.KeyValue
INTERNAL = raft_internal_pb2.InternalRaftRequest
BOOTSTRAP_ENTRY = (
    "0801 1001 1801 225a 1000 18a1d1cbb4ada9b6c762 224c"
    + b'{"id":7101852577860610209,"peerURLs":["http://127.0.0.1:23800"],"name":"n1"}'.hex()
)
PUBLISH = (
    "a2060b0881a6e9d9cabfe8d0e801 aa5128 08a1d1cbb4ada9b6c762 121c 0a026e31 1216"
    + b"http://127.0.0.1:23790".hex()
)
PROBE_APPEND = "0803 10e6c898a49de4aaed8001 18ffb0d2d58fcddcaa5f 2002 2801 3003 3a0410021804 4003"


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (KEY_VALUE, "0a03666f6f 1002 1802 2001 2a03626172"),
        (KEY_VALUE, "0a0162"),
        (KEY_VALUE, "0a0178 1007 1807 2001 2a0176 308aa486e9cabfe8d068"),
        (INTERNAL, "220a 0a03666f6f 1203626172 a2060b0883a6e9d9cabfe8d0e801"),
        (INTERNAL, "420d 08d804 1088a486e9cabfe8d068 a2060b0889a6e9d9cabfe8d0e801"),
        (INTERNAL, "a2060b0882a6e9d9cabfe8d0e801 a25107 0a05332e372e30"),
        (INTERNAL, "5200 a2060b0883a6e9d9cabfe8d0e801"),
        (rpc_pb2.AlarmMember, "08a1d1cbb4ada9b6c762 1001"),
        (rpc_pb2.LeaseKeepAliveResponse, "1007 180a"),
        (lease_pb2.LeaseInternalResponse, "0a0b 0a00 1007 1805 200a 2a0161"),
        (metadata_pb2.Metadata, "08a1d1cbb4ada9b6c762 109bb3eaddcf9efde6dd01"),
        (wal_pb2.Record, "0804 1000"),
        (wal_pb2.Record, "0805 1097ae87ca04 1a0408001000"),
        (wal_pb2.Snapshot, "0800 1000"),
        (raft_pb2.HardState, "0801 1000 1801"),
        (raft_pb2.Entry, "1002 1802"),
        (raft_pb2.Entry, BOOTSTRAP_ENTRY),
        (raft_pb2.Message, PROBE_APPEND),
        (raft_pb2.Message, "0808"),
        (snap_pb2.snapshot, "0801 120100"),
        (auth_pb2.User, "0a0161 1a0172 2200"),
        (membership_pb2.ClusterMemberAttrSetRequest, "0807 1205 0a036e6f64"),
    ],
)
def test_bytes_of_etcd_survive_a_round_trip(kind: type[Message], seen: str) -> None:
    data = bytes.fromhex(seen)
    message = kind.FromString(data)
    assert message.SerializeToString() == data
    assert len(UnknownFieldSet(message)) == 0


def test_fields_mean_what_they_mean_to_etcd() -> None:
    lease = INTERNAL.FromString(
        bytes.fromhex("420d08d8041088a486e9cabfe8d068a2060b0889a6e9d9cabfe8d0e801")
    )
    assert lease.lease_grant.TTL == 600
    assert lease.lease_grant.ID == 0x68A1A1FCAD219208
    assert lease.header.ID == 0xE8A1A1FCAB3A5309
    publish = INTERNAL.FromString(bytes.fromhex(PUBLISH))
    attributes = publish.cluster_member_attr_set
    assert attributes.member_ID == 0x628ED94AD692E8A1
    assert attributes.member_attributes.name == "n1"
    assert list(attributes.member_attributes.client_urls) == ["http://127.0.0.1:23790"]


def test_committed_modules_are_fresh(tmp_path: Path) -> None:
    generate.generate(tmp_path)
    for package in generate.PACKAGES:
        assert generate.differences(tmp_path / package, generate.ROOT / package) == []


def test_check_names_stale_missing_and_left_over_files(tmp_path: Path) -> None:
    fresh, committed = tmp_path / "fresh", tmp_path / "committed"
    fresh.mkdir()
    committed.mkdir()
    for folder, name, text in (
        (fresh, "same_pb2.py", "1"),
        (committed, "same_pb2.py", "1"),
        (fresh, "stale_pb2.pyi", "2"),
        (committed, "stale_pb2.pyi", "1"),
        (fresh, "missing_pb2.py", "1"),
        (committed, "gone_pb2.py", "1"),
        (committed, "__init__.py", "not generated"),
    ):
        (folder / name).write_text(text)
    assert generate.differences(fresh, committed) == [
        "gone_pb2.py",
        "missing_pb2.py",
        "stale_pb2.pyi",
    ]


def test_check_fails_on_a_changed_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = tmp_path / generate.PACKAGES[0]
    sources.mkdir(parents=True)
    for path in (generate.SOURCES / generate.PACKAGES[0]).glob("*.proto"):
        text = path.read_text()
        if path.name == "kv.proto":
            text = text.replace("int64 lease = 6;", "int64 lease = 7;")
        (sources / path.name).write_text(text)
    monkeypatch.setattr(generate, "SOURCES", tmp_path)
    assert generate.main(["--check"]) == 1
    named = capsys.readouterr().err
    assert "kvstore/wire/gen/kv_pb2.py is stale" in named
    assert "rpc_pb2" not in named
