"""Streams to kubelets that are not what they should be, and floods of HTTP/2."""

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import hpack
import pytest

from kvstack.component.line_log.line_logger import LineLogger
from tests.apiserver.advisories.target import ADMIN, BOB, Target, parsed
from tests.support.certificates import Authority
from tests.support.http.hanging_up import hang_up
from tests.support.http.raw_http2 import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
)
from tests.support.network.tcp_listener import TcpListener

PODS = "/api/v1/namespaces/default/pods"
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
)
STREAMS = 3000


class Kubelet:
    """Answers with the same bytes whatever is asked, and notes what it was sent."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.received = b""
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.received += await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        await writer.drain()
        while data := await reader.read(1 << 16):
            self.received += data


@pytest.fixture(scope="module")
def server_tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    directory: Path = tmp_path_factory.mktemp("kubelet")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*Authority(directory).issue("kubelet"))
    return context


@pytest.fixture(scope="module")
def pod(target: Target) -> str:
    target.create(
        "/api/v1/namespaces/default/serviceaccounts",
        {"metadata": {"name": "default"}, "automountServiceAccountToken": False},
    )
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    target.create(PODS, {"metadata": {"name": "web"}, "spec": spec})
    target.create("/api/v1/nodes", {"metadata": {"name": "n"}})
    return f"{PODS}/web"


@asynccontextmanager
async def kubelet(target: Target, tls: ssl.SSLContext, answer: bytes) -> AsyncIterator[Kubelet]:
    made = Kubelet(answer)
    async with TcpListener(made.serve, tls=tls) as server:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": server.port}},
        }
        found = await target.sent(
            "PATCH",
            "/api/v1/nodes/n/status",
            {"status": status},
            content_type="application/merge-patch+json",
        )
        assert found.code == 200, found.body
        yield made


def test_cve_2018_1002105_a_stream_that_did_not_begin(
    target: Target, server_tls: ssl.SSLContext, pod: str
) -> None:
    """After a kubelet refused an upgrade, the connection to it stayed open for the client, who
    could ask the kubelet anything as the API server."""
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno"

    async def main() -> None:
        async with kubelet(target, server_tls, answer) as made:
            reader, writer = await target.connected()
            head = f"GET {pod}/exec?command=ls HTTP/1.1\r\nHost: x\r\n{UPGRADE}"
            writer.write(f"{head}Authorization: Bearer {ADMIN}\r\n\r\n".encode())
            first = await reader.readuntil(b"\r\n\r\n")
            # The client is upgraded before the kubelet is asked, and reads then why it refused.
            assert first.startswith(b"HTTP/1.1 101 ")
            refusal = await reader.readuntil(b'"code":500')
            writer.write(b"GET /runningpods/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            rest = await reader.read()
            await hang_up(writer)
            assert made.connections == 1
            assert b"runningpods" not in made.received
            # It is no frame of the client's stream, and no request of anybody's.
            assert b"HTTP/1.1" not in refusal + rest

    target.run(main())


@pytest.mark.parametrize("path", ["exec?command=ls", "attach", "portforward?ports=80", "log"])
@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_cve_2018_1002102_and_2020_8559_a_kubelet_that_sends_elsewhere(
    target: Target, server_tls: ssl.SSLContext, pod: str, path: str, code: int
) -> None:
    """The API server followed redirects of kubelets, with its own credentials, to other nodes."""

    async def main() -> None:
        async with kubelet(target, server_tls, b"") as other:
            place = f"https://127.0.0.1/{other.connections}"
            answer = f"HTTP/1.1 {code} Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
            async with kubelet(target, server_tls, answer.encode()) as first:
                reader, writer = await target.connected()
                head = f"GET {pod}/{path} HTTP/1.1\r\nHost: x\r\n"
                head += "Connection: close\r\n" if path == "log" else UPGRADE
                writer.write(f"{head}Authorization: Bearer {ADMIN}\r\n\r\n".encode())
                found = parsed(await reader.readuntil(b"\r\n\r\n"))
                if found.code == 101:  # the client is upgraded before the kubelet is asked
                    await reader.read()
                await hang_up(writer)
                assert first.connections == 1
                assert other.connections == 0
                assert "location" not in found.headers

    target.run(main())


@pytest.mark.parametrize("path", ["exec?command=ls", "attach", "portforward", "log"])
def test_streams_without_the_right_to(
    target: Target, server_tls: ssl.SSLContext, pod: str, path: str
) -> None:
    """Who may read pods may not therefore run commands in them, neither by GET nor as a watch."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["get", "watch"]}
    name = f"read-{path.partition('?')[0]}"
    target.create(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    subject = {"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {**subject, "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    target.create(f"{rbac}/clusterrolebindings", binding)

    async def main() -> None:
        async with kubelet(target, server_tls, b"HTTP/1.1 200 OK\r\n\r\nsecret") as made:
            for method, prefix in (("GET", pod), ("POST", pod), ("GET", f"/api/v1/watch{pod[7:]}")):
                reply = await target.sent(method, f"{prefix}/{path}", token=BOB)
                assert reply.code in {403, 404, 405}, (method, prefix, reply)
            assert made.connections == 0

    target.run(main())


@pytest.mark.parametrize("attack", ["reset", "ping", "settings", "open", "headers"])
def test_cve_2019_9512_9514_9515_and_2023_44487_floods(target: Target, attack: str) -> None:
    """Streams that are opened and reset at once, pings, settings and headers without end, kept a
    server busy or filled its memory with answers."""
    encoder = hpack.Encoder()
    block = encoder.encode(
        [
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/api/v1/secrets"),
            (":authority", "x"),
            ("authorization", f"Bearer {BOB}"),
        ]
    )

    async def main() -> None:
        context = target._context(None)
        context.set_alpn_protocols(["h2"])
        port = target.server.port
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(PREFACE + frame(SETTINGS, 0, 0))
        began = time.process_time()  # that of the server, too: it is in this process
        for number in range(STREAMS):
            stream = 2 * number + 1
            if attack == "ping":
                writer.write(frame(PING, 0, 0, b"12345678"))
            elif attack == "settings":
                writer.write(frame(SETTINGS, 0, 0))
            elif (
                attack == "headers"
            ):  # CVE-2023-45288: the first of one request, and never the last
                writer.write(frame(CONTINUATION if number else HEADERS, 0, 1, block))
            else:
                writer.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, block))
                if attack == "reset":
                    writer.write(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
        with contextlib.suppress(OSError, TimeoutError):
            # The server may have had enough, or waits to be read.
            await asyncio.wait_for(writer.drain(), 5)
        reply = await asyncio.wait_for(target.sent("GET", "/version"), 60)
        assert reply.code == 200
        assert time.process_time() - began < 10
        await hang_up(writer)
        in_flight = target.server.site.api.in_flight.counts
        assert sum(in_flight.values()) <= 400

    target.run(main())


def test_cve_2022_1996_other_sites(target: Target) -> None:
    """A pattern for allowed origins that was not anchored let other sites read answers."""
    for origin in ("https://evil.example", "null", "https://localhost.evil.example"):
        reply = target.ask("GET", "/version", headers=[("Origin", origin)])
        assert not [name for name in reply.headers if name.startswith("access-control")]


def test_cve_2019_11250_and_2020_8565_secrets_in_the_log(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens of requests were written to the log where it was talkative."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        monkeypatch.setattr(target.server.site.api, "_logger", LineLogger([file.fileno()], "debug"))
        target.ask("GET", "/api/v1/secrets?token=in-the-query", token="very-secret-token")
        target.ask("GET", "/api/v1/nodes", headers=[("Cookie", "very-secret-cookie")])
        target.ask("POST", "/api/v1/secrets", json.dumps({"data": "very-secret-body"}).encode())
    assert b"very-secret" not in log.read_bytes()


@pytest.mark.usefixtures("pod")  # and its node
@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.1.2.3", "::1", "169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1",
     "::ffff:127.0.0.1", "localhost"],
)  # fmt: skip
def test_cve_2020_8562_and_2022_3294_addresses_of_the_servers_own(
    target: Target, server_tls: ssl.SSLContext, address: str
) -> None:
    """Who could write nodes or pods reached, through proxies of the API server, what only its own
    machine may reach; addresses were looked up twice, and only the first was checked."""
    name = f"n-{address.replace(':', '-').replace('.', '-')}-x"
    target.create("/api/v1/nodes", {"metadata": {"name": name}})

    async def main() -> None:
        async with kubelet(target, server_tls, b"HTTP/1.1 200 OK\r\n\r\nsecret") as made:
            port = json.loads((await target.sent("GET", "/api/v1/nodes/n")).body)["status"][
                "daemonEndpoints"
            ]["kubeletEndpoint"]["Port"]
            status = {
                "addresses": [{"type": "InternalIP", "address": address}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            }
            place = f"/api/v1/nodes/{name}/status"
            merge = "application/merge-patch+json"
            await target.sent("PATCH", place, {"status": status}, content_type=merge)
            for path in (name, f"{name}:{port}", f"https:{name}:{port}", f"{address}:{port}"):
                reply = await target.sent("GET", f"/api/v1/nodes/{path}/proxy/pods")
                assert reply.code >= 400, (path, reply)
                assert b"secret" not in reply.body
            assert made.connections == 0

    target.run(main())
