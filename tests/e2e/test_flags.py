"""Flags whose effect shows only in a running server."""

import os
import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvstore.client.errors import StoreError
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.server.boot.snapshot_source import SnapshotSource
from kvstore.transport import native
from tests.support.certificates import Authority
from tests.support.servers import Server, etcdctl, ours, running
from tests.support.waiting import wait_for

LOCK_BYTES = 1 << 30


def may_lock() -> bool:
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return os.geteuid() == 0 or soft == resource.RLIM_INFINITY or soft > LOCK_BYTES


def test_memory_is_locked(tmp_path: Path) -> None:
    if not may_lock():
        pytest.skip("locking memory needs root or a higher `ulimit -l`")
    with running(ours(tmp_path / "data", extra=["--memory-mlock"])) as server:
        status = Path(f"/proc/{server.pid}/status").read_text()
    locked = re.search(r"VmLck:\s+(\d+) kB", status)
    assert locked is not None
    assert int(locked[1]) > 1000


def test_the_log_goes_to_a_file_that_is_rotated(tmp_path: Path) -> None:
    extra = [f"--log-outputs={tmp_path / 'server.log'}", "--enable-log-rotation"]
    extra.append('--log-rotation-config-json={"maxsize": 1, "compress": true}')
    with running(ours(tmp_path / "data", extra=extra)) as server:
        assert server.stop() == 0
    assert '"msg":"closed the server"' in (tmp_path / "server.log").read_text()
    assert server.log() == ""


def test_a_database_with_room_to_give_back_is_defragmented_at_start(tmp_path: Path) -> None:
    """Compacted values leave room; a start with the flag gives it back before serving."""
    server = ours(tmp_path / "data")
    with running(server):
        for _ in range(4):
            etcdctl(server, "put", "k", stdin="x" * 1_000_000)
        etcdctl(server, "put", "k", "small")
        etcdctl(server, "compaction", "5", "--physical")
        assert server.stop() == 0
        before = size_bytes(server)
        for threshold, message in ((4000, "Skipping defragmentation"), (1, "finished defragment")):
            server.extra = [f"--bootstrap-defrag-threshold-megabytes={threshold}"]
            server.start()
            assert server.stop() == 0
            assert message in [record["msg"] for record in server.log_records()]
    assert before > 4_000_000
    assert size_bytes(server) < 2_000_000


def size_bytes(server: Server) -> int:
    return (server.data_dir / "member" / "lmdb" / "data.mdb").stat().st_size


def messages_until_ready(server: Server) -> list[object]:
    def messages() -> list[object]:
        found = [record["msg"] for record in server.log_records()]
        return found if "serving client traffic" in found else []

    return wait_for(messages, server.log)


@pytest.mark.parametrize(
    "transport",
    [
        pytest.param(
            "native",
            marks=pytest.mark.skipif(
                not native.is_available(), reason="the native transport is not built"
            ),
        ),
        "grpcio",
    ],
)
def test_another_server_may_share_the_ports_if_both_agree(tmp_path: Path, transport: str) -> None:
    """Without the flag the second one cannot start; peer timeouts too low are raised, as told."""
    flags = [f"--transport={transport}", "--raft-read-timeout=1s", "--raft-write-timeout=7s"]
    shared = [*flags, "--socket-reuse-port", "--socket-reuse-address"]
    first = ours(tmp_path / "first", extra=shared)
    ports = (first.client_port, first.peer_port)
    second = ours(tmp_path / "second", extra=shared, ports=ports)
    alone = ours(tmp_path / "alone", extra=flags, ports=ports)
    with running(first), running(second):
        messages = messages_until_ready(second)  # either may answer at the port
        assert "raft-read-timeout increased to minimum value: 5s" in messages
        assert not [msg for msg in messages if "raft-write-timeout" in str(msg)]
        alone.start(wait=False)
        assert alone.process is not None
        try:
            assert alone.process.wait(30) == 1
        finally:
            if alone.process.poll() is None:
                os.kill(alone.pid, signal.SIGKILL)
        assert "Address already in use" in alone.log()


def test_a_certificate_of_its_own_is_shown(tmp_path: Path) -> None:
    """To members a rebuild asks for their data: --client-cert-file, else --cert-file."""
    authority = Authority(tmp_path)
    server_pair, client_pair = authority.issue("server"), authority.issue("client")
    server = ours(tmp_path / "data")
    url = f"https://localhost:{server.client_port}"
    listen = f"https://127.0.0.1:{server.client_port}"
    trusted = f"--trusted-ca-file={authority.file}"
    server.extra = [
        *(f"--listen-client-urls={listen}", f"--advertise-client-urls={url}", trusted),
        *(f"--cert-file={server_pair[0]}", f"--key-file={server_pair[1]}", "--client-cert-auth"),
    ]
    certificate, key = client_pair
    with running_by_its_log(server):
        for flags in (
            [f"--client-cert-file={certificate}", f"--client-key-file={key}"],
            [f"--cert-file={certificate}", f"--key-file={key}"],
        ):
            source = SnapshotSource(url, configure(read_command_line([trusted, *flags]), {}))
            assert source.status().version == "3.7.1"
            source.close()
        source = SnapshotSource(url, configure(read_command_line([trusted]), {}))
        with pytest.raises(StoreError):
            source.status()
        source.close()


@contextmanager
def running_by_its_log(server: Server) -> Iterator[None]:
    """Run a server that only its log says is ready."""
    server.start(wait=False)
    try:
        messages_until_ready(server)
        yield
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--client-cert-allowed-hostname=a"], "--client-cert-allowed-hostname needs the native"),
        (["--tls-max-version=TLS1.2"], "--tls-max-version needs the native transport"),
        (["--listen-client-urls=http://127.0.0.1:1,https://127.0.0.1:1"], "plaintext beside TLS"),
    ],
)
def test_what_grpcio_cannot_do_is_refused_before_anything_is_written(
    tmp_path: Path, flags: list[str], text: str
) -> None:
    tls = ["--cert-file=/none.pem", "--key-file=/none.key", "--listen-client-urls=https://[::1]:0"]
    server = ours(tmp_path / "data", extra=["--transport=grpcio", *tls, *flags])
    server.start(wait=False)
    assert server.process is not None
    try:
        assert server.process.wait(30) == 1
    finally:
        server.kill()
    assert text in server.log()
    assert not server.data_dir.exists()
