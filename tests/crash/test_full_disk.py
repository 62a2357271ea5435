"""A full disk: the server stops with an error, or goes on; acknowledged writes are kept."""

import re
import resource
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.disks.small_disk import small_disk
from tests.support.rpc_client import Client, status
from tests.support.servers import Server, ours, running

SEGMENT_MIB = 62  # etcd's segments are 64 MB, and the first is preallocated
SEGMENTS_MIB = 2 * SEGMENT_MIB
SNAPSHOT_LEAVES_MIB = 128  # free beside it
VALUE = bytes(60_000)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE.value[0]


def put_until_it_stops(server: Server) -> dict[bytes, int]:
    """Put until the server stops with an error that says why; return what was acknowledged."""
    acknowledged: dict[bytes, int] = {}
    with Client(server.endpoint) as client, pytest.raises(grpc.RpcError) as caught:
        put_all(client, acknowledged)
    assert status(caught.value)[0] == UNAVAILABLE
    assert server.process is not None
    assert server.process.wait(60) == 1
    assert '"level":"fatal"' in server.log()
    assert "StorageFatalError" in server.log()
    assert "Traceback" not in server.log()
    assert len(acknowledged) > 10
    return acknowledged


def put_all(client: Client, acknowledged: dict[bytes, int]) -> None:
    for number in range(10_000):
        key = b"%d" % number
        acknowledged[key] = client.put(key, VALUE)


def holds(server: Server, acknowledged: dict[bytes, int]) -> bool:
    with running(server), Client(server.endpoint) as client:
        found = client.range()
        rows = {kv.key: kv.mod_revision for kv in found.kvs}
        assert found.header.revision <= max(acknowledged.values()) + 1
        return acknowledged.items() <= rows.items() and client.is_alive()


def test_a_full_disk_stops_the_server(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", SEGMENT_MIB + 8) as disk:
        server = ours(disk.path / "data")
        server.log_path = tmp_path / "log"
        with running(server):
            acknowledged = put_until_it_stops(server)
            assert re.search(r"commit failed.*has \d{1,6} bytes free", server.log())
            server.process = None
            # Without room it does not start, and says so.
            with running(server.start(wait=False)):
                assert server.process is not None
                server.process.wait(60)
                assert server.process.returncode == 1, server.log()
                assert server.log().count('"level":"fatal"') == 2
            disk.resize(SEGMENTS_MIB + 60)
            assert holds(server, acknowledged)


def test_a_file_that_may_not_grow_stops_the_server(tmp_path: Path) -> None:
    server = ours(tmp_path / "data")
    with running(server):
        limit = (2 << 20, resource.RLIM_INFINITY)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limit)
        acknowledged = put_until_it_stops(server)
        # Of a write that is cut short LMDB says the latter.
        faults = r"File too large|commit failed: mdb_txn_commit: Input/output error"
        assert re.search(faults, server.log())
        server.process = None
        assert holds(server, acknowledged)


def test_a_log_that_may_not_grow_leaves_the_database_as_it_is(tmp_path: Path) -> None:
    """Rows that were not committed are restored from the log, once."""
    server = ours(tmp_path / "data", extra=["--backend-batch-interval=1h"])
    with running(server):
        with Client(server.endpoint) as client:
            acknowledged = {b"%d" % number: client.put(b"%d" % number, b"v") for number in range(5)}
            limit = (3 << 20, resource.RLIM_INFINITY)
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limit)
            with pytest.raises(grpc.RpcError) as caught:
                fill_the_log(client)
            assert status(caught.value)[0] == UNAVAILABLE
        assert server.process is not None
        assert server.process.wait(60) == 1
        assert re.search(r"cannot write \d+ bytes to .*\.wal at offset \d+", server.log())
        server.process = None
        assert holds(server, acknowledged)


def fill_the_log(client: Client) -> None:
    """Make requests that change nothing, until one fails."""
    never = pb.Compare(key=b"never", target=pb.Compare.VERSION, version=7)
    op = pb.RequestOp(request_put=pb.PutRequest(key=b"never", value=bytes(1 << 20)))
    for _ in range(10):
        client.call(rpc.TXN, pb.TxnRequest(compare=[never], success=[op]))


def test_no_room_for_a_new_member(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8) as disk:
        server = ours(disk.path / "data")
        server.log_path = tmp_path / "log"
        with running(server.start(wait=False)):
            assert server.process is not None
            assert server.process.wait(60) == 1
        assert "No space left on device" in server.log()
        assert "Traceback" not in server.log()
        disk.resize(SEGMENTS_MIB)
        with running(server), Client(server.endpoint) as client:
            assert client.is_alive()


def snapshot(client: Client) -> None:
    for _ in client.server_stream(rpc.SNAPSHOT, b""):
        pass


def defragment(client: Client) -> None:
    client.call(rpc.DEFRAGMENT, pb.DefragmentRequest())


@pytest.mark.parametrize("work", [snapshot, defragment])
def test_no_room_for_a_copy_leaves_the_server_serving(
    tmp_path: Path, work: Callable[[Client], None]
) -> None:
    with small_disk(tmp_path / "disk", SEGMENTS_MIB + 16) as disk:
        server = ours(disk.path / "data")
        server.log_path = tmp_path / "log"
        with running(server), Client(server.endpoint) as client:
            for number in range(60):
                client.put(b"k%d" % number, VALUE)
            time.sleep(0.3)  # the commit of the last puts
            disk.leave(free_bytes=1 << 20)
            with pytest.raises(grpc.RpcError) as caught:
                work(client)
            code, text = status(caught.value)
            assert code in (grpc.StatusCode.UNKNOWN.value[0], grpc.StatusCode.INTERNAL.value[0])
            assert "No space left" in text or "bytes" in text, text
            assert client.is_alive()
            disk.resize(SEGMENTS_MIB + 16 + SNAPSHOT_LEAVES_MIB)
            work(client)
            assert client.is_alive()
            # The old file goes after the answer, off the way of requests.
            deadline_s = time.monotonic() + 20
            while list((server.data_dir / "member").glob("lmdb.*/data.mdb")):
                assert time.monotonic() < deadline_s, "a copy is left behind"
                time.sleep(0.01)
            assert not list((server.data_dir / "member/tmp").iterdir())
            assert server.stop() == 0


def test_a_read_only_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", SEGMENTS_MIB) as disk:
        server = ours(disk.path / "data")
        server.log_path = tmp_path / "log"
        with running(server), Client(server.endpoint) as client:
            client.put(b"k", b"v")
            assert server.stop() == 0
        disk.read_only()
        with running(server.start(wait=False)):
            assert server.process is not None
            assert server.process.wait(60) == 1
        assert "Read-only file system" in server.log()
        assert "Traceback" not in server.log()
