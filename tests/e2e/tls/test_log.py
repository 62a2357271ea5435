"""What the log says of clients and members that are turned away: etcd's messages, Go's words."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from kvstack.component.net.tls_errors import go_error_text
from kvstore.transport import native
from tests.support.certificates import Authority
from tests.support.servers import Server, free_ports, ours
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

CLIENT = "rejected connection on client endpoint"
PEER = "rejected connection on peer endpoint"
REASONS = {
    "remote error: tls: unknown certificate authority",
    "tls: client didn't provide a certificate",
    "tls: failed to verify certificate: x509: certificate signed by unknown authority",
    "client certificate authentication failed",
    "tls: first record does not look like a TLS handshake",
}
Pair = tuple[str, str] | None


class Secure(Server):
    @override
    @property
    def client_url(self) -> str:
        """In plaintext where grpcio serves it: that cannot be told which hosts are allowed."""
        return f"{'https' if native.is_available() else 'http'}://{self.endpoint}"

    @override
    @property
    def peer_url(self) -> str:
        return f"https://127.0.0.1:{self.peer_port}"


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, int, Path]]:
    """A server with TLS everywhere it can, the port of its metrics, and the certificates."""
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory)
    certificate, key = authority.issue("server")
    authority.issue("client")
    Authority(directory, "other").issue("stranger")
    (metrics_port,) = free_ports(1)
    ca = authority.file
    server = ours(
        directory / "data",
        extra=[
            *(f"--cert-file={certificate}", f"--key-file={key}", f"--trusted-ca-file={ca}"),
            *("--client-cert-auth", "--client-cert-allowed-hostname=not.client"),
            *(f"--peer-cert-file={certificate}", f"--peer-key-file={key}"),
            *(f"--peer-trusted-ca-file={ca}", "--peer-client-cert-auth"),
            *(
                "--peer-cert-allowed-cn=nobody",
                f"--listen-metrics-urls=https://127.0.0.1:{metrics_port}",
            ),
        ],
    )
    server.__class__ = Secure
    try:
        server.start(wait=False)
        wait_logged(server, "ready to serve client requests", 1)
        yield server, metrics_port, directory
    finally:
        if server.process is not None:
            server.kill()


def wait_logged(server: Server, message: str, count: int) -> list[dict[str, object]]:
    def records() -> list[dict[str, object]]:
        found = [record for record in server.log_records() if record["msg"] == message]
        return found if len(found) >= count else []

    return wait_for(records, lambda: f"{message}, {count} times:\n{server.log()}")


def knock(port: int, trusted: str | None, pair: Pair) -> None:
    context = ssl.create_default_context(cafile=trusted)
    if pair is not None:
        context.load_cert_chain(*pair)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            secured.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
            assert secured.recv(1) == b""
    except OSError:
        pass  # which of the two sides sees what first is the kernel's affair


@pytest.mark.parametrize("location", ["client", "metrics", "peer"])
def test_every_reason_is_logged(location: str, tls_server: tuple[Server, int, Path]) -> None:
    server, metrics_port, directory = tls_server
    if location == "client" and not native.is_available():
        pytest.skip("grpcio says nothing of handshakes; the native transport was not built")
    port = {"client": server.client_port, "metrics": metrics_port, "peer": server.peer_port}[
        location
    ]
    message = PEER if location == "peer" else CLIENT
    before = len([record for record in server.log_records() if record["msg"] == message])
    ca, files = str(directory / "ca.pem"), str(directory)
    knock(port, None, None)
    knock(port, ca, None)
    knock(port, ca, (f"{files}/stranger.pem", f"{files}/stranger.key"))
    knock(port, ca, (f"{files}/client.pem", f"{files}/client.key"))
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(b"\x16 nonsense of some length")
    records = wait_logged(server, message, before + 5)[before:]
    assert {str(record["error"]).removesuffix(": host name") for record in records} == REASONS
    assert all(str(record["remote_addr"]).startswith("127.0.0.1") for record in records)
    assert {record["level"] for record in records} == {"warn"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("TLS: received fatal alert: BadCertificate", "remote error: tls: bad certificate"),
        ("[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert", "remote error: tls: bad certificate"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] x", "remote error: tls: certificate required"),
        ("certificate is valid for a, not b", "certificate is valid for a, not b"),
        (
            "TLS: invalid peer certificate: certificate expired: verification time 7 (UNIX)",
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid",
        ),
        ("received fatal alert: Unheard", "received fatal alert: Unheard"),
    ],
)
def test_words(text: str, words: str) -> None:
    assert go_error_text(text) == words
