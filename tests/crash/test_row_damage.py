"""64 zeroed bytes within a stored value: seen by a running server, at a start, by the tool."""

import re
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest

from kvstore.wire import rpc
from tests.support.older_format import without_checksums
from tests.support.rpc_client import Client
from tests.support.servers import Server, etcdctl, ours, running, together

PUTS = 50
VICTIM = 20
ZEROS = bytes(64)
NAMED = rf"data\.mdb: page \d+: table key: row 0{{14}}16\w+ \(revision {VICTIM + 2}, change 0\)"
WAIT_S = 30.0


def value(number: int) -> bytes:
    return b"%03d." % number * 100


def put_all(client: Client) -> None:
    for number in range(PUTS):
        client.put(b"key%03d" % number, value(number))
    for _ in client.server_stream(rpc.SNAPSHOT, b""):
        pass  # begins with a commit of the database


def damage(data_dir: Path) -> None:
    """Zero 64 bytes of one value, wherever the file has it."""
    file = data_dir / "member" / "lmdb" / "data.mdb"
    data = file.read_bytes()
    spots = [found.start() for found in re.finditer(re.escape(value(VICTIM)), data)]
    assert spots
    with file.open("r+b") as opened:
        for spot in spots:
            opened.seek(spot + 30)
            opened.write(ZEROS)


def verify(data_dir: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvstore.util", "verify", str(data_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def assert_ended_by_it(server: Server) -> None:
    assert server.process is not None
    assert server.process.wait(WAIT_S) == 1
    log = server.log()
    assert re.search(NAMED, log), log
    assert '"level":"fatal"' in log
    assert "CorruptionError" in log
    assert "Traceback" not in log
    server.process = None


def test_a_running_server_ends_rather_than_serve_damage(tmp_path: Path) -> None:
    with running(ours(tmp_path / "data")) as server:
        with Client(server.endpoint) as client:
            put_all(client)
            damage(server.data_dir)
            assert client.range(b"key010", b"").kvs[0].value == value(10)
            with pytest.raises(grpc.RpcError):
                client.range(b"key%03d" % VICTIM, b"")
        assert_ended_by_it(server)


def test_a_range_over_a_damaged_row_is_not_answered(tmp_path: Path) -> None:
    with running(ours(tmp_path / "data")) as server:
        with Client(server.endpoint) as client:
            put_all(client)
            damage(server.data_dir)
            with pytest.raises(grpc.RpcError):
                client.range(b"key", b"kez")
        assert_ended_by_it(server)


def test_a_start_and_the_tool_find_it(tmp_path: Path) -> None:
    with running(ours(tmp_path / "data")) as server:
        with Client(server.endpoint) as client:
            put_all(client)
        server.stop()
        sound = verify(server.data_dir)
        assert sound.returncode == 0, sound
        assert "checksum" not in sound.stdout
        damage(server.data_dir)
        found = verify(server.data_dir)
        assert found.returncode == 1
        assert re.search(NAMED, found.stdout + found.stderr), found
        server.start(wait=False)
        assert_ended_by_it(server)


def test_a_database_of_the_older_format_gets_checksums(tmp_path: Path) -> None:
    with running(ours(tmp_path / "data")) as server:
        with Client(server.endpoint) as client:
            put_all(client)
            hashed = client.hash_kv()
        server.stop()
        without_checksums(server.data_dir / "member")
        assert "no checksums" in verify(server.data_dir).stdout
        server.start()
        assert "added checksums to the rows" in server.log()
        with Client(server.endpoint) as client:
            assert len(client.range(b"key", b"kez").kvs) == PUTS
            assert client.hash_kv().hash == hashed.hash
            damage(server.data_dir)
            with pytest.raises(grpc.RpcError):
                client.range(b"key%03d" % VICTIM, b"")
        assert_ended_by_it(server)


def test_a_member_with_a_damaged_row_is_rebuilt_by_its_next_start(tmp_path: Path) -> None:
    flags = ["--heartbeat-interval=50"]
    servers = [ours(tmp_path / name, name=name, extra=list(flags)) for name in ("a", "b", "c")]
    with together(servers):
        a, b, c = servers
        with Client(a.endpoint) as client:
            put_all(client)
        with Client(b.endpoint) as client:
            deadline_s = time.monotonic() + WAIT_S
            while client.range(b"key%03d" % (PUTS - 1), b"").count == 0:
                assert time.monotonic() < deadline_s
            for _ in client.server_stream(rpc.SNAPSHOT, b""):
                pass
            damage(b.data_dir)
            with pytest.raises(grpc.RpcError):
                client.range(b"key", b"kez")
        assert_ended_by_it(b)
        deadline_s = time.monotonic() + WAIT_S
        while etcdctl(a, "put", "after", "x", check=False).returncode:  # b may have been the leader
            assert time.monotonic() < deadline_s
        b.extra.append(f"--rebuild-from-peers={a.client_url},{c.client_url}")
        b.start()
        assert "rebuilt this member" in b.log()
        with Client(b.endpoint) as client:
            assert client.range(b"key%03d" % VICTIM, b"").kvs[0].value == value(VICTIM)
            assert client.range(b"after", b"").count == 1
