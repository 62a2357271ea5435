"""A member whose data went wrong is found among three processes, and rebuilt by one command."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.backend import Table
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.transport import native
from tests.support.certificates import Authority
from tests.support.servers import Server, etcdctl, free_ports, ours, together
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

WAIT_S = 60.0
FLAGS = ["--unsafe-no-fsync", "--corrupt-check-time=1s", "--heartbeat-interval=50"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[Server]]:
    servers = [ours(tmp_path / name, name=name, extra=list(FLAGS)) for name in ("a", "b", "c")]
    with together(servers):
        yield servers


def spoil(server: Server) -> None:
    """Change a stored value behind the member's back."""
    backend = LmdbBackend(server.data_dir / "member")
    key, kv = backend.scan(Table.KEY, b"", None, 1000)[-1]
    backend.delete(Table.KEY, key)
    backend.put(Table.KEY, key, kv[:-1] + bytes((kv[-1] ^ 1,)))
    backend.commit()
    backend.close()


def value(server: Server, key: str) -> str:
    return etcdctl(server, "get", key, "--print-value-only").stdout.strip()


def test_a_member_is_reported_refuses_requests_and_is_rebuilt(cluster: list[Server]) -> None:
    a, b, c = cluster
    for at in range(20):
        etcdctl(a, "put", f"k{at}", f"v{at}")
    wait_for(lambda: value(b, "k19") == "v19", "replication")
    b.stop()
    spoil(b)
    b.start()
    wait_for(lambda: "alarm:CORRUPT" in etcdctl(a, "alarm", "list").stdout, "the alarm")
    found = etcdctl(b, "get", "k1", check=False)
    wait_for(lambda: "fenced off" in etcdctl(b, "get", "k1", check=False).stderr, "the fence")
    assert found.returncode != 0 or found.stdout
    assert value(a, "k1") == "v1"
    refused = etcdctl(c, "put", "k1", "x", check=False)
    assert "etcdserver: corrupt cluster" in refused.stderr
    flag = next(str(line["flag"]) for line in b.log_records() if "flag" in line)
    assert sorted(flag.partition("=")[2].split(",")) == sorted((a.client_url, c.client_url))
    b.stop()
    b.extra.append(flag)
    b.start()
    wait_for(lambda: not etcdctl(a, "alarm", "list").stdout, "the end of the alarm")
    wait_for(
        lambda: etcdctl(b, "put", "k1", "new", check=False).returncode == 0, "writes on the rebuilt"
    )
    for server in cluster:
        assert value(server, "k1") == "new"
        assert value(server, "k19") == "v19"
    hashes = {
        line.split(", ")[1]
        for server in cluster
        for line in etcdctl(server, "endpoint", "hashkv", "--rev=21").stdout.splitlines()
    }
    assert len(hashes) == 1
    assert (b.data_dir / "member" / "lmdb.set-aside.1").is_dir()
    b.restart()
    messages = [line["msg"] for line in b.log_records()]
    assert messages.count("rebuilt this member") == 1
    assert messages.count("this member's data is in use; it is not rebuilt") == 1


def test_a_member_that_was_down_for_long_is_rebuilt_past_its_log(cluster: list[Server]) -> None:
    a, b, c = cluster
    etcdctl(a, "put", "k", "v")
    wait_for(lambda: value(b, "k") == "v", "replication")
    b.stop()
    for at in range(30):
        etcdctl(a, "put", f"k{at}", f"v{at}")
    (b.data_dir / "member" / "lmdb").rename(b.data_dir / "lost")
    b.extra.append(f"--rebuild-from-peers={c.client_url}")
    b.start()
    assert value(b, "k29") == "v29"
    etcdctl(b, "put", "k", "new")
    b.kill()
    b.start()
    assert value(b, "k") == "new"
    assert value(b, "k29") == "v29"


def test_nobody_to_rebuild_from(cluster: list[Server]) -> None:
    _, b, _ = cluster
    b.stop()
    (b.data_dir / "member" / "lmdb").rename(b.data_dir / "lost")
    b.extra.append(f"--rebuild-from-peers=http://127.0.0.1:1,{b.client_url}")
    b.start(wait=False)
    assert b.process is not None
    assert b.process.wait(20) == 1
    assert "no member can provide its data (http://127.0.0.1:" in b.log()
    assert not (b.data_dir / "member" / "lmdb").exists()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
@pytest.mark.parametrize("transport", ["grpcio", "native"])
def test_the_data_comes_by_tls_and_in_the_name_of_root(tmp_path: Path, transport: str) -> None:
    if transport == "native" and not native.is_available():
        pytest.skip(f"the native transport is not built: {native.MISSING}")
    authority = Authority(tmp_path)
    cert_file, key_file = authority.issue("member")
    ports = free_ports(3)
    tls = [
        f"--cert-file={cert_file}",
        f"--key-file={key_file}",
        f"--trusted-ca-file={authority.file}",
        "--client-cert-auth",
        f"--transport={transport}",
    ]
    servers = [ours(tmp_path / name, name=name, extra=[*FLAGS, *tls]) for name in ("a", "b", "c")]
    for server, port in zip(servers, ports, strict=True):
        urls = f"{server.client_url},https://127.0.0.1:{port}"
        server.extra.append(f"--listen-client-urls={urls}")
    with together(servers):
        a, b, _ = servers
        etcdctl(a, "put", "k", "v")
        for command in ("user add root:pw", "user grant-role root root", "auth enable"):
            etcdctl(a, *command.split())
        b.stop()
        (b.data_dir / "member" / "lmdb").rename(b.data_dir / "lost")
        b.extra.append(f"--rebuild-from-peers=https://127.0.0.1:{ports[2]}")

        b.start(wait=False)
        assert b.process is not None
        assert b.process.wait(WAIT_S) == 1  # its certificate names no user
        assert "etcdserver: user name not found" in b.log()

        b.extra.append("--rebuild-user=root:wrong")
        b.start(wait=False)
        assert b.process.wait(WAIT_S) == 1
        assert "authentication failed, invalid user ID or password" in b.log()
        assert "root:wrong" not in b.log()

        b.extra.append("--rebuild-user=root:pw")
        b.start()
        root = ("--user=root:pw", "get", "k", "--print-value-only")
        assert etcdctl(b, *root).stdout.strip() == "v"
        assert any(line["msg"] == "rebuilt this member" for line in b.log_records())
        assert "root:pw" not in b.log()
