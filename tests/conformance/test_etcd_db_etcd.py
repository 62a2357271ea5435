"""Etcd's database file against etcd itself: its files read by us, ours checked and served by it."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from kvstore.errors import DataDirError
from kvstore.server.snapshot_streams import PUMP_INTERVAL_S, SnapshotStreams
from kvstore.storage.etcd_db.digest import append_digest, check_digest
from kvstore.storage.etcd_db.status import status
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.takeover import take_over
from kvstore.wire.gen import rpc_pb2
from kvstore.wire.gen.kv_pb2 import KeyValue
from tests.support import servers
from tests.support.disks.etcd_db_files import Buckets, put_row, read, sample, write, write_planned

pytestmark = pytest.mark.e2e

TIMEOUT_S = 60.0
ALL: dict[str, Any] = {"key": b"\0", "range_end": b"\0"}


def _call(server: servers.Server, method: str, request: Message, response: type[Message]) -> Any:
    with grpc.insecure_channel(
        server.endpoint, options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        call: Callable[..., Message] = channel.unary_unary(
            f"/etcdserverpb.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return call(request, timeout=TIMEOUT_S)


def _put(server: servers.Server, key: bytes, value: bytes, lease: int = 0) -> int:
    request = rpc_pb2.PutRequest(key=key, value=value, lease=lease)
    return int(_call(server, "KV/Put", request, rpc_pb2.PutResponse).header.revision)


def _delete(server: servers.Server, **selection: Any) -> int:
    request = rpc_pb2.DeleteRangeRequest(**selection)
    return int(
        _call(server, "KV/DeleteRange", request, rpc_pb2.DeleteRangeResponse).header.revision
    )


def _compact(server: servers.Server, revision: int) -> None:
    request = rpc_pb2.CompactionRequest(revision=revision, physical=True)
    _call(server, "KV/Compact", request, rpc_pb2.CompactionResponse)


def _range(server: servers.Server, revision: int = 0) -> list[bytes]:
    request = rpc_pb2.RangeRequest(revision=revision, **ALL)
    return [
        kv.SerializeToString()
        for kv in _call(server, "KV/Range", request, rpc_pb2.RangeResponse).kvs
    ]


def _hash_kv(server: servers.Server) -> tuple[int, int]:
    response = _call(server, "Maintenance/HashKV", rpc_pb2.HashKVRequest(), rpc_pb2.HashKVResponse)
    return response.hash, response.compact_revision


def _fill(server: servers.Server) -> tuple[int, int]:
    """Make a bit of everything; return the compacted and the current revision."""
    lease = rpc_pb2.LeaseGrantRequest(ID=77, TTL=6000)
    _call(server, "Lease/LeaseGrant", lease, rpc_pb2.LeaseGrantResponse)
    for n in range(120):
        _put(server, b"key%03d" % (n % 50), bytes([n]) * (n * 11), lease=77 if n % 7 == 0 else 0)
    _put(server, b"\0binary\xff", b"\0\n")
    _put(server, b"large", os.urandom(300_000))
    _delete(server, key=b"key01", range_end=b"key02")
    compacted = _delete(server, key=b"key030")
    ops = [
        rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=b"txn%d" % n, value=b"t"))
        for n in range(5)
    ]
    _call(server, "KV/Txn", rpc_pb2.TxnRequest(success=ops), rpc_pb2.TxnResponse)
    servers.etcdctl(server, "user", "add", "u1:pw")
    servers.etcdctl(server, "role", "add", "r1")
    servers.etcdctl(server, "role", "grant-permission", "r1", "readwrite", "a", "b")
    _compact(server, compacted)
    for n in range(20):
        current = _put(server, b"after%02d" % n, b"a")
    return compacted, current


def _kvs_at(buckets: Buckets, revision: int) -> list[bytes]:
    """Return the live KeyValues at a revision, by key, from the rows alone."""
    live: dict[bytes, bytes] = {}
    for row_key, value in buckets[b"key"]:
        if int.from_bytes(row_key[:8]) > revision:
            break
        key = KeyValue.FromString(value).key
        if len(row_key) == 18:
            live.pop(key, None)
        else:
            live[key] = value
    return [live[key] for key in sorted(live)]


def _tool_status(path: Path) -> dict[str, int]:
    output = servers.etcdutl("snapshot", "status", str(path), "--write-out=json").stdout
    result: dict[str, int] = json.loads(output)
    return result


def _assert_sound(path: Path) -> None:
    """Have bbolt check the file and etcd's tool agree with ours on all it tells."""
    etcds, ours = _tool_status(path), status(path)
    assert (etcds["hash"], etcds["revision"], etcds["totalSize"]) == (
        ours.hash,
        ours.revision,
        ours.size_bytes,
    )


def _restore(snapshot: Path, server: servers.Server) -> servers.Server:
    servers.etcdutl(
        *("snapshot", "restore", str(snapshot), f"--data-dir={server.data_dir}"),
        *(f"--name={server.name}", f"--initial-advertise-peer-urls={server.peer_url}"),
        f"--initial-cluster={server.name}={server.peer_url}",
    )
    return server


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[servers.Server]:
    with servers.running(servers.etcd(tmp_path / "a.etcd")) as server:
        yield server


@pytest.mark.slow
def test_a_snapshot_of_etcd_is_read_whole_and_rewritten_to_the_same_hash(
    etcd: servers.Server, tmp_path: Path
) -> None:
    compacted, current = _fill(etcd)
    saved = tmp_path / "saved.db"
    servers.etcdctl(etcd, "snapshot", "save", str(saved))
    check_digest(saved)
    buckets = read(saved)
    for revision in (compacted, compacted + 1, current - 7, current):
        assert _kvs_at(buckets, revision) == _range(etcd, revision)
    assert list(buckets[b"authUsers"][0][:1]) == [b"u1"]
    assert [int.from_bytes(key) for key, _ in buckets[b"lease"]] == [77]
    assert len(buckets[b"members"]) == 1
    _assert_sound(saved)

    rewritten = write(tmp_path / "rewritten.db", buckets)
    _assert_sound(rewritten)
    assert status(rewritten).hash == status(saved).hash
    assert _tool_status(rewritten)["totalKey"] == _tool_status(saved)["totalKey"]


@pytest.mark.slow
@pytest.mark.parametrize("write", [write, write_planned])
@pytest.mark.parametrize("value_bytes", [700, 2500])  # the larger share leaves of several pages
def test_our_file_is_restored_served_and_changed_by_etcd(
    tmp_path: Path, write: Callable[[Path, Buckets], Path], value_bytes: int
) -> None:
    """Deletes, compaction and defragmentation rebalance pages we wrote; bbolt checks them after."""
    buckets = sample(4000, value_bytes=value_bytes)
    buckets[b"key"] = [*buckets[b"key"][:-1], put_row(9000, b"huge", b"H" * 1000000)]
    snapshot = write(tmp_path / "ours.db", buckets)
    _assert_sound(snapshot)
    append_digest(snapshot)
    server = _restore(snapshot, servers.etcd(tmp_path / "b.etcd"))
    database = server.data_dir / "member" / "snap" / "db"
    with servers.running(server):
        assert _range(server) == _kvs_at(buckets, 9000)
        assert _put(server, b"more", b"m") == 9001
        for n in range(0, 40, 3):
            _delete(server, key=b"key%04d00" % n, range_end=b"key%04d00" % (n + 2))
        _compact(server, _put(server, b"more", b"n"))
        before = _range(server)
        server.restart()
        assert _range(server) == before
        server.stop()
        _assert_sound(database)
        assert _kvs_at(read(database), 1 << 62) == before
        server.start()
        servers.etcdctl(server, "defrag")
        _compact(server, _delete(server, **ALL))
        server.stop()
        _assert_sound(database)
        assert _kvs_at(read(database), 1 << 62) == []


def _stream(member: Path, out: Path) -> Path:
    """Have the state under member streamed as Maintenance.Snapshot does, digest included."""
    streams = SnapshotStreams(member, member / "tmp")
    streams.start(1, b"")
    deadline = time.monotonic() + TIMEOUT_S
    with out.open("wb") as file:
        while streams.active():
            assert time.monotonic() < deadline
            deliveries, ends = streams.pump({})
            for _, head, tail in deliveries:
                file.write(rpc_pb2.SnapshotResponse.FromString(head + tail).blob)
            assert all(code == 0 for _, code, _ in ends), ends
            time.sleep(PUMP_INTERVAL_S)
    streams.close()
    return out


@pytest.mark.slow
def test_from_etcd_to_us_and_back_nothing_is_lost(etcd: servers.Server, tmp_path: Path) -> None:
    """A stopped etcd's directory taken over, streamed, restored by etcd's tool, served by etcd."""
    compacted, current = _fill(etcd)
    history = {revision: _range(etcd, revision) for revision in range(compacted, current + 1)}
    hash_kv = _hash_kv(etcd)
    member = etcd.data_dir / "member"
    with pytest.raises(DataDirError, match="in use by another process"):
        take_over(member, LmdbBackend)
    etcd.stop()
    buckets = read(member / "snap" / "db")
    taken = take_over(member, LmdbBackend)
    assert taken is not None
    assert taken.rows == sum(map(len, buckets.values()))

    snapshot = _stream(member, tmp_path / "streamed.db")
    check_digest(snapshot)
    _assert_sound(snapshot)
    assert read(snapshot) == buckets
    server = _restore(snapshot, servers.etcd(tmp_path / "c.etcd"))
    restored = read(server.data_dir / "member" / "snap" / "db")
    assert restored[b"key"] == buckets[b"key"]
    with servers.running(server):
        assert {rev: _range(server, rev) for rev in history} == history
        assert _hash_kv(server) == hash_kv
        assert servers.etcdctl(server, "user", "list").stdout == "u1\n"


@pytest.mark.slow
def test_a_directory_restored_by_etcdutl_is_taken_over(
    etcd: servers.Server, tmp_path: Path
) -> None:
    _fill(etcd)
    saved = tmp_path / "saved.db"
    servers.etcdctl(etcd, "snapshot", "save", str(saved))
    server = _restore(saved, servers.etcd(tmp_path / "d.etcd"))
    member = server.data_dir / "member"
    buckets = read(member / "snap" / "db")
    taken = take_over(member, LmdbBackend, snapshot_index=1)
    assert taken is not None
    assert taken.consistent_index == 1
    assert read(_stream(member, tmp_path / "streamed.db")) == buckets
    assert buckets[b"key"] == read(saved)[b"key"]
