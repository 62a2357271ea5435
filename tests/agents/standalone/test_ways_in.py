"""Who gets into `kvstack up`: its sockets, its pages, its administrators; and who does not."""

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kvstore.client import connect
from kvstore.transport import native
from tests.agents.standalone.test_stack import READY_S, STOP_S, lines_of, up
from tests.agents.support.namespaces import has_namespaces
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.support.network.ports import free_ports
from tests.support.rpc_client import Client
from tests.support.servers import ETCDCTL

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NOBODY = 65534
TRANSPORTS = [
    pytest.param(
        "native",
        marks=pytest.mark.skipif(not native.is_available(), reason="the crate is not built"),
    ),
    "grpcio",
]
_LISTENS = "0A"


def variables(lines: list[str]) -> dict[str, str]:
    """Return what the printed lines export."""
    found = [line.removeprefix("export ").partition("=") for line in lines if "export" in line]
    return {name: text for name, _, text in found}


def etcdctl(exported: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [ETCDCTL, "--dial-timeout=5s", *words],
        env={**os.environ, **exported},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def kubectl(exported: dict[str, str], *words: str) -> tuple[int, str]:
    try:
        program = clients("1.37") / "kubectl"
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    done = subprocess.run(
        [program, *words],
        env={**os.environ, **exported, "HOME": str(Path(exported["KUBECONFIG"]).parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


IPV4_DIGITS = 8
LOOPBACK = "0100007F"


def listening(pid: int) -> dict[int, str]:
    """Return the TCP ports on which a process listens, with the address in the kernel's form."""
    inodes = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(each))
        except FileNotFoundError:
            continue  # closed meanwhile
        if found:
            inodes.add(found[1])
    ports = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENS and words[9] in inodes:
                address, _, port = words[1].rpartition(":")
                ports[int(port, 16)] = address
    return ports


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_store_has_a_socket_of_its_owner_and_no_port(transport: str, tmp_path: Path) -> None:
    (api,) = free_ports(1)
    flags = (f"--secure-port={api}", f"--transport={transport}", "--without=node")
    with up(tmp_path / "data", *flags) as process:
        exported = variables(lines_of(process))
        path = tmp_path / "data" / "run" / "etcd.sock"
        assert exported["ETCDCTL_ENDPOINTS"] == f"unix://{path}"
        assert list(listening(process.pid)) == [api]
        assert all(not listening(each) for each in children_of(process.pid))
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        # etcdctl, and both clients of this project.
        assert etcdctl(exported, "put", "greeting", "hello") == "OK\n"
        assert "is healthy" in etcdctl(exported, "endpoint", "health", "--cluster")
        etcdctl(exported, "snapshot", "save", str(tmp_path / "backup.db"))
        assert asyncio.run(_get(exported["ETCDCTL_ENDPOINTS"])) == b"hello"
        assert _get_by_grpcio(exported["ETCDCTL_ENDPOINTS"]) == b"hello"
        if os.geteuid() == 0:
            assert _connect_as(NOBODY, path) == "PermissionError"
        # Killed, it leaves its socket behind, which the next one takes over.
        process.kill()
        process.wait()
        assert path.exists()
    with up(tmp_path / "data", *flags) as process:
        exported = variables(lines_of(process))
        assert etcdctl(exported, "get", "greeting", "--print-value-only") == "hello\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0
    assert not path.exists()


async def _get(endpoint: str) -> bytes | None:
    async with connect([endpoint]) as store:
        found = await store.get(b"greeting")
        return found.kv.value if found.kv else None


def _get_by_grpcio(endpoint: str) -> bytes:
    with Client(endpoint) as client:
        found: bytes = client.range(b"greeting", b"").kvs[0].value
        return found


def _connect_as(user: int, path: Path) -> str:
    """Try to connect as another user; return the name of the error."""
    code = (
        "import socket, sys\n"
        "try:\n    socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
        "except OSError as error:\n    print(type(error).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(path)],
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.skipif(not has_namespaces(), reason="a node of processes needs root and namespaces")
def test_a_node_adds_its_own_port_alone(tmp_path: Path) -> None:
    (api,) = free_ports(1)
    with up(tmp_path / "data", f"--secure-port={api}") as process:
        exported = variables(lines_of(process))
        port = "jsonpath={.items[0].status.daemonEndpoints.kubeletEndpoint.Port}"
        code, kubelet = kubectl(exported, "get", "nodes", "-o", port)
        assert code == 0
        ports = listening(process.pid)
        # Pages of the proxy and metrics of DNS are left out where another process has the port.
        pages = {port: ports.pop(port) for port in (9153, 10249, 10256) if port in ports}
        # DNS is at the address of the bridge, which pods reach and other machines do not.
        assert set(ports) == {api, int(kubelet), 53}
        assert len(ports[53]) == IPV4_DIGITS
        assert int(ports[53], 16)
        assert pages.pop(9153, ports[53]) == ports[53]
        assert set(pages.values()) <= {LOOPBACK}


def test_a_second_start_on_the_same_data_changes_nothing(tmp_path: Path) -> None:
    api, other = free_ports(2)
    directory = tmp_path / "data"
    with up(directory, f"--secure-port={api}", "--without=node") as process:
        exported = variables(lines_of(process))
        before = _files(directory / "kubernetes")
        with up(directory, f"--secure-port={other}", "--without=node") as second:
            assert second.wait(READY_S) == 1
        assert "locked by another process" in (tmp_path / "log").read_text()
        assert _files(directory / "kubernetes") == before
        assert "is healthy" in etcdctl(exported, "endpoint", "health")  # its socket was not taken


def _files(directory: Path) -> dict[str, tuple[int, bytes]]:
    files = [each for each in directory.rglob("*") if each.is_file()]
    return {str(each): (each.stat().st_mtime_ns, each.read_bytes()) for each in files}


def test_who_may_see_the_pages_of_the_store_and_who_is_administrator(tmp_path: Path) -> None:
    (api,) = free_ports(1)
    with up(tmp_path / "data", f"--secure-port={api}", "--without=node") as process:
        admin = variables(lines_of(process))
        superior = {"KUBECONFIG": str(tmp_path / "data" / "kubernetes" / "super-admin.conf")}
        for path, text in (
            ("/etcd/health", '"health":"true"'),
            ("/etcd/metrics", "etcd_server_has_leader 1"),
            ("/etcd/readyz?verbose", "[+]linearizable_read ok"),
            ("/etcd/ui", "<!doctype html>"),
            ("/etcd/ui/data", '"role":"leader"'),
        ):
            code, said = kubectl(admin, "get", "--raw", path)
            assert (code, text in said) == (0, True), said
            code, said = kubectl(admin, "get", "--raw", path, "--as=nobody")
            assert code == 1
            assert "forbidden" in said.lower()
            monitor = ("--as=m", "--as-group=system:monitoring")
            code, _ = kubectl(admin, "get", "--raw", path, *monitor)
            assert (code == 0) == ("/ui" not in path), path
            assert _status(api, path) == 403
        assert _status(api, "/etcd/livez/../ui") == 403
        # What kubelets are shown is no administrator's: a node may lead it to the API server.
        shown = tmp_path / "data" / "kubernetes" / "pki" / "apiserver-kubelet-client"
        for path, expected in (
            ("/api/v1/secrets", 403),
            ("/api/v1/nodes", 200),
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles", 403),
            ("/etcd/metrics", 403),
        ):
            assert _status(api, path, shown) == expected, path
        # The administrator has the rights of a binding, which may be taken away.
        assert "kubeadm:cluster-admins" in kubectl(admin, "auth", "whoami")[1]
        assert "system:masters" not in kubectl(admin, "auth", "whoami")[1]
        assert "system:masters" in kubectl(superior, "auth", "whoami")[1]
        bindings = ("clusterrolebinding", "kubeadm:cluster-admins")
        code, said = kubectl(admin, "get", *bindings, "-o", "json")
        assert json.loads(said)["roleRef"]["name"] == "cluster-admin"
        assert kubectl(superior, "delete", *bindings)[0] == 0
        code, said = kubectl(admin, "get", "secrets")
        assert (code, "orbidden" in said) == (1, True)
        assert kubectl(superior, "get", "secrets")[0] == 0


def _status(port: int, path: str, shown: Path | None = None) -> int:
    """Return how a GET is answered; shown: a client certificate and its key, without suffixes."""
    import http.client
    import ssl

    context = ssl._create_unverified_context()  # who has no credentials knows no authority
    if shown is not None:
        context.load_cert_chain(f"{shown}.crt", f"{shown}.key")
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_port_of_the_store_asks_for_a_certificate(transport: str, tmp_path: Path) -> None:
    api, store, plain, peer = free_ports(4)
    urls = f"unix:,127.0.0.1:{store},http://127.0.0.1:{plain}"
    flags = (
        f"--listen-client-urls={urls}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--secure-port={api}",
        f"--transport={transport}",
        "--without=node",
    )
    with up(tmp_path / "data", *flags) as process:
        exported = variables(lines_of(process))
        assert set(exported["ETCDCTL_ENDPOINTS"].split(",")) == {
            f"unix://{tmp_path}/data/run/etcd.sock",
            f"https://127.0.0.1:{store}",
            f"http://127.0.0.1:{plain}",
        }
        assert set(listening(process.pid)) == {api, store, plain, peer}
        assert etcdctl(exported, "put", "greeting", "hello") == "OK\n"
        secured = {**exported, "ETCDCTL_ENDPOINTS": f"https://127.0.0.1:{store}"}
        assert etcdctl(secured, "get", "greeting", "--print-value-only") == "hello\n"
        authority = {"ETCDCTL_CACERT": exported["ETCDCTL_CACERT"]}
        with pytest.raises(AssertionError):
            etcdctl({**authority, "ETCDCTL_ENDPOINTS": secured["ETCDCTL_ENDPOINTS"]}, "get", "a")
    assert "without TLS and without credentials" in (tmp_path / "log").read_text()


def test_a_long_data_directory_has_its_socket_elsewhere(tmp_path: Path) -> None:
    (api,) = free_ports(1)
    directory = tmp_path / ("a" * 120)
    runtime = tmp_path / "r"
    runtime.mkdir(mode=0o700)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    with up(directory, f"--secure-port={api}", "--without=node", env=environment) as process:
        exported = variables(lines_of(process))
        path = Path(exported["ETCDCTL_ENDPOINTS"].removeprefix("unix://"))
        try:
            assert len(str(path)) <= 107
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            assert "is healthy" in etcdctl(exported, "endpoint", "health")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_S)
            path.parent.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_an_ordinary_user_has_a_cluster_too(tmp_path: Path) -> None:
    (api,) = free_ports(1)
    log = tmp_path / "log"
    # Nobody else may enter a directory of pytest.
    directory = Path(f"/tmp/kvstack-nobody-{os.getpid()}")
    directory.mkdir(mode=0o700)
    os.chown(directory, NOBODY, NOBODY)
    try:
        with up(directory, f"--secure-port={api}", user=NOBODY, log_file=log) as process:
            exported = variables(lines_of(process))
            assert etcdctl(exported, "put", "a", "b") == "OK\n"  # root may, as everywhere
            assert kubectl(exported, "get", "namespaces")[0] == 0
    finally:
        subprocess.run(["rm", "-rf", str(directory)], check=True)
