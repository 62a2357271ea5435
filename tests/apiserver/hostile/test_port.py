"""Any bytes at any endpoint are answered with a Status or a clean close; the server goes on.

The server's own log is read afterwards: nothing in it may be a traceback or an error.
"""

import http.client
import json
import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.apiserver.hostile.mangled_requests import Sent, requests
from tests.apiserver.support.api_servers import ADMIN_TOKEN, ApiServer, cluster, trusting
from tests.apiserver.support.requests import send

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("apiserver-hostile")]

FUZZ = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "400")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
FUZZ_LESS = settings(FUZZ, max_examples=max(1, FUZZ.max_examples // 4))  # a handshake for each
QUIET_S = 0.05  # a server that has said nothing for so long waits for more
TIMEOUT_S = 60.0
# A kube-apiserver answers a resourceVersion that is no number with 500, too.
KNOWN_FAILURES = (b"strconv.ParseUint", b"streams to kubelets are not served")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with cluster(tmp_path_factory.mktemp("hostile")) as stack:
        yield stack.server
        assert is_well(stack.server)
        log = stack.server.log_path.read_text()
        assert "Traceback" not in log, log[-4000:]
        assert '"level":"error"' not in log, log[-4000:]


def is_well(server: ApiServer) -> bool:
    """Whether another client is answered as if nothing had been."""
    return bool(send(server, "GET", "/api/v1/namespaces/default")["metadata"]["name"] == "default")


@pytest.fixture(scope="module")
def connection(server: ApiServer) -> Iterator[http.client.HTTPSConnection]:
    """One connection for all requests: what one leaves behind would be in the next one's way."""
    kept = http.client.HTTPSConnection(
        "127.0.0.1", server.port, timeout=TIMEOUT_S, context=trusting()
    )
    yield kept
    kept.close()


def answer_of(
    connection: http.client.HTTPSConnection, sent: Sent
) -> tuple[int, dict[str, str], bytes]:
    """Send a request and take its answer whole."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", **sent.headers}
    try:
        connection.request(sent.method, sent.path, sent.body, headers)
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    except BaseException:
        connection.close()
        raise


@FUZZ
@given(sent=requests())
def test_a_request_is_answered_or_refused_in_kubernetes_words(
    connection: http.client.HTTPSConnection, sent: Sent
) -> None:
    status, headers, body = answer_of(connection, sent)
    assert 200 <= status < 600
    if status < 400 or sent.method == "HEAD":
        return
    if "json" in headers.get("Content-Type", ""):
        document = json.loads(body)
        assert document["kind"] == "Status"
        assert document["code"] == status
    assert b"Traceback" not in body
    assert b'File "' not in body
    if status >= 500:
        assert any(words in body for words in KNOWN_FAILURES), (sent, status, body)


@FUZZ_LESS
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=4),
    head=st.sampled_from(
        [
            b"",
            b"GET / HTTP/1.1\r\n",
            b"POST /api/v1/pods HTTP/1.1\r\nHost: x\r\n",
            b"PRI * HTTP/2.0",
        ]
    ),
)
def test_bytes_that_are_no_request(server: ApiServer, pieces: list[bytes], head: bytes) -> None:
    with (
        socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as plain,
        trusting().wrap_socket(plain) as secure,
    ):
        secure.sendall(head)
        for piece in pieces:
            try:
                secure.sendall(piece)
            except OSError:
                break
        answer = b""
        secure.settimeout(QUIET_S)
        try:
            while data := secure.recv(1 << 16):
                answer += data
        except OSError:
            pass  # it waits for more, or has closed
    assert answer == b"" or answer.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")) or head[:3] == b"PRI"
    assert b"Traceback" not in answer


@FUZZ_LESS
@given(garbage=st.binary(min_size=1, max_size=200))
def test_bytes_that_are_no_tls(server: ApiServer, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as plain:
        plain.sendall(garbage)
        plain.shutdown(socket.SHUT_WR)
        try:
            while plain.recv(1 << 16):
                continue
        except OSError:
            return
