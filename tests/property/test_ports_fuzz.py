"""Bytes that are nearly requests, on every port of a server: it answers on, and in peace."""

import errno
import json
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.http.plain_client import ask
from tests.support.servers import Server, free_ports, ours, running

pytestmark = pytest.mark.slow

REQUESTS = (
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b'POST /v3/kv/range HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n{"key":"Zm9v"}',
    b"POST /v3/kv/put HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'18\r\n{"key":"YQ","value":"Yg"}\r\n0\r\n\r\n',
    b"GET /v3/watch HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n\x81\x02{}",
    b"GET /raft/stream/msgapp/8e9e05c52164694d HTTP/1.1\r\nHost: x\r\nX-Etcd-Cluster-Id: 1\r\n"
    b"X-Server-Version: 3.7.1\r\nX-Raft-To: 1\r\n\r\n",
    b"POST /raft HTTP/1.1\r\nHost: localhost\r\nX-Etcd-Cluster-Id: 1\r\nContent-Length: 4\r\n\r\n"
    b"\x08\x01\x10\x02",
    b"POST /leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n\x08\x01",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
)
ODD = (
    b"", b"\r\n", b"\r\n\r\n", b"\x00", b" ", b"\xff" * 9, b"A" * 70_000, b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"HTTP/9.9",
    b"Expect: 100-continue\r\n", b"Host: y\r\n", b"ffffffffffffffff\r\n", b"/../..//%00%zz?",
)  # fmt: skip
CLOSED = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
"""How a connection looks that the server has closed, to who sends, ends or reads."""
MUTATIONS = st.lists(
    st.tuples(
        st.floats(0, 1, allow_nan=False),
        st.sampled_from(["insert", "cut", "replace", "swallow"]),
        st.sampled_from(ODD) | st.binary(max_size=4),
    ),
    max_size=3,
)


def mutated(request: bytes, mutations: list[tuple[float, str, bytes]]) -> bytes:
    for place, kind, odd in mutations:
        at = int(place * len(request))
        head, tail = request[:at], request[at:]
        request = {
            "insert": head + odd + tail,
            "cut": head,
            "replace": head + odd + tail[len(odd) :],
            "swallow": head + tail[5:],
        }[kind]
    return request


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, int]]]:
    made = ours(tmp_path_factory.mktemp("ports") / "data")
    pages, metrics = free_ports(2)
    made.extra = [
        f"--listen-client-http-urls=http://127.0.0.1:{pages}",
        f"--listen-metrics-urls=http://127.0.0.1:{metrics}",
        "--transport=grpcio",  # so that the pages are the own server's
        "--unsafe-no-fsync",
    ]
    with running(made):
        yield made, {"pages": pages, "metrics": metrics, "peers": made.peer_port}
        assert made.process is not None
        assert made.process.poll() is None, made.log()
        assert {record["level"] for record in made.log_records()} <= {"info", "warn"}


@pytest.mark.parametrize("port", ["pages", "metrics", "peers"])
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(REQUESTS), MUTATIONS)
def test_nearly_requests(
    server: tuple[Server, dict[str, int]],
    port: str,
    request_bytes: bytes,
    mutations: list[tuple[float, str, bytes]],
) -> None:
    _, ports = server
    with socket.create_connection(("127.0.0.1", ports[port]), 10) as connection:
        try:
            connection.sendall(mutated(request_bytes, mutations))
            connection.shutdown(socket.SHUT_WR)
            first = connection.recv(64)
        except OSError as error:
            if error.errno not in CLOSED:
                raise
            return
    assert first == b"" or first.startswith(b"HTTP/1.1 "), first


def test_it_answers_on(server: tuple[Server, dict[str, int]]) -> None:
    _, ports = server
    status, _, body = ask(ports["pages"], "GET", "/health")
    assert (status, json.loads(body)["health"]) == (200, "true")
    assert ask(ports["metrics"], "GET", "/metrics")[0] == 200
    assert ask(ports["peers"], "GET", "/raft/probing")[0] == 200
