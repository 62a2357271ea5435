"""Restoring and migrating: the whole of it or nothing, and never over what is there."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.backend import Table
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.wal.record import INITIAL_SNAPSHOT, WalSnapshot
from kvstore.storage.wal.wal import Wal
from kvstore.util import targets
from kvstore.wire.members import cluster_id, member_id
from tests.support.disks.etcd_db_files import read, revision, sample, write
from tests.support.util_command import Tool, snapshot_file

PEERS = {"a": "http://127.0.0.1:2380", "b": "http://127.0.0.2:2380", "c": "http://127.0.0.3:2380"}
CLUSTER = ",".join(f"{name}={url}" for name, url in PEERS.items())
FLAGS = (
    "--name=b",
    f"--initial-advertise-peer-urls={PEERS['b']}",
    f"--initial-cluster={CLUSTER}",
    "--initial-cluster-token=t",
)
IDS = {name: member_id([url], "t", None) for name, url in PEERS.items()}


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    buckets = sample(50)
    buckets[b"members"] = [(b"77", b'{"id":119,"peerURLs":["http://old:1"],"name":"old"}')]
    buckets[b"members_removed"] = [(b"99", b"removed")]
    return snapshot_file(tmp_path / "s.db", buckets)


def _tree(path: Path) -> dict[str, str]:
    """Return what is under a directory but locks: digests of files by relative name."""
    return {
        str(each.relative_to(path)): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name not in {"lmdb.lock", "lock.mdb"}
    }


def _lines(tool: Tool, *arguments: object) -> Iterator[dict[str, object]]:
    return map(json.loads, tool.done("dump", *arguments).splitlines())


def test_a_restored_directory_founds_the_cluster_the_flags_name(
    tool: Tool, snapshot: Path, tmp_path: Path
) -> None:
    tool.done("snapshot", "restore", snapshot, "--data-dir", tmp_path / "d", *FLAGS)
    records = list(_lines(tool, "wal", tmp_path / "d"))
    own, all_ids = f"{IDS['b']:x}", sorted(IDS.values())
    assert [each["record"] for each in records] == [
        "crc", "metadata", "snapshot", "entry", "entry", "entry", "state", "snapshot",
    ]  # fmt: skip
    assert records[1]["member_id"] == own
    assert records[1]["cluster_id"] == f"{cluster_id(IDS.values()):x}"
    added = [each["change"]["node_id"] for each in records[3:6]]  # type: ignore[index]
    assert added == [f"{each:x}" for each in all_ids]
    assert records[6] | {"term": 1, "vote": f"{all_ids[0]:x}", "commit": 3} == records[6]
    assert records[7]["voters"] == added
    rows = {(row["bucket"], row.get("key", row.get("id"))): row for row in _lines(
        tool, "state", tmp_path / "d"
    )}  # fmt: skip
    assert {key for bucket, key in rows if bucket == "members"} == set(added)
    assert not [key for bucket, key in rows if bucket == "members_removed"]
    assert rows["meta", "consistent_index"]["value"] == 3
    assert rows["meta", "term"]["value"] == 1
    assert rows["cluster", "clusterVersion"]["value"] == "3.7.0"
    tool.done("verify", tmp_path / "d")
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    wal, replay = Wal.open(tmp_path / "d" / "member" / "wal", INITIAL_SNAPSHOT)
    wal.close()
    assert replay.repair is None
    assert [entry.index for entry in replay.entries] == [1, 2, 3]


def test_both_formats_hold_the_same_rows(tool: Tool, snapshot: Path, tmp_path: Path) -> None:
    ours, etcds = tmp_path / "ours", tmp_path / "etcds"
    tool.done("snapshot", "restore", snapshot, "--data-dir", ours, *FLAGS)
    tool.done("snapshot", "restore", snapshot, "--data-dir", etcds, "--to=etcd", *FLAGS)
    assert list(_lines(tool, "state", ours)) == list(_lines(tool, "state", etcds))
    assert tool.done("hashkv", ours) == tool.done("hashkv", etcds)
    expected = sample(50)
    assert {name: rows for name, rows in read(etcds / "member" / "snap" / "db").items() if name in (
        b"key", b"cluster", b"auth"
    )} == {name: expected[name] for name in (b"key", b"cluster", b"auth")}  # fmt: skip


def test_a_bump_adds_one_record_and_decides_a_compaction(
    tool: Tool, snapshot: Path, tmp_path: Path
) -> None:
    bump = ("--bump-revision=1000", "--mark-compacted")
    tool.done(
        "snapshot", "restore", snapshot, "--data-dir", tmp_path / "d", "--to=etcd", *FLAGS, *bump
    )
    found = read(tmp_path / "d" / "member" / "snap" / "db")
    assert found[b"key"] == [*sample(50)[b"key"], (revision(1052), b"")]
    assert dict(found[b"meta"])[b"scheduledCompactRev"] == revision(1052)
    assert tool.done("hashkv", tmp_path / "d").endswith(", 1052, 1052\n")
    tool.done("verify", tmp_path / "d")
    beyond = f"--bump-revision={(1 << 63) - 1}"
    said = tool.failed(
        "snapshot", "restore", snapshot, "--data-dir", tmp_path / "e", *FLAGS, beyond,
        "--mark-compacted",
    )  # fmt: skip
    assert "the latest revision is 52" in said
    assert not (tmp_path / "e").exists()


def test_a_log_directory_of_its_own(tool: Tool, snapshot: Path, tmp_path: Path) -> None:
    wal = tmp_path / "logs" / "wal"
    command = ("snapshot", "restore", snapshot, *FLAGS, "--wal-dir", wal, "--data-dir")
    tool.done(*command, tmp_path / "d")
    assert Wal.exists(wal)
    assert not (tmp_path / "d" / "member" / "wal").exists()
    assert "consistency: ok" in tool.done("verify", tmp_path / "d", "--wal-dir", wal)
    before = _tree(tmp_path)
    assert f'wal-dir "{wal}" exists' in tool.failed(*command, tmp_path / "e")
    assert _tree(tmp_path) == before


@pytest.mark.parametrize("kind", ["kvstore", "etcd"])
def test_nothing_that_is_there_is_written_over(
    tool: Tool, snapshot: Path, tmp_path: Path, kind: str
) -> None:
    data_dir = tmp_path / "d"
    command = ("snapshot", "restore", snapshot, "--data-dir", data_dir, "--to", kind, *FLAGS)
    data_dir.mkdir()
    (data_dir / "mine.txt").write_text("precious")
    before = _tree(tmp_path)
    assert "not empty or could not be read: it has mine.txt" in tool.failed(*command)
    assert _tree(tmp_path) == before
    (data_dir / "mine.txt").unlink()
    tool.done(*command)  # an empty directory is fine: it may be a mount
    before = _tree(data_dir)
    assert "it has member" in tool.failed(*command)
    assert _tree(data_dir) == before
    tool.failed("migrate", "--data-dir", data_dir, "--to", kind, "--out", data_dir)
    assert _tree(data_dir).items() >= before.items()


def test_what_an_attempt_that_was_killed_left_behind_is_no_hindrance(
    tool: Tool, snapshot: Path, tmp_path: Path
) -> None:
    left = tmp_path / "d" / targets.BUILD_NAME / "snap"
    left.mkdir(parents=True)
    (left / "db").write_bytes(b"half")
    tool.done("snapshot", "restore", snapshot, "--data-dir", tmp_path / "d", *FLAGS)
    assert os.listdir(tmp_path / "d") == ["member"]


@pytest.mark.parametrize("kind", ["kvstore", "etcd"])
def test_an_attempt_that_fails_leaves_nothing(
    tool: Tool, snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    before = _tree(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Wal, "save_snapshot", full)
    said = tool.failed(
        "snapshot", "restore", snapshot, "--data-dir", tmp_path / "d", "--to", kind, *FLAGS,
        "--wal-dir", tmp_path / "wal",
    )  # fmt: skip
    assert "No space left on device" in said
    assert _tree(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["s.db"]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--name=x"], 'couldn\'t find local name "x" in the initial cluster configuration'),
        (["--initial-cluster=b=127.0.0.1:2380"], "URL scheme must be http"),
        (["--initial-advertise-peer-urls=http://10.0.0.9:1"], "but missing from"),
        (["--initial-advertise-peer-urls=nonsense"], "--initial-advertise-peer-urls"),
        ([f"--initial-cluster={CLUSTER},d={PEERS['a']}"], "duplicate url"),
        (["--bump-revision=-1", "--mark-compacted"], "--bump-revision"),
    ],
)
def test_flags_that_make_no_cluster(
    tool: Tool, snapshot: Path, tmp_path: Path, flags: list[str], text: str
) -> None:
    said = tool.failed(
        "snapshot", "restore", snapshot, "--data-dir", tmp_path / "d", *FLAGS, *flags
    )
    assert text in said
    assert not (tmp_path / "d").exists()


def test_a_digest_that_is_missing_or_wrong_is_refused_unless_skipped(
    tool: Tool, snapshot: Path, tmp_path: Path
) -> None:
    bare = write(tmp_path / "bare.db", sample(5))
    command = ("snapshot", "restore", "--data-dir", tmp_path / "d", *FLAGS)
    said = tool.failed(*command, bare)
    assert "snapshot missing hash but --skip-hash-check=false" in said
    assert str(bare) in said
    data = bytearray(snapshot.read_bytes())
    data[-1] ^= 1
    snapshot.write_bytes(data)
    assert f"at offset {len(data) - 32}: digest" in tool.failed(*command, snapshot)
    assert not (tmp_path / "d").exists()
    tool.done(*command, snapshot, "--skip-hash-check")
    tool.done(*command[:2], bare, "--skip-hash-check", "--data-dir", tmp_path / "e", *FLAGS)


def test_the_default_directory_is_named_after_the_member(
    tool: Tool, snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tool.done("snapshot", "restore", snapshot, *FLAGS)
    assert (tmp_path / "b.etcd" / "member").is_dir()


def test_rows_of_an_unknown_bucket_or_version_are_refused_by_name(
    tool: Tool, tmp_path: Path
) -> None:
    buckets = sample(5)
    strange = snapshot_file(tmp_path / "strange.db", {**buckets, b"zebra": [(b"k", b"v")]})
    newer = dict(buckets)
    newer[b"meta"] = [(b"storageVersion", b"3.9.0")]
    newer_file = snapshot_file(tmp_path / "newer.db", newer)
    for path, text in ((strange, "zebra"), (newer_file, "3.9.0")):
        said = tool.failed("snapshot", "restore", path, "--data-dir", tmp_path / "d", *FLAGS)
        assert text in said
        assert not (tmp_path / "d").exists()


def _member(tool: Tool, snapshot: Path, path: Path, kind: str) -> Path:
    flags = ("--initial-cluster=default=http://localhost:2380",)
    tool.done("snapshot", "restore", snapshot, "--data-dir", path, "--to", kind, *flags)
    return path


@pytest.mark.parametrize(("kind", "other"), [("kvstore", "etcd"), ("etcd", "kvstore")])
def test_there_and_back_changes_nothing(
    tool: Tool, snapshot: Path, tmp_path: Path, kind: str, other: str
) -> None:
    source = _member(tool, snapshot, tmp_path / "source", kind)
    before = _tree(source)
    tool.done("migrate", "--data-dir", source, "--to", other, "--out", tmp_path / "there")
    tool.done("migrate", "--data-dir", tmp_path / "there", "--to", kind, "--out", tmp_path / "back")
    assert _tree(source) == before
    for place in (tmp_path / "there", tmp_path / "back"):
        assert list(_lines(tool, "state", place)) == list(_lines(tool, "state", source))
        assert list(_lines(tool, "wal", place)) == list(_lines(tool, "wal", source))
        tool.done("verify", place)
    assert "member/snap/0000000000000001-0000000000000001.snap" in _tree(tmp_path / "back")


def test_an_older_version_gets_a_log_that_begins_where_the_state_is(
    tool: Tool, snapshot: Path, tmp_path: Path
) -> None:
    source = _member(tool, snapshot, tmp_path / "source", "kvstore")
    out = tmp_path / "out"
    flags = ("--to=etcd", "--target-version=3.5", "--out", out)
    tool.done("migrate", "--data-dir", source, *flags)
    found = read(out / "member" / "snap" / "db")
    assert dict(found[b"cluster"])[b"clusterVersion"] == b"3.5.0"
    assert b"storageVersion" not in dict(found[b"meta"])
    assert found[b"key"] == sample(50)[b"key"]
    records = list(_lines(tool, "wal", out))
    assert [each["record"] for each in records][2:] == ["snapshot", "state", "snapshot"]
    tool.done("verify", out)
    newer = ("--target-version=3.5", "--to=kvstore", "--out", tmp_path / "x")
    assert "3.7 only" in tool.failed("migrate", "--data-dir", source, *newer)


@pytest.mark.parametrize("kind", ["kvstore", "etcd"])
def test_the_storage_version_is_changed_in_the_directory(
    tool: Tool, snapshot: Path, tmp_path: Path, kind: str
) -> None:
    source = _member(tool, snapshot, tmp_path / "source", kind)
    command = ("migrate", "--data-dir", source, "--target-version")
    hash_before = tool.done("hashkv", source)
    for version, shown in (("3.6", "3.6.0"), ("3.5", ""), ("3.7", "3.7.0")):
        tool.done(*command, version)
        assert tool.done("snapshot", "status", source).rstrip("\n").endswith(f", {shown}")
        assert "up-to-date" in tool(*command, version).err
    assert tool.done("hashkv", source) == hash_before
    tool.done("verify", source)


@pytest.mark.parametrize("kind", ["kvstore", "etcd"])
def test_defragmentation_keeps_every_row_and_gives_room_back(
    tool: Tool, tmp_path: Path, kind: str
) -> None:
    source = _member(tool, snapshot_file(tmp_path / "s.db", sample(2000)), tmp_path / "d", kind)
    if kind == "kvstore":
        backend = LmdbBackend(source / "member")
        for _ in range(3):
            for number in range(3000):
                backend.put(Table.LEASE, number.to_bytes(8), b"x" * 500)
            backend.commit()
            backend.clear(Table.LEASE)
            backend.commit()
        backend.close()
    rows = list(_lines(tool, "state", source))
    file = source / "member" / ("lmdb/data.mdb" if kind == "kvstore" else "snap/db")
    before_bytes = file.stat().st_size
    tool.done("defrag", "--data-dir", source)
    assert list(_lines(tool, "state", source)) == rows
    if kind == "kvstore":
        assert file.stat().st_size < before_bytes / 2
    tool.done("verify", source)
    assert not [each for each in file.parent.iterdir() if ".tmp" in each.name]


@pytest.mark.parametrize("kind", ["kvstore", "etcd"])
def test_a_directory_in_use_is_left_alone(
    tool: Tool, snapshot: Path, tmp_path: Path, kind: str
) -> None:
    source = _member(tool, snapshot, tmp_path / "d", kind)
    before = _tree(source)
    (segment,) = (source / "member" / "wal").glob("*.wal")
    commands = (
        ("snapshot", "status", source),
        ("hashkv", source),
        ("defrag", "--data-dir", source),
        ("verify", source),
        ("dump", "wal", source),
        ("dump", "state", source),
        ("migrate", "--data-dir", source, "--target-version=3.6"),
        ("migrate", "--data-dir", source, "--to=etcd", "--out", tmp_path / "out"),
    )
    wal, _ = Wal.open(segment.parent, WalSnapshot(1, 1))
    try:
        for command in commands:
            said = tool.failed("--timeout=1ms", *command)
            assert "is in use by another process" in said
    finally:
        wal.close()
    assert not (tmp_path / "out").exists()
    assert _tree(source) == before


def test_a_database_file_in_use_is_left_alone(tool: Tool, snapshot: Path) -> None:
    with snapshot.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for command in (("snapshot", "status"), ("hashkv",), ("dump", "state")):
            said = tool.failed("--timeout=1ms", *command, snapshot)
            assert "is in use by another process" in said


def test_verify_tells_of_a_file_in_use_among_its_findings(tool: Tool, snapshot: Path) -> None:
    with snapshot.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "is in use by another process" in tool("--timeout=1ms", "verify", snapshot).out
