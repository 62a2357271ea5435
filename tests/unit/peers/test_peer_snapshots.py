"""Database files for other members: they and the message that goes with them say the same."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.backend import Table
from kvstore.errors import KvstoreError
from kvstore.meta_rows import CONF_STATE_KEY, CONSISTENT_INDEX_KEY, TERM_KEY
from kvstore.raft.model import Message, MessageType, Snapshot, SnapshotMetadata
from kvstore.server.peering.snapshots import DatabaseFiles
from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.files import received_path
from kvstore.storage.snapshots import peer_writer
from kvstore.storage.snapshots.peer_head import snapshot_of
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import WireError
from tests.support.disks.file_limits import files_limited_to
from tests.support.node.harness import Disk, Harness

INDEX = 77
TIMEOUT_S = 60.0
LARGE_BYTES = 5000 * 4000  # of values in a large state


def _snap(index: int) -> Message:
    return Message(MessageType.SNAP, 7, 1, 3, snapshot=Snapshot(SnapshotMetadata(index=index)))


@pytest.fixture
def member(tmp_path: Path) -> Path:
    harness = Harness(tmp_path / "data", Disk(in_memory=False))
    for number in range(5):
        harness.call(rpc.PUT, pb.PutRequest(key=b"%d" % number, value=b"v"))
    harness.close()
    (tmp_path / "tmp").mkdir()
    return tmp_path / "data" / "member"


def test_the_file_and_its_message_name_the_same_entry(member: Path, tmp_path: Path) -> None:
    files = DatabaseFiles(member, tmp_path / "tmp")
    with files.open(_snap(2)) as opened:
        data = b"".join(opened.pieces)
    (tmp_path / "db").write_bytes(data)
    with EtcdDbReader(tmp_path / "db") as db:
        rows = dict(db.scan(b"meta"))
        keys = list(db.scan(b"key"))
    assert opened.message.snapshot is not None
    metadata = opened.message.snapshot.metadata
    assert metadata.index == int.from_bytes(rows[CONSISTENT_INDEX_KEY]) > 2
    assert metadata.term == 2
    assert len(metadata.conf_state.voters) == 1
    assert (opened.message.to, opened.message.term) == (7, 3)
    assert len(keys) == 5
    assert list((tmp_path / "tmp").iterdir()) == []


def test_nothing_is_left_of_what_nobody_reads(member: Path, tmp_path: Path) -> None:
    with DatabaseFiles(member, tmp_path / "tmp").open(_snap(2)):
        pass
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_database_before_the_message_is_not_sent(member: Path, tmp_path: Path) -> None:
    files = DatabaseFiles(member, tmp_path / "tmp")
    with pytest.raises(KvstoreError, match="before 1000"), files.open(_snap(1000)):
        pass
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_state_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    files = DatabaseFiles(tmp_path / "nothing", tmp_path / "tmp")
    with pytest.raises(KvstoreError, match="failed"), files.open(_snap(1)):
        pass


def test_a_writer_that_fails_on_its_way_ends_the_file_with_an_error(tmp_path: Path) -> None:
    files = DatabaseFiles(large_state(tmp_path), tmp_path / "tmp")
    with files_limited_to(4 << 20), files.open(_snap(1)) as opened:
        first = next(opened.pieces)
        with pytest.raises(KvstoreError, match=r"failed with exit code 1: .*File too large"):
            exhaust(opened.pieces)
    assert 0 < len(first) < LARGE_BYTES
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("module", ["peer_writer", "importer"])
def test_a_child_that_is_waited_for_loads_no_codec(module: str) -> None:
    program = (
        f"import sys; import kvstore.storage.snapshots.{module};"
        "heavy = {'google.protobuf', 'dataclasses', 'asyncio', 'kvstore.raft', 'kvstore.server'};"
        "assert not heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=TIMEOUT_S)


def test_the_position_comes_before_a_small_file_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told of a large one comes with its size: nothing is silent for long in between."""
    monkeypatch.setattr(peer_writer, "EARLY_PAGES_MAX", 20)
    for rows, early in ((1, True), (4000, False)):
        directory = tmp_path / f"{rows}"
        backend = LmdbBackend(directory)
        backend.append(Table.KEY, [(b"%017d" % number, b"v") for number in range(rows)])
        _note_position(backend)
        backend.close()
        reading, writing = socket.socketpair(type=socket.SOCK_SEQPACKET)  # keeps writes apart
        with reading, writing:
            reading.settimeout(TIMEOUT_S)
            peer_writer.write(directory, tmp_path / f"{rows}.db", writing.fileno())
            first = reading.recv(1 << 16)
        length = int.from_bytes(first[:4])
        assert snapshot_of(first[4 : 4 + length]).metadata.index == INDEX
        assert (len(first) == 4 + length) is early


@pytest.mark.parametrize(
    "position", [b"", b"{}", b"[]", b'{"index":1,"term":1,"members":[1],"removed":[]}']
)
def test_a_position_that_cannot_be_read_is_refused(position: bytes) -> None:
    with pytest.raises(WireError, match="cannot be read"):
        snapshot_of(position)


def test_nothing_is_begun_after_the_stop(member: Path, tmp_path: Path) -> None:
    files = DatabaseFiles(member, tmp_path / "tmp")
    files.stop()
    with pytest.raises(KvstoreError, match="stopping"), files.open(_snap(1)):
        pass


def test_what_one_writes_another_takes_while_it_comes(tmp_path: Path) -> None:
    ours, theirs = large_state(tmp_path), tmp_path / "theirs"
    theirs.mkdir()
    sender, receiver = (DatabaseFiles(each, tmp_path / "tmp") for each in (ours, theirs))
    path = tmp_path / "arriving.db"
    with sender.open(_snap(1)) as opened, path.open("wb", buffering=0) as file:
        with receiver.begin_import(INDEX, path) as database:
            for piece in opened.pieces:
                file.write(piece)
                database.report_growth(file.tell())
            assert not received_path(theirs, INDEX).exists()
            database.finish(file.tell())
        assert received_path(theirs, INDEX).exists()
    assert [each.name for each in theirs.iterdir()] == [received_path(theirs, INDEX).name]


def test_a_file_that_breaks_off_leaves_no_state(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    path = tmp_path / "arriving.db"
    with DatabaseFiles(large_state(tmp_path), tmp_path / "tmp").open(_snap(1)) as opened:
        path.write_bytes(next(opened.pieces))
    with DatabaseFiles(theirs, tmp_path / "tmp").begin_import(INDEX, path) as database:
        database.report_growth(path.stat().st_size)
    assert list(theirs.iterdir()) == []


def test_a_killed_import_is_reported(tmp_path: Path) -> None:
    files = DatabaseFiles(tmp_path / "theirs", tmp_path / "tmp")
    (tmp_path / "arriving.db").write_bytes(b"")
    with files.begin_import(INDEX, tmp_path / "arriving.db") as database:
        files.stop()
        with pytest.raises(KvstoreError, match=r"taking the snapshot failed with exit code -9"):
            database.finish(0)


def test_why_a_file_is_not_taken_is_reported(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    path = tmp_path / "arriving.db"
    path.write_bytes(b"no database" * 1000)
    files = DatabaseFiles(tmp_path / "theirs", tmp_path / "tmp")
    with (
        files.begin_import(INDEX, path) as database,
        pytest.raises(KvstoreError, match=r"exit code 1: .*neither meta page can be used"),
    ):
        database.finish(path.stat().st_size)
    assert list((tmp_path / "theirs").iterdir()) == []


def large_state(tmp_path: Path) -> Path:
    """Return a member directory whose state is of some megabytes."""
    directory = tmp_path / "large"
    backend = LmdbBackend(directory)
    rows = [(b"%017d" % number, b"v" * 4000) for number in range(5000)]
    backend.append(Table.KEY, rows)
    _note_position(backend)
    backend.close()
    return directory


def _note_position(backend: LmdbBackend) -> None:
    for key, value in (
        (CONSISTENT_INDEX_KEY, INDEX.to_bytes(8)),
        (TERM_KEY, (2).to_bytes(8)),
        (CONF_STATE_KEY, b'{"voters":[1]}'),
    ):
        backend.put(Table.META, key, value)


def exhaust(pieces: Iterator[bytes]) -> None:
    for _ in pieces:
        pass


def test_what_an_earlier_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "peer-snapshot-7-0").write_bytes(b"left")
    (tmp_path / "other").write_bytes(b"kept")
    DatabaseFiles(tmp_path, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
