"""The TCP gateway, as a process, before servers of the test's own and before a real etcd."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.network.dns_server import dns_server
from tests.support.proxies import Proxy, proxy, refusal
from tests.support.servers import etcd, etcdctl, free_ports, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

READY = "ready to proxy client requests"


@contextmanager
def greeter(name: bytes, port: int = 0) -> Iterator[int]:
    """Accept connections, say a name and send back what comes; gives the port."""
    with socket.create_server(("127.0.0.1", port)) as listening, ExitStack() as opened:
        port = listening.getsockname()[1]

        def accept() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                opened.enter_context(connection)
                connection.sendall(name)
                threading.Thread(target=echo, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield port
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def echo(connection: socket.socket) -> None:
    try:
        while data := connection.recv(65536):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def greeting(gateway: Proxy) -> bytes:
    with socket.create_connection(("127.0.0.1", gateway.client_port), 10) as connection:
        return connection.recv(100)


def test_endpoints_take_turns_and_a_dead_one_is_set_aside_until_it_is_back(tmp_path: Path) -> None:
    dead = free_ports(1)[0]
    with ExitStack() as stack:
        live = stack.enter_context(greeter(b"live"))
        other = stack.enter_context(greeter(b"other"))
        endpoints = f"127.0.0.1:{live},http://127.0.0.1:{other}"
        gateway = stack.enter_context(
            proxy(
                tmp_path, "gateway", "start", f"--endpoints={endpoints}",
                "--endpoints", f"127.0.0.1:{dead}", "--retry-delay=300ms", ready=READY,
            )
        )  # fmt: skip
        named = [f"127.0.0.1:{port}" for port in (live, other, dead)]
        assert gateway.wait_for(READY)["endpoints"] == named
        found = [greeting(gateway) for _ in range(4)]
        assert sorted(found) == [b"live", b"live", b"other", b"other"]
        gone = gateway.wait_for("deactivated endpoint")
        assert (gone["address"], gone["interval"]) == (named[2], "300ms")
        assert gone["error"] == f"dial tcp {named[2]}: connect: connection refused"
        assert gone["level"] == "warn"
        gateway.wait_for("failed to activate endpoint (stay inactive for another interval)")
        stack.enter_context(greeter(b"back", dead))
        assert gateway.wait_for("activated")["address"] == named[2]
        assert sorted(greeting(gateway) for _ in range(3)) == [b"back", b"live", b"other"]


def test_much_goes_both_ways_and_an_end_is_an_end_for_both(tmp_path: Path) -> None:
    with (
        greeter(b"") as port,
        proxy(
            tmp_path, "gateway", "start", f"--endpoints=127.0.0.1:{port}", ready=READY
        ) as gateway,
        socket.create_connection(("127.0.0.1", gateway.client_port), 10) as connection,
    ):
        sent = bytes(range(256)) * 8192
        thread = threading.Thread(target=connection.sendall, args=(sent,))
        thread.start()
        received = b""
        while len(received) < len(sent):
            received += connection.recv(1 << 16)
        thread.join()
        assert received == sent
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""


def test_without_a_live_endpoint_connections_are_closed(tmp_path: Path) -> None:
    dead = free_ports(1)[0]
    with proxy(
        tmp_path, "gateway", "start", f"--endpoints=127.0.0.1:{dead}", ready=READY
    ) as gateway:
        assert greeting(gateway) == b""
        assert greeting(gateway) == b""


def test_etcdctl_goes_through_to_endpoints_that_dns_names(tmp_path: Path) -> None:
    with running(etcd(tmp_path / "one")) as server:
        records = {"_etcd-client-blue._tcp.example.org": [f"0 5 {server.client_port} localhost."]}
        with (
            dns_server(records) as dns,
            proxy(
                tmp_path, "gateway", "start", "--discovery-srv=example.org",
                "--discovery-srv-name=blue", f"--discovery-dns-server={dns}",
                "--insecure-discovery", ready=READY,
            ) as gateway,
        ):  # fmt: skip
            found = gateway.wait_for("discovered cluster from SRV")
            assert found["endpoints"] == [f"http://localhost.:{server.client_port}"]
            etcdctl(gateway, "put", "through", "it")  # type: ignore[arg-type]
            assert etcdctl(server, "get", "through").stdout == "through\nit\n"
            gateway.process.terminate()
            assert gateway.process.wait(10) == 0


def test_what_cannot_be_meant_is_refused() -> None:
    port = free_ports(1)[0]
    start = ("gateway", "start")
    address = f"--listen-addr=127.0.0.1:{port}"
    itself = f"SRV or endpoint (localhost:{port}->127.0.0.1:{port}) should not resolve to the "
    assert refusal(*start, address, f"--endpoints=localhost:{port}") == (
        1,
        f"{itself}gateway listen addr (127.0.0.1:{port})",
    )
    assert refusal(*start, address, "--endpoints=x") == (1, 'error parsing endpoint "x"')
    assert refusal(*start, "--listen-addr=nowhere") == (
        1,
        "failed to validate listen address: nowhere",
    )
    assert refusal(*start, "--retry-delay=soon")[0] == 1
    assert refusal(*start, "--no-such-flag")[0] == 1


def test_a_domain_without_records_is_refused() -> None:
    with dns_server({}) as dns:
        code, text = refusal(
            "gateway", "start", "--discovery-srv=example.org", f"--discovery-dns-server={dns}"
        )
    ssl, plain = (
        f"lookup _etcd-client{each}._tcp.example.org on {dns}: no such host"
        for each in ("-ssl", "")
    )
    assert (code, text) == (1, f"dns lookup errors: {ssl} and {plain}")


def test_by_default_endpoints_that_dns_names_must_be_secure(tmp_path: Path) -> None:
    records = {"_etcd-client._tcp.example.org": ["0 0 1 localhost."]}
    with (
        greeter(b"given") as port,
        dns_server(records) as dns,
        proxy(
            tmp_path, "gateway", "start", "--discovery-srv=example.org",
            f"--discovery-dns-server={dns}", f"--endpoints=127.0.0.1:{port}", ready=READY,
        ) as gateway,
    ):  # fmt: skip
        refused = gateway.wait_for("failed to validate discovered endpoints")
        assert refused["error"] == '"http://localhost.:1" is insecure'
        assert greeting(gateway) == b"given"


def test_secure_endpoints_that_dns_names_must_have_the_domains_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    servers = []
    with ExitStack() as stack:
        for host in ("example.org", "elsewhere.net"):
            cert, key = authority.issue(host, host=host)
            server = etcd(
                tmp_path / f"of-{host}", extra=[f"--cert-file={cert}", f"--key-file={key}"]
            )
            url = f"https://127.0.0.1:{server.client_port}"
            server.extra += [f"--listen-client-urls={url}", f"--advertise-client-urls={url}"]
            server.start(wait=False)
            stack.callback(server.kill)
            servers.append(server)
        for server in servers:
            wait_for_port(server.client_port)
        ports = [server.client_port for server in servers]
        records = {
            "_etcd-client-ssl._tcp.example.org": [f"0 0 {each} localhost." for each in ports]
        }
        gateway = stack.enter_context(
            proxy(
                tmp_path,
                "gateway",
                "start",
                "--discovery-srv=example.org",
                f"--discovery-dns-server={stack.enter_context(dns_server(records))}",
                f"--trusted-ca-file={authority.file}",
                ready=READY,
            )
        )
        refused = gateway.wait_for("failed to validate discovered endpoints")
        assert refused["endpoints"] == [f"https://localhost.:{ports[0]}"]
        assert f"localhost.:{ports[1]}" in refused["error"]
        assert gateway.wait_for(READY)["endpoints"] == [f"localhost.:{ports[0]}"]
        secure = (f"--endpoints=https://{gateway.endpoint}", f"--cacert={authority.file}")
        etcdctl(gateway, *secure, "put", "a", "b")  # type: ignore[arg-type]


def wait_for_port(port: int) -> None:
    def listens() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionRefusedError:
            return False
        return True

    wait_for(listens, f"port {port} is listened on")
