"""Where the pages are served: addresses of their own, TLS, unix sockets; and who may see them."""

import base64
import http.client
import json
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from kvstore.transport import native
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc, servers
from tests.support.certificates import Authority
from tests.support.http.plain_client import WebSocket, Wire, ask
from tests.support.rpc_client import Client

NEEDS_OPENSSL = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="the openssl command is needed to make certificates"
)
NEEDS_NATIVE = pytest.mark.skipif(
    not native.is_available(), reason="the native transport is not built"
)
SMALL = ("--max-request-bytes=4096",)


def serving(data_dir: Path, *extra: str) -> servers.Server:
    return servers.ours(data_dir / "ours", extra=extra)


def refused(data_dir: Path, *extra: str) -> str:
    """Start a server that must not start; return its log."""
    data_dir.mkdir()
    server = serving(data_dir, *extra)
    server.start(wait=False)
    assert server.process is not None
    assert server.process.wait(servers.READY_TIMEOUT_S) == 1
    server.process = None
    return server.log()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("x", timeout=20)
        self.path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self.path)


def get(connection: http.client.HTTPConnection, path: str) -> tuple[int, bytes]:
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_metrics_have_addresses_of_their_own(tmp_path: Path) -> None:
    port, other = servers.free_ports(2)
    path = f"/tmp/kvstore-{port}.sock"  # a short one: sun_path is small
    Path(path).write_text("")  # what a process that was killed leaves
    Path(path).unlink()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)
    stale.close()
    urls = f"http://127.0.0.1:{port},http://localhost:{other},unix://{path}"
    try:
        with servers.running(serving(tmp_path, f"--listen-metrics-urls={urls}")) as server:
            for each in (port, other):
                assert ask(each, "GET", "/health")[2] == b'{"health":"true","reason":""}'
                status, headers, body = ask(each, "GET", "/metrics")
                assert (status, headers["content-type"].split(";")[0]) == (200, "text/plain")
                assert b"etcd_server_has_leader 1\n" in body
                assert b"etcd_server_health_success " in body
                assert ask(each, "GET", "/livez")[::2] == (200, b"ok\n")
                assert ask(each, "GET", "/readyz")[::2] == (200, b"ok\n")
                assert b"[+]data_corruption ok" in ask(each, "GET", "/readyz?verbose")[2]
                assert ask(each, "GET", "/readyz/linearizable_read")[::2] == (200, b"ok\n")
                assert ask(each, "GET", "/livez/no_such_check")[0] == 404
                assert ask(each, "GET", "/version")[0] == 404
                assert "access-control-allow-origin" not in ask(each, "GET", "/readyz")[1]
            assert get(UnixConnection(path), "/livez") == (200, b"ok\n")
            messages = [
                record for record in server.log_records() if record["msg"] == "serving metrics"
            ]
            assert [record["address"] for record in messages] == [
                f"http://127.0.0.1:{port}",
                f"http://localhost:{other}",
                f"unix://{path}",
            ]
    finally:
        Path(path).unlink(missing_ok=True)


@NEEDS_NATIVE
def test_with_an_address_for_http_the_client_port_is_left_to_grpc(tmp_path: Path) -> None:
    (port,) = servers.free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with servers.running(serving(tmp_path, f"--listen-client-http-urls={url}")) as server:
        assert ask(port, "GET", "/health")[0] == 200
        assert ask(port, "GET", "/version")[0] == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(server.client_port, "GET", "/health")
        with Client(server.endpoint) as client:
            assert client.is_alive()


@NEEDS_NATIVE
def test_all_of_it_on_the_client_port(tmp_path: Path) -> None:
    with servers.running(serving(tmp_path, *SMALL)) as server:
        port = server.client_port
        assert ask(port, "GET", "/metrics")[0] == 200
        assert ask(port, "GET", "/debug/vars")[0] == 200
        assert ask(port, "GET", "/debug/pprof/")[0] == 404
        limit = 4096 + (512 << 10)
        for size, status, text in (
            (5_000, 400, "etcdserver: request is too large"),
            (600_000, 429, f"grpc: received message larger than max (600007 vs. {limit})"),
        ):
            value = base64.b64encode(b"x" * size).decode()
            found, _, body = ask(port, "POST", "/v3/kv/put", f'{{"key":"eA==","value":"{value}"}}')
            assert (found, json.loads(body)["message"]) == (status, text)
        with Wire(port) as wire:
            head = "POST /v3/kv/put HTTP/1.1\r\nHost: localhost\r\n"
            head += f"Content-Length: {3 * limit}\r\n\r\n"
            wire.send(head.encode())
            assert wire.until(b"\r\n").startswith(b"HTTP/1.1 413 ")


def test_addresses_that_cannot_be_had(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        log = refused(tmp_path / "taken", f"--listen-metrics-urls={url}")
        assert f"cannot listen on {url}: Address already in use" in log
    log = refused(tmp_path / "secure", "--listen-metrics-urls=https://127.0.0.1:0")
    assert (
        "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url"
    ) in log
    log = refused(tmp_path / "none", "--listen-metrics-urls=unix:///nowhere/x.sock")
    assert "cannot listen on unix:///nowhere/x.sock" in log
    log = refused(
        tmp_path / "files",
        "--listen-metrics-urls=https://127.0.0.1:0",
        "--cert-file=/nowhere/c",
        "--key-file=/nowhere/k",
    )
    assert "cannot listen on TLS for https://127.0.0.1:0: certificate /nowhere/c" in log
    (port,) = servers.free_ports(1)
    both = f"http://127.0.0.1:{port}"
    log = refused(
        tmp_path / "both", f"--listen-client-urls={both}", f"--listen-client-http-urls={both}"
    )
    assert f"--listen-client-http-urls on the same url {both}" in log


@NEEDS_OPENSSL
@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_tls(tmp_path: Path, transport: str) -> None:
    """Metrics by the own server; the gateway by either."""
    if transport == "native" and not native.is_available():
        pytest.skip("the native transport is not built")
    authority = Authority(tmp_path)
    server_files = authority.issue("server")
    good, revoked = authority.issue("good"), authority.issue("revoked")
    metrics_port, http_port = servers.free_ports(2)
    server = serving(
        tmp_path,
        f"--transport={transport}",
        f"--listen-metrics-urls=https://127.0.0.1:{metrics_port}",
        f"--listen-client-http-urls=https://127.0.0.1:{http_port}",
        f"--cert-file={server_files[0]}",
        f"--key-file={server_files[1]}",
        "--client-cert-auth",
        f"--trusted-ca-file={authority.file}",
        f"--client-crl-file={authority.revoke(revoked[0])}",
        "--host-whitelist=nobody",
    )

    def connect(port: int, files: tuple[str, str] | None) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=authority.file)
        if files is not None:
            context.load_cert_chain(*files)
        return http.client.HTTPSConnection("localhost", port, timeout=20, context=context)

    with servers.running(server):
        assert get(connect(metrics_port, good), "/health")[0] == 200
        assert get(connect(http_port, good), "/version")[0] == 200  # TLS asks for no host
        for port in (metrics_port, http_port):
            for files in (None, revoked):
                with pytest.raises((OSError, http.client.HTTPException)):
                    get(connect(port, files), "/health")
            with pytest.raises((OSError, http.client.HTTPException)):
                ask(port, "GET", "/health")
        Path(server_files[0]).write_text("broken")
        assert get(connect(metrics_port, good), "/health")[0] == 200  # by the last good one
        turned_away = [
            record
            for record in server.log_records()
            if record["msg"] == "rejected connection on client endpoint"
        ]
        assert len(turned_away) >= 3
        assert any("revoked" in str(record.get("error")) for record in turned_away)


@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_authentication(tmp_path: Path, transport: str) -> None:
    if transport == "native" and not native.is_available():
        pytest.skip("the native transport is not built")
    (port,) = servers.free_ports(1)
    url = f"http://127.0.0.1:{port}"
    server = serving(
        tmp_path, f"--transport={transport}", f"--listen-client-http-urls={url}", "--bcrypt-cost=4"
    )

    def post(
        path: str, body: object, *headers: tuple[str, str]
    ) -> tuple[int, dict[str, str], dict[str, str]]:
        status, found, data = ask(port, "POST", path, json.dumps(body), headers)
        return status, found, json.loads(data)

    with servers.running(server):
        for path, body in (
            ("user/add", {"name": "root", "password": "secret"}),
            ("user/add", {"name": "alice", "password": "hidden"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            assert post(f"/v3/auth/{path}", body)[0] == 200, path
        status, headers, said = post("/v3/kv/put", {"key": "eA=="})
        assert (status, said["message"]) == (400, "etcdserver: user name is empty")
        status, headers, said = post("/v3/kv/put", {"key": "eA=="}, ("Authorization", "no"))
        assert (status, said) == (401, {"code": 16, "message": "etcdserver: invalid auth token"})
        assert headers["www-authenticate"] == "etcdserver: invalid auth token"
        assert post("/v3/auth/authenticate", {"name": "root", "password": "x"})[0] == 400

        token = post("/v3/auth/authenticate", {"name": "root", "password": "secret"})[2]["token"]
        for name, value in (
            ("Authorization", token),
            ("Authorization", f"Bearer {token}"),
            ("Grpc-Metadata-Token", token),
        ):
            assert post("/v3/kv/put", {"key": "eA=="}, (name, value))[0] == 200, name
        spoofed = post("/v3/kv/put", {"key": "eA=="}, ("Grpc-Metadata-Tls-Common-Name", "root"))
        assert spoofed[0] == 400

        assert ask(port, "GET", "/health")[0] == 200  # asks with every right
        assert ask(port, "GET", "/readyz")[2] == b"ok\n"
        assert ask(port, "GET", "/version")[0] == 200

        snapshot = post("/v3/maintenance/snapshot", {}, ("Authorization", "no"))
        assert (snapshot[0], snapshot[2]["error"]["code"]) == (401, 16)  # type: ignore[index]
        protocol = f"Sec-WebSocket-Protocol: Bearer, {token}\r\n"
        for headers_text, reason in (
            (protocol, None),
            (f"Cookie: a=b; token={token}\r\n", None),
            ("", "permission denied"),
        ):
            with WebSocket(port, "/v3/watch", headers_text) as watching:
                watching.send('{"create_request":{"key":"eA=="}}')
                result = json.loads(watching.receive())["result"]
                if reason is None:
                    assert "canceled" not in result
                else:
                    assert result["canceled"] is True


@pytest.mark.parametrize("transport", ["grpcio", pytest.param("native", marks=NEEDS_NATIVE)])
def test_requests_are_shown_at_debug_level(tmp_path: Path, transport: str) -> None:
    [port] = servers.free_ports(1)
    extra = (
        f"--listen-client-http-urls=http://127.0.0.1:{port}",
        f"--transport={transport}",
        "--warning-unary-request-duration=1us",
    )
    with servers.running(serving(tmp_path, *extra, "--log-level=debug")) as server:
        with Client(server.endpoint) as client:
            client.put(b"<script>", b"secret")
            watch = raw_grpc.stream(client.channel, rpc.METHODS[rpc.WATCH].path)
            created = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"k"))
            hold = threading.Event()

            def requests() -> Iterator[bytes]:
                yield created.SerializeToString()
                hold.wait(20)

            call = watch(requests())
            assert next(call)
            status, headers, body = ask(port, "GET", "/debug/requests")
            hold.set()
            call.cancel()
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert b"<td>/etcdserverpb.Watch/Watch</td><td>1</td>" in body
        assert b"<td>KV/Put</td><td>OK</td>" in body
        assert b"key:&quot;&lt;script&gt;&quot; value_size:6" in body
        assert b"secret" not in body
        assert ask(port, "GET", "/debug/events")[0] == 404
        server.extra[-1] = "--log-level=info"
        server.restart()
        assert ask(port, "GET", "/debug/requests")[0] == 404


EVIL = {"Origin": "http://evil.example", "Content-Type": "text/plain"}


@pytest.mark.parametrize("own_server", [False, True], ids=["client port", "own server"])
def test_web_pages_do_not_reach_the_gateway(tmp_path: Path, own_server: bool) -> None:  # noqa: FBT001
    """Of another origin, or of a name that was pointed at loopback (DNS rebinding)."""
    if not own_server and not native.is_available():
        pytest.skip("the native transport is not built")
    (port,) = servers.free_ports(1)
    own = (f"--listen-client-http-urls=http://127.0.0.1:{port}", "--transport=grpcio")
    with servers.running(serving(tmp_path, *(own if own_server else ()))) as server:
        port = port if own_server else server.client_port
        put, value = "/v3/kv/put", b'{"key":"YQ==","value":"YQ=="}'

        def status(path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str | None]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            try:
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                response.read()
                return response.status, response.getheader("Access-Control-Allow-Origin")
            finally:
                connection.close()

        assert status(put, value, EVIL) == (403, None)
        rebound = {"Host": f"evil.example:{port}", "Content-Type": "text/plain"}
        assert status(put, value, rebound) == (421, None)
        assert status(put, value, {**rebound, "Origin": f"http://evil.example:{port}"})[0] == 421
        with Client(server.endpoint) as client:
            assert client.range().count == 0, "a web page has written"
        assert status(put, value, {"Content-Type": "application/x-www-form-urlencoded"})[0] == 200
