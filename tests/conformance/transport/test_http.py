"""What is no gRPC on the native transport's port: HTTP/1.1 and other HTTP/2, as requests."""

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from kvstore.batch import Inbox, Outbox, PortRequest
from kvstore.transport import native
from kvstore.transport.native import NativeOptions, NativeTransport
from kvstore.wire import rpc
from tests.support import raw_grpc
from tests.support.http.raw_http2 import RawConnection
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    not native.is_available(), reason="the native transport is not built: it needs a Rust toolchain"
)

WAIT_S = 60.0
PUT = rpc.METHODS[rpc.PUT].path


class Site:
    """A transport that answers requests with what they were, and gRPC calls with their bodies."""

    def __init__(self, **options: object) -> None:
        options = {"serves_http": True, **options}
        self.transport = NativeTransport(
            ["http://127.0.0.1:0"],
            [rpc.PUT],
            NativeOptions(**options),  # type: ignore[arg-type]
        )
        self.target = self.transport.bound_urls[0].removeprefix("http://")
        self.seen = Inbox()
        self.answering = True
        self._over = False
        self._connections: list[http.client.HTTPConnection] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over:
            inbox = self.transport.poll(0.05)
            self.seen.requests += inbox.requests
            self.seen.gone += inbox.gone
            out = Outbox(replies=[(c[0], 0, c[2]) for c in inbox.calls])
            if self.answering:
                out.responses = [self._answer(request) for request in inbox.requests]
            self.transport.flush(out)

    @staticmethod
    def _answer(request: PortRequest) -> tuple[int, int, list[tuple[str, str]], bytes]:
        request_id, method, target, _, body = request
        assert body is not None
        text = f"{method} {target} {len(body)}".encode()
        return request_id, 201, [("content-type", "text/x"), ("x-a", "1"), ("x-a", "2")], text

    def http(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.target, timeout=WAIT_S)
        self._connections.append(connection)
        return connection

    def until(self, condition: Callable[[], object]) -> None:
        wait_for(condition, lambda: self.seen, WAIT_S, every_s=0.005)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._over = True
        self._thread.join(WAIT_S)
        self.transport.stop(0.0)


StartSite = Callable[..., Site]


@pytest.fixture
def start() -> Iterator[StartSite]:
    started: list[Site] = []

    def begin(**options: object) -> Site:
        started.append(Site(**options))
        return started[-1]

    yield begin
    for site in started:
        site.close()


@pytest.fixture
def site(start: StartSite) -> Site:
    return start()


def test_http1_requests_arrive_whole_and_are_answered(site: Site) -> None:
    connection = site.http()
    for body in (b"", b"x" * 100_000):  # on one connection
        connection.request("POST", "/v3/kv/put?a=b", body, {"X-Some": "thing"})
        response = connection.getresponse()
        assert (response.status, response.getheader("content-type")) == (201, "text/x")
        assert response.headers.get_all("x-a") == ["1", "2"]
        assert response.read() == b"POST /v3/kv/put?a=b %d" % len(body)
    connection.close()
    [_, (_, method, target, headers, seen_body)] = site.seen.requests
    assert seen_body is not None
    assert (method, target, len(seen_body)) == ("POST", "/v3/kv/put?a=b", 100_000)
    assert ("x-some", "thing") in headers
    assert headers[0] == (":scheme", "http")
    assert headers[1][1].startswith("127.0.0.1:")


def test_http2_requests_of_another_content_type_and_grpc_on_one_port(site: Site) -> None:
    with RawConnection(site.target) as client:
        client.call(1, "/version", b"plain body", content_type="text/x", content_length="10")
        headers, data = client.answer(1)
        assert (headers[":status"], data) == ("201", b"POST /version 10")
        get: dict[str, Any] = {":method": "GET"}
        client.call(3, "/health", b"", content_type="", content_length="0", **get)
        assert client.answer(3)[1] == b"GET /health 0"
    with grpc.insecure_channel(site.target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        assert raw_grpc.unary(channel, PUT)(b"call", timeout=WAIT_S) == b"call"
    assert len(site.seen.requests) == 2


def test_a_body_above_the_limit_is_refused(start: StartSite) -> None:
    site = start(request_bytes_max=1000)
    connection = site.http()
    connection.request("POST", "/v3/kv/put", b"x" * 1001)
    assert connection.getresponse().status == 413
    with RawConnection(site.target) as client:
        client.call(1, "/v3/kv/put", b"x" * 1001, content_type="text/x", content_length="1001")
        assert client.answer(1)[0][":status"] == "413"
    assert site.seen.requests == []


def test_a_client_that_goes_away_is_reported(site: Site) -> None:
    site.answering = False
    connection = site.http()
    connection.request("GET", "/slow")
    site.until(lambda: site.seen.requests)
    connection.close()
    site.until(lambda: site.seen.gone)
    assert site.seen.gone == [site.seen.requests[0][0]]


def test_headers_that_do_not_come_end_the_connection(start: StartSite) -> None:
    site = start(handshake_timeout_s=0.2)
    host, port = site.target.split(":")
    for beginning in (b"P", b"GET / HT", b"GET / HTTP/1.1\r\nx: y\r\n"):
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as client:
            client.sendall(beginning)
            with contextlib.suppress(ConnectionResetError):
                while client.recv(4096):
                    pass


def test_a_connection_may_be_idle_between_requests_for_a_longer_time(start: StartSite) -> None:
    # What a busy machine adds to the pause between two requests is less than 2 s.
    site = start(handshake_timeout_s=0.3, header_timeout_s=2.5)
    host, port = site.target.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as client:
        for pause_s in (0.0, 0.5):  # more than a handshake may take
            time.sleep(pause_s)
            client.sendall(b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n")
            assert client.recv(4096).endswith(b"GET /x 0")
        begin = time.monotonic()
        assert client.recv(4096) == b""
        assert time.monotonic() - begin > 0.1


def test_requests_that_wait_when_the_server_stops_are_answered(site: Site) -> None:
    site.answering = False
    connection = site.http()
    connection.request("GET", "/slow")
    site.until(lambda: site.seen.requests)
    site.transport.stop(WAIT_S)
    assert connection.getresponse().status == 503


def test_without_being_asked_for_it_is_refused(start: StartSite) -> None:
    site = start(serves_http=False)
    connection = site.http()
    connection.request("GET", "/version")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.getresponse()
