"""Requests to nodes, pods and Services that the server passes on; logs and upgrades of pods."""

import asyncio
import dataclasses
import gzip
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.streams.backends import Backend, Backends, DialError
from kvstack.apiserver.streams.kubelet_tls import KubeletTls
from tests.apiserver.server.in_process import World, options, run
from tests.support.http.hanging_up import hang_up
from tests.support.network.tcp_listener import TcpListener

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
MERGE = "application/merge-patch+json"
TOKEN = "base64url.bearer.authorization.k8s.io.YWRtaW4tdG9rZW4"
PAGE = b'<a href="/x">k</a>'
ANSWERS = {
    "/redirect": (302, ["Location: /there/"], b""),
    "/page": (200, ["Content-Type: text/html"], PAGE),
    "/packed": (200, ["Content-Type: text/html", "Content-Encoding: gzip"], gzip.compress(PAGE)),
    "/teapot": (
        418,
        [
            "X-Own: 1",
            "Access-Control-Allow-Origin: *",
            "Service-Worker-Allowed: /",
            "Keep-Alive: 9",
        ],
        b"tea",
    ),
}


class EchoBackend:
    """An HTTP server that says what it was asked; it switches protocols when asked to."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[tuple[str, dict[str, str], bytes]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        if not first.isalpha():
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")  # it was TLS
            return
        line = (first + await reader.readline()).decode().split()
        headers: dict[str, str] = {}
        while text := (await reader.readline()).decode().strip():
            name, _, value = text.partition(": ")
            headers[name.lower()] = value
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.seen.append((" ".join(line[:2]), headers, body))
        path = line[1].partition("?")[0]
        if headers.get("upgrade") == "echo" and path == "/echo":
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\r\n")
            while data := await reader.read(100):
                writer.write(data.upper())
        else:
            code, own, answer = ANSWERS.get(path, (200, ["Content-Type: x/y"], b"hello"))
            head = [f"HTTP/1.1 {code} X", *own, f"Content-Length: {len(answer)}", "", ""]
            writer.write("\r\n".join(head).encode() + answer)


class Story:
    """A server, a node, a pod and a Service, all of which lead to one backend."""

    def __init__(self, world: World, server: ApiServer, backend: EchoBackend) -> None:
        self.world = world
        self.server = server
        self.backend = backend

    async def make(self, path: str, obj: dict[str, Any]) -> None:
        code, answer = await self.world.ask(
            self.server, "POST", path, body=json.dumps(obj).encode(), token="admin-token"
        )
        assert code == 201, answer

    async def tell_status(self, path: str, status: dict[str, Any]) -> None:
        head, answer = await self.raw("PATCH", f"{path}/status", ["Content-Type: " + MERGE],
                                      json.dumps({"status": status}).encode())  # fmt: skip
        assert head[0] == "HTTP/1.1 200 OK", answer

    async def raw(
        self, method: str, path: str, headers: list[str] | None = None, body: bytes = b""
    ) -> tuple[list[str], bytes]:
        """Return the lines of the head of an answer, and its body."""
        reader, writer = await self.connect(method, path, [*(headers or []), "Connection: close"],
                                            body)  # fmt: skip
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
        await hang_up(writer)
        return head.decode().split("\r\n"), rest

    async def connect(
        self, method: str, path: str, headers: list[str], body: bytes = b""
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request."""
        context = self.world.context()
        found = await asyncio.open_connection("127.0.0.1", self.server.port, ssl=context)
        lines = [f"{method} {path} HTTP/1.1", "Host: api", "Authorization: Bearer admin-token"]
        if body:
            headers = [*headers, f"Content-Length: {len(body)}"]
        found[1].write("\r\n".join([*lines, *headers, "", ""]).encode() + body)
        return found

    async def get(self, path: str) -> tuple[int, Any]:
        """Return the status and the message or body of an answer."""
        code, body = await self.world.get(self.server, path)
        return code, json.loads(body)["message"] if body[:1] == b"{" else body


@asynccontextmanager
async def story(world: World, *, to_loopback: bool = True) -> AsyncIterator[Story]:
    """Prepare a server with what leads to a backend."""
    given = dataclasses.replace(options(world.directory), proxies_to_loopback=to_loopback)
    told = Story(world, await world.start(given), EchoBackend())
    async with TcpListener(told.backend.serve, "0.0.0.0") as backend:
        port = told.backend.port = backend.port
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        endpoint = {"kubeletEndpoint": {"Port": 1}}
        await told.make(NODES, {"metadata": {"name": "n"}})
        await told.tell_status(f"{NODES}/n", {"addresses": addresses, "daemonEndpoints": endpoint})
        await told.make(
            "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
        )
        container = {"name": "c", "image": "i", "ports": [{"containerPort": port}]}
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
        await told.make(PODS, pod)
        ips = [{"ip": "127.0.0.1"}]
        await told.tell_status(f"{PODS}/p", {"podIP": "127.0.0.1", "podIPs": ips})
        pod = {"metadata": {"name": "bound"}, "spec": {"containers": [container], "nodeName": "n"}}
        await told.make(PODS, pod)
        ports = [{"name": "web", "port": 80}, {"name": "none", "port": 81}]
        await told.make(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
        yield told


def own_address() -> str:
    """Return an address of this machine that is not one of loopback; empty: it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # which sends nothing
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
    return "" if address.startswith("127.") else address


def test_requests_are_passed_on(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        async with story(world) as told:
            node = f"{NODES}/http:n:{told.backend.port}/proxy"
            await _requests(told, node)
            await _answers(told, node)
            await _others(told)
            await _refusals(told)
            await _streams(told, node)

    run(tmp_path, main)


async def _requests(story: Story, node: str) -> None:
    given = ["X-Forwarded-For: 1.2.3.4", "X-Remote-User: u", "Connection: X-Drop", "X-Drop: 1",
             "Cookie: a=b", f"Sec-WebSocket-Protocol: {TOKEN}, x"]  # fmt: skip
    head, body = await story.raw("POST", f"{node}/a%20b//c/?x=1&y=a%20b", given, b"body")
    assert (head[0], body) == ("HTTP/1.1 200 OK", b"hello")
    assert _value(head, "cache-control") == "no-cache, private"
    line, headers, sent = story.backend.seen.pop()
    assert (line, sent) == ("POST /a%20b/c/?x=1&y=a%20b", b"body")
    assert headers == {
        "host": "api",
        "cookie": "a=b",
        "x-forwarded-for": "1.2.3.4, 127.0.0.1",
        "x-forwarded-uri": f"{node}/a%20b/c/",
        "content-length": "4",
        "connection": "close",
    }
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS"):
        await story.raw(method, f"{node}/x")
        assert story.backend.seen.pop()[0] == f"{method} /x"


async def _answers(story: Story, node: str) -> None:
    head, _ = await story.raw("GET", f"{node}?x=1")
    assert (head[0][9:12], _value(head, "location")) == ("301", f"{node}/?x=1")
    head, _ = await story.raw("GET", f"{node}/redirect")
    assert (head[0][9:12], _value(head, "location")) == ("302", f"{node}/there/")
    page = f'<a href="{node}/x">k</a>'.encode()
    assert (await story.raw("GET", f"{node}/page"))[1] == page
    assert gzip.decompress((await story.raw("GET", f"{node}/packed"))[1]) == page
    head, body = await story.raw("GET", f"{node}/teapot")
    assert (head[0][9:12], _value(head, "x-own"), body) == ("418", "1", b"tea")
    kept = ("access-control", "keep-alive", "service-worker-allowed")
    assert not any(line.lower().startswith(kept) for line in head)
    head, body = await story.raw("HEAD", f"{node}/x")
    assert (_value(head, "content-length"), body) == ("5", b"")


async def _others(story: Story) -> None:
    port = story.backend.port
    for path in (f"{PODS}/p", f"{PODS}/p:{port}", f"{PODS}/http:p:{port}"):
        assert await story.get(f"{path}/proxy/x") == (200, b"hello")


async def _refusals(story: Story) -> None:
    unreachable = "error trying to reach service: dial tcp 127.0.0.1:1: connect: connection refused"
    nowhere = 'no endpoints available for service "s"'
    for path, expected in {
        f"{NODES}/n/proxy/x": (503, unreachable),
        f"{NODES}/gone/proxy/x": (404, 'nodes "gone" not found'),
        f"{NODES}/a:b:c:d/proxy/x": (400, 'invalid node request "a:b:c:d"'),
        f"{NODES}/ftp:n:80/proxy/x": (400, 'invalid node request "ftp:n:80"'),
        f"{NODES}/n/proxy/x?dryRun=All": (400, "dryRun is not supported"),
        f"{PODS}/bound/proxy/x": (400, "address not allowed"),
        f"{PODS}/p:x/proxy/": (400, 'invalid port "x"'),
        f"{PODS}/https:p:{story.backend.port}/proxy/": (
            503,
            "error trying to reach service: tls: first record does not look like a TLS handshake",
        ),
        f"{SERVICES}/s/proxy/": (503, nowhere),
        f"{SERVICES}/s:81/proxy/": (503, nowhere),
        f"{SERVICES}/s:9/proxy/": (503, 'no service port 9 found for service "s"'),
        f"{SERVICES}/gone:80/proxy/": (404, 'services "gone" not found'),
        f"{PODS}/p/log": (204, b""),
        f"{PODS}/bound/log?tailLines=-1": (
            422,
            'PodLogOptions "bound" is invalid: tailLines: Invalid value: -1:'
            " must be greater than or equal to 0",
        ),
        f"{PODS}/bound/log": (
            500,
            'Get "https://127.0.0.1:1/containerLogs/default/bound/c":'
            " dial tcp 127.0.0.1:1: connect: connection refused",
        ),
        f"{PODS}/bound/exec?command=x": (400, "Upgrade request required"),
        f"{PODS}/p/exec?command=x": (400, "pod p does not have a host assigned"),
    }.items():
        assert await story.get(path) == expected, path


async def _streams(story: Story, node: str) -> None:
    upgrade = ["Connection: Upgrade", "Upgrade: echo"]
    reader, writer = await story.connect("GET", f"{node}/echo", upgrade)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    writer.write(b"abc")
    assert await reader.readexactly(3) == b"ABC"
    await hang_up(writer)
    offered = f"Sec-WebSocket-Protocol: a, {TOKEN},b"
    reader, writer = await story.connect("GET", f"{node}/echo", [*upgrade, offered])
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    assert story.backend.seen[-1][1]["sec-websocket-protocol"] == "a, b", "the token stays here"
    await hang_up(writer)
    reader, writer = await story.connect("GET", f"{node}/other", upgrade)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500 ")
    await hang_up(writer)


def _value(head: list[str], name: str) -> str:
    pairs = (line.partition(": ") for line in head)
    return next((value for each, _, value in pairs if each.lower() == name), "")


def test_loopback_is_refused(tmp_path: Path) -> None:
    """The machine of the server is nobody's node."""

    async def main(world: World) -> None:
        async with story(world, to_loopback=False) as told:
            refused = (400, "address not allowed")
            assert await told.get(f"{NODES}/http:n:{told.backend.port}/proxy/x") == refused
            assert await told.get(f"{PODS}/p/proxy/x") == refused
            assert not told.backend.seen

    run(tmp_path, main)


def test_a_service_leads_to_its_pods(tmp_path: Path) -> None:
    """By the names and numbers of its ports, and to nothing that is no pod of its namespace."""
    address = own_address()
    if not address:
        pytest.skip("this machine has no address but loopback, which no EndpointSlice may have")

    async def main(world: World) -> None:
        async with story(world, to_loopback=False) as told:
            await told.tell_status(f"{PODS}/p", {"podIP": address, "podIPs": [{"ip": address}]})
            slices: dict[str, Any] = {
                "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
                "addressType": "IPv4",
                "ports": [{"name": "web", "port": told.backend.port}],
            }
            of_pod = {"name": "p", "namespace": "default"}
            bad = [
                {"addresses": ["192.0.2.200"], "targetRef": of_pod},
                {"addresses": ["192.0.2.201"]},
            ]
            unready = {"addresses": [address], "targetRef": of_pod, "conditions": {"ready": False}}
            await told.make(SLICES, {**slices, "endpoints": [*bad, unready]})
            path = f"{SERVICES}/s:80/proxy/x"
            assert await told.get(path) == (503, 'no endpoints available for service "s"')
            ready = {"addresses": [address], "targetRef": of_pod}
            other = {**slices, "metadata": {**slices["metadata"], "name": "s-2"}}
            await told.make(SLICES, {**other, "endpoints": [*bad, ready]})
            for path in (f"{SERVICES}/s:80", f"{SERVICES}/http:s:web", f"{SERVICES}/s:web"):
                assert await told.get(f"{path}/proxy/x") == (200, b"hello")

    run(tmp_path, main)


def test_a_name_that_was_checked_is_not_looked_up_again() -> None:
    """It might lead elsewhere the second time."""

    async def main() -> None:
        async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello")

        async with TcpListener(greet) as server:
            port = server.port
            backends = Backends(KubeletTls())
            with pytest.raises(DialError):
                await backends.connect(Backend("nowhere.invalid", port, None))
            known = Backend("nowhere.invalid", port, None, "127.0.0.1")
            with await backends.connect(known) as sock:
                loop = asyncio.get_running_loop()
                assert await loop.sock_recv(sock, 100) == b"hello"

    asyncio.run(main())


def test_a_node_that_is_known_by_a_name(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        async with story(world) as told:
            addresses = [{"type": "Hostname", "address": "localhost"}]
            await told.tell_status(f"{NODES}/n", {"addresses": addresses})
            head, body = await told.raw("GET", f"{NODES}/http:n:{told.backend.port}/proxy/a")
            assert (head[0], body) == ("HTTP/1.1 200 OK", b"hello")

    run(tmp_path, main)
