"""Data directories that cannot be used, processes that are stopped: clear errors, nothing lost."""

import os
import random
import shutil
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import grpc
import lmdb
import msgpack
import pytest

from kvstore.backend import BUCKETS
from kvstore.storage.row_sums import PYTHON_SUMS
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import pausing
from tests.support.processors import busy_share, queued_s
from tests.support.rpc_client import Client
from tests.support.servers import Server, ours, running
from tests.support.waiting import wait_for

READY_MAX_S = 1.0  # an election that is waited for takes 1 s more
STOP_MAX_S = 4.0  # calls that are not ended hold a stop for 6 s
HANGS_S = 30.0
STARTS = 5


@pytest.fixture
def stopped(tmp_path: Path) -> Server:
    """Return a server that was stopped with one key in it."""
    server = ours(tmp_path / "data")
    with running(server), Client(server.endpoint) as client:
        client.put(b"k", b"v")
        assert server.stop() == 0
    return server


def refusal(server: Server) -> str:
    """Start a server that must refuse; return the error it logs."""
    known = len(server.log_path.read_bytes()) if server.log_path.exists() else 0
    with running(server.start(wait=False)):
        assert server.process is not None
        assert server.process.wait(20) == 1, server.log()
    log = server.log_path.read_text()[known:]
    assert "Traceback" not in log, log
    fatal = [line for line in log.splitlines() if '"level":"fatal"' in line]
    assert len(fatal) == 1, log
    return fatal[0]


def holds_the_key(server: Server) -> bool:
    with running(server), Client(server.endpoint) as client:
        return bool(client.range(b"k", b"").kvs[0].value == b"v" and client.is_alive())


def test_a_second_process(tmp_path: Path) -> None:
    with running(ours(tmp_path / "data")) as first, Client(first.endpoint) as client:
        client.put(b"k", b"v")
        second = ours(tmp_path / "data")
        second.log_path = tmp_path / "second.log"
        assert "another process" in refusal(second)
        assert client.is_alive()
        assert client.range(b"k", b"").kvs[0].value == b"v"


@pytest.mark.parametrize("bucket", [b"meta", b"cluster"])
def test_a_newer_version_in_the_database(stopped: Server, bucket: bytes) -> None:
    key = b"storageVersion" if bucket == b"meta" else b"clusterVersion"
    ((_, now), (_, newer)) = PYTHON_SUMS.seal([(key, b"3.7.0"), (key, b"3.8.0")])
    with lmdb.open(str(stopped.data_dir / "member/lmdb"), max_dbs=len(BUCKETS)) as env:
        table = env.open_db(bucket)
        with env.begin(write=True) as txn:
            assert txn.get(key, db=table) == now
            txn.put(key, newer, db=table)
    text = refusal(stopped)
    assert "3.8.0" in text
    assert "3.7" in text


def test_a_newer_format_of_the_database(stopped: Server) -> None:
    with (
        lmdb.open(str(stopped.data_dir / "member/lmdb"), max_dbs=len(BUCKETS)) as env,
        env.begin(write=True) as txn,
    ):
        txn.put(b"kvstore", msgpack.packb({"format": 99, "created_by": "9.9.9"}))
    text = refusal(stopped)
    assert "format 99" in text
    assert "9.9.9" in text


def test_the_log_of_another_member(tmp_path: Path) -> None:
    members = [
        ours(tmp_path / name, name=name, extra=[f"--wal-dir={tmp_path / name}.wal"])
        for name in ("one", "two")
    ]
    for server in members:
        with running(server), Client(server.endpoint) as client:
            for _ in range(3):
                client.put(b"k", b"v")
            assert server.stop() == 0
    one, two = members
    one.extra, two.extra = two.extra, one.extra
    assert "do not belong together" in refusal(one)
    one.extra, two.extra = two.extra, one.extra
    assert holds_the_key(one)


def test_the_log_is_missing(stopped: Server) -> None:
    wal = stopped.data_dir / "member/wal"
    wal.rename(stopped.data_dir.parent / "wal")
    text = refusal(stopped)
    assert str(wal) in text
    assert "missing or empty" in text
    (stopped.data_dir.parent / "wal").rename(wal)
    assert holds_the_key(stopped)


def test_the_database_is_missing(tmp_path: Path) -> None:
    server = ours(tmp_path / "data", extra=["--snapshot-count=10"])
    with running(server), Client(server.endpoint) as client:
        client.put(b"k", b"v")
        assert server.stop() == 0
    state = server.data_dir / "member/lmdb"
    shutil.rmtree(state)
    # The log still begins at the beginning: it holds everything.
    with running(server), Client(server.endpoint) as client:
        assert client.range(b"k", b"").kvs[0].value == b"v"
        for number in range(40):
            client.put(b"k%d" % number, b"v")
        assert server.stop() == 0
    assert list((server.data_dir / "member/snap").glob("*.snap"))
    state.rename(tmp_path / "lmdb")
    text = refusal(server)
    assert str(state) in text
    assert "entries between are missing" in text
    shutil.rmtree(state)  # the empty one the refused start left
    (tmp_path / "lmdb").rename(state)
    assert holds_the_key(server)


def test_an_empty_log_directory_is_founded_anew(tmp_path: Path) -> None:
    server = ours(tmp_path / "data")
    (server.data_dir / "member/wal").mkdir(parents=True)
    (server.data_dir / "member/wal.tmp").mkdir()
    (server.data_dir / "member/wal.tmp/0000000000000000-0000000000000000.wal").write_bytes(b"\0")
    with running(server), Client(server.endpoint) as client:
        assert client.is_alive()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes where it may not")
def test_a_read_only_directory(stopped: Server) -> None:
    stopped.data_dir.chmod(0o500)
    try:
        assert "Permission denied" in refusal(stopped)
    finally:
        stopped.data_dir.chmod(0o700)
    assert holds_the_key(stopped)


def test_the_data_directory_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    assert str(tmp_path / "data") in refusal(ours(tmp_path / "data"))


def test_stopped_while_it_starts(tmp_path: Path) -> None:
    rng = random.Random(1)
    server = ours(tmp_path / "data")
    for _ in range(6):
        with running(server.start(wait=False)):
            time.sleep(rng.random() * 0.4)  # the random moment
            began_s = time.monotonic()
            # Before it listens to signals, the system ends it: that is no worse than a kill.
            assert server.stop() in (0, -signal.SIGTERM)
            assert time.monotonic() - began_s < HANGS_S
    with running(server), Client(server.endpoint) as client:
        assert client.put(b"k", b"v") == 2


def test_stopped_under_load(tmp_path: Path) -> None:
    server = ours(tmp_path / "data")
    acknowledged: dict[bytes, int] = {}
    codes: set[grpc.StatusCode] = set()
    began = threading.Barrier(5)

    def load(number: int) -> None:
        with Client(server.endpoint) as client:
            began.wait(HANGS_S)
            try:
                for count in range(100_000):
                    key = b"%d/%d" % (number, count)
                    acknowledged[key] = client.put(key, b"v")
            except grpc.RpcError as error:
                codes.add(error.code())

    with running(server):
        watcher = Client(server.endpoint)
        create = pb.WatchCreateRequest(key=b"\0", range_end=b"\0")
        stream = watcher.stream(rpc.WATCH, pb.WatchRequest(create_request=create))
        assert stream.receive().created
        threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        began.wait(HANGS_S)
        wait_for(lambda: len(acknowledged) >= 200, "writes are acknowledged")
        began_s = time.monotonic()
        before_s = queued_s(server.pid)
        os.kill(server.pid, signal.SIGTERM)
        waited_s = wait_for_the_end(server) - before_s
        took_s = time.monotonic() - began_s
        for thread in threads:
            thread.join(HANGS_S)
        assert stream.end()[0] == grpc.StatusCode.UNAVAILABLE.value[0]
        watcher.channel.close()
        assert took_s - waited_s < STOP_MAX_S
        assert codes == {grpc.StatusCode.UNAVAILABLE}
        server.start()
        with Client(server.endpoint) as client:
            rows = {kv.key: kv.mod_revision for kv in client.range().kvs}
        assert acknowledged.items() <= rows.items()


def wait_for_the_end(server: Server) -> float:
    """Wait until a server has ended well; return how long it was queued in its life."""
    process, waited_s = server.process, 0.0
    assert process is not None
    while process.poll() is None:
        with suppress(FileNotFoundError, ProcessLookupError):
            waited_s = max(waited_s, queued_s(process.pid))  # threads that end take theirs along
        time.sleep(0.005)
    assert process.returncode == 0, server.log()
    server.process = None
    return waited_s


def test_paused_and_resumed(tmp_path: Path) -> None:
    with running(ours(tmp_path / "data")) as server, Client(server.endpoint) as client:
        lease = client.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=60)).ID
        client.put(b"k", b"v", lease)
        pausing.pause(server.pid)
        with pytest.raises(grpc.RpcError):
            client.call(rpc.PUT, pb.PutRequest(key=b"k", value=b"w"), timeout_s=1.5)
        pausing.resume(server.pid)
        assert client.is_alive()
        left = client.call(rpc.LEASE_TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=lease))
        assert 50 < left.TTL <= 60


def test_an_idle_server_rests(tmp_path: Path) -> None:
    with running(ours(tmp_path / "data")) as server, Client(server.endpoint) as client:
        client.put(b"k", b"v")
        create = pb.WatchCreateRequest(key=b"k", progress_notify=True)
        stream = client.stream(rpc.WATCH, pb.WatchRequest(create_request=create))
        assert stream.receive().created
        # 0.006 on a busy machine; one that spins has 1.
        wait_for(lambda: busy_share(server.pid, 2.0) < 0.05, "rest")
        stream.cancel()


def test_ready_soon(tmp_path: Path) -> None:
    took_s = []
    for number in range(STARTS):
        server = ours(tmp_path / f"data{number}")
        began_s, before_s = time.monotonic(), queued_s(os.getpid())
        with running(server):
            wall_s = time.monotonic() - began_s
            own_s = queued_s(os.getpid()) - before_s
            took_s.append(wall_s - own_s - queued_s(server.pid))
    assert min(took_s) < READY_MAX_S, took_s
