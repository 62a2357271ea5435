"""A member inside this process: started, used, stopped; nothing of the process is changed."""

import gc
import signal
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest

from kvstack.component.errors import ConfigError
from kvstore import embed
from kvstore.client.values import KeyValue
from kvstore.errors import DataDirError, KvstoreError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.rpc_client import Client

ANY_PORT = ["http://127.0.0.1:0"]


def _client(member: embed.Member) -> Client:
    return Client(member.client_urls[0].removeprefix("http://"))


def _process_state() -> object:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return handlers, gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), list(gc.callbacks)


def test_a_member_in_memory_starts_and_stops_and_leaves_the_process_as_it_was() -> None:
    before, threads = _process_state(), threading.enumerate()
    with embed.start() as member:
        assert member.client_urls == []
        assert _process_state() == before
    assert _process_state() == before
    assert threading.enumerate() == threads
    with pytest.raises(KvstoreError, match="the member was stopped"):
        assert member.client_urls
    member.stop()  # again: nothing happens


def test_several_at_once_are_several_stores() -> None:
    with (
        embed.start(client_urls=ANY_PORT) as one,
        embed.start(client_urls=ANY_PORT) as other,
        _client(one) as to_one,
        _client(other) as to_other,
    ):
        to_one.put(b"k", b"one")
        to_other.put(b"k", b"other")
        assert to_one.range(b"k", b"").kvs[0].value == b"one"
        assert to_other.range(b"k", b"").kvs[0].value == b"other"


def test_what_is_on_disk_is_there_again(tmp_path: Path) -> None:
    for turn in range(3):
        with (
            embed.start(tmp_path / "state", client_urls=ANY_PORT) as member,
            _client(member) as client,
        ):
            assert client.put(b"k", str(turn).encode()) == 2 + turn
            assert client.range(b"k", b"").kvs[0].version == turn + 1


def test_a_member_in_memory_has_no_snapshot() -> None:
    with (
        embed.start(client_urls=ANY_PORT) as member,
        _client(member) as client,
        pytest.raises(grpc.RpcError, match="a member in memory has no snapshot"),
    ):
        list(client.stream(rpc.SNAPSHOT, pb.SnapshotRequest()))


def test_what_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataDirError, match="cannot use data directory"):
        embed.start(tmp_path / "file")
    with pytest.raises(ConfigError, match="must be the only one of its cluster; members: a, b"):
        embed.start(
            flags=["--name=a", "--initial-cluster=a=http://localhost:2380,b=http://127.0.0.1:2"]
        )
    with pytest.raises(ConfigError, match="--heartbeat-interval"):
        embed.start(flags=["--heartbeat-interval=0"])


def test_one_data_directory_has_one_member(tmp_path: Path) -> None:
    with embed.start(tmp_path), pytest.raises(KvstoreError):
        embed.start(tmp_path)


def test_a_program_that_forgets_to_stop_still_ends() -> None:
    code = "from kvstore import embed; embed.start(); print('up')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "up\n"


def test_a_member_in_memory_begins_with_the_rows_of_another_store() -> None:
    rows = [KeyValue(b"a", b"1", 3, 5, 2, 0), KeyValue(b"b", b"2", 7, 7, 1, 9)]
    first_rows = embed.FirstRows(rows, revision=11, readable_from=11, leases={9: 3600})
    with (
        embed.start(client_urls=ANY_PORT, first_rows=first_rows) as member,
        _client(member) as client,
    ):
        answer = client.range(b"a", b"z")
        assert answer.header.revision == 11
        assert [(kv.key, kv.create_revision, kv.mod_revision, kv.version) for kv in answer.kvs] == [
            (b"a", 3, 5, 2),
            (b"b", 7, 7, 1),
        ]
        assert client.put(b"a", b"3") == 12
        assert client.range(b"a", b"").kvs[0].version == 3
        client.call(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=9))
        assert not client.range(b"b", b"").kvs


def test_rows_that_cannot_be_end_the_start(tmp_path: Path) -> None:
    torn = embed.FirstRows([KeyValue(b"a", b"1", 6, 5, 2, 0)], 11, 11)
    with pytest.raises(
        DataDirError, match="key b'a' has create revision 6, not from 1 to mod revision 5"
    ):
        embed.start(first_rows=torn)
    with pytest.raises(ConfigError, match="first_rows is for members in memory only"):
        embed.start(tmp_path, first_rows=torn)
