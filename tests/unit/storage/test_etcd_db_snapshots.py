"""Snapshot streams: the whole database in order, within limits, and nothing left behind."""

import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.backend import Table
from kvstore.errors import Code
from kvstore.server import snapshot_streams as snapshots
from kvstore.server.snapshot_streams import BACKLOG_BYTES_MAX, BLOB_BYTES, End, SnapshotStreams
from kvstore.storage import free_space
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.snapshots import writer as snapshot_writer
from kvstore.wire.gen.rpc_pb2 import SnapshotResponse
from tests.support.disks.etcd_db_files import Buckets, read, sample

TIMEOUT_S = 60.0
HEADER = b"\x18\x07"  # ResponseHeader{revision: 7}


def _fill(directory: Path, buckets: Buckets) -> LmdbBackend:
    backend = LmdbBackend(directory)
    for table, name in zip(Table, sorted(buckets), strict=True):
        backend.append(table, buckets[name])
    backend.commit()
    return backend


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A running backend: the writer reads beside it."""
    backend = _fill(tmp_path / "member", sample(20_000, value_bytes=200))
    yield tmp_path / "member"
    backend.close()


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    return tmp_path / "member" / "tmp"


@pytest.fixture
def streams(state: Path, tmp: Path) -> Iterator[SnapshotStreams]:
    streams = SnapshotStreams(state, tmp)
    yield streams
    streams.close()
    assert list(tmp.iterdir()) == []


class Client:
    """Pumps until told otherwise; keeps what each stream was sent."""

    def __init__(self, streams: SnapshotStreams) -> None:
        self.streams = streams
        self.messages: dict[int, list[SnapshotResponse]] = {}
        self.ends: dict[int, End] = {}

    def pump(self, backlog: dict[int, int] | None = None) -> int:
        """Return how many bytes of messages there were."""
        deliveries, ends = self.streams.pump(backlog or {})
        size = 0
        for stream_id, head, tail in deliveries:
            assert stream_id not in self.ends
            message = SnapshotResponse.FromString(head + tail)
            assert message.SerializeToString(deterministic=True) == head + tail
            self.messages.setdefault(stream_id, []).append(message)
            size += len(head) + len(tail)
        for end in ends:
            assert end[0] not in self.ends
            self.ends[end[0]] = end
        return size

    def pump_until_end(self, *stream_ids: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not self.ends.keys() >= set(stream_ids):
            assert time.monotonic() < deadline, "a stream did not end"
            self.pump()
            time.sleep(snapshots.PUMP_INTERVAL_S)

    def pump_until_sent(self, stream_id: int) -> int:
        """Return the bytes of the first pump that sends something."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (size := self.pump()):
            assert time.monotonic() < deadline, "nothing was sent"
            assert stream_id not in self.ends
            time.sleep(snapshots.PUMP_INTERVAL_S)
        return size


@pytest.mark.parametrize("header", [b"", HEADER])
def test_a_stream_is_the_database_and_then_its_digest(
    streams: SnapshotStreams, tmp_path: Path, header: bytes
) -> None:
    client = Client(streams)
    streams.start(5, header)
    assert streams.active() == 1
    client.pump_until_end(5)
    assert client.ends[5] == (5, 0, b"")
    assert streams.active() == 0

    *blobs, last = client.messages[5]
    data = b"".join(message.blob for message in blobs)
    assert last.blob == hashlib.sha256(data).digest()
    remaining = len(data)
    for message in blobs:
        remaining -= len(message.blob)
        assert message.remaining_bytes == remaining
        assert len(message.blob) == BLOB_BYTES or not remaining
    assert last.remaining_bytes == 0
    assert {message.version for message in client.messages[5]} == {"3.7.0"}
    assert {message.header.revision for message in client.messages[5]} == {7 if header else 0}
    assert last.HasField("header") == bool(header)
    (tmp_path / "db").write_bytes(data)
    assert read(tmp_path / "db") == sample(20_000, value_bytes=200)


def test_no_stream_is_further_ahead_of_its_client_than_the_limit(
    streams: SnapshotStreams,
) -> None:
    client = Client(streams)
    streams.start(1, b"")
    sent = client.pump_until_sent(1)
    assert BACKLOG_BYTES_MAX <= sent < BACKLOG_BYTES_MAX + 2 * BLOB_BYTES
    assert client.pump({1: BACKLOG_BYTES_MAX}) == 0
    assert client.pump({1: BACKLOG_BYTES_MAX - 1}) <= 2 * BLOB_BYTES
    client.pump_until_end(1)


def test_the_file_is_gone_from_the_directory_while_it_is_sent(
    streams: SnapshotStreams, tmp: Path
) -> None:
    client = Client(streams)
    streams.start(1, b"")
    client.pump_until_sent(1)
    assert list(tmp.iterdir()) == []
    streams.cancel(1)
    assert streams.active() == 0
    assert client.pump() == 0
    assert client.ends == {}


def test_streams_beyond_the_limit_wait_and_beyond_the_line_are_refused(
    streams: SnapshotStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "STREAMS_MAX", 1)
    monkeypatch.setattr(snapshots, "WAITING_MAX", 2)
    client = Client(streams)
    for stream_id in (1, 2, 3, 4):
        streams.start(stream_id, b"")
    client.pump()
    text = b"etcdserver: too many snapshot streams: 1 run, 2 wait"
    assert client.ends == {4: (4, Code.RESOURCE_EXHAUSTED, text)}
    streams.cancel(2)  # in line
    client.pump_until_end(1, 3)
    assert client.ends[1][1:] == client.ends[3][1:] == (0, b"")
    assert 2 not in client.ends
    assert 2 not in client.messages


def test_a_cancelled_writer_is_ended_and_cleared_up(streams: SnapshotStreams) -> None:
    streams.start(1, b"")
    streams.cancel(1)
    streams.cancel(99)
    deadline = time.monotonic() + TIMEOUT_S
    while streams.active():
        assert streams.pump({}) == ([], [])
        assert time.monotonic() < deadline
        time.sleep(snapshots.PUMP_INTERVAL_S)


def test_closing_ends_everything(state: Path, tmp: Path) -> None:
    streams = SnapshotStreams(state, tmp)
    for stream_id in range(snapshots.STREAMS_MAX + 2):
        streams.start(stream_id, b"")
    streams.close()
    assert streams.active() == 0
    assert list(tmp.iterdir()) == []


def test_a_writer_that_fails_ends_its_stream_with_the_reason(tmp_path: Path) -> None:
    streams = SnapshotStreams(tmp_path / "nothing", tmp_path / "tmp")
    client = Client(streams)
    streams.start(1, b"")
    client.pump_until_end(1)
    streams.close()
    _, code, text = client.ends[1]
    assert code == Code.INTERNAL
    assert text.startswith(b"etcdserver: the snapshot writer ended with 1: ")
    assert str(tmp_path / "nothing").encode() in text
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_writer_that_takes_too_long_is_ended(state: Path, tmp: Path) -> None:
    now_ns = 0
    streams = SnapshotStreams(state, tmp, clock_ns=lambda: now_ns, write_seconds_max=5)
    client = Client(streams)
    streams.start(1, b"")
    now_ns = 5_000_000_001
    client.pump()  # the child has not even started its interpreter
    assert client.ends[1][1:] == (
        Code.INTERNAL,
        b"etcdserver: writing the snapshot took longer than 5 s",
    )
    streams.close()
    assert list(tmp.iterdir()) == []


def test_a_client_that_takes_nothing_for_too_long_is_given_up(state: Path, tmp: Path) -> None:
    now_ns = 0
    streams = SnapshotStreams(state, tmp, clock_ns=lambda: now_ns, stall_seconds_max=60)
    client = Client(streams)
    streams.start(1, b"")
    client.pump_until_sent(1)
    now_ns = 60_000_000_000
    client.pump({1: BACKLOG_BYTES_MAX})
    assert client.ends == {}
    now_ns += 1
    client.pump({1: BACKLOG_BYTES_MAX})
    text = b"etcdserver: the client read nothing of the snapshot for 60 s"
    assert client.ends == {1: (1, Code.DEADLINE_EXCEEDED, text)}
    streams.close()


def test_leftovers_of_an_earlier_life_are_removed_and_nothing_else(state: Path, tmp: Path) -> None:
    tmp.mkdir()
    (tmp / "snapshot-12.db").write_bytes(b"half")
    (tmp / "other").write_bytes(b"")
    SnapshotStreams(state, tmp).close()
    assert [path.name for path in tmp.iterdir()] == ["other"]


def test_a_disk_with_too_little_room_is_left_to_the_log(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(free_space, "FREE_BYTES_MIN", 1 << 60)
    assert snapshot_writer.main([str(tmp_path / "closed"), str(tmp_path / "db")]) == 1
    _fill(tmp_path / "other", sample(3)).close()
    assert snapshot_writer.main([str(tmp_path / "other"), str(tmp_path / "db")]) == 1
    assert f"a snapshot must leave {1 << 60} free" in capsys.readouterr().err
    assert not (tmp_path / "db").exists()


def test_the_writer_starts_without_the_server(state: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from kvstore.storage.snapshots import writer as snapshot_writer;"
        "assert not {'grpc', 'asyncio', 'kvstore.server', 'kvstore.node'} & set(sys.modules);"
        "sys.exit(snapshot_writer.main(sys.argv[1:]))"
    )
    arguments = [sys.executable, "-c", program, str(state), str(tmp_path / "db")]
    subprocess.run(arguments, check=True, capture_output=True, timeout=TIMEOUT_S)
    assert read(tmp_path / "db") == sample(20_000, value_bytes=200)


def test_the_writer_needs_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert snapshot_writer.main(["one"]) == 2
    assert "usage" in capsys.readouterr().err
