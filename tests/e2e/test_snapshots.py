"""There and back: etcd's tools and etcd itself on our snapshots, this server on what etcd wrote."""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from kvstore.backend import BUCKETS
from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.etcd_db.status import status
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.models.store_view import WHOLE, Store, fill, member, view
from tests.support.servers import Server, etcd, etcdctl, etcdutl, ours, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

# A killed process loses no page of the kernel's: without syncs the tests are the same, and faster.
FAST = "--unsafe-no-fsync"
LARGE_VALUES = 56
LARGE_BYTES = 1 << 20
STALLED_PUT_S = 1.0  # a put beside a large snapshot never takes longer, unless all puts are slow
SLOWER_TIMES = 10


def restore(snapshot: Path, to: Server) -> None:
    """Restore a snapshot into a server's data directory."""
    etcdutl(
        "snapshot",
        "restore",
        str(snapshot),
        f"--data-dir={to.data_dir}",
        f"--name={to.name}",
        f"--initial-cluster={to.name}={to.peer_url}",
        f"--initial-advertise-peer-urls={to.peer_url}",
    )


def check_status(snapshot: Path) -> None:
    """etcdutl and we read the same out of a snapshot."""
    theirs = json.loads(etcdutl("snapshot", "status", str(snapshot), "-w", "json").stdout)
    own = status(snapshot)
    assert (theirs["hash"], theirs["revision"]) == (own.hash, own.revision)
    assert theirs["totalSize"] == own.size_bytes
    with EtcdDbReader(snapshot) as database:
        rows = sum(1 for name in database.buckets() for _ in database.scan(name))
        assert set(database.buckets()) <= set(BUCKETS)
    assert theirs["totalKey"] == rows  # 3.5 counts every row of every bucket


@pytest.mark.parametrize("compact", [True, False], ids=["compacted", "whole history"])
def test_etcd_starts_from_our_snapshot(tmp_path: Path, compact: bool) -> None:  # noqa: FBT001
    snapshot = tmp_path / "snapshot"
    with running(ours(tmp_path / "ours", extra=[FAST])) as server, Store(server) as store:
        fill(store, 1, compact=compact)
        etcdctl(server, "snapshot", "save", str(snapshot))
        before = view(store)
    check_status(snapshot)
    target = etcd(tmp_path / "restored", extra=[FAST])
    restore(snapshot, target)
    with running(target), Store(target) as store:
        assert view(store) == before
        assert store.put(b"more", b"1") == before.revision + 1


@pytest.mark.parametrize("compact", [True, False], ids=["compacted", "whole history"])
def test_we_start_from_an_etcd_snapshot(tmp_path: Path, compact: bool) -> None:  # noqa: FBT001
    snapshot = tmp_path / "snapshot"
    with running(etcd(tmp_path / "etcd", extra=[FAST])) as server, Store(server) as store:
        fill(store, 2, compact=compact)
        etcdctl(server, "snapshot", "save", str(snapshot))
        before = view(store)
    check_status(snapshot)
    target = ours(tmp_path / "restored", name="back", extra=[FAST])
    restore(snapshot, target)
    with running(target):
        with Store(target) as store:
            assert view(store) == before
            assert member(store)[2:] == ("back", (target.peer_url,))
            assert store.put(b"more", b"1") == before.revision + 1
            after = view(store)
        target.kill()
        target.start()
        with Store(target) as store:
            assert view(store) == after


def test_our_snapshot_comes_back_to_us_by_way_of_etcd(tmp_path: Path) -> None:
    """ours → etcd → ours: each step goes on from where the last one ended."""
    servers = [
        ours(tmp_path / "a", extra=[FAST]),
        etcd(tmp_path / "b", extra=[FAST]),
        ours(tmp_path / "c", extra=[FAST]),
    ]
    with running(servers[0]), Store(servers[0]) as store:
        fill(store, 3, rounds=40)
        before = view(store)
        etcdctl(servers[0], "snapshot", "save", str(tmp_path / "a.db"))
    restore(tmp_path / "a.db", servers[1])
    with running(servers[1]), Store(servers[1]) as store:
        assert view(store) == before
        for number in range(20):
            store.put(b"in etcd", b"%d" % number)
        before = view(store)
        etcdctl(servers[1], "snapshot", "save", str(tmp_path / "b.db"))
    restore(tmp_path / "b.db", servers[2])
    with running(servers[2]), Store(servers[2]) as store:
        assert view(store) == before


@pytest.mark.parametrize(
    ("how", "snapshot_count"),
    [("stopped", 10_000), ("killed", 10_000), ("stopped", 50), ("killed", 50)],
)
def test_an_etcds_own_directory_is_taken_over(
    tmp_path: Path, how: str, snapshot_count: int
) -> None:
    """Also when its log goes on after its database, and when it has several snapshots."""
    extra = [FAST, f"--snapshot-count={snapshot_count}"]
    before_us = etcd(tmp_path / "data", name="m1", extra=extra)
    with running(before_us):
        with Store(before_us) as store:
            fill(store, 4)
            alarm = {"alarm": pb.NOSPACE, "memberID": member(store)[1]}
            store.call(rpc.ALARM, action=pb.AlarmRequest.ACTIVATE, **alarm)
            before, identity = view(store), member(store)
        if how == "killed":
            before_us.kill()
        else:
            before_us.stop()
    snapshots = list((tmp_path / "data" / "member" / "snap").glob("*.snap"))
    assert (len(snapshots) > 1) == (snapshot_count == 50)
    ports = (before_us.client_port, before_us.peer_port)
    server = ours(tmp_path / "data", name="m1", extra=extra, ports=ports)
    server.log_path = tmp_path / "ours.log"
    with running(server):
        with Store(server) as store:
            assert view(store) == before
            assert member(store) == identity
            with pytest.raises(grpc.RpcError, match="database space exceeded"):
                store.put(b"full", b"1")
            store.call(rpc.ALARM, action=pb.AlarmRequest.DEACTIVATE, **alarm)
            assert store.put(b"more", b"1") == before.revision + 1
            fill_more(store)
            after = view(store)
        for end in (server.stop, server.kill):
            end()
            server.start()
            with Store(server) as store:
                assert view(store) == after
                assert member(store) == identity
    took = [line for line in server.log_records() if "took over" in str(line["msg"])]
    assert len(took) == 1


def fill_more(store: Store) -> None:
    """Enough for a few snapshots of the log where they come every 50 entries."""
    for number in range(160):
        store.put(b"more/%d" % (number % 9), b"%d" % number)


def test_what_etcd_had_begun_is_finished_as_etcd_would(tmp_path: Path) -> None:
    """A compaction cut off by a kill, and a lease about to end: etcd on a copy is the measure."""
    before_us = etcd(tmp_path / "data", name="m1", extra=[FAST])
    with running(before_us):
        with Store(before_us) as store:
            fill(store, 5)
            store.call(rpc.LEASE_GRANT, ID=1, TTL=2)
            revision = store.put(b"k/999", b"goes", 1)
            store.call(rpc.COMPACT, revision=revision - 20)
        before_us.kill()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with (
        running(etcd(tmp_path / "copy", name="m1", extra=[FAST])) as measure,
        running(ours(tmp_path / "data", name="m1", extra=[FAST])) as server,
        Store(measure) as theirs,
        Store(server) as own,
    ):
        for store in (theirs, own):
            wait_for_revision(store, revision + 1)
            assert store.call(rpc.RANGE, key=b"k/999").count == 0
        seen = view(own)
        assert seen.compacted == revision - 20
        assert seen == view(theirs)


def wait_for_revision(store: Store, revision: int) -> None:
    wait_for(lambda: store.revision >= revision, f"revision {revision}")


def test_an_etcds_directory_is_refused_while_etcd_runs(tmp_path: Path) -> None:
    with running(etcd(tmp_path / "data", extra=[FAST])) as theirs:
        with Store(theirs) as store:
            store.put(b"a", b"1")
            own = ours(tmp_path / "data", extra=[FAST])
            own.log_path = tmp_path / "ours.log"
            own.start(wait=False)
            assert own.process is not None
            assert own.process.wait(20) == 1
            assert "fatal" in own.log()
            assert str(tmp_path / "data") in own.log()
            store.put(b"a", b"2")
        assert theirs.restart().process is not None


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that holds more than 50 MB."""
    tmp = tmp_path_factory.mktemp("large")
    with running(ours(tmp / "ours", extra=[FAST])) as server:
        with Store(server) as store:
            for number in range(LARGE_VALUES):
                store.put(b"large/%03d" % number, os.urandom(LARGE_BYTES))
        yield server
    shutil.rmtree(tmp, ignore_errors=True)


@pytest.mark.xdist_group("large snapshot")
def test_a_large_snapshot_beside_puts(large: Server, tmp_path: Path) -> None:
    """It is of one revision, and no put waits for it."""
    snapshot = tmp_path / "snapshot"
    done = threading.Event()
    slowest_s = 0.0
    with Store(large) as store, ThreadPoolExecutor(1) as pool:
        usual_s = max(timed_put(store, b"0") for _ in range(200))
        first = store.revision
        saving = pool.submit(etcdctl, large, "snapshot", "save", str(snapshot))
        saving.add_done_callback(lambda _: done.set())
        while not done.is_set():
            slowest_s = max(slowest_s, timed_put(store, b"1"))
        saving.result()
        last = store.revision
    assert last > first + 10
    assert slowest_s < max(STALLED_PUT_S, SLOWER_TIMES * usual_s)
    check_status(snapshot)
    revision = status(snapshot).revision
    assert first <= revision <= last
    target = etcd(tmp_path / "restored", extra=[FAST])
    restore(snapshot, target)
    with running(target), Store(target) as store, Store(large) as source:
        assert store.revision == revision
        then = source.call(rpc.RANGE, **WHOLE, revision=revision)
        assert list(store.call(rpc.RANGE, **WHOLE).kvs) == list(then.kvs)
        own, theirs = (each.call(rpc.HASH_KV, revision=revision).hash for each in (source, store))
        assert own == theirs
    shutil.rmtree(target.data_dir)


def timed_put(store: Store, value: bytes) -> float:
    """Put a key; return the seconds it took."""
    started = time.monotonic()
    store.put(b"beside", value)
    return time.monotonic() - started


def snapshot_files(server: Server) -> list[str]:
    """Return the snapshot files that use room: those in the directory, those only held open."""
    found = [str(path) for path in (server.data_dir / "member" / "tmp").iterdir()]
    for descriptor in Path(f"/proc/{server.pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:  # closed meanwhile
            continue
        if "/member/tmp/" in target:
            found.append(target)
    return found


def wait_until_no_snapshot_files(server: Server) -> None:
    wait_for(lambda: not snapshot_files(server), "no files are left")


@pytest.mark.xdist_group("large snapshot")
def test_a_client_that_vanishes_leaves_nothing_behind(large: Server) -> None:
    with Store(large) as store:
        # While the file is being written, after its first bytes, and with the connection cut.
        store.stream(rpc.SNAPSHOT, pb.SnapshotRequest()).cancel()
        wait_until_no_snapshot_files(large)
        stream = store.stream(rpc.SNAPSHOT, pb.SnapshotRequest())
        next(stream)
        assert snapshot_files(large)
        stream.cancel()
        wait_until_no_snapshot_files(large)
    with Store(large) as store:
        next(store.stream(rpc.SNAPSHOT, pb.SnapshotRequest()))
    wait_until_no_snapshot_files(large)


@pytest.mark.xdist_group("large snapshot")
def test_a_slow_client_holds_nobody_up(large: Server) -> None:
    """It gets its snapshot whole in the end; what waits for it is limited meanwhile."""
    with Store(large) as slow, Store(large) as store:
        stream = slow.stream(rpc.SNAPSHOT, pb.SnapshotRequest())
        size = len(next(stream).blob)
        resident = resident_bytes(large)
        for number in range(100):
            store.put(b"meanwhile", b"%d" % number)
        assert resident_bytes(large) - resident < LARGE_VALUES * LARGE_BYTES // 2
        assert snapshot_files(large)
        size += sum(len(message.blob) for message in stream)
        assert size > LARGE_VALUES * LARGE_BYTES
    wait_until_no_snapshot_files(large)


def resident_bytes(server: Server) -> int:
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    shared = int(Path(f"/proc/{server.pid}/statm").read_text().split()[2])
    return (pages - shared) * os.sysconf("SC_PAGE_SIZE")
