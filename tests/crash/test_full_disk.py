"""A full disk: the server goes on reading and keeps what it acknowledged, then goes on by itself.

Where a file may not grow for another reason (a limit of the process), it stops with an error.
"""

import re
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from kvstore.errors import Code
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.disks.small_disk import SmallDisk, ext4_disk, small_disk
from tests.support.rpc_client import Client, status
from tests.support.servers import Server, ours, running, together
from tests.support.waiting import wait_for

SEGMENT_MIB = 62  # etcd's segments are 64 MB; two are preallocated
RESERVE_MIB = 64  # kept back beyond the pages in use
KEPT_MIB = 2 * SEGMENT_MIB + RESERVE_MIB
DISK_MIB = KEPT_MIB + 100
FIRST = 11
PUTS_MAX = 10_000
NO_SPACE = (Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
SNAPSHOT_NEEDS_MIB = 256  # 128 are left free, the rest is room for the copy and the log
VALUE = bytes(60_000)
LONG = b"x" * 500  # of a key
LONG_KEYS = 150_000
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


@contextmanager
def disk_of(kind: str, path: Path, size_mib: int) -> Iterator[SmallDisk]:
    make = small_disk if kind == "tmpfs" else ext4_disk
    with make(path, size_mib) as disk:
        yield disk


def put_until_no_space(client: Client, acknowledged: dict[bytes, int]) -> None:
    """Put until the store has no space; note what was acknowledged."""
    for number in range(len(acknowledged), PUTS_MAX):
        key = b"%06d" % number
        try:
            acknowledged[key] = client.put(key, VALUE)
        except grpc.RpcError as error:
            if status(error) != NO_SPACE:
                raise
            return
    raise AssertionError(f"{PUTS_MAX} puts fit on a full disk")


def raised(client: Client) -> list[tuple[int, int]]:
    found = client.call(rpc.ALARM, pb.AlarmRequest()).alarms
    return [(each.memberID, each.alarm) for each in found]


def may_put(client: Client) -> bool:
    try:
        client.put(b"again", VALUE)
    except grpc.RpcError as error:
        if status(error) != NO_SPACE:
            raise
        return False
    return True


def has_all(client: Client, acknowledged: dict[bytes, int]) -> bool:
    rows = {kv.key: kv.mod_revision for kv in client.range(b"0", b":").kvs}
    return acknowledged == rows


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_others_fill_the_disk_while_clients_write(tmp_path: Path, kind: str) -> None:
    acknowledged: dict[bytes, int] = {}
    with disk_of(kind, tmp_path / "disk", DISK_MIB) as disk:
        server = ours(disk.path / "data")
        server.log_path = tmp_path / "log"
        with running(server):
            with Client(server.endpoint) as client:
                for number in range(FIRST):  # there is room for some, however slow the disk is
                    key = b"%06d" % number
                    acknowledged[key] = client.put(key, VALUE)
                filler = threading.Thread(target=disk.fill)
                filler.start()
                put_until_no_space(client, acknowledged)
                filler.join()
                disk.fill()
                member = client.call(rpc.STATUS, pb.StatusRequest()).header.member_id
                wait_for(lambda: raised(client) == [(member, pb.AlarmType.NOSPACE)], "the alarm")
                assert has_all(client, acknowledged)
                assert client.refused(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=60)) == NO_SPACE
                gone = next(iter(acknowledged))
                assert client.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=gone)).deleted == 1
                del acknowledged[gone]
                last = client.range(b"0", b":").header.revision
                client.call(rpc.COMPACT, pb.CompactionRequest(revision=last, physical=True))
                assert "the disk is too full" in server.log()
            server.kill()
            server.start()
            with Client(server.endpoint) as client:
                assert has_all(client, acknowledged)
                assert not may_put(client)
                assert raised(client) == [(member, pb.AlarmType.NOSPACE)]
                assert server.process is not None
                assert server.process.poll() is None
                (disk.path / "filler").unlink()
                wait_for(lambda: may_put(client), "no space although the disk has some again")
                wait_for(lambda: raised(client) == [], "the end of the alarm")
                assert has_all(client, acknowledged)
                assert client.is_alive()
            assert server.stop() == 0


def test_the_alarm_for_the_disk_ends_after_a_restart_too(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK_MIB) as disk:
        server = ours(disk.path / "data")
        server.log_path = tmp_path / "log"
        with running(server):
            with Client(server.endpoint) as client:
                client.put(b"0", b"v")
                filler = disk.fill()
                wait_for(lambda: bool(raised(client)), "the alarm")
            server.kill()
            filler.unlink()
            server.start()
            with Client(server.endpoint) as client:
                wait_for(lambda: raised(client) == [], "the end of the alarm")
                assert may_put(client)


def test_a_defragmentation_takes_the_space_that_is_kept_back(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK_MIB) as disk:
        server = ours(disk.path / "data")
        server.log_path = tmp_path / "log"
        with running(server), Client(server.endpoint) as client:
            for number in range(400):
                client.put(b"%06d" % number, VALUE)
            client.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"0", range_end=b"000300"))
            last = client.range(b"0", b":").header.revision
            client.call(rpc.COMPACT, pb.CompactionRequest(revision=last, physical=True))
            filler = disk.fill()
            wait_for(lambda: bool(raised(client)), "the alarm")
            before = client.call(rpc.STATUS, pb.StatusRequest()).dbSize
            client.call(rpc.DEFRAGMENT, pb.DefragmentRequest())
            assert client.call(rpc.STATUS, pb.StatusRequest()).dbSize < before * 2 // 3
            assert client.range(b"0", b":").count == 100
            wait_for(lambda: not (disk.path / "data/member/lmdb.old").exists(), "the old file")
            filler.unlink()
            wait_for(lambda: raised(client) == [], "the end of the alarm")
            assert may_put(client)


def test_one_full_disk_in_a_cluster(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK_MIB) as disk:
        servers = [ours(tmp_path / "a", name="a"), ours(tmp_path / "b", name="b")]
        full = ours(disk.path / "data", name="c")
        full.log_path = tmp_path / "c.log"
        with together([*servers, full]), Client(servers[0].endpoint) as client:
            with Client(full.endpoint) as its:
                member = its.call(rpc.STATUS, pb.StatusRequest()).header.member_id
            client.put(b"0", b"v")
            filler = disk.fill()
            wait_for(lambda: raised(client) == [(member, pb.AlarmType.NOSPACE)], "the alarm")
            wait_for(lambda: not may_put(client), "the alarm on another member")
            assert client.range(b"0", b"").count == 1
            filler.unlink()
            wait_for(lambda: raised(client) == [], "the end of the alarm")
            wait_for(lambda: may_put(client), "puts")


def refusal_of(client: Client, request: pb.DeleteRangeRequest) -> tuple[int, str] | None:
    """Delete; return why that was refused, None: it was not."""
    try:
        client.call(rpc.DELETE_RANGE, request)
    except grpc.RpcError as error:
        return status(error)
    return None


def count_of(client: Client, key: bytes, end: bytes) -> int:
    request = pb.RangeRequest(key=key, range_end=end, count_only=True)
    return int(client.call(rpc.RANGE, request).count)


def put_long_keys(client: Client, count: int) -> None:
    """Put keys whose rows take more space than is kept back, once they are deleted."""
    for first in range(0, count, 100):
        puts = [pb.PutRequest(key=b"%06d" % (first + each) + LONG) for each in range(100)]
        client.call(rpc.TXN, pb.TxnRequest(success=[pb.RequestOp(request_put=e) for e in puts]))


def test_a_delete_whose_rows_do_not_fit_is_refused(tmp_path: Path) -> None:
    """One small request may take any space: as an entry of the log it ended every start, too."""
    with small_disk(tmp_path / "disk", 2 * DISK_MIB) as disk:
        server = ours(disk.path / "data")
        server.log_path = tmp_path / "log"
        with running(server), Client(server.endpoint) as client:
            put_long_keys(client, LONG_KEYS)
            lease = client.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=3600)).ID
            client.call(rpc.PUT, pb.PutRequest(key=b"leased", lease=lease))
            filler = disk.fill()
            wait_for(lambda: bool(raised(client)), "the alarm")
            everything = pb.DeleteRangeRequest(key=b"0", range_end=b"2")
            op = pb.RequestOp(request_delete_range=everything)
            nested = pb.RequestOp(request_txn=pb.TxnRequest(failure=[op]))
            assert client.refused(rpc.DELETE_RANGE, everything) == NO_SPACE
            assert client.refused(rpc.TXN, pb.TxnRequest(success=[op])) == NO_SPACE
            assert client.refused(rpc.TXN, pb.TxnRequest(success=[nested])) == NO_SPACE
            assert count_of(client, b"0", b"2") == LONG_KEYS
            some = pb.DeleteRangeRequest(key=b"0", range_end=b"000100")
            assert client.call(rpc.DELETE_RANGE, some).deleted == 100
            client.call(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease))
            assert client.range(b"leased", b"").count == 0
            filler.unlink()
            wait_for(lambda: raised(client) == [], "the end of the alarm")
            assert client.call(rpc.DELETE_RANGE, everything).deleted == LONG_KEYS - 100
            assert server.stop() == 0


def test_deletes_go_on_until_the_log_is_at_its_end(tmp_path: Path) -> None:
    """They are refused then, whatever they delete, and nothing is lost."""
    with small_disk(tmp_path / "disk", DISK_MIB) as disk:
        server = ours(disk.path / "data")
        server.log_path = tmp_path / "log"
        with running(server):
            with Client(server.endpoint) as client:
                client.put(b"0", b"v")
                filler = disk.fill()
                wait_for(lambda: bool(raised(client)), "the alarm")
                request = pb.DeleteRangeRequest(key=bytes(1 << 20))
                count = 0
                while (refusal := refusal_of(client, request)) is None:
                    count += 1
                    assert count < 2 * SEGMENT_MIB, "more deletes than the log has room for"
                assert refusal == NO_SPACE
                assert count > SEGMENT_MIB  # what is left of this segment, and the next one
                small = pb.DeleteRangeRequest(key=b"0")
                while (refusal := refusal_of(client, small)) is None:
                    pass  # what a large one left
                assert client.range(b"0", b"").count == 0
            server.kill()
            server.start()
            with Client(server.endpoint) as client:
                assert client.range(b"0", b"").count == 0
                assert client.refused(rpc.DELETE_RANGE, request) == NO_SPACE
                filler.unlink()
                wait_for(lambda: raised(client) == [], "the end of the alarm")
                assert refusal_of(client, request) is None
                assert may_put(client)
            assert server.stop() == 0


def test_a_follower_without_space_waits_for_some(tmp_path: Path) -> None:
    """The others go on with deletes; it takes their entries when it has space again."""
    with small_disk(tmp_path / "disk", DISK_MIB + 3 * SEGMENT_MIB) as disk:
        servers = [ours(tmp_path / "a", name="a"), ours(tmp_path / "b", name="b")]
        full = ours(disk.path / "data", name="c")
        full.log_path = tmp_path / "c.log"
        with (
            together([*servers, full]),
            Client(servers[0].endpoint) as client,
            Client(full.endpoint) as its,
        ):
            leader = its.call(rpc.STATUS, pb.StatusRequest()).leader
            own = its.call(rpc.STATUS, pb.StatusRequest()).header.member_id
            if leader == own:
                target = client.call(rpc.STATUS, pb.StatusRequest()).header.member_id
                its.call(rpc.MOVE_LEADER, pb.MoveLeaderRequest(targetID=target))
            client.put(b"0", b"v")
            filler = disk.fill()
            wait_for(lambda: bool(raised(client)), "the alarm")
            request = pb.DeleteRangeRequest(key=bytes(1 << 20))
            for _ in range(2 * SEGMENT_MIB + 10):  # more than its log has room for
                client.call(rpc.DELETE_RANGE, request)
            assert client.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"0")).deleted == 1
            assert full.process is not None
            assert full.process.poll() is None
            read = pb.RangeRequest(key=b"0", serializable=True)
            assert its.call(rpc.RANGE, read).count == 1  # as of before
            filler.unlink()
            wait_for(lambda: raised(client) == [], "the end of the alarm")
            wait_for(lambda: its.call(rpc.RANGE, read).count == 0, "the entries of the others")
            assert may_put(client)


def test_an_alarm_of_an_operator_stays(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK_MIB) as disk:
        server = ours(disk.path / "data")
        server.log_path = tmp_path / "log"
        with running(server), Client(server.endpoint) as client:
            member = client.call(rpc.STATUS, pb.StatusRequest()).header.member_id
            request = pb.AlarmRequest(
                action=pb.AlarmRequest.ACTIVATE, memberID=member, alarm=pb.AlarmType.NOSPACE
            )
            client.call(rpc.ALARM, request)
            filler = disk.fill()
            wait_for(lambda: "the disk is too full" in server.log(), "the shortage")
            filler.unlink()
            wait_for(lambda: "the disk has enough space again" in server.log(), "its end")
            assert raised(client) == [(member, pb.AlarmType.NOSPACE)]
            assert not may_put(client)


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
        disk.resize(SEGMENT_MIB + 8)
        with running(server), Client(server.endpoint) as client:
            assert not may_put(client)  # nothing can be kept back
            disk.resize(DISK_MIB)
            wait_for(lambda: may_put(client), "puts")
            assert client.is_alive()


def snapshot(client: Client) -> None:
    for _ in client.server_stream(rpc.SNAPSHOT, b""):
        pass


def defragment(client: Client) -> None:
    client.call(rpc.DEFRAGMENT, pb.DefragmentRequest())


def wait_for_a_commit(server: Server, client: Client, key: bytes) -> None:
    """Put a key and wait until the database is written."""
    database = server.data_dir / "member/lmdb/data.mdb"
    before = database.stat().st_mtime_ns
    client.put(key, b"")
    wait_for(lambda: database.stat().st_mtime_ns != before, "a commit")


@pytest.mark.parametrize("work", [snapshot, defragment])
def test_no_room_for_a_copy_leaves_the_server_serving(
    tmp_path: Path, work: Callable[[Client], None]
) -> None:
    with small_disk(tmp_path / "disk", DISK_MIB) as disk:
        server = ours(disk.path / "data")
        server.log_path = tmp_path / "log"
        with running(server), Client(server.endpoint) as client:
            for number in range(900):  # more than the part of the reserve that a copy may have
                client.put(b"k%d" % number, VALUE)
            for key in (b"a", b"b"):  # the second commit began when all the others had been put
                wait_for_a_commit(server, client, key)
            disk.leave(free_bytes=1 << 20)
            with pytest.raises(grpc.RpcError) as caught:
                work(client)
            code, text = status(caught.value)
            assert code in (grpc.StatusCode.UNKNOWN.value[0], grpc.StatusCode.INTERNAL.value[0])
            assert "No space left" in text or "bytes" in text, text
            assert client.range(b"k", b"l").count == 900
            disk.resize(DISK_MIB + SNAPSHOT_NEEDS_MIB)
            work(client)
            wait_for(lambda: may_put(client), "puts")
            # The old file goes after the answer, off the way of requests.
            copies = (server.data_dir / "member").glob
            wait_for(lambda: not list(copies("lmdb.*/data.mdb")), "a copy is left behind")
            assert not list((server.data_dir / "member/tmp").iterdir())
            assert server.stop() == 0


def test_a_read_only_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", DISK_MIB) as disk:
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
