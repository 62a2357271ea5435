"""The log between this project and real etcd: each reads what the other wrote."""

import shutil
from pathlib import Path

import pytest

from kvstore.raft.model import Entry, EntryType, HardState, Snapshot
from kvstore.storage.snapshots.file import (
    decode_snapshot_file,
    encode_snapshot_file,
    list_snapshot_files,
    write_snapshot_file,
)
from kvstore.storage.v2_store import encode_v2_store
from kvstore.storage.wal.record import (
    CRC,
    ENTRY,
    INITIAL_SNAPSHOT,
    METADATA,
    SNAPSHOT,
    STATE,
    SegmentReader,
    decode_snapshot_body,
    encode_crc,
    encode_records,
    encode_snapshot_body,
)
from kvstore.storage.wal.scan import read_last_snapshot, read_snapshots
from kvstore.storage.wal.wal import Wal
from kvstore.wire import internal
from kvstore.wire.gen import rpc_pb2
from kvstore.wire.members import Member
from kvstore.wire.raft_codec import decode_hard_state, encode_hard_state
from tests.support.servers import Server, etcd, etcdctl, running

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KEYS = 20
PUT_TAG = b"\x22"


def put_data(request_id: int, key: bytes, value: bytes) -> bytes:
    body = rpc_pb2.PutRequest(key=key, value=value).SerializeToString()
    return internal.wrap(internal.Field.PUT, body, request_id)


def puts(entries: list[Entry]) -> dict[bytes, bytes]:
    """The keys and values put by a log."""
    found: dict[bytes, bytes] = {}
    for entry in entries:
        if entry.type == EntryType.NORMAL and entry.data[:1] == PUT_TAG:
            field, body, _ = internal.unwrap(entry.data)
            if field == internal.Field.PUT:
                request = rpc_pb2.PutRequest.FromString(body)
                found[request.key] = request.value
    return found


def write_through_etcd(server: Server) -> dict[bytes, bytes]:
    for number in range(KEYS):
        etcdctl(server, "put", f"key{number:02}", f"value{number}" * number or "none")
    return {b"key%02d" % number: b"value%d" % number * number or b"none" for number in range(KEYS)}


def get(server: Server, key: str) -> str:
    return etcdctl(server, "get", "--print-value-only", key).stdout.strip()


def wal_of(server: Server) -> Path:
    return server.data_dir / "member" / "wal"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Server, dict[bytes, bytes]]:
    """A real etcd that was written to, took disk snapshots, and was stopped."""
    server = etcd(tmp_path_factory.mktemp("etcd") / "data", name="n1", extra=["--snapshot-count=8"])
    with running(server):
        expected = write_through_etcd(server)
        assert server.stop() in {0, -15}
    return server, expected


@pytest.fixture
def copied(stopped: tuple[Server, dict[bytes, bytes]], tmp_path: Path) -> Server:
    """The same member on a copy of its data, not started."""
    original, _ = stopped
    shutil.copytree(original.data_dir, tmp_path / "data")
    ports = original.client_port, original.peer_port
    return etcd(tmp_path / "data", name="n1", ports=ports)


def test_etcds_log_is_read(copied: Server, stopped: tuple[Server, dict[bytes, bytes]]) -> None:
    directory = wal_of(copied)
    segment = directory / "0000000000000000-0000000000000000.wal"
    before = segment.read_bytes()
    wal, replay = Wal.open(directory, INITIAL_SNAPSHOT)
    assert puts(replay.entries) == stopped[1]
    assert [entry.index for entry in replay.entries] == list(range(1, len(replay.entries) + 1))
    assert replay.entries[0].type == EntryType.CONF_CHANGE
    assert replay.hard_state.commit == len(replay.entries)
    assert replay.repair is None
    assert len(replay.snapshots) >= 3
    assert replay.snapshots == read_snapshots(directory)
    assert replay.snapshots[-1] == read_last_snapshot(directory)
    wal.close()
    assert segment.read_bytes() == before
    last = replay.snapshots[-1]
    wal, tail = Wal.open(directory, last)
    assert tail.entries == replay.entries[last.index :]
    assert tail.metadata == replay.metadata
    wal.close()


def test_our_own_writer_makes_the_very_same_log(copied: Server) -> None:
    """Records of etcd's log, taken apart and framed again, are etcd's bytes again."""
    theirs = (wal_of(copied) / "0000000000000000-0000000000000000.wal").read_bytes()
    reader = SegmentReader(theirs, len(theirs), 0)
    ours, crc, kinds = b"", 0, set()
    for _, kind, body in reader:
        kinds.add(kind)
        if kind == CRC:
            ours += encode_crc(crc)
            continue
        if kind == STATE:
            assert encode_hard_state(decode_hard_state(body)) == body
        elif kind == SNAPSHOT:
            assert encode_snapshot_body(decode_snapshot_body(body)) == body
        frame, crc = encode_records(kind, (body,), crc)
        ours += frame
    assert kinds == {METADATA, ENTRY, STATE, CRC, SNAPSHOT}
    assert reader.fault is None
    assert ours == theirs[: len(ours)]
    assert not theirs[len(ours) :].strip(b"\0")


def test_etcd_goes_on_from_what_we_appended(
    copied: Server, stopped: tuple[Server, dict[bytes, bytes]]
) -> None:
    directory = wal_of(copied)
    wal, replay = Wal.open(directory, read_snapshots(directory)[-1], segment_bytes=3000)
    last, state = replay.entries[-1].index, replay.hard_state
    for number in range(1, 31):  # over several cuts
        data = put_data((1 << 40) + number, b"ours%02d" % number, b"v%d" % number * 40)
        entry = Entry(EntryType.NORMAL, state.term, last + number, data)
        wal.save(HardState(state.term, state.vote, entry.index), [entry], sync=True)
    wal.close()
    assert len(list(directory.glob("*.wal"))) > 2
    with running(copied):
        assert get(copied, "ours01") == "v1" * 40
        assert get(copied, "ours30") == "v30" * 40
        assert get(copied, "key19") == "value19" * 19
        etcdctl(copied, "put", "after", "wards")
        copied.stop()
    wal, replay = Wal.open(directory, INITIAL_SNAPSHOT)
    found = puts(replay.entries)
    assert found[b"after"] == b"wards"
    assert stopped[1].items() <= found.items()
    wal.close()


def test_etcd_starts_from_a_log_we_repaired(copied: Server) -> None:
    directory = wal_of(copied)
    segment = directory / "0000000000000000-0000000000000000.wal"
    wal, replay = Wal.open(directory, INITIAL_SNAPSHOT)
    state, end = replay.hard_state, wal.tail_offset
    data = put_data(1 << 40, b"torn", b"t" * 3000)
    last = replay.entries[-1].index
    wal.save(state, [Entry(EntryType.NORMAL, state.term, last + 1, data)], sync=True)
    wal.close()
    with segment.open("r+b") as file:
        file.seek(-(-end // 512) * 512 + 512)
        file.write(bytes(512))
    wal, repaired = Wal.open(directory, INITIAL_SNAPSHOT)
    assert repaired.entries == replay.entries
    assert repaired.repair is not None
    assert repaired.repair.offset == end
    assert repaired.repair.broken_path.stat().st_size == 64_000_000
    wal.close()
    with running(copied):
        assert get(copied, "key19") == "value19" * 19
        assert get(copied, "torn") == ""


def test_snapshot_files_are_etcds(copied: Server) -> None:
    found = list_snapshot_files(copied.data_dir / "member" / "snap")
    assert found
    for path, term, index in found:
        data = path.read_bytes()
        snapshot = decode_snapshot_file(data)
        assert (snapshot.metadata.term, snapshot.metadata.index) == (term, index)
        assert encode_snapshot_file(snapshot) == data


def test_etcd_starts_from_a_snapshot_file_we_wrote(copied: Server) -> None:
    """3.5 boots from the .snap: its members come from the version 2 store we wrote."""
    directory = wal_of(copied)
    snap = copied.data_dir / "member" / "snap"
    newest = list_snapshot_files(snap)[-1]
    metadata = decode_snapshot_file(newest.path.read_bytes()).metadata
    member_id = metadata.conf_state.voters[0]
    member = Member(member_id, "renamed", [copied.peer_url], ["http://127.0.0.1:1"])
    for each in list_snapshot_files(snap):
        each.path.unlink()
    store = encode_v2_store([member], [0xDEAD], "3.5.0")
    assert write_snapshot_file(snap, Snapshot(metadata, store)) == newest.path
    assert read_last_snapshot(directory) is not None
    with running(copied):
        assert get(copied, "key19") == "value19" * 19
        members = etcdctl(copied, "member", "list").stdout
        assert f"{member_id:x}, started, n1, {copied.peer_url}" in members
        etcdctl(copied, "put", "after", "wards")
        assert get(copied, "after") == "wards"
