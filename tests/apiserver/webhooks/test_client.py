"""The client of webhooks against servers that fail in every way."""

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from kvstack.apiserver.webhooks.client import Answer, CallError, WebhookClient
from kvstack.apiserver.webhooks.places import Place, place_of, service_of
from kvstack.apiserver.webhooks.services import ENDPOINTS, SERVICES, SLICES, ServiceError, Services
from tests.apiserver.policy.views import FakeView
from tests.apiserver.support.hook_server import HookServer
from tests.support.network.tcp_listener import TcpListener

Obj = dict[str, Any]
TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def hooks() -> Iterator[HookServer]:
    with HookServer() as server:
        yield server


def place(hooks: HookServer, path: str, host: str = "127.0.0.1") -> Place:
    return Place(f"https://{host}:{hooks.port}{path}", b64decode(hooks.ca))


def service(name: str, port: int = 443, **spec: Any) -> Obj:
    spec = {"ports": [{"name": "web", "port": port}], **spec}
    return {"metadata": {"name": name, "namespace": "a"}, "spec": spec}


def slice_of(name: str, address: str, port: int, *, ready: bool = True) -> Obj:
    return {
        "metadata": {
            "name": f"{name}-{address}",
            "namespace": "a",
            "labels": {"kubernetes.io/service-name": name},
        },
        "ports": [{"name": "web", "port": port}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}],
    }


def run(main: Callable[[WebhookClient], Awaitable[None]], view: FakeView | None = None) -> None:
    async def body() -> None:
        client = WebhookClient(Services(view or FakeView()))
        try:
            await main(client)
        finally:
            await client.close()

    asyncio.run(body())


async def ask(client: WebhookClient, where: Place, **more: Any) -> Answer:
    body = b'{"request":{"uid":"u"}}'
    return await client.post(where, "?timeout=1s", body, **{"timeout_s": TIMEOUT_S, **more})


async def refusal(client: WebhookClient, where: Place, **more: Any) -> str:
    with pytest.raises(CallError) as raised:
        await ask(client, where, **more)
    return str(raised.value)


def test_statuses_are_told_as_go_tells_them(hooks: HookServer) -> None:
    hooks.answers |= {
        f"/{code}": {"status": code, "text": "boom"} for code in (302, 403, 404, 418, 500, 503)
    }
    hooks.answers["/own"] = {"status": 400, "json": {"kind": "Status", "message": "own words"}}
    hooks.answers["/words"] = {
        "status": 500,
        "text": "boom\n",
        "headers": {"Content-Type": "text/plain"},
    }

    async def main(client: WebhookClient) -> None:
        told = {
            "/302": "the server answered with a redirect (302), which is not followed",
            "/403": "unknown",
            "/404": "the server could not find the requested resource",
            "/418": (
                "the server responded with the status code 418 but did not return more information"
            ),
            "/500": (
                'an error on the server ("unknown") has prevented the request from succeeding'
            ),
            "/503": "the server is currently unable to handle the request",
            "/own": "own words",
            "/words": 'an error on the server ("boom") has prevented the request from succeeding',
        }
        for path, text in told.items():
            assert await refusal(client, place(hooks, path)) == text

    run(main)


def test_what_takes_too_long_or_is_too_large_is_given_up() -> None:
    async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:  # it never ends
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()

    async def main(client: WebhookClient) -> None:
        async with TcpListener(hang) as server:
            url = f"http://{server.endpoint}/slow"
            told = await refusal(client, Place(url), timeout_s=0.5)
            assert told == f'Post "{url}?timeout=1s": context deadline exceeded'
        async with TcpListener(flood) as server:
            told = await refusal(client, Place(f"http://{server.endpoint}/"), bytes_max=1_000_000)
            assert told == "the answer has more than 1000000 bytes"

    run(main)


def test_connections_are_kept_and_replaced() -> None:
    """A server that closes each connection after one answer, without saying so."""
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"}}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        await reader.read(1)  # the next request is not answered

    async def main(client: WebhookClient) -> None:
        async with TcpListener(answer) as server:
            where = Place(f"http://{server.endpoint}/")
            for _ in range(3):
                assert (await ask(client, where)).body == b"{}"
            assert connections == 3
            await client.close()

    run(main)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "EOF"),
        (b"garbage\r\n\r\n", "malformed HTTP response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "unexpected EOF"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}", "has more than"),
    ],
)
def test_what_is_no_answer_is_an_error(answer: bytes, told: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}")
        writer.write(answer)
        await writer.drain()

    async def main(client: WebhookClient) -> None:
        async with TcpListener(serve) as server:
            assert told in await refusal(client, Place(f"http://{server.endpoint}/"))

    run(main)


def test_whom_is_not_believed_and_why(hooks: HookServer) -> None:
    async def main(client: WebhookClient) -> None:
        stranger = place(hooks, "/x")._replace(ca=b"")
        unknown = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        assert (await refusal(client, stranger)).endswith(unknown)
        named = place(hooks, "/x", "localhost")
        assert "not valid for any names, but wanted to match localhost" in await refusal(
            client, named
        )
        closed = Place(f"https://{hooks.closed_port}/x", b64decode(hooks.ca))
        assert (await refusal(client, closed)).endswith(
            f"dial tcp {hooks.closed_port}: connect: connection refused"
        )
        broken = place(hooks, "/x")._replace(ca=b"-----BEGIN nothing")
        assert "unable to load root certificates" in await refusal(client, broken)

    run(main)


def test_another_bundle_counts_at_once(hooks: HookServer) -> None:
    hooks.answers["/fine"] = {"status": 200, "text": "{}"}

    async def main(client: WebhookClient) -> None:
        assert (await ask(client, place(hooks, "/fine"))).code == 200
        with pytest.raises(CallError):
            await ask(client, place(hooks, "/fine")._replace(ca=b""))
        assert (await ask(client, place(hooks, "/fine"))).code == 200

    run(main)


def test_services_are_reached_at_their_endpoints() -> None:
    view = FakeView()
    services = Services(view)

    def fault(port: int = 443) -> str:
        with pytest.raises(ServiceError) as raised:
            services.endpoints("a", "hook", port)
        return str(raised.value)

    assert fault() == 'service "hook" not found'
    view.put(SERVICES, service("hook"))
    assert fault() == 'no endpoints available for service "hook"'
    assert fault(80) == 'no service port 80 found for service "hook"'
    view.put(SLICES, slice_of("other", "10.0.0.9", 1))
    view.put(SLICES, slice_of("hook", "10.0.0.8", 8443, ready=False))
    assert fault() == 'no endpoints available for service "hook"'
    subset = {"addresses": [{"ip": "10.0.0.6"}], "ports": [{"name": "web", "port": 1}]}
    view.put(ENDPOINTS, {"metadata": {"name": "hook", "namespace": "a"}, "subsets": [subset]})
    assert services.endpoints("a", "hook", 443) == [("10.0.0.6", 1)]
    view.put(SLICES, slice_of("hook", "10.0.0.7", 8443))
    assert services.endpoints("a", "hook", 443) == [("10.0.0.7", 8443)]
    view.put(SERVICES, service("away", type="ExternalName", externalName="e.com"))
    assert services.endpoints("a", "away", 8) == [("e.com", 8)]


def test_a_service_is_dialled_by_its_name_in_the_cluster() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"}}")
        host = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"host:"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(host), host))
        await writer.drain()

    view = FakeView()

    async def main(client: WebhookClient) -> None:
        async with TcpListener(answer) as server:
            view.put(SERVICES, service("hook", 80))
            view.put(SLICES, slice_of("hook", "127.0.0.1", server.port))
            found = await ask(client, Place("http://hook.a.svc:80/"))
            assert found.body == b"Host: hook.a.svc"
            told = await refusal(client, Place("http://none.a.svc:80/"))
            assert told == 'Post "http://none.a.svc:80/?timeout=1s": service "none" not found'

    run(main, view)


def test_places() -> None:
    client = {"service": {"namespace": "a", "name": "hook", "path": "v"}, "caBundle": "eA=="}
    assert place_of(client) == Place("https://hook.a.svc:443/v", b"x")
    assert place_of({"url": "https://e.com/x"}) == Place("https://e.com/x")
    assert place_of({"url": "https://[::1]:8443"}) == Place("https://[::1]:8443/")
    with pytest.raises(ValueError, match="either service or URL"):
        place_of({})
    assert service_of("hook.a.svc") == ("a", "hook")
    assert service_of("hook.a.b.svc") is None
    assert service_of("e.com") is None


def test_paths_are_asked_for_in_their_shortest_form() -> None:
    # envtest writes an address and a path that begins with a slash with another slash between.
    assert place_of({"url": "https://e.com:1//mutate-v1"}) == Place("https://e.com:1/mutate-v1")
    assert place_of({"url": "https://e.com/a/../b/./c/"}) == Place("https://e.com/b/c")
    assert place_of({"url": "https://e.com/a%20b"}) == Place("https://e.com/a%20b")
    service = {"namespace": "a", "name": "hook", "path": "//v//w/"}
    assert place_of({"service": service}) == Place("https://hook.a.svc:443/v/w")
