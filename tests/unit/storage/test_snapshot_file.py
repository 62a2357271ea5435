"""Snapshot files and the version 2 store within, against what real etcd wrote."""

import errno
import json
from pathlib import Path

import pytest

from kvstore.errors import CorruptionError, StorageFatalError
from kvstore.raft.model import ConfState, Snapshot, SnapshotMetadata
from kvstore.storage.snapshots.file import (
    NotNowError,
    encode_snapshot_file,
    list_snapshot_files,
    purge_snapshot_files,
    read_snapshot_file,
    write_snapshot_file,
)
from kvstore.storage.v2_store import encode_v2_store
from kvstore.wire.members import Member
from tests.support.disks.fault_files import FaultFiles

NEVER = "0001-01-01T00:00:00Z"


def snapshot(index: int = 12, term: int = 2) -> Snapshot:
    return Snapshot(SnapshotMetadata(ConfState((0x10046E5A5CC2CB6,)), index, term), b'{"Root":1}')


def test_layout() -> None:
    data = encode_snapshot_file(snapshot())
    body = bytes.fromhex("0a0a") + b'{"Root":1}' + bytes.fromhex("1212")
    body += bytes.fromhex("0a0c08b6d9b0aedadc9180012800100c1802")
    assert data.endswith(b"\x12" + bytes((len(body),)) + body)
    assert data[0] == 0x08


def test_round_trip_under_its_name(tmp_path: Path) -> None:
    path = write_snapshot_file(tmp_path, snapshot())
    assert path.name == "0000000000000002-000000000000000c.snap"
    assert read_snapshot_file(path) == snapshot()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    with pytest.raises(ValueError, match="index 0 is empty"):
        write_snapshot_file(tmp_path, snapshot(0))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no snapshot in it"),
        (encode_snapshot_file(snapshot())[:-1], "ends after"),
        (b"\x08\x00" + encode_snapshot_file(snapshot())[6:], "no snapshot in it"),
        (encode_snapshot_file(snapshot())[:-1] + b"\x03", "crc mismatch: expected"),
    ],
)
def test_what_is_no_snapshot_is_refused_by_name(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "0000000000000002-000000000000000c.snap"
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=text) as caught:
        read_snapshot_file(path)
    assert str(path) in str(caught.value)


def test_purge_keeps_the_newest(tmp_path: Path) -> None:
    for term, index in ((1, 99), (2, 5), (2, 10), (2, 20)):
        write_snapshot_file(tmp_path, snapshot(index, term))
    (tmp_path / "db").touch()
    assert [(each.term, each.index) for each in list_snapshot_files(tmp_path)] == [
        (1, 99), (2, 5), (2, 10), (2, 20),
    ]  # fmt: skip
    assert purge_snapshot_files(tmp_path, 0) == []
    assert len(purge_snapshot_files(tmp_path, 2)) == 2
    assert [each.index for each in list_snapshot_files(tmp_path)] == [10, 20]
    assert (tmp_path / "db").exists()


def test_a_failing_disk_leaves_no_half_of_it(tmp_path: Path) -> None:
    sound = FaultFiles()
    write_snapshot_file(tmp_path, snapshot(1), sound)
    for number, name in enumerate(sound.calls):
        failing = FaultFiles(number, error_number=errno.EIO)
        with pytest.raises(StorageFatalError, match=r"cannot write snapshot .*Input/output error"):
            write_snapshot_file(tmp_path, snapshot(2), failing)
        for each in list_snapshot_files(tmp_path):
            read_snapshot_file(each.path)
        assert name != "rename" or len(list_snapshot_files(tmp_path)) == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_failing_disk(tmp_path: Path, number: int) -> None:
    """Wherever the space runs out: the log does not name the file yet."""
    sound = FaultFiles()
    write_snapshot_file(tmp_path, snapshot(1), sound)
    for at in range(len(sound.calls)):
        with pytest.raises(NotNowError, match=r"cannot write snapshot") as caught:
            write_snapshot_file(tmp_path, snapshot(2), FaultFiles(at, error_number=number))
        assert caught.value.needs_space
    assert read_snapshot_file(write_snapshot_file(tmp_path, snapshot(2))) == snapshot(2)


def test_the_version_2_store_has_etcds_shape() -> None:
    member = Member(0x10046E5A5CC2CB6, "n1", ["http://127.0.0.1:24643"], ["http://127.0.0.1:24642"])
    store = json.loads(encode_v2_store([member], [], "3.7.0"))
    assert list(store) == ["Root", "WatcherHub", "CurrentIndex", "Stats", "CurrentVersion"]
    assert (store["CurrentIndex"], store["CurrentVersion"]) == (3, 2)
    queue = store["WatcherHub"]["EventHistory"]["Queue"]
    assert queue["Events"] == [None] * queue["Capacity"] == [None] * 1000

    path = "/0/members/10046e5a5cc2cb6"

    def node(path: str, index: int, value: str, children: object) -> dict[str, object]:
        return {
            "Path": path, "CreatedIndex": index, "ModifiedIndex": index, "ExpireTime": NEVER,
            "Value": value, "Children": children,
        }  # fmt: skip

    attributes = '{"name":"n1","clientURLs":["http://127.0.0.1:24642"]}'
    raft = '{"peerURLs":["http://127.0.0.1:24643"]}'
    leaves = {
        "attributes": node(f"{path}/attributes", 2, attributes, None),
        "raftAttributes": node(f"{path}/raftAttributes", 1, raft, None),
    }
    members = node("/0/members", 1, "", {"10046e5a5cc2cb6": node(path, 1, "", leaves)})
    version = node("/0/version", 3, "3.7.0", None)
    namespace = node("/0", 0, "", {"members": members, "version": version})
    assert store["Root"] == node("/", 0, "", {"0": namespace, "1": node("/1", 0, "", {})})


def test_learners_removed_members_and_unpublished_ones() -> None:
    store = json.loads(
        encode_v2_store([Member(2, "", ["http://b"], [], is_learner=True)], [0xAB, 0xC], None)
    )
    children = store["Root"]["Children"]["0"]["Children"]
    assert set(children) == {"members", "removed_members"}
    assert set(children["removed_members"]["Children"]) == {"ab", "c"}
    leaves = children["members"]["Children"]["2"]["Children"]
    assert set(leaves) == {"raftAttributes"}
    assert leaves["raftAttributes"]["Value"] == '{"peerURLs":["http://b"],"isLearner":true}'
